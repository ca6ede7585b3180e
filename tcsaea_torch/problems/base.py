"""What every benchmark problem offers, and the register of their names."""

from collections.abc import Callable
from typing import Any

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import (
    check_callable,
    check_choice,
    check_float_tensor,
    check_int,
    check_options,
    check_text,
)


class TestProblem(Problem):
    """A `Problem` that can also evaluate both objectives and knows its reference point."""

    __test__ = False  # not a test class, whatever pytest reads in the name

    def evaluate(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 2"]:
        """Return both objectives (fast, slow) at points in user's units."""
        shape = f"of shape (*batch, n, {self.d})"
        check_float_tensor("X", X, shape, (None, self.d), batched=True)
        flat = X.reshape(-1, self.d)
        if self.vectorized:
            columns = [torch.as_tensor(f(flat)).to(X).reshape(-1) for f in (self.fast, self.slow)]
        else:
            rows = flat.cpu().double().numpy()
            columns = [X.new_tensor([float(f(x)) for x in rows]) for f in (self.fast, self.slow)]
        return torch.stack(columns, dim=-1).reshape(*X.shape[:-1], 2)

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return about n points of the exact Pareto front, in user's units."""
        raise AttributeError(f"the Pareto front of {type(self).__name__} is not known")


class Swapped(TestProblem):
    """A problem whose objectives have changed places: its fast one is now the slow one.

    Args:
        original: The problem.

    Raises:
        InvalidInputError: If it is no `TestProblem`.
    """

    def __init__(self, original: TestProblem) -> None:
        if not isinstance(original, TestProblem):
            raise InvalidInputError(f"original must be a TestProblem, got {original!r}")
        object.__setattr__(self, "original", original)
        super().__init__(
            fast=original.slow,
            slow=original.fast,
            bounds=original.bounds,
            tau=original.tau,
            names=original.names,
            integers=original.integers,
            directions=original.directions[::-1],
            vectorized=original.vectorized,
            ref_point=None if original.ref_point is None else original.ref_point.flip(-1),
            objective_names=original.objective_names and original.objective_names[::-1],
        )

    original: TestProblem
    """The problem before."""

    def evaluate(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 2"]:
        """Return both objectives (fast, slow) at points in user's units."""
        return self.original.evaluate(X).flip(-1)

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return about n points of the Pareto front, in user's units."""
        return self.original.pareto_front(n).flip(-1)


_FACTORIES: dict[str, Callable[..., TestProblem]] = {}


def register(name: str, factory: Callable[..., TestProblem]) -> None:
    """Add a problem under a name; `factory(**options)` must accept `tau`."""
    check_text("name", name)
    check_callable("factory", factory)
    _FACTORIES[name] = factory


def names() -> tuple[str, ...]:
    """Return the names that `get` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def check_slow(slow: Any) -> int:
    """Return which of two published objectives is the slow one: 0, the first, or 1."""
    index = check_int("slow", slow, minimum=0)
    if index > 1:
        raise InvalidInputError(f"slow must be 0 or 1, got {slow}")
    return index


def get(name: str, *, slow: int = 1, **options: Any) -> TestProblem:
    """Make the problem of this name.

    Args:
        name: One of `names()`.
        slow: Which of the two published objectives is the slow one: 0, the first, or 1.
        **options: Passed on to the problem, such as `tau`.

    Raises:
        InvalidInputError: If the name (the nearest one is suggested) or an option is
            unknown or out of range.
    """
    factory = _FACTORIES[check_choice("problem", name, _FACTORIES)]
    check_slow(slow)
    check_options(f"problem {name!r}", factory, options)
    problem = factory(**options)
    return problem if slow == 1 else Swapped(problem)
