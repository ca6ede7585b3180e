"""Test problems of BoTorch as problems of this library, and the other way round."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from botorch.test_functions.base import ConstrainedBaseTestProblem, MultiObjectiveTestProblem

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problem import Problem, call_objective, check_value
from tcsaea_torch.problems.base import TestProblem, check_slow
from tcsaea_torch.types import Float, Objective, Tensor
from tcsaea_torch.validation import check_bool, check_float_tensor, check_int, describe


def _values(
    test_problem: MultiObjectiveTestProblem, X: Float[Tensor, "n d"], *, noise: bool
) -> Float[Tensor, "n 2"]:
    """Call a test problem with its own dtype and on its own device."""
    return test_problem(X.to(test_problem.get_buffer("bounds")), noise=noise).to(X)


def _objective(
    test_problem: MultiObjectiveTestProblem, column: int, X: Float[Tensor, "n d"]
) -> Float[Tensor, " n"]:
    return _values(test_problem, X, noise=True)[:, column]


class FromBotorch(TestProblem):
    """A test problem of BoTorch with two objectives; see `Problem.from_botorch`.

    Args:
        test_problem: BoTorch's problem.
        slow: Which of its objectives is the slow one: 0, the first, or 1.
        tau: Fast evaluations in the time of one slow one.
        names: A name for each dimension.

    Raises:
        InvalidInputError: If it is no such problem, or another argument is wrong.
    """

    def __init__(
        self,
        test_problem: MultiObjectiveTestProblem,
        *,
        slow: int = 1,
        tau: float = 5.0,
        names: Sequence[str] | None = None,
    ) -> None:
        _check_test_problem(test_problem)
        second = check_slow(slow)
        columns = [1 - second, second]
        is_minimised = test_problem._is_minimization_by_default != test_problem.negate
        noise = test_problem.noise_std
        for name, value in {
            "test_problem": test_problem,
            "columns": columns,
            "noise_std": [noise[i] for i in columns] if isinstance(noise, list) else noise,
            "max_hv": _max_hv(test_problem),
        }.items():
            object.__setattr__(self, name, value)
        super().__init__(
            fast=partial(_objective, test_problem, columns[0]),
            slow=partial(_objective, test_problem, columns[1]),
            bounds=test_problem.get_buffer("bounds"),
            tau=tau,
            names=names,
            integers=tuple(test_problem.discrete_inds),
            directions=("minimize" if is_minimised else "maximize",) * 2,
            vectorized=True,
            ref_point=test_problem.get_buffer("ref_point")[columns],
        )

    test_problem: MultiObjectiveTestProblem
    """BoTorch's problem."""
    columns: list[int]
    """Its columns that are (fast, slow)."""
    noise_std: float | list[float] | None
    """Standard deviation of the noise of single values, for (fast, slow) if it is a list."""
    max_hv: float | None
    """Largest hypervolume for the reference point, as far as BoTorch tells."""

    def evaluate(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 2"]:
        """Return both objectives (fast, slow) by one call, without noise."""
        shape = f"of shape (*batch, n, {self.d})"
        check_float_tensor("X", X, shape, (None, self.d), batched=True)
        Y = _values(self.test_problem, X.reshape(-1, self.d), noise=False)
        return Y[:, self.columns].reshape(*X.shape[:-1], 2)

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return n points of the front, as far as BoTorch makes them; always the same ones."""
        n = check_int("n", n, minimum=1)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(0)
                front = self.test_problem.gen_pareto_front(n)
        except NotImplementedError as error:
            name = type(self.test_problem).__name__
            raise AttributeError(f"the Pareto front of {name} is not known") from error
        front = front.detach().to(device="cpu", dtype=torch.float64)[:, self.columns]
        return front[front[:, 0].argsort()]


def _check_test_problem(value: Any) -> None:
    if not isinstance(value, MultiObjectiveTestProblem):
        raise InvalidInputError(
            "test_problem must be a MultiObjectiveTestProblem of BoTorch (an object, no class), "
            f"got {describe(value)}"
        )
    name = type(value).__name__
    if value.num_objectives != 2:
        raise InvalidInputError(
            f"test_problem must have two objectives, got {name} with {value.num_objectives}"
        )
    if isinstance(value, ConstrainedBaseTestProblem):
        raise InvalidInputError(
            f"test_problem must have no constraints, got {name} with {value.num_constraints}"
        )
    if value.categorical_inds:
        raise InvalidInputError(
            "test_problem must have no categorical variables, "
            f"got {name} with {list(value.categorical_inds)}"
        )


def _max_hv(test_problem: MultiObjectiveTestProblem) -> float | None:
    try:
        return float(test_problem.max_hv)
    except NotImplementedError:
        return None


class ToBotorch(MultiObjectiveTestProblem):
    """A problem of this library as a test problem of BoTorch; see `Problem.to_botorch`.

    Args:
        problem: The problem; it needs a reference point.
        negate: Whether values change their sign, so that they are to be maximised.

    Raises:
        InvalidInputError: If an argument is wrong.
    """

    num_objectives = 2
    _check_grad_at_opt = False

    def __init__(self, problem: Problem, *, negate: bool = False) -> None:
        check_bool("negate", negate)
        if problem.ref_point is None:
            raise InvalidInputError(
                "ref_point must be given to make a test problem for BoTorch, got a Problem without"
            )
        signs = problem.signs
        self.dim = problem.d
        self.discrete_inds = list(problem.integers)
        self.continuous_inds = [i for i in range(problem.d) if i not in problem.integers]
        self._bounds = [(low, high) for low, high in problem.bounds.T.tolist()]
        self._ref_point = (problem.ref_point * signs).tolist()
        self._max_hv = getattr(problem, "max_hv", None)
        super().__init__(noise_std=getattr(problem, "noise_std", None), negate=negate)
        self.problem = problem

    def _evaluate_true(self, X: Tensor) -> Tensor:
        problem, flat = self.problem, X.reshape(-1, self.dim)
        if isinstance(problem, TestProblem):
            Y = problem.evaluate(flat)
        else:
            columns = [
                [
                    check_value(objective, value)
                    for value in call_objective(
                        problem.function_of(objective),
                        flat.detach().double(),
                        vectorized=problem.vectorized,
                    )
                ]
                for objective in Objective
            ]
            Y = torch.tensor(columns, dtype=torch.float64).mT
        Y = Y.to(X) * problem.signs.to(X)
        return Y.reshape(*X.shape[:-1], 2)

    def gen_pareto_front(self, n: int) -> Tensor:
        """Return about n points of the front, in the sign of this problem's values."""
        try:
            front = self.problem.pareto_front(n)  # type: ignore[attr-defined]
        except AttributeError as error:
            raise NotImplementedError("the Pareto front is not known") from error
        front = (front * self.problem.signs).to(self.get_buffer("bounds"))
        return -front if self.negate else front
