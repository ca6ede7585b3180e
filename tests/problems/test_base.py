"""What every benchmark problem offers, and the register of their names."""

import re

import numpy as np
import pytest
import torch

from tcsaea_torch import Problem, problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import CrashBeam, TestProblem, base
from tests.problems.test_dtlz import NAMES


def paraboloid(x):
    """Square the distance to 0, of a numpy point or of each row of a tensor."""
    return (x**2).sum(-1)


def plane(x):
    return 1.0 - x[..., 0]


def make(**options):
    bounds = [[0.0, -1.0], [1.0, 1.0]]
    return TestProblem(**{"fast": paraboloid, "slow": plane, "bounds": bounds, "tau": 2, **options})


def test_the_register_holds_these_problems_and_no_others():
    uf = [f"uf{k}" for k in range(1, 8)]
    others = ("branin-currin", "cm-onemax", "crash-beam", "gmm", "kursawe", "re21", "re24")
    wfg, zdt = ("wfg2", "wfg4", "wfg9"), ("zdt1", "zdt2", "zdt3", "zdt4", "zdt6")
    known = (*others, *NAMES, "dtlz2-rotated", *uf, *wfg, *zdt)
    assert problems.names() == tuple(sorted(known))


@pytest.mark.parametrize("name", problems.names())
def test_every_name_makes_its_problem(name):
    problem = problems.get(name, tau=3)
    assert isinstance(problem, Problem)
    assert isinstance(problem, TestProblem)
    kinds = {
        "br": problems.LowDimensional, "cm": problems.CMOneMax, "cr": CrashBeam,
        "dt": problems.DTLZ, "gm": problems.LowDimensional, "ku": problems.LowDimensional,
        "re": problems.Engineering, "uf": problems.UF, "wf": problems.WFG, "zd": problems.ZDT,
    }  # fmt: skip
    kind = problems.RotatedDTLZ2 if name == "dtlz2-rotated" else kinds[name[:2]]
    assert type(problem) is kind
    assert getattr(problem, "name", name) == name
    assert problem.tau == 3.0


@pytest.mark.parametrize(
    ("name", "nearest"), [("DTLZ2", "dtlz2"), ("dtlz3-a", "dtlz3a"), ("crashbeam", "crash-beam")]
)
def test_unknown_names_suggest_the_nearest(name, nearest):
    known = re.escape(", ".join(problems.names()))
    with pytest.raises(InvalidInputError) as caught:
        problems.get(name)
    assert re.match(rf"problem must be one of {known}, got {name!r}; did you", str(caught.value))
    assert str(caught.value).endswith(f"did you mean {nearest!r}?")


def test_a_name_like_none_of_them_suggests_nothing():
    with pytest.raises(InvalidInputError, match=r"problem must be one of .*, got 'zzz'$"):
        problems.get("zzz")


def test_registered_problems_are_made_with_their_options(monkeypatch):
    monkeypatch.setattr(base, "_FACTORIES", dict(base._FACTORIES))
    problems.register("a-plane", make)
    assert problems.names()[0] == "a-plane"
    assert problems.get("a-plane", tau=7).tau == 7.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_evaluate_gives_both_objectives_whether_vectorized_or_not(device, dtype):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(3, 4, 2, generator=generator).to(device, dtype)
    expected = torch.stack([(X**2).sum(dim=-1), 1.0 - X[..., 0]], dim=-1)
    for vectorized in (True, False):
        Y = make(vectorized=vectorized).evaluate(X)
        assert Y.dtype == dtype
        assert Y.device == X.device
        assert torch.allclose(Y, expected, rtol=1e-6)
        assert make(vectorized=vectorized).evaluate(X[:0]).shape == (0, 4, 2)


def test_evaluate_hands_on_what_the_functions_are_promised():
    seen = []

    def function(x):
        seen.append(x)
        return 0.0

    make(fast=function).evaluate(torch.ones(3, 2))
    assert [type(x) for x in seen] == [np.ndarray] * 3
    assert {x.dtype for x in seen} == {np.dtype("float64")}


def test_functions_may_return_columns_or_arrays():
    X = torch.ones(3, 2).double()
    Y = make(fast=lambda X: X[:, :1], slow=lambda X: X[:, 1].numpy(), vectorized=True).evaluate(X)
    assert torch.equal(Y, X)


def test_a_front_that_is_not_known():
    with pytest.raises(AttributeError, match="the Pareto front of TestProblem is not known"):
        make().pareto_front(10)


def test_swapped_twice_is_the_problem():
    problem = make(directions=("minimize", "maximize"), names=("a", "b"), ref_point=(3.0, -1.0))
    once = problems.Swapped(problem)
    assert once.directions == ("maximize", "minimize")
    assert once.ref_point.tolist() == [-1.0, 3.0]
    twice, X = problems.Swapped(once), torch.ones(3, 2)
    assert torch.equal(twice.evaluate(X), problem.evaluate(X))
    assert (twice.directions, twice.names) == (problem.directions, problem.names)
    assert problems.Swapped(make()).ref_point is None


def test_names_of_objectives_change_places_too():
    assert problems.get("crash-beam", slow=0).objective_names == (
        "peak deceleration [g]", "mass [kg]",
    )  # fmt: skip
    assert problems.get("zdt1", slow=0, d=4).objective_names is None


def test_swapped_passes_options_on():
    assert problems.get("zdt1", slow=0, d=4).d == 4
    with pytest.raises(InvalidInputError, match="did you mean 'tau'"):
        problems.get("zdt1", slow=0, tua=4)
