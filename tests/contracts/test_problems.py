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
from tests.conftest import load_reference

REFERENCE = {case["name"].lower(): case for case in load_reference("problems")["problems"]}


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


def angle(f1):
    return torch.acos(f1.clamp(0, 1)) * 2 / math.pi


CASES = {
    "cm-onemax": Case(d=10, pareto_set=onemax_set, options={"corr": -0.5, "seed": 3}),
    "crash-beam": Case(d=12, pareto_set=None, options={"n_segments": 5}, n_points=4),
    "dtlz1": Case(d=6, pareto_set=middle(0.5, lambda f1: 2 * f1)),
    "dtlz1a": Case(d=6, pareto_set=middle(0.5, lambda f1: 2 * f1)),
    "dtlz2": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz3": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz3a": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz4": Case(d=11, pareto_set=middle(0.5, lambda f1: angle(f1) ** 0.01)),
    "dtlz5": Case(d=11, pareto_set=middle(0.5, angle)),
    "dtlz6": Case(d=11, pareto_set=middle(0.0, angle)),
    "dtlz7": Case(d=21, pareto_set=middle(0.0, lambda f1: f1)),
    **{f"uf{k}": Case(d=30, pareto_set=uf_set, options={"box": "unit"}) for k in (1, 2, 4, 7)},
    "uf3": Case(d=30, pareto_set=uf_set),  # its box is the unit cube
    "uf5": Case(d=30, pareto_set=uf_set, options={"box": "unit"}, n_front=lambda n: 21),
    # The pieces of UF6's front hold a quarter of f1 each, and the point (0, 1).
    "uf6": Case(d=30, pareto_set=uf_set, options={"box": "unit"}, n_front=lambda n: n // 2 + 1),
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
    assert igd(problem.evaluate(X), problem.pareto_front(1000)) < 0.02


@pytest.mark.parametrize("name", WITH_FRONT)
def test_no_point_dominates_the_front(name):
    """Neither random points nor some close to the Pareto set, where a wrong one would show."""
    problem, pareto_set = problems.get(name), CASES[name].pareto_set
    assert pareto_set is not None
    front = problem.pareto_front(300)
    U = unit_points(problem, 400)
    near = problem.to_unit(pareto_set(problem, front))
    near = (near + 0.02 * (unit_points(problem, len(near), seed=1) - 0.5)).clamp(0, 1)
    Y = problem.evaluate(problem.from_unit(torch.cat([U, near]))) + 1e-9
    no_worse = (Y.unsqueeze(1) <= front).all(dim=-1)
    assert not no_worse.any()


@pytest.mark.parametrize("name", WITH_FRONT)
def test_the_reference_point_is_behind_the_front(name):
    problem = problems.get(name)
    front = problem.pareto_front(1000)
    assert (front < problem.ref_point).all()
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
