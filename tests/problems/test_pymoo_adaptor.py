"""pymoo's problems here."""

import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError, MissingDependencyError

pytest.importorskip("pymoo")
core: Any = pytest.importorskip("pymoo.core.problem")
variable: Any = pytest.importorskip("pymoo.core.variable")
get_problem = pytest.importorskip("pymoo.problems").get_problem

F64 = torch.float64


class Elementwise(core.ElementwiseProblem):
    """A box of its own and two objectives, one point at a time."""

    def __init__(self, **options: Any) -> None:
        given = {"n_var": 2, "n_obj": 2, "xl": [-1.0, 2.0], "xu": [1.0, 5.0]} | options
        given |= {side: np.array(given[side]) for side in ("xl", "xu") if given[side] is not None}
        super().__init__(**given)

    def _evaluate(self, x, out, *args, **kwargs):
        assert x.shape == (2,)
        assert x.dtype == (int if self.vtype is int else float)
        out["F"] = [x[0] ** 2, x[0] * x[1]]


class Mixed(core.ElementwiseProblem):
    """Variables with names and types."""

    def __init__(self, **more: Any) -> None:
        variables = {
            "width": variable.Real(bounds=(0.5, 2.0)),
            "teeth": variable.Integer(bounds=(3, 9)),
            **more,
        }
        super().__init__(vars=variables, n_obj=2)

    def _evaluate(self, X, out, *args, **kwargs):
        assert isinstance(X["teeth"], int)
        out["F"] = [X["width"], X["teeth"] - X["width"]]


def points(problem, n=6):
    generator = torch.Generator().manual_seed(0)
    return problem.from_unit(torch.rand(n, problem.d, generator=generator, dtype=F64))


def refuses(text):
    return pytest.raises(InvalidInputError, match=re.escape(text))


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("make", [
    lambda: get_problem("zdt1", n_var=4), lambda: get_problem("dtlz2", n_var=5, n_obj=2),
    lambda: get_problem("kursawe"), Elementwise,
])  # fmt: skip
def test_values_and_box_are_pymoos(make, slow):
    theirs = make()
    problem = tc.Problem.from_pymoo(theirs, slow=slow, tau=3, ref_point=[5.0, 6.0])
    X = points(problem)
    assert problem.tau == 3
    assert problem.vectorized
    assert problem.directions == ("minimize", "minimize")
    assert problem.ref_point.tolist() == [5.0, 6.0]
    np.testing.assert_array_equal(problem.bounds.numpy(), np.stack([theirs.xl, theirs.xu]))
    Y = theirs.evaluate(X.numpy())[:, [1 - slow, slow]]
    np.testing.assert_array_equal(torch.stack([problem.fast(X), problem.slow(X)], -1).numpy(), Y)
    np.testing.assert_array_equal(problem.evaluate(X.expand(2, -1, -1))[1].numpy(), Y)


def test_names_are_pymoos_names():
    problem = tc.Problem.from_pymoo("zdt2")
    assert problem.d == 30
    ours, X = tc.problems.get("zdt2"), points(tc.problems.get("zdt2"))
    torch.testing.assert_close(problem.evaluate(X), ours.evaluate(X))
    assert problem.ref_point is None
    with refuses("problem must be a name that pymoo's get_problem knows, got 'zdt99'"):
        tc.Problem.from_pymoo("zdt99")


def test_integers_are_integers():
    problem = tc.Problem.from_pymoo(Elementwise(vtype=int), names=("a", "b"))
    assert problem.integers == (0, 1)
    assert problem.names == ("a", "b")
    X = points(problem)
    assert torch.equal(X, X.round())
    torch.testing.assert_close(problem.slow(X), X[:, 0] * X[:, 1])


def test_variables_of_several_kinds_keep_their_names():
    problem = tc.Problem.from_pymoo(Mixed())
    assert problem.names == ("width", "teeth")
    assert problem.integers == (1,)
    assert problem.bounds.tolist() == [[0.5, 3.0], [2.0, 9.0]]
    result = tc.minimize(problem, n_slow=4, n_init=3, strategy="random", progress=False)
    X = result.X
    torch.testing.assert_close(result.Y, torch.stack([X[:, 0], X[:, 1] - X[:, 0]], dim=-1))


def test_fronts_are_pymoos():
    for n in (20, 300):
        front = tc.Problem.from_pymoo("zdt1").pareto_front(n)
        assert front.shape == (n, 2)
        torch.testing.assert_close(front[:, 1], 1 - front[:, 0].sqrt())
    swapped = tc.Problem.from_pymoo("zdt1", slow=0).pareto_front(20)
    torch.testing.assert_close(swapped[:, 0], 1 - swapped[:, 1].sqrt())
    assert torch.equal(swapped[:, 0], swapped[:, 0].sort().values)
    circle = tc.Problem.from_pymoo(get_problem("dtlz2", n_var=5, n_obj=2)).pareto_front(30)
    assert 10 <= len(circle) <= 30
    torch.testing.assert_close(circle.norm(dim=-1), torch.ones(len(circle), dtype=F64))
    with pytest.raises(AttributeError, match="the Pareto front of Elementwise is not known"):
        tc.Problem.from_pymoo(Elementwise()).pareto_front(5)


@pytest.mark.usefixtures("unchecked")
def test_other_problems_are_refused():
    with refuses("problem must have two objectives, got DTLZ2 with 3"):
        tc.Problem.from_pymoo("dtlz2")
    with refuses("problem must have no constraints, got BNH with 2"):
        tc.Problem.from_pymoo("bnh")
    with refuses("problem must have bounds xl and xu, got Elementwise without"):
        tc.Problem.from_pymoo(Elementwise(xl=None))
    with refuses("problem must have real or integer variables, got Elementwise with"):
        tc.Problem.from_pymoo(Elementwise(vtype=bool))
    for more in ({"on": variable.Binary()}, {"kind": variable.Choice(options=["a", "b"])}):
        with refuses("problem must have real or integer variables, got Mixed with"):
            tc.Problem.from_pymoo(Mixed(**more))
    with refuses("problem must be a pymoo Problem (an object, no class) or a name, got"):
        tc.Problem.from_pymoo(Elementwise)


def test_problems_survive_pickling():
    problem = pickle.loads(pickle.dumps(tc.Problem.from_pymoo(Elementwise(), slow=0)))
    X = points(problem)
    torch.testing.assert_close(problem.slow(X), X[:, 0].square())


def test_they_go_on_to_botorch():
    theirs = tc.Problem.from_pymoo(Elementwise(), ref_point=[1.0, 5.0]).to_botorch(negate=True)
    X = points(theirs.problem)
    torch.testing.assert_close(theirs(X), -torch.stack([X[:, 0] ** 2, X[:, 0] * X[:, 1]], dim=-1))


def test_without_pymoo_the_extra_is_named(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("tcsaea_torch.problems.pymoo_adaptor.import_module", missing)
    text = r"^from_pymoo needs pymoo: pip install 'tcsaea-torch\[pymoo\]'$"
    with pytest.raises(MissingDependencyError, match=text):
        tc.Problem.from_pymoo("zdt1")
