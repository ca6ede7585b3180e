"""DTLZ against the authors' code, against its formulas, and against its known optima."""

import math
import pickle
import re

import pytest
import torch

from tcsaea_torch import problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.metrics import igd, is_non_dominated
from tcsaea_torch.problems import DTLZ
from tests.conftest import load_reference

CASES = [c for c in load_reference("problems")["problems"] if c["name"].startswith("DTLZ")]
NAMES = ["dtlz1", "dtlz1a", "dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6", "dtlz7"]
SPHERES = ["dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6"]


def name_of(case):
    return case["name"]


def random_points(problem, n, seed=0, dtype=torch.float64):
    return torch.rand(n, problem.d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def optima(problem, front):
    """Return the points of the Pareto set whose objectives the front should be."""
    f1 = front[:, 0]
    if problem.name in SPHERES:
        x1 = torch.acos(f1.clamp(0, 1)) * 2 / math.pi
        x1 = x1 ** (1 / 100) if problem.name == "dtlz4" else x1
    else:
        x1 = f1 if problem.name == "dtlz7" else 2 * f1
    X = torch.full((len(front), problem.d), 0.0 if problem.name in ("dtlz6", "dtlz7") else 0.5)
    X = X.double()
    X[:, 0] = x1
    return X


# ------------------------------------------------------------------ values


def test_every_problem_has_reference_values():
    assert sorted(case["name"].lower() for case in CASES) == NAMES


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_values_of_the_authors_code(case, tensor, device):
    problem, X, F = DTLZ(case["name"].lower()), tensor(case["X"]), tensor(case["F"])
    assert problem.d == case["n"]
    assert problem.bounds.tolist() == [case["lower"], case["upper"]]
    Y = problem.evaluate(X.to(device)).cpu()
    assert ((Y - F).abs() / F.abs().clamp_min(1.0)).max() <= 1e-12


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_float32_stays_float32(case, tensor, device):
    problem, X, F = DTLZ(case["name"].lower()), tensor(case["X"]), tensor(case["F"])
    Y = problem.evaluate(X.to(device, torch.float32))
    assert Y.dtype == torch.float32
    assert Y.device.type == device.type
    # One tenth is the power in DTLZ6; it makes much of small rounding errors near 0.
    assert torch.allclose(Y.cpu().double(), F, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_batches_of_any_shape(name):
    problem = DTLZ(name)
    X = random_points(problem, 12)
    Y = problem.evaluate(X)
    assert Y.shape == (12, 2)
    assert torch.equal(torch.stack([problem.fast(X), problem.slow(X)], dim=-1), Y)
    for shape in ((3, 4), (2, 3, 2), (1, 12)):
        batched = problem.evaluate(X.reshape(*shape, problem.d))
        assert torch.equal(batched, Y.reshape(*shape, 2))
    one_by_one = torch.stack([problem.evaluate(x.unsqueeze(0))[0] for x in X])
    assert torch.allclose(one_by_one, Y, rtol=1e-14, atol=0)


def test_dtlz5_is_dtlz2():
    X = random_points(DTLZ("dtlz2"), 50)
    assert torch.equal(DTLZ("dtlz5").evaluate(X), DTLZ("dtlz2").evaluate(X))


@pytest.mark.parametrize(("name", "easier"), [("dtlz1", "dtlz1a"), ("dtlz3", "dtlz3a")])
def test_the_easier_variants_have_fewer_local_optima(name, easier):
    def local_minima(name):
        problem = DTLZ(name)
        X = torch.full((10_001, problem.d), 0.5).double()
        X[:, 1] = torch.linspace(0, 1, len(X)).double()
        y = problem.evaluate(X).sum(dim=-1)
        return int(((y[1:-1] < y[:-2]) & (y[1:-1] < y[2:])).sum())

    # cos(20 pi (x - 1/2)) peaks at each tenth, and the parabola moves the ends' peaks inwards.
    assert (local_minima(name), local_minima(easier)) == (11, 1)


# ------------------------------------------------------------------ fronts


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_fronts_of_the_authors_code(case, tensor):
    samples = tensor(case["front_samples_T_SAEA"])
    front = DTLZ(case["name"].lower()).pareto_front(len(samples))
    assert (front - samples).abs().max() <= 1e-6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 11, 500])
def test_fronts_have_n_points_none_of_which_dominates_another(name, n):
    front = DTLZ(name).pareto_front(n)
    assert front.shape == (n, 2)
    assert front.dtype == torch.float64
    assert is_non_dominated(front).all()


@pytest.mark.parametrize("name", NAMES)
def test_known_optima_lie_on_the_front(name):
    problem = DTLZ(name)
    front = problem.pareto_front(101)
    Y = problem.evaluate(optima(problem, front))
    assert igd(Y, front) <= 1e-12
    assert igd(front, Y) <= 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_fronts_obey_their_formulas(name):
    f1, f2 = DTLZ(name).pareto_front(301).T
    if name in SPHERES:
        assert torch.allclose(f1**2 + f2**2, torch.ones_like(f1), rtol=1e-14)
    elif name == "dtlz7":
        assert torch.allclose(f2, 2 * (2 - f1 / 2 * (1 + (3 * math.pi * f1).sin())), rtol=1e-14)
    else:
        assert torch.allclose(f1 + f2, torch.full_like(f1, 0.5), rtol=1e-14)
    ends = {"dtlz7": [0.0, 0.859401], "dtlz1": [0.0, 0.5], "dtlz1a": [0.0, 0.5]}
    assert [f1.min(), f1.max()] == pytest.approx(ends.get(name, [0.0, 1.0]))


def test_dtlz7s_pieces_are_what_is_not_dominated():
    # With x2 = ... = x21 = 0, f1 runs over [0, 1]; the front is the rest after dominance.
    problem = DTLZ("dtlz7")
    X = torch.zeros(20_001, problem.d).double()
    X[:, 0] = torch.linspace(0, 1, len(X)).double()
    Y = problem.evaluate(X)
    f1 = Y[Y[:, 1] < torch.cat([torch.tensor([math.inf]), Y[:-1, 1].cummin(0).values]), 0]
    jump = int(f1.diff().argmax())
    found = [f1[0], f1[jump], f1[jump + 1], f1[-1]]
    assert found == pytest.approx([0.0, 0.251412, 0.631627, 0.859401], abs=1e-4)
    front = problem.pareto_front(1000)[:, 0]
    assert not ((front > 0.251413) & (front < 0.631626)).any()


@pytest.mark.parametrize("name", NAMES)
def test_no_point_is_better_than_the_front(name):
    problem = DTLZ(name)
    front = problem.pareto_front(200)
    X = torch.cat([random_points(problem, 300), optima(problem, front)])
    # Close to the Pareto set too, where a wrong front would be undercut.
    noise = random_points(problem, len(X), seed=1) - 0.5
    X = torch.cat([X, (X + 0.02 * noise).clamp(0, 1)])
    Y = problem.evaluate(X) + 1e-9
    better = (Y.unsqueeze(1) <= front).all(dim=-1)
    assert not better.any()


# ------------------------------------------------------------------ problems


@pytest.mark.parametrize("name", NAMES)
def test_problems_are_ready_to_run(name):
    problem = DTLZ(name, tau=2.5)
    assert problem.name == name
    assert problem.tau == 2.5
    assert DTLZ(name).tau == 5.0
    assert problem.d == {"dtlz1": 6, "dtlz1a": 6, "dtlz7": 21}.get(name, 11)
    assert problem.vectorized
    assert problem.directions == ("minimize", "minimize")
    assert problem.ref_point.tolist() == pytest.approx(
        {"dtlz1": [0.55, 0.55], "dtlz1a": [0.55, 0.55], "dtlz7": [0.9453411, 4.4]}.get(
            name, [1.1, 1.1]
        )
    )


@pytest.mark.parametrize("name", NAMES)
def test_objectives_can_go_to_other_processes(name):
    problem = DTLZ(name)
    X = random_points(problem, 3)
    for function in (problem.fast, problem.slow):
        assert torch.equal(pickle.loads(pickle.dumps(function))(X), function(X))


def test_bad_arguments():
    known = ", ".join(NAMES)
    message = f"name must be one of {known}, got 'DTLZ2'; did you mean 'dtlz2'?"
    with pytest.raises(InvalidInputError, match="^" + re.escape(message)):
        DTLZ("DTLZ2")
    with pytest.raises(
        InvalidInputError, match=r"^tau must be a finite real number >= 1, got 0\.5"
    ):
        problems.get("dtlz2", tau=0.5)
