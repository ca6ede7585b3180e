"""The user's problem: its box, its integers, its signs, and calls of its functions."""

import math
import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problem import Problem, call_objective, check_value, snap
from tcsaea_torch.study import identity
from tcsaea_torch.types import Objective

NAN, INF = math.nan, math.inf
EPS = 2.0**-52


def fast(x):
    return float((x**2).sum())


def slow(x):
    return float(((x - 1) ** 2).sum())


def make(**changes):
    options = {"fast": fast, "slow": slow, "bounds": [[0.0, 0.0], [1.0, 2.0]], "tau": 5}
    return Problem(**{**options, **changes})


def refuses(text):
    return pytest.raises(InvalidInputError, match="^" + re.escape(text))


# ------------------------------------------------------------------ arguments


def test_defaults_and_normalised_fields():
    problem = make()
    assert problem.d == 2
    assert problem.bounds.dtype == torch.float64
    assert problem.names == ("x0", "x1")
    assert problem.integers == ()
    assert problem.directions == ("minimize", "minimize")
    assert problem.signs.tolist() == [1.0, 1.0]
    assert problem.vectorized is False
    assert problem.ref_point is None
    assert problem.grid is None
    assert problem.function_of(Objective.FAST) is fast
    assert problem.function_of(Objective.SLOW) is slow


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("tau", [1, 2.5, np.float32(2.5), torch.tensor(1e6)])
def test_tau_is_any_real_number_from_1(tau):
    assert make(tau=tau).tau == float(tau)
    assert type(make(tau=tau).tau) is float


@pytest.mark.parametrize(
    ("tau", "n_slow", "n_fast"),
    [(1, 7, 7), (2.5, 7, 17), (1.15, 100, 115), (1.16, 25, 29), (4.1, 30, 123), (1.999, 10, 19)],
)
def test_slow_evaluations_pay_for_fast_ones_whatever_the_rounding(tau, n_slow, n_fast):
    assert make(tau=tau).n_fast(n_slow) == n_fast


def test_objectives_may_have_names_for_pictures():
    assert make().objective_names is None
    assert make(objective_names=["mass [kg]", "force [N]"]).objective_names == (
        "mass [kg]", "force [N]",
    )  # fmt: skip


@pytest.mark.parametrize("ref_point", [[1, -2.5], (1, -2.5), np.array([1, -2.5])])
def test_ref_point(ref_point):
    assert make(ref_point=ref_point).ref_point.tolist() == [1.0, -2.5]


@pytest.mark.parametrize(
    ("directions", "signs"),
    [
        (("minimize", "maximize"), [1.0, -1.0]),
        (["maximize", "minimize"], [-1.0, 1.0]),
        (("maximize", "maximize"), [-1.0, -1.0]),
    ],
)
def test_directions(directions, signs):
    problem = make(directions=directions)
    assert problem.directions == tuple(directions)
    assert problem.signs.tolist() == signs


def test_integers_are_sorted_and_distinct():
    problem = make(bounds=[[0, 0, 0], [5, 5, 5]], integers=[2, 0, 2])
    assert problem.integers == (0, 2)
    assert make(bounds=[[0, 0], [5, 5]], integers=range(2)).integers == (0, 1)


def test_integers_may_be_given_by_name():
    box = {"bounds": [[0, 0, 0, 0], [5, 1, 5, 5]], "names": ("layers", "width", "holes", "k")}
    by_name = make(**box, integers=["holes", np.str_("layers"), 3, "layers"])
    assert by_name.integers == (0, 2, 3)
    assert all(type(k) is int for k in by_name.integers)
    assert identity(by_name) == identity(make(**box, integers=[0, 2, 3]))
    assert make(bounds=[[0, 0], [5, 5]], integers=["x1"]).integers == (1,)
    with refuses("bounds must be integers in integer dimension 1, got (0.0, 0.5)"):
        make(bounds=[[0, 0], [1, 0.5]], integers=["x1"])


def test_a_problem_does_not_change():
    bounds = np.array([[0.0, 0.0], [1.0, 2.0]])
    problem = make(bounds=bounds)
    bounds[1] = 100.0
    assert problem.bounds[1].tolist() == [1.0, 2.0]
    with pytest.raises(FrozenInstanceError):
        problem.tau = 3  # pyright: ignore[reportAttributeAccessIssue]


BAD_ARGUMENTS = [
    ({"fast": None}, "fast must be callable, got None (NoneType)"),
    ({"slow": 3}, "slow must be callable, got 3 (int)"),
    ({"bounds": None}, "bounds must be an array of real numbers, got None (NoneType)"),
    ({"bounds": [0.0, 1.0]}, "bounds must have shape (2, d)"),
    ({"bounds": [[], []]}, "bounds must have shape (2, d)"),
    (
        {"bounds": [[0, 2], [1, 1]]},
        "bounds must have lower <= upper, got (2.0, 1.0) in dimension 1",
    ),
    ({"bounds": [[0, 0], [INF, 1]]}, "bounds must be finite, got (0.0, inf) in dimension 0"),
    ({"tau": 0.99}, "tau must be a finite real number >= 1, got 0.99 (float)"),
    ({"tau": NAN}, "tau must be a finite real number >= 1, got nan (float)"),
    ({"tau": INF}, "tau must be a finite real number >= 1, got inf (float)"),
    ({"tau": True}, "tau must be a finite real number >= 1, got True (bool)"),
    ({"tau": "5"}, "tau must be a finite real number >= 1, got '5' (str)"),
    ({"tau": None}, "tau must be a finite real number >= 1, got None (NoneType)"),
    ({"names": ["a"]}, "names must be a sequence of 2 distinct strings, got ['a'] (list)"),
    ({"names": "ab"}, "names must be a sequence of 2 distinct strings, got 'ab' (str)"),
    ({"names": ["a", "a"]}, "names must be distinct, got 'a' twice"),
    ({"names": ["a", "slow"]}, "names must not use 'slow', a column of result tables"),
    ({"integers": 0}, "integers must be a sequence of dimensions or names, got 0 (int)"),
    ({"integers": "0"}, "integers must be a sequence of dimensions or names, got '0' (str)"),
    ({"integers": [-1]}, "integers must be an integer >= 0, got -1 (int)"),
    ({"integers": [0.5]}, "integers must be an integer >= 0, got 0.5 (float)"),
    ({"integers": [2]}, "integers must be dimensions below 2, got 2"),
    (
        {"names": ("length", "Layers"), "integers": [0, "layrs"]},
        "integers must be one of Layers, length, got 'layrs'; did you mean 'Layers'?",
    ),
    ({"integers": ["y"]}, "integers must be one of x0, x1, got 'y'"),
    (
        {"integers": [1], "bounds": [[0, 0], [1, 1.5]]},
        "bounds must be integers in integer dimension 1, got (0.0, 1.5)",
    ),
    ({"directions": "minimize"}, "directions must be a pair such as ('minimize', 'maximize')"),
    ({"directions": ("minimize",)}, "directions must be a pair such as ('minimize', 'maximize')"),
    (
        {"directions": ("minimise", "maximize")},
        "directions must be one of maximize, minimize, got 'minimise'; did you mean 'minimize'?",
    ),
    ({"vectorized": 1}, "vectorized must be True or False, got 1 (int)"),
    ({"vectorized": "no"}, "vectorized must be True or False, got 'no' (str)"),
    ({"ref_point": [1.0]}, "ref_point must have shape (2,), got shape (1,)"),
    ({"ref_point": [1.0, NAN]}, "ref_point must be finite, got [1.0, nan]"),
    ({"ref_point": "far"}, "ref_point must be an array of real numbers, got 'far' (str)"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS, ids=lambda case: str(case)[:40])
@pytest.mark.usefixtures("unchecked")
def test_bad_arguments(changes, message):
    with refuses(message):
        make(**changes)


@pytest.mark.parametrize("directions", [None, 5])
@pytest.mark.usefixtures("unchecked")
def test_directions_that_are_no_sequence(directions):
    with refuses("directions must be a pair such as ('minimize', 'maximize')"):
        make(directions=directions)


# ------------------------------------------------------------------ the box

coordinates = st.floats(-8e307, 8e307)
sides = st.tuples(coordinates, coordinates).map(sorted)
units = st.floats(0.0, 1.0)
many = settings(max_examples=200, deadline=None, derandomize=True)


boxes = st.lists(sides, min_size=1, max_size=4)
rows = st.lists(st.lists(units, min_size=4, max_size=4), min_size=1, max_size=5)


def boxed(box, rows=()):
    """Make a problem and points of its cube."""
    problem = make(bounds=list(zip(*box, strict=True)))
    return problem, torch.tensor(rows, dtype=torch.float64)[..., : len(box)]


@many
@given(boxes, rows)
def test_no_point_leaves_the_box(box, rows):
    problem, U = boxed(box, rows)
    low, high = problem.bounds
    X = problem.from_unit(U)
    assert (X >= low).all()
    assert (X <= high).all()
    back = problem.to_unit(X)
    assert (back >= 0).all()
    assert (back <= 1).all()


@many
@given(boxes)
def test_the_bounds_are_met_exactly(box):
    problem, _ = boxed(box)
    ends = torch.tensor([[0.0], [1.0]]).double().expand(2, problem.d)
    assert torch.equal(problem.from_unit(ends), problem.bounds)
    is_free = problem.bounds[1] > problem.bounds[0]
    assert torch.equal(problem.to_unit(problem.bounds), ends * is_free)


@many
@given(boxes, rows)
def test_round_trips(box, rows):
    problem, U = boxed(box, rows)
    low, high = problem.bounds
    X = problem.from_unit(U)
    size = torch.maximum(low.abs(), high.abs())
    smallest = 5e-324  # the step of subnormal numbers
    assert ((problem.from_unit(problem.to_unit(X)) - X).abs() <= 4 * EPS * size + smallest).all()
    # Back in the cube, the error is relative to the side.
    error, span = (problem.to_unit(X) - U).abs(), high - low
    allowed = 4 * EPS + (2 * EPS * size + smallest) / torch.where(span > 0, span, INF)
    assert (error[:, span > 0] <= allowed[span > 0]).all()


def test_points_outside_stay_outside_in_the_cube_but_do_not_come_back():
    problem = make(bounds=[[0.0, 10.0], [2.0, 20.0]])
    U = problem.to_unit(torch.tensor([[-1.0, 25.0]]).double())
    assert U.tolist() == [[-0.5, 1.5]]
    assert problem.from_unit(U).tolist() == [[0.0, 20.0]]


def test_maps_take_any_batch_on_any_device_and_give_float64(device):
    problem = make(bounds=[[0.0, -3.0, 4.0], [1.0, 3.0, 4.0]], integers=[1])
    for shape in ((3,), (5, 3), (2, 5, 3), (0, 3)):
        U = torch.full(shape, 0.25, device=device)
        X = problem.from_unit(U)
        assert X.shape == U.shape
        assert X.dtype == torch.float64
        assert X.device == U.device
        expected = torch.tensor([0.25, -2.0, 4.0], dtype=torch.float64, device=device)
        assert torch.equal(X, expected.expand(shape))
        assert torch.allclose(problem.to_unit(X).cpu(), torch.tensor([0.25, 1 / 6, 0.0]).double())


# ------------------------------------------------------------------ integers and fixed values


def test_grid():
    problem = make(bounds=[[0, -3, 4, 7], [1, 3, 4, 7]], integers=[1, 3])
    assert problem.grid is not None
    assert problem.grid.tolist() == [INF, 6.0, 0.0, 0.0]
    assert make(bounds=[[0], [1]]).grid is None


def test_snapping_nothing_changes_nothing():
    U = torch.rand(5, 2, generator=torch.Generator().manual_seed(0))
    assert snap(U, None) is U
    assert torch.equal(snap(U, torch.tensor([INF, INF])), U)


integer_boxes = st.lists(
    st.tuples(st.integers(-(10**6), 10**6), st.integers(0, 1000)), min_size=1, max_size=4
)


@many
@given(integer_boxes, st.lists(units, min_size=4, max_size=4))
def test_snapped_points_are_integers_next_to_where_they_were(box, row):
    low = [a for a, _ in box]
    high = [a + width for a, width in box]
    problem = make(bounds=[low, high], integers=range(len(box)))
    U = torch.tensor(row[: len(box)], dtype=torch.float64)
    snapped, span = snap(U, problem.grid), problem.bounds[1] - problem.bounds[0]
    assert ((snapped - U).abs()[span > 0] <= 0.5 / span[span > 0] + EPS).all()
    assert torch.equal(snap(snapped, problem.grid), snapped)
    X = problem.from_unit(snapped)
    assert torch.equal(X, X.round())
    # The integer that is run is the one that the cube's point stands for, and no other.
    assert torch.equal(snap(problem.to_unit(X), problem.grid), snapped)
    assert torch.equal(problem.from_unit(problem.to_unit(X)), X)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_integer_is_reached_and_inner_ones_equally_often(dtype):
    problem = make(bounds=[[-2], [3]], integers=[0])
    U = torch.linspace(0.0, 1.0, 10_001, dtype=dtype).unsqueeze(-1)
    snapped = snap(U, problem.grid)
    assert snapped.dtype == dtype
    values, counts = problem.from_unit(snapped).unique(return_counts=True)
    assert values.tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    # Rounding gives the ends half a cell.
    assert counts.tolist() == pytest.approx([1000, 2000, 2000, 2000, 2000, 1000], abs=2)


def test_unsnapped_points_are_rounded_within_the_box():
    problem = make(bounds=[[0, 0.0], [3, 1.0]], integers=[0])
    X = problem.from_unit(torch.tensor([[0.49, 0.5], [0.51, 0.75]]).double())
    assert X.tolist() == [[1.0, 0.5], [2.0, 0.75]]


def test_fixed_parameters_keep_their_value_exactly():
    value = 0.1 + 0.2
    problem = make(bounds=[[value, 0.0], [value, 1.0]])
    U = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert (problem.from_unit(U)[:, 0] == value).all()
    snapped = snap(U, problem.grid)
    assert (snapped[:, 0] == 0).all()
    assert torch.equal(snapped[:, 1], U[:, 1])


# ------------------------------------------------------------------ calls

POINTS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64)


def test_functions_of_one_point_get_numpy_arrays_one_by_one():
    seen = []

    def function(x):
        seen.append(x)
        return {"value": len(seen)}

    values = call_objective(function, POINTS, vectorized=False)
    assert values == [{"value": 1}, {"value": 2}, {"value": 3}]
    assert all(type(x) is np.ndarray and x.dtype == np.float64 and x.shape == (2,) for x in seen)
    assert np.stack(seen).tolist() == POINTS.tolist()


def test_what_a_function_raises_comes_through():
    with pytest.raises(ZeroDivisionError):
        call_objective(lambda x: 1 / 0, POINTS, vectorized=False)
    with pytest.raises(ZeroDivisionError):
        call_objective(lambda x: 1 / 0, POINTS, vectorized=True)


def test_vectorized_functions_get_the_tensor_itself(device):
    seen = []
    X = POINTS.to(device)
    call_objective(lambda X: seen.append(X) or X[:, 0], X, vectorized=True)
    assert len(seen) == 1
    assert seen[0] is X


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.0, 3],
        (1.0, 2.0, 3.0),
        np.array([1.0, 2.0, 3.0]),
        np.array([[1], [2], [3]]),
        torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
        torch.tensor([[1.0], [2.0], [3.0]]),
        [torch.tensor(1.0), np.float32(2.0), 3],
    ],
    ids=lambda values: type(values).__name__,
)
def test_vectorized_functions_may_return_any_n_numbers(values):
    assert call_objective(lambda X: values, POINTS, vectorized=True) == [1.0, 2.0, 3.0]


def test_vectorized_functions_may_return_nan_for_some():
    values = call_objective(lambda X: [1.0, NAN, INF], POINTS, vectorized=True)
    assert values[::2] == [1.0, INF]
    assert math.isnan(values[1])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, 2.0], "an objective must return 3 values for 3 points, got shape (2,)"),
        (5.0, "an objective must return 3 values for 3 points, got shape ()"),
        (None, "an objective must return 3 numbers for 3 points, got None (NoneType)"),
        (torch.ones(1, 3), "an objective must return 3 values for 3 points, got shape (1, 3)"),
        (np.ones((3, 2)), "an objective must return 3 values for 3 points, got shape (3, 2)"),
        ("bad", "an objective must return 3 numbers for 3 points, got 'bad' (str)"),
        ([1j, 2, 3], "an objective must return 3 numbers for 3 points, got [1j, 2, 3] (list)"),
        ([[1.0], [2.0, 3.0]], "an objective must return 3 numbers for 3 points, got "),
    ],
    ids=lambda case: str(case)[:30],
)
def test_vectorized_functions_must_return_n_numbers(values, message):
    with refuses(message):
        call_objective(lambda X: values, POINTS, vectorized=True)


@pytest.mark.parametrize(
    "values",
    [["1", "2", "3"], np.array([1j, 2, 3]), torch.ones(3) * 1j, [True, False, True]],
    ids=["text", "complex array", "complex tensor", "booleans"],
)
def test_vectorized_functions_return_what_single_ones_may(values):
    with refuses("an objective must return 3 numbers for 3 points, got "):
        call_objective(lambda X: values, POINTS, vectorized=True)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array([2.0]), torch.tensor([[2.0]])])
def test_a_value_is_one_finite_real_number(objective, value):
    assert check_value(objective, value) == 2.0


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (NAN, "slow must be a finite real number, got nan (float)"),
        (-INF, "slow must be a finite real number, got -inf (float)"),
        ("2", "slow must be one real number, got '2' (str)"),
        (None, "slow must be one real number, got None (NoneType)"),
        (True, "slow must be one real number, got True (bool)"),
        (2j, "slow must be one real number, got 2j (complex)"),
        (np.ones(2), "slow must be one real number, got ndarray of shape (2,)"),
        ([2.0], "slow must be one real number, got [2.0] (list)"),
    ],
)
def test_anything_else_is_no_value(value, message):
    with refuses(message):
        check_value(Objective.SLOW, value)


def test_functions_by_objective_or_its_name():
    problem = make()
    for name in ("fast", "slow"):
        assert problem.function_of(name) is getattr(problem, name)
        assert problem.function_of(Objective(name)) is getattr(problem, name)
    assert problem.fast is not problem.slow


def test_objectives_know_their_columns():
    assert [objective.column for objective in (Objective.FAST, Objective.SLOW)] == [0, 1]
    assert Objective("fast") == "fast"
