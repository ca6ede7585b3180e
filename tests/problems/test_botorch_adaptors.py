"""BoTorch's test problems here, and our problems there."""

import math
import pickle
import re

import numpy as np
import pytest
import torch
from botorch.test_functions.base import MultiObjectiveTestProblem
from botorch.test_functions.multi_objective import (
    BNH,
    DTLZ2,
    DTLZ5,
    DTLZ7,
    GMM,
    ZDT1,
    BraninCurrin,
    Penicillin,
    ToyRobust,
)

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.metrics import igd


def points(problem, n=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return problem.from_unit(torch.rand(n, problem.d, generator=generator, dtype=torch.float64))


def refuses(text):
    return pytest.raises(InvalidInputError, match=re.escape(text))


class Stairs(MultiObjectiveTestProblem):
    """An integer and a real variable, to be maximised by default."""

    dim, num_objectives = 2, 2
    _bounds = [(-2.0, 3.0), (0.0, 1.0)]  # noqa: RUF012
    _ref_point = [0.0, -1.0]  # noqa: RUF012
    continuous_inds, discrete_inds = [1], [0]
    _is_minimization_by_default = False

    def _evaluate_true(self, X):
        return torch.stack([X[..., 0] + X[..., 1], -X[..., 0]], dim=-1)


class Sorted(Stairs):
    continuous_inds, discrete_inds, categorical_inds = [1], [], [0]


# ---------------------------------------------------------------- from BoTorch


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("kind", [
    BraninCurrin, ToyRobust, lambda negate: DTLZ2(dim=4, num_objectives=2, negate=negate),
    lambda negate: ZDT1(dim=3, negate=negate), lambda negate: GMM(num_objectives=2, negate=negate),
])  # fmt: skip
def test_values_box_and_reference_point_are_botorchs(kind, negate, slow):
    theirs = kind(negate=negate)
    problem = tc.Problem.from_botorch(theirs, slow=slow, tau=7)
    X = points(problem)
    columns = [1 - slow, slow]
    assert torch.equal(problem.bounds, theirs.bounds)
    assert problem.tau == 7
    assert problem.vectorized
    assert problem.directions == (("maximize", "maximize") if negate else ("minimize", "minimize"))
    assert torch.equal(problem.ref_point, theirs.ref_point[columns])
    Y = theirs(X)[:, columns].double()  # that of GMM is float32
    torch.testing.assert_close(torch.stack([problem.fast(X), problem.slow(X)], dim=-1), Y)
    torch.testing.assert_close(problem.evaluate(X.expand(2, -1, -1)), Y.expand(2, -1, -1))


def test_a_problem_that_is_maximised_by_default_with_integers():
    problem = tc.Problem.from_botorch(Stairs(), names=("step", "rest"))
    assert problem.directions == ("maximize", "maximize")
    assert problem.integers == (0,)
    assert problem.names == ("step", "rest")
    assert tc.Problem.from_botorch(Stairs(negate=True)).directions == ("minimize", "minimize")
    result = tc.minimize(problem, n_slow=4, n_init=3, strategy="random", progress=False)
    assert torch.equal(result.X[:, 0], result.X[:, 0].round())
    torch.testing.assert_close(result.Y, Stairs()(result.X))
    assert result.ref_point is not None
    assert result.ref_point.tolist() == [0.0, -1.0]


def test_noise_is_that_of_single_values_and_not_of_the_truth():
    theirs = DTLZ2(dim=3, num_objectives=2, noise_std=[0.0, 0.5])
    problem = tc.Problem.from_botorch(theirs, slow=0)
    X, truth = points(problem, 200), theirs.evaluate_true(points(problem, 200))
    assert problem.noise_std == problem.to_botorch().noise_std == [0.5, 0.0]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fast, slow = problem.fast(X) - truth[:, 1], problem.slow(X) - truth[:, 0]
    assert float(fast.std()) == pytest.approx(0.5, rel=0.2)
    assert float(slow.abs().max()) == 0.0
    torch.testing.assert_close(problem.evaluate(X), truth.flip(-1))


def test_another_dtype_is_theirs_alone():
    theirs = BraninCurrin(dtype=torch.float32)
    problem = tc.Problem.from_botorch(theirs)
    X = points(problem)
    assert problem.bounds.dtype == problem.ref_point.dtype == torch.float64
    assert problem.evaluate(X).dtype == problem.fast(X).dtype == torch.float64
    torch.testing.assert_close(problem.evaluate(X), theirs(X.float()).double())
    assert theirs.get_buffer("bounds").dtype == torch.float32


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("slow", [0, 1])
def test_fronts_are_theirs_sorted_and_leave_random_numbers_alone(slow, negate):
    problem = tc.Problem.from_botorch(DTLZ2(dim=4, num_objectives=2, negate=negate), slow=slow)
    before = torch.get_rng_state()
    front = problem.pareto_front(200)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(front, problem.pareto_front(200))
    assert front.shape == (200, 2)
    assert torch.equal(front[:, 0], front[:, 0].sort().values)
    torch.testing.assert_close(front.norm(dim=-1), torch.ones(200).double())
    angle = torch.linspace(0, math.pi / 2, 100).double()
    exact = torch.stack([angle.cos(), angle.sin()], dim=-1)
    assert igd(front * problem.signs, exact) < 0.02
    assert problem.max_hv == pytest.approx(1.1**2 - math.pi / 4)


def test_what_botorch_does_not_know_is_not_known():
    problem = tc.Problem.from_botorch(DTLZ5(dim=4, num_objectives=2))
    with pytest.raises(AttributeError, match="the Pareto front of DTLZ5 is not known"):
        problem.pareto_front(5)
    assert problem.max_hv is None
    with pytest.raises(NotImplementedError, match="not known"):
        problem.to_botorch().gen_pareto_front(5)


@pytest.mark.usefixtures("unchecked")
def test_other_problems_are_refused():
    with refuses("must have two objectives, got DTLZ7 with 3"):
        tc.Problem.from_botorch(DTLZ7(dim=5, num_objectives=3))
    with refuses("must have two objectives, got Penicillin with 3"):
        tc.Problem.from_botorch(Penicillin())
    with refuses("must have no constraints, got BNH with 2"):
        tc.Problem.from_botorch(BNH())
    with refuses("must have no categorical variables, got Sorted with [0]"):
        tc.Problem.from_botorch(Sorted())
    with refuses("must be a MultiObjectiveTestProblem of BoTorch (an object, no class), got"):
        tc.Problem.from_botorch(BraninCurrin)


def test_problems_survive_pickling():
    problem = pickle.loads(pickle.dumps(tc.Problem.from_botorch(BraninCurrin(), slow=0)))
    X = points(problem)
    torch.testing.assert_close(problem.fast(X), BraninCurrin()(X)[:, 1])
    again = pickle.loads(pickle.dumps(problem.to_botorch(negate=True)))
    torch.testing.assert_close(again(X), -BraninCurrin()(X).flip(-1))


# ---------------------------------------------------------------- to BoTorch


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("make", [
    lambda negate: BraninCurrin(negate=negate),
    lambda negate: DTLZ2(dim=3, num_objectives=2, negate=negate),
])  # fmt: skip
def test_round_trip(make, negate):
    theirs = make(negate)
    problem = tc.Problem.from_botorch(theirs)
    again = problem.to_botorch(negate=negate)
    X = points(problem)
    torch.testing.assert_close(again(X), theirs(X), rtol=0, atol=0)
    torch.testing.assert_close(again.evaluate_true(X), theirs.evaluate_true(X), rtol=0, atol=0)
    for name in ("bounds", "ref_point"):
        assert torch.equal(getattr(again, name), getattr(theirs, name))
    assert (again.dim, again.num_objectives) == (theirs.dim, 2)
    assert again.max_hv == theirs.max_hv
    assert again._is_minimization_by_default
    assert again.negate == negate
    third = tc.Problem.from_botorch(again)
    assert torch.equal(third.evaluate(X), problem.evaluate(X))
    assert third.directions == problem.directions


@pytest.mark.parametrize("vectorized", [False, True])
def test_directions_become_signs(vectorized):
    def fast(x):
        return x[..., 0] + 2 * x[..., 1]

    def slow(x):
        return x[..., 0] - x[..., 1]

    problem = tc.Problem(
        fast=fast, slow=slow, bounds=[[0, 0], [3, 1]], tau=5, integers=(0,), ref_point=[9.0, -1.5],
        directions=("minimize", "maximize"), vectorized=vectorized,
    )  # fmt: skip
    X = torch.tensor([[[0.0, 0.5], [2.0, 1.0]]]).double()
    for negate, sign in ((False, 1.0), (True, -1.0)):
        theirs = problem.to_botorch(negate=negate)
        minimised = torch.stack([fast(X), -slow(X)], dim=-1)
        torch.testing.assert_close(theirs(X), sign * minimised)
        torch.testing.assert_close(theirs(X.float()), sign * minimised.float())
        torch.testing.assert_close(theirs.ref_point, sign * torch.tensor([9.0, 1.5]).double())
        assert theirs.discrete_inds == [0]
        assert theirs.continuous_inds == [1]
    with pytest.raises(ValueError, match="integer values"):
        problem.to_botorch()(torch.tensor([[0.5, 0.5]]).double())


def test_fronts_keep_their_signs():
    problem = tc.problems.get("zdt1")
    front = problem.pareto_front(9)
    assert torch.equal(problem.to_botorch().gen_pareto_front(9), front)
    assert torch.equal(problem.to_botorch(negate=True).gen_pareto_front(9), -front)


def test_gradients_reach_torch_code():
    X = points(tc.problems.get("dtlz2")).requires_grad_()
    (gradient,) = torch.autograd.grad(tc.problems.get("dtlz2").to_botorch()(X).sum(), X)
    assert gradient.abs().max() > 0


def test_what_cannot_be_a_test_problem_is_refused():
    def number(x):
        return np.nan if x[0] > 0.5 else 1.0

    plain = tc.Problem(fast=number, slow=number, bounds=[[0.0], [1.0]], tau=5)
    with refuses("ref_point must be given to make a test problem for BoTorch"):
        plain.to_botorch()
    with_point = tc.Problem(
        fast=number, slow=number, bounds=[[0.0], [1.0]], tau=5, ref_point=[1.0, 1.0]
    )
    with refuses("fast must be a finite real number, got nan"):
        with_point.to_botorch()(torch.tensor([[0.7]]).double())
