"""Problems of pymoo as problems of this library.

pymoo is an optional package: nothing here imports it before it is asked for.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.problems.base import TestProblem, check_slow
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_float_tensor, check_int, describe

_FRONT_SIZES = ("n_pareto_points", "n_points")
"""How pymoo's problems call the number of points of their front, where they let it be set."""


def _load(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            "from_pymoo needs pymoo: pip install 'tcsaea-torch[pymoo]'"
        ) from error


def _values(problem: Any, keys: Sequence[str] | None, X: Tensor, whole: tuple[int, ...]) -> Tensor:
    """Return both objectives at `n x d` points.

    Args:
        problem: pymoo's problem.
        keys: Names of its variables, where it takes dicts.
        X: The points.
        whole: Dimensions that take integers.
    """
    points = X.detach().cpu().double().numpy()
    if keys is not None:
        rows = [
            {
                k: int(v) if i in whole else float(v)
                for i, (k, v) in enumerate(zip(keys, x, strict=True))
            }
            for x in points
        ]
        points = np.array(rows, dtype=object)
    elif whole:
        points = points.astype(int)
    F = problem.evaluate(points, return_values_of=["F"])
    return torch.as_tensor(np.asarray(F, dtype=np.float64)).to(X)


def _objective(
    problem: Any, keys: Sequence[str] | None, whole: tuple[int, ...], column: int, X: Tensor
) -> Tensor:
    return _values(problem, keys, X, whole)[:, column]


class FromPymoo(TestProblem):
    """A problem of pymoo with two objectives; see `Problem.from_pymoo`.

    Args:
        problem: pymoo's problem, or the name of one.
        slow: Which of its objectives is the slow one: 0, the first, or 1.
        tau: Fast evaluations in the time of one slow one.
        names: A name for each dimension; None: those of pymoo's variables, if they have any.
        ref_point: Reference point (fast, slow) of the hypervolume; pymoo's problems have none.

    Raises:
        InvalidInputError: If it is no such problem, or another argument is wrong.
        MissingDependencyError: If pymoo is not installed.
    """

    def __init__(
        self,
        problem: Any,
        *,
        slow: int = 1,
        tau: float = 5.0,
        names: Sequence[str] | None = None,
        ref_point: Any = None,
    ) -> None:
        problem = _check_problem(problem)
        second = check_slow(slow)
        columns = [1 - second, second]
        keys, bounds, whole = _variables(problem)
        for name, value in {"problem": problem, "columns": columns, "keys": keys}.items():
            object.__setattr__(self, name, value)
        fast, slow_ = (partial(_objective, problem, keys, whole, column) for column in columns)
        super().__init__(
            fast=fast,
            slow=slow_,
            bounds=bounds,
            tau=tau,
            names=keys if names is None else names,
            integers=whole,
            vectorized=True,
            ref_point=ref_point,
        )

    problem: Any
    """pymoo's problem."""
    columns: list[int]
    """Its objectives that are (fast, slow)."""
    keys: tuple[str, ...] | None
    """Names of its variables, where it takes dicts."""

    def evaluate(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 2"]:
        """Return both objectives (fast, slow) by one call."""
        shape = f"of shape (*batch, n, {self.d})"
        check_float_tensor("X", X, shape, (None, self.d), batched=True)
        whole = tuple(self.integers)
        Y = _values(self.problem, self.keys, X.reshape(-1, self.d), whole)
        return Y[:, self.columns].reshape(*X.shape[:-1], 2)

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return at most n points of pymoo's front: as many as it has, evenly chosen."""
        n = check_int("n", n, minimum=1)
        known = inspect.signature(self.problem._calc_pareto_front).parameters
        size = next(({name: n} for name in _FRONT_SIZES if name in known), {})
        name = type(self.problem).__name__
        try:
            found = self.problem.pareto_front(use_cache=False, set_cache=False, **size)
        except Exception as error:  # whatever a problem does that has none, or has to fetch it
            raise AttributeError(f"the Pareto front of {name} is not known") from error
        if found is None or len(found) == 0:
            raise AttributeError(f"the Pareto front of {name} is not known")
        front = torch.as_tensor(np.asarray(found, dtype=np.float64))[:, self.columns]
        front = front[front[:, 0].argsort()]
        if len(front) <= n:
            return front
        return front[torch.linspace(0, len(front) - 1, n).round().long()]


def _check_problem(value: Any) -> Any:
    kind = _load("pymoo.core.problem").Problem
    if isinstance(value, str):
        try:
            value = _load("pymoo.problems").get_problem(value)
        except MissingDependencyError:
            raise
        except Exception as error:  # pymoo raises plain ones
            raise InvalidInputError(
                f"problem must be a name that pymoo's get_problem knows, got {value!r}: {error}"
            ) from error
    if not isinstance(value, kind):
        raise InvalidInputError(
            "problem must be a pymoo Problem (an object, no class) or a name, "
            f"got {describe(value)}"
        )
    name = type(value).__name__
    if value.n_obj != 2:
        raise InvalidInputError(f"problem must have two objectives, got {name} with {value.n_obj}")
    if value.has_constraints():
        raise InvalidInputError(
            f"problem must have no constraints, got {name} with {value.n_constr}"
        )
    return value


def _variables(problem: Any) -> tuple[tuple[str, ...] | None, np.ndarray, tuple[int, ...]]:
    """Return names (None: no dicts), bounds and the integer dimensions of pymoo's variables."""
    variables, name = getattr(problem, "vars", None), type(problem).__name__
    low, high = problem.xl, problem.xu
    if isinstance(variables, Mapping):
        types = [getattr(variable, "vtype", None) for variable in variables.values()]
        low, high = ([side[key] for key in variables] for side in (low, high))
        keys = tuple(variables)
    else:
        types, keys = [problem.vtype] * problem.n_var, None
    for kind in types:
        if kind not in (None, float, int):
            raise InvalidInputError(
                f"problem must have real or integer variables, got {name} with {describe(kind)}"
            )
    if low is None or high is None or any(side is None for side in (*low, *high)):
        raise InvalidInputError(f"problem must have bounds xl and xu, got {name} without")
    whole = tuple(i for i, kind in enumerate(types) if kind is int)
    return keys, np.stack([np.asarray(side, dtype=np.float64) for side in (low, high)]), whole
