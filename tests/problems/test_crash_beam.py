"""The crash box: its physics against closed forms, and what it is like to optimise."""

import pickle
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems.base import get
from tcsaea_torch.problems.crash_beam import (
    DENSITY,
    GRAVITY,
    REF_POINT,
    REQUIRED_STIFFNESS,
    STRINGER_WIDTH,
    YOUNG,
    CrashBeam,
    CrashResult,
    geometry,
    mean_crush_force,
    simulate_crash,
    stiffened_mass,
)

LOW, HIGH = np.array([1.0, 250.0]), np.array([2.5, 600.0])


def designs(unit: np.ndarray) -> np.ndarray:
    """Map the unit cube onto the box of the problem."""
    k = unit.shape[1] // 2
    return np.repeat(LOW, k) + np.repeat(HIGH - LOW, k) * unit


def crash(X: np.ndarray, **options: float) -> CrashResult:
    """Simulate the crashes of points of the box."""
    return simulate_crash(*np.split(X, 2, axis=1), **options)


def evaluate(X: np.ndarray) -> np.ndarray:
    """Return mass and peak deceleration of every design."""
    return np.stack([stiffened_mass(*np.split(X, 2, axis=1)), crash(X).peak_deceleration], axis=1)


def non_dominated(Y: np.ndarray) -> np.ndarray:
    """Say which rows no other row dominates."""
    better = (Y[:, None] <= Y).all(axis=2) & (Y[:, None] < Y).any(axis=2)
    return np.logical_not(better.any(axis=0))


def polish(objective: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> float:
    """Improve the point u of the unit cube by ever shorter random moves; return its value."""
    rng = np.random.default_rng(5)
    best = float(objective(designs(u[None]))[0])
    for length in np.geomspace(0.2, 0.02, 10):
        moves = rng.normal(0.0, length, (32, u.size)) * (rng.random((32, u.size)) < 0.4)
        moved = np.clip(u + moves, 0.0, 1.0)
        values = objective(designs(moved))
        if values.min() < best:
            best, u = float(values.min()), moved[values.argmin()]
    return best


@pytest.fixture(scope="module")
def unit() -> np.ndarray:
    return np.random.default_rng(20240229).random((2000, 12))


@pytest.fixture(scope="module")
def result(unit: np.ndarray) -> CrashResult:
    return crash(designs(unit))


@pytest.fixture(scope="module")
def Y(unit: np.ndarray, result: CrashResult) -> np.ndarray:
    return np.stack(
        [stiffened_mass(*np.split(designs(unit), 2, axis=1)), result.peak_deceleration], axis=1
    )


@pytest.fixture(scope="module")
def ideal(unit: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Best value of each objective alone, after a local search from the best random design."""
    mass = polish(lambda X: stiffened_mass(*np.split(X, 2, axis=1)), unit[Y[:, 0].argmin()])
    # The lightest tubes have mild steel only, which a corner of the box gives at once.
    mild = np.concatenate([np.linspace(0.0, 0.8, 6), np.zeros(6)])
    mass = min(mass, polish(lambda X: stiffened_mass(*np.split(X, 2, axis=1)), mild))
    peak = polish(lambda X: crash(X).peak_deceleration, unit[Y[:, 1].argmin()])
    return np.array([mass, peak])


def corners(n_segments: int) -> np.ndarray:
    """Return all corners of the box for up to 6 segments, else 1,000 of them."""
    codes = np.arange(4**n_segments)
    if n_segments > 6:
        some = np.random.default_rng(n_segments).choice(codes[1:-1], 998, replace=False)
        codes = np.concatenate([codes[[0, -1]], some])
    return designs((codes[:, None] >> np.arange(2 * n_segments) & 1).astype(float))


def check_energy(result: CrashResult) -> None:
    """Assert the balance of the energies at the end and at all samples."""
    total = result.kinetic + result.elastic + result.plastic + result.damping
    np.testing.assert_allclose(total, result.initial_energy, rtol=1e-3)
    assert result.energy_error.max() < 1e-3
    for part in (result.kinetic, result.elastic, result.plastic, result.damping):
        assert (part >= 0.0).all()


def test_energy_is_conserved_in_random_designs(unit: np.ndarray, result: CrashResult) -> None:
    check_energy(result)
    assert (result.plastic > 0.9 * result.initial_energy).all()
    assert (result.rebound_speed > 0.0).all()
    lengths, widths = geometry(6)
    segments = DENSITY * 4e-3 * lengths * widths * designs(unit)[:, :6]
    moving = 600.0 + segments.sum(axis=1) - 0.5 * segments[:, 0]  # its front end is at the wall
    np.testing.assert_allclose(result.initial_energy, 0.5 * moving * 10.0**2)


@pytest.mark.parametrize("n_segments", [5, 6, 7, 8])
def test_corners_of_the_box(n_segments: int) -> None:
    X = corners(n_segments)
    result = crash(X)
    check_energy(result)
    assert all(np.isfinite(getattr(result, field.name)).all() for field in fields(result))
    assert np.isfinite(stiffened_mass(*np.split(X, 2, axis=1))).all()
    assert (result.rebound_speed > 0.0).all()
    assert ((result.crush >= 0.0) & (result.crush < 0.9)).all()
    assert (result.peak_deceleration < 400.0).all()


def test_peak_converges_as_the_step_halves(unit: np.ndarray) -> None:
    X = designs(np.concatenate([unit[:24], unit[24:40].round()]))  # random designs and corners
    scales = (1.0, 0.5, 0.25, 0.125)
    runs = [crash(X, time_step_scale=scale) for scale in scales]
    *peaks, finest = (run.peak_deceleration for run in runs)
    errors = [abs(peak / finest - 1.0) for peak in peaks]
    assert errors[0].max() < 1e-3
    for coarse, fine in pairwise(errors):
        assert fine.mean() < 0.6 * coarse.mean()
        assert fine.max() < 0.6 * coarse.max()
    assert [run.time_step for run in runs] == pytest.approx([runs[0].time_step * s for s in scales])
    energy = [run.energy_error.max() for run in runs]
    assert energy == sorted(energy, reverse=True)


def test_peak_is_smooth_along_a_line() -> None:
    a, b = designs(np.random.default_rng(1).random((2, 12)))
    peak = crash(a + (b - a) * np.linspace(0.0, 1.0, 101)[:, None]).peak_deceleration
    assert np.ptp(peak) > 0.02 * peak.min()
    bend = peak[2:] - 2 * peak[1:-1] + peak[:-2]
    assert abs(bend / peak[1:-1]).max() < 1e-3


def test_no_random_design_is_near_the_ideal_point(Y: np.ndarray, ideal: np.ndarray) -> None:
    assert (ideal <= Y.min(axis=0)).all()
    assert not (Y <= 1.1 * ideal).all(axis=1).any()
    assert not (Y <= ideal + 0.1 * (Y.max(axis=0) - ideal)).all(axis=1).any()


def test_objectives_conflict(Y: np.ndarray, ideal: np.ndarray) -> None:
    lightest, softest = Y[Y[:, 0].argmin()], Y[Y[:, 1].argmin()]
    assert lightest[1] > 1.5 * ideal[1]
    assert softest[0] > 1.3 * ideal[0]
    front = Y[non_dominated(Y)]
    assert len(front) >= 20
    # No one is good enough at one objective to make the other a side issue.
    assert (np.ptp(front, axis=0) > 0.3 * ideal).all()
    assert (Y < REF_POINT).all(axis=1).mean() > 0.75


def test_random_search_leaves_much_to_find(Y: np.ndarray) -> None:
    good = np.array(
        [
            [1.0, 1.0, 1.37, 1.85, 2.11, 2.13, 319, 346, 250, 250, 261, 250],
            [1.25, 1.16, 1.62, 1.98, 2.11, 2.09, 600, 552, 364, 392, 302, 284],
            [1.65, 1.36, 1.77, 1.88, 2.02, 2.01, 600, 527, 476, 430, 343, 302],
        ]
    )
    searches = Y[:1980].reshape(33, 60, 2)
    for y in evaluate(good):
        assert not (Y <= y).all(axis=1).any()
        affordable = np.where(searches[..., 0] <= y[0], searches[..., 1], np.inf)
        assert np.median(affordable.min(axis=1)) > 1.1 * y[1]


def test_order_of_the_segments_matters(unit: np.ndarray, Y: np.ndarray) -> None:
    mirrored = unit[:200].reshape(200, 2, 6)[:, :, ::-1].reshape(200, 12)
    change = abs(evaluate(designs(mirrored)) / Y[:200] - 1.0)
    assert (np.median(change, axis=0) > 0.01).all()


def test_every_variable_acts(unit: np.ndarray, Y: np.ndarray) -> None:
    moved = np.repeat(unit[None, :20], 12, axis=0)  # variable x design x dimension
    for i in range(12):
        moved[i, :, i] = 1.0 - moved[i, :, i]
    change = abs(evaluate(designs(moved.reshape(-1, 12))).reshape(12, 20, 2) / Y[:20] - 1.0)
    assert (change.max(axis=1) > 0.01).all()


@pytest.mark.parametrize("n_segments", [1, 6])
def test_elastic_chain_is_one_spring(n_segments: int) -> None:
    mass, speed = 1e6, 0.1  # against a tube of a few kg, whose own waves are then negligible
    thickness = np.linspace(1.5, 2.0, n_segments)[None]
    result = simulate_crash(
        thickness, np.full_like(thickness, 1e6), vehicle_mass=mass, impact_speed=speed, end_time=0.5
    )
    lengths, widths = geometry(n_segments)
    stiffness = 1.0 / (lengths / (YOUNG * 4e-3 * widths * thickness[0])).sum()
    expected = speed * np.sqrt(stiffness / mass) / GRAVITY
    assert result.peak_deceleration[0] == pytest.approx(expected, rel=5e-3)
    assert result.plastic[0] == 0.0
    assert result.rebound_speed[0] == pytest.approx(speed, rel=5e-3)


def test_constant_plateau_stops_the_vehicle_with_its_force() -> None:
    mass, speed, t, sigma = 1e5, 0.2, 2.0, 300.0
    (length,), (width,) = geometry(1)
    result = simulate_crash(
        [[t]], [[sigma]], vehicle_mass=mass, impact_speed=speed, hardening=0.0, end_time=1.0
    )
    force = mean_crush_force(t, sigma, width)
    assert result.peak_deceleration[0] == pytest.approx(force / mass / GRAVITY, rel=5e-3)
    elastic = 0.5 * force**2 / (YOUNG * 4e-3 * width * t / length)
    stop = (0.5 * mass * speed**2 - elastic) / force
    assert result.crush[0, 0] * length == pytest.approx(stop, rel=5e-3)


def test_mean_force_over_the_crush_stroke_is_the_literatures() -> None:
    # By hand: 52.22 / 4 * 300 MPa * (2 mm)^(5/3) * (80 mm)^(1/3) = 53.6 kN.
    assert mean_crush_force(2.0, 300.0, 0.08) == pytest.approx(53.58e3, rel=1e-3)
    (length,), (width,) = geometry(1)
    work = mean_crush_force(2.0, 300.0, width) * 0.73 * length
    speed = float(np.sqrt(2 * work / 1e5))
    result = simulate_crash([[2.0]], [[300.0]], vehicle_mass=1e5, impact_speed=speed, end_time=3.0)
    assert result.crush[0, 0] == pytest.approx(0.73, rel=5e-3)


def test_weaker_segments_crush_more_and_lighter_tubes_bottom_out() -> None:
    thickness = np.array([[2.0, 2.0, 1.2, 2.0, 2.0, 2.0], [1.0] * 6, [1.5] * 6])
    result = simulate_crash(thickness, np.full((3, 6), 400.0))
    assert result.crush[0].argmax() == 2
    assert (result.crush[1] > 0.8).all()
    assert result.peak_deceleration[1] > 1.5 * result.peak_deceleration[2]


def test_a_vehicle_still_driving_at_the_end_time_is_left_as_it_is() -> None:
    result = simulate_crash(np.full((1, 6), 1.5), np.full((1, 6), 400.0), end_time=0.01)
    assert result.n_steps[0] * result.time_step == pytest.approx(0.01, abs=result.time_step)
    assert result.rebound_speed[0] < -5.0
    assert result.energy_error[0] < 1e-3


def test_mass_is_that_of_tube_grade_and_stringer() -> None:
    thickness = np.array([[1.5, 1.2, 1.0, 1.1, 1.2, 1.1]])
    strength = np.array([[250.0, 350.0, 250.0, 450.0, 600.0, 250.0]])
    lengths, widths = geometry(6)
    grade = 1.0 + 0.15 * np.array([0.0, 1.0, 0.0, 2.0, 3.5, 0.0])
    tube = (DENSITY * 4 * widths * thickness[0] / 1e3 * lengths * grade).sum()
    # Unit-load theorem for the deflection of the tip, by the midpoint rule.
    x = (np.arange(60000) + 0.5) * 1e-5
    at = np.minimum(np.searchsorted(lengths.cumsum(), x), 5)
    inertia = 2 / 3 * widths[at] ** 3 * thickness[0, at] / 1e3
    lack = REQUIRED_STIFFNESS - 1.0 / (x**2 / (YOUNG * inertia) * 1e-5).sum()
    rounded = (lack + np.sqrt(lack**2 + (0.1 * REQUIRED_STIFFNESS) ** 2)) / 2
    assert 0.0 < rounded - lack < 0.03 * lack
    stringer = rounded * 2 * DENSITY * 0.6**4 / (YOUNG * STRINGER_WIDTH**2)
    assert stiffened_mass(thickness, strength)[0] == pytest.approx(tube + stringer, rel=1e-4)


def test_stiff_tubes_need_no_stringer_and_strength_costs() -> None:
    thickness = np.full((1, 6), 5.0)
    lengths, widths = geometry(6)
    tube = (DENSITY * 4 * widths * 5e-3 * lengths).sum()
    mild = stiffened_mass(thickness, np.full((1, 6), 250.0))
    assert mild[0] == pytest.approx(tube, rel=1e-2)
    assert stiffened_mass(thickness, np.full((1, 6), 350.0)) == pytest.approx(mild + 0.15 * tube)


def test_batch_equals_one_by_one_and_repeats(unit: np.ndarray, result: CrashResult) -> None:
    rows = np.arange(0, 2000, 200)
    again = crash(designs(unit[rows]))
    for field in fields(CrashResult):
        if field.name != "time_step":
            whole = getattr(result, field.name)[rows]
            np.testing.assert_allclose(getattr(again, field.name), whole, rtol=1e-9, atol=1e-9)
    problem = CrashBeam()
    for x, peak in zip(designs(unit[rows]), again.peak_deceleration, strict=True):
        assert problem.slow(x) == pytest.approx(peak, rel=1e-12)
    assert problem.slow(designs(unit)[0]) == problem.slow(designs(unit)[0])


@pytest.mark.parametrize("n_segments", [5, 6, 7, 8])
def test_problem(n_segments: int) -> None:
    problem = get("crash-beam", tau=20.0, n_segments=n_segments)
    assert isinstance(problem, CrashBeam)
    assert (problem.d, problem.tau, problem.vectorized) == (2 * n_segments, 20.0, False)
    numbers = range(1, n_segments + 1)
    expected = [f"{what}_{i}" for what in ("thickness", "yield") for i in numbers]
    assert list(problem.names or ()) == expected
    assert problem.ref_point.tolist() == list(REF_POINT)
    X = problem.from_unit(
        torch.rand(1, problem.d, generator=torch.Generator().manual_seed(0)).double()
    )
    Y = problem.evaluate(X)
    np.testing.assert_allclose(Y.numpy(), evaluate(X.numpy()), rtol=1e-9)
    copy = pickle.loads(pickle.dumps(problem))
    assert copy.fast(X[0].numpy()) == problem.fast(X[0].numpy())
    assert type(problem.fast(X[0].numpy())) is float
    with pytest.raises(AttributeError, match="CrashBeam"):
        problem.pareto_front(10)


def test_defaults() -> None:
    problem = CrashBeam()
    assert (problem.d, problem.tau) == (12, 5.0)
    expected = np.repeat(np.stack([LOW, HIGH]), 6, axis=1)
    np.testing.assert_array_equal(problem.bounds.numpy(), expected)


@pytest.mark.parametrize("n_segments", [4, 9, -1])
def test_refuses_other_numbers_of_segments(n_segments: int) -> None:
    with pytest.raises(InvalidInputError, match="n_segments must be from 5 to 8"):
        CrashBeam(n_segments=n_segments)


def test_refuses_a_slow_objective_faster_than_the_fast_one() -> None:
    with pytest.raises(InvalidInputError, match="tau"):
        CrashBeam(tau=0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vehicle_mass", 0.0),
        ("impact_speed", -1.0),
        ("impact_speed", float("nan")),
        ("hardening", -0.1),
        ("time_step_scale", 0.0),
        ("time_step_scale", 1.5),
        ("end_time", 0.0),
        ("end_time", float("inf")),
    ],
)
def test_refuses_conditions_that_make_no_sense(name: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=name):
        simulate_crash([[1.0]], [[300.0]], **{name: value})


@pytest.mark.parametrize("function", [simulate_crash, stiffened_mass])
@pytest.mark.parametrize(
    ("thickness", "yield_strength", "message"),
    [
        ([1.0], [[300.0]], "thickness must have shape"),
        ([[]], [[]], "thickness must have shape"),
        ([["thin"]], [[300.0]], "thickness must be an array"),
        ([[0.0]], [[300.0]], "thickness must be positive and finite, got 0.0"),
        ([[1.0]], [[float("nan")]], "yield_strength must be positive and finite, got nan"),
        ([[1.0]], [[float("inf")]], "yield_strength must be positive and finite, got inf"),
        ([[1.0]], 300.0, "yield_strength must have shape"),
        ([[1.0, 1.0]], [[300.0]], r"yield_strength must have shape \(1, 2\)"),
    ],
)
def test_refuses_impossible_designs(
    function: Callable[..., object], thickness: object, yield_strength: object, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        function(thickness, yield_strength)
