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
    assert problems.names() == ("cm-onemax", "crash-beam", *NAMES, *uf)


@pytest.mark.parametrize("name", problems.names())
def test_every_name_makes_its_problem(name):
    problem = problems.get(name, tau=3)
    assert isinstance(problem, Problem)
    assert isinstance(problem, TestProblem)
    kinds = {"cm": problems.CMOneMax, "cr": CrashBeam, "dt": problems.DTLZ, "uf": problems.UF}
    assert type(problem) is kinds[name[:2]]
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
