"""What every problem must do. A problem that is not in this suite fails the last test."""

import copy
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch import Problem, minimize, problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.metrics import hypervolume, igd, is_non_dominated
from tcsaea_torch.problems.fronts import stored_set
from tests.conftest import load_reference

REFERENCE = {case["name"].lower(): case for case in load_reference("problems")["problems"]}
FAMILIES = load_reference("families")["problems"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is known of a problem."""

    d: int
    pareto_set: Callable[[Problem, torch.Tensor], torch.Tensor] | None
    """Points whose objectives are given points of the front; None: not known."""
    n_front: Callable[[int], int] = lambda n: n
    """Size of `pareto_front(n)`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Other options than `tau`, none of them the default."""
    n_points: int = 40
    """Points that are cheap enough to evaluate."""
    gap: float = 0.0
    """How far behind the true front the stored one may lie, over the front's range."""
    is_front_cut: bool = False
    """Whether the established reference point leaves out ends of the front."""


def middle(value, position):
    """Return the set on which all variables but the first have one value."""

    def points(problem, front):
        X = torch.full((len(front), problem.d), value, dtype=torch.float64)
        X[:, 0] = position(front[:, 0])
        return X

    return points


def uf_set(problem, front):
    """Return Pareto-optimal points of UF1 to UF7, from the formulas of CES-487."""
    f1, name, d = front[:, :1], problem.name, 30
    x1 = f1**5 if name == "uf7" else f1
    j = torch.arange(2, d + 1).double()
    if name == "uf2":
        size = 0.3 * x1**2 * torch.cos(24 * math.pi * x1 + 4 * j * math.pi / d) + 0.6 * x1
        angle = 6 * math.pi * x1 + j * math.pi / d
        rest = size * torch.where(j % 2 == 1, angle.cos(), angle.sin())
    elif name == "uf3":
        rest = x1 ** (0.5 * (1 + 3 * (j - 2) / (d - 2)))
    else:
        rest = torch.sin(6 * math.pi * x1 + j * math.pi / d)
    return torch.cat([x1, rest], dim=-1)


def onemax_set(problem, front):
    """Return points that share f1 among the variables whose map is 1."""
    share = front[:, :1] / problem.map.sum().clamp_min(1)
    return share * problem.map


def stored_set_of(problem, front):
    """Return those of the stored points that the front is made of."""
    X = stored_set(problem.name)
    return X[torch.cdist(front, problem.evaluate(X)).argmin(dim=-1)]


def solve(function, value, low, high):
    """Return where a function that rises from low to high has these values, by bisection."""
    a, b = torch.full_like(value, low), torch.full_like(value, high)
    for _ in range(80):
        middle = (a + b) / 2
        is_below = function(middle) < value
        a, b = torch.where(is_below, middle, a), torch.where(is_below, b, middle)
    return (a + b) / 2


def zdt6_first(f1):
    """Return the least x1 with these values: f1 falls from 1 at 0 to its minimum."""
    end = 0.08145779745619726

    def first(x):
        return 1 - torch.exp(-4 * x) * torch.sin(6 * math.pi * x) ** 6

    return end - solve(lambda u: first(end - u), f1, 0.0, end)


def wfg_set(problem, front):
    """Return points whose distance is 0, from the formulas of Huband et al. (2006)."""
    name = problem.name
    if name == "wfg2":
        t = torch.acos((1 - front[:, 0] / 2).clamp(-1, 1)) * 2 / math.pi
    else:
        t = torch.asin((front[:, 0] / 2).clamp(-1, 1)) * 2 / math.pi
    y = torch.full((len(front), 6), 0.35, dtype=torch.float64)
    if name == "wfg2":
        y[:, 0] = y[:, 1] = t
    elif name == "wfg4":

        def multimodal(v):
            share = (v - 0.35).abs() / (2 * ((0.35 - v).floor() + 0.35))
            return (1 + torch.cos(122 * math.pi * (0.5 - share)) + 40 * share**2) / 12

        y[:, 0] = y[:, 1] = 0.35 - solve(lambda u: multimodal(0.35 - u), t, 0.0, 0.35)
    else:
        y[:, 0] += 0.001 * t  # beside the narrow optimum of the deceptive transformation
        a = 0.98 / 49.98
        for i in range(4, -1, -1):  # a bias depends on all variables behind
            mean = y[:, i + 1 :].mean(dim=-1)
            v = a - (1 - 2 * mean) * ((0.5 - mean).floor() + a).abs()
            y[:, i] = y[:, i] ** (1 / (0.02 + 49.98 * v))
    return y * 2 * torch.arange(1, 7)


def truss_set(problem, front):
    """Return the areas that are the best for their volume."""

    def areas(s):
        root = 2**0.5
        return (s.clamp(1, 3), (root * s).clamp(root, 3), root + 0 * s, (root * s).clamp(1, 3))

    def volume(s):
        x1, x2, x3, x4 = areas(s)
        return 200 * (2 * x1 + 2**0.5 * x2 + x3.sqrt() + x4)

    return torch.stack(areas(solve(volume, front[:, 0], 0.5**0.5, 3.0)), dim=-1)


def rotated_set(problem, front):
    """Return points of the segment through the centre along the rotation's first row."""
    p = torch.atan2(front[:, 1] + 1.5, front[:, 0] + 0.6) * 2 / math.pi
    return problem.centre + (p.unsqueeze(-1) - 0.5) * problem.rotation[0]


def angle(f1):
    return torch.acos(f1.clamp(0, 1)) * 2 / math.pi


STORED: dict[str, Any] = {
    "pareto_set": stored_set_of, "n_front": lambda n: min(n, 400), "gap": 2e-3,
}  # fmt: skip
CASES = {
    "branin-currin": Case(d=2, **STORED, is_front_cut=True),
    "cm-onemax": Case(d=10, pareto_set=onemax_set, options={"corr": -0.5, "seed": 3}),
    "crash-beam": Case(d=12, pareto_set=None, options={"n_segments": 5}, n_points=4),
    "dtlz1": Case(d=6, pareto_set=middle(0.5, lambda f1: 2 * f1)),
    "dtlz1a": Case(d=6, pareto_set=middle(0.5, lambda f1: 2 * f1)),
    "dtlz2": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz2-rotated": Case(d=8, pareto_set=rotated_set, options={"seed": 1}),
    "dtlz3": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz3a": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz4": Case(d=11, pareto_set=middle(0.5, lambda f1: angle(f1) ** 0.01)),
    "dtlz5": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz6": Case(d=11, pareto_set=middle(0.0, angle)),
    "dtlz7": Case(d=21, pareto_set=middle(0.0, lambda f1: f1)),
    "gmm": Case(d=2, **STORED),
    "kursawe": Case(d=3, **STORED),
    "re21": Case(d=4, pareto_set=truss_set),
    "re24": Case(d=2, **STORED),
    **{f"uf{k}": Case(d=30, pareto_set=uf_set, options={"box": "unit"}) for k in (1, 2, 4, 7)},
    "uf3": Case(d=30, pareto_set=uf_set),  # its box is the unit cube
    "uf5": Case(d=30, pareto_set=uf_set, options={"box": "unit"}, n_front=lambda n: 21),
    # The pieces of UF6's front hold a quarter of f1 each, and the point (0, 1).
    "uf6": Case(d=30, pareto_set=uf_set, options={"box": "unit"}, n_front=lambda n: n // 2 + 1),
    **{f"wfg{k}": Case(d=6, pareto_set=wfg_set, options={"k": 4, "l": 6}) for k in (2, 4, 9)},
    **{
        f"zdt{k}": Case(d=d, pareto_set=middle(0.0, lambda f1: f1), options={"d": 5})
        for k, d in ((1, 30), (2, 30), (3, 30), (4, 10))
    },
    "zdt6": Case(d=10, pareto_set=middle(0.0, zdt6_first), options={"d": 5}),
}
WITH_FRONT = [name for name, case in CASES.items() if case.pareto_set is not None]


@pytest.fixture(params=CASES)
def name(request):
    return request.param


def unit_points(problem, n, seed=0):
    """Return random points and corners of the unit cube."""
    U = torch.rand(n, problem.d, generator=torch.Generator().manual_seed(seed)).double()
    U[-2], U[-1] = 0.0, 1.0
    return U


def points(problem, name, seed=0):
    return problem.from_unit(unit_points(problem, CASES[name].n_points, seed))


def test_a_problem_is_ready_to_run(name):
    problem = problems.get(name)
    assert isinstance(problem, problems.TestProblem)
    assert problem.d == CASES[name].d
    assert problem.bounds.shape == (2, problem.d)
    assert problem.bounds.dtype == torch.float64
    assert (problem.bounds[0] < problem.bounds[1]).all()
    assert len(set(problem.names or ())) == problem.d
    assert problem.directions == ("minimize", "minimize")
    assert problem.tau == 5.0
    assert problem.ref_point.shape == (2,)


@pytest.mark.parametrize("tau", [1, 2, 2.5, 10])
def test_tau_is_taken_and_checked(name, tau):
    assert problems.get(name, tau=tau).tau == tau
    with pytest.raises(InvalidInputError, match=r"^tau must be .* >= 1, got "):
        problems.get(name, tau=1 - tau)


def test_options_are_taken(name):
    default, other = problems.get(name), problems.get(name, **CASES[name].options)
    assert type(default) is type(other)
    if CASES[name].options:
        changed = [
            not torch.equal(default.bounds, other.bounds),
            other.d != default.d or not torch.equal(
                default.evaluate(points(default, name)), other.evaluate(points(default, name))
            ),
        ]  # fmt: skip
        assert any(changed)


@pytest.mark.parametrize("name", REFERENCE)
def test_box_and_values_are_those_of_the_authors_code(name):
    case, problem = REFERENCE[name], problems.get(name)
    assert problem.bounds.tolist() == [case["lower"], case["upper"]]
    X, F = (torch.tensor(case[key], dtype=torch.float64) for key in ("X", "F"))
    error = (problem.evaluate(X) - F).abs() / F.abs().clamp_min(1.0)
    assert error.max() < 1e-12


@pytest.mark.parametrize("case", FAMILIES, ids=lambda c: f"{c['name']} {c['options'] or ''}")
def test_box_and_values_are_those_of_other_libraries(case):
    problem = problems.get(case["name"], **case["options"])
    torch.testing.assert_close(
        problem.bounds, torch.tensor([case["lower"], case["upper"]]).double()
    )
    X, F = (torch.tensor(case[key], dtype=torch.float64) for key in ("X", "F"))
    # GMM's constants are in single precision there.
    tolerance = 1e-6 if case["name"] == "gmm" else 1e-12
    torch.testing.assert_close(problem.evaluate(X), F, rtol=tolerance, atol=tolerance)


def test_either_objective_may_be_the_slow_one(name):
    problem, swapped = problems.get(name, tau=2), problems.get(name, tau=2, slow=0)
    assert type(problems.get(name, slow=1)) is type(problem)
    assert isinstance(swapped, problems.Swapped)
    assert (swapped.d, swapped.tau, swapped.names) == (problem.d, 2.0, problem.names)
    assert swapped.vectorized == problem.vectorized
    assert torch.equal(swapped.bounds, problem.bounds)
    assert torch.equal(swapped.ref_point, problem.ref_point.flip(-1))
    X = points(problem, name)[:4]
    assert torch.equal(swapped.evaluate(X), problem.evaluate(X).flip(-1))
    point = X if problem.vectorized else X[0].numpy()
    assert np.array_equal(swapped.fast(point), problem.slow(point))
    assert np.array_equal(swapped.slow(point), problem.fast(point))
    there = pickle.loads(pickle.dumps(swapped))
    assert torch.equal(there.evaluate(X), swapped.evaluate(X))
    if name in WITH_FRONT:
        assert torch.equal(swapped.pareto_front(9), problem.pareto_front(9).flip(-1))
    with pytest.raises(InvalidInputError, match=r"^slow must be 0 or 1, got 2$"):
        problems.get(name, slow=2)


def test_evaluate_is_both_functions(name):
    problem = problems.get(name)
    X = points(problem, name)
    Y = problem.evaluate(X)
    assert Y.shape == (len(X), 2)
    assert Y.isfinite().all()
    for column, function in zip(Y.T, (problem.fast, problem.slow), strict=True):
        if problem.vectorized:
            expected = function(X).reshape(-1)
        else:
            expected = torch.tensor([function(x) for x in X.numpy()], dtype=torch.float64)
        assert torch.equal(column, expected)
    assert torch.equal(problem.evaluate(X), Y)  # nothing is random or remembered
    assert torch.equal(problems.get(name).evaluate(X), Y)


def test_evaluations_do_not_depend_on_each_other(name):
    """Batches of any shape give the rows' values; nor is the argument written to."""
    problem = problems.get(name)
    X = points(problem, name)
    before, Y = X.clone(), problem.evaluate(X)
    half = len(X) // 2
    assert problem.evaluate(X.reshape(2, half, problem.d)).shape == (2, half, 2)
    for shape in ((2, half), (1, half, 2), (len(X), 1)):
        batched = problem.evaluate(X.reshape(*shape, problem.d))
        torch.testing.assert_close(batched, Y.reshape(*shape, 2), rtol=1e-13, atol=1e-13)
    assert problem.evaluate(X[:0]).shape == (0, 2)
    assert torch.equal(X, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_and_devices_are_kept(name, dtype, device):
    problem = problems.get(name)
    # Away from the ends, where DTLZ6's power makes much of rounding.
    X = problem.from_unit(0.1 + 0.8 * unit_points(problem, 4))
    Y = problem.evaluate(X.to(device, dtype))
    assert Y.dtype == dtype
    assert Y.device == X.to(device).device
    expected = problem.evaluate(X.to(dtype).double())
    tolerance = 1e-12 if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(Y.double().cpu(), expected, rtol=tolerance, atol=tolerance)


def test_proposals_stay_inside_and_come_back(name):
    problem = problems.get(name)
    U = unit_points(problem, 200)
    for cube in (U, U.float()):
        X = problem.from_unit(cube)
        assert X.dtype == torch.float64
        assert ((X >= problem.bounds[0]) & (X <= problem.bounds[1])).all()
    X = problem.from_unit(U)
    assert torch.equal(X[-2:], problem.bounds)
    torch.testing.assert_close(problem.to_unit(X), U, rtol=0, atol=1e-12)


def test_functions_go_to_other_processes_and_copies_are_equal(name):
    problem = problems.get(name)
    X = points(problem, name)[:4]
    Y = problem.evaluate(X)
    for function in (problem.fast, problem.slow):
        there = pickle.loads(pickle.dumps(function))
        point = X if problem.vectorized else X[0].numpy()
        assert np.array_equal(there(point), function(point))
    for other in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert type(other) is type(problem)
        assert torch.equal(other.evaluate(X), Y)
        assert torch.equal(other.bounds, problem.bounds)
        assert (other.tau, other.names) == (problem.tau, problem.names)
        assert getattr(other, "name", None) == getattr(problem, "name", None)


def test_a_short_run(name):
    problem = problems.get(name, tau=2)
    result = minimize(problem, n_slow=4, n_init=3, strategy="random", progress=False)
    assert (result.n_slow, result.n_fast, result.status) == (4, 4, "finished")
    assert torch.equal(result.Y, problem.evaluate(result.X))


# ---------------------------------------------------------------- fronts


@pytest.mark.parametrize("name", WITH_FRONT)
@pytest.mark.parametrize("n", [1, 2, 21, 1000])
def test_fronts_are_non_dominated_and_of_the_size_asked_for(name, n):
    front = problems.get(name).pareto_front(n)
    slack = 2 if name == "uf6" else 0  # which of n points lie on the pieces varies
    assert abs(len(front) - CASES[name].n_front(n)) <= slack
    assert len(front) >= 1
    assert front.shape[1:] == (2,)
    assert front.dtype == torch.float64
    assert front.isfinite().all()
    assert is_non_dominated(front).all()


@pytest.mark.parametrize("name", WITH_FRONT)
def test_the_front_is_attained(name):
    problem, case = problems.get(name), CASES[name]
    assert case.pareto_set is not None
    front = problem.pareto_front(101)
    X = case.pareto_set(problem, front)
    assert ((X >= problem.bounds[0] - 1e-12) & (X <= problem.bounds[1] + 1e-12)).all()
    torch.testing.assert_close(problem.evaluate(X), front, rtol=0, atol=1e-6)
    scale = (front.amax(dim=0) - front.amin(dim=0)).clamp_min(1e-12)
    assert igd(problem.evaluate(X) / scale, problem.pareto_front(1000) / scale) < 0.02


@pytest.mark.parametrize("name", WITH_FRONT)
def test_no_point_dominates_the_front(name):
    """Neither random points nor some close to the Pareto set, where a wrong one would show."""
    problem, pareto_set = problems.get(name), CASES[name].pareto_set
    assert pareto_set is not None
    front = problem.pareto_front(300)
    U = unit_points(problem, 400)
    near = problem.to_unit(pareto_set(problem, front))
    near = (near + 0.02 * (unit_points(problem, len(near), seed=1) - 0.5)).clamp(0, 1)
    slack = 1e-9 + CASES[name].gap * (front.amax(dim=0) - front.amin(dim=0))
    Y = problem.evaluate(problem.from_unit(torch.cat([U, near]))) + slack
    no_worse = (Y.unsqueeze(1) <= front).all(dim=-1)
    assert not no_worse.any()


@pytest.mark.parametrize("name", WITH_FRONT)
def test_the_reference_point_is_behind_the_front(name):
    problem = problems.get(name)
    front = problem.pareto_front(1000)
    assert (front < problem.ref_point).all() or CASES[name].is_front_cut
    assert hypervolume(front, problem.ref_point) > 0


def test_a_problem_without_a_known_front_says_so(name):
    problem = problems.get(name)
    if name in WITH_FRONT:
        assert len(problem.pareto_front(3)) >= 1
        return
    with pytest.raises(AttributeError, match=f"front of {type(problem).__name__} is not known"):
        problem.pareto_front(10)
    # Its reference point can be beaten all the same, in the middle of the box.
    middle = problem.from_unit(torch.full((1, problem.d), 0.5).double())
    assert (problem.evaluate(middle) < problem.ref_point).all()


def test_every_registered_problem_is_in_this_suite():
    assert sorted(CASES) == list(problems.names())
