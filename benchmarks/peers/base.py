"""What all peers share: a counted problem, a time limit, a result, and no trace in global state."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.types import Bool, Float, Tensor

BOTH = (True, True)


class BudgetError(Exception):
    """A peer asked for more evaluations than it has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PeerResult:
    """What a run of a peer measured."""

    X: Float[Tensor, "n d"]
    """Points with both values, in the unit cube, in the order of their evaluation."""
    Y: Float[Tensor, "n 2"]
    """Their values, minimised."""
    recommended: Float[Tensor, "k 2"]
    """True values of points that a model recommended at the end; they cost nothing."""
    n_fast: int
    n_slow: int
    seconds: float
    is_cut: bool
    """Whether the time limit ended it; the rest of its budget is then unused."""

    @property
    def scored(self) -> Float[Tensor, "m 2"]:
        """Values that the run is judged by."""
        return torch.cat([self.Y, self.recommended])


class Evaluations:
    """The only way from a peer to the problem: counts calls and refuses what is not left.

    Args:
        problem: The problem; continuous.
        seed: The seed of the run.
        n_slow: Slow evaluations that are allowed; with floor(tau n_slow) fast ones.
        time_limit: Seconds; None: no limit.
    """

    def __init__(
        self, problem: TestProblem, seed: int, n_slow: int, time_limit: float | None
    ) -> None:
        if problem.grid is not None:
            raise InvalidInputError("problem must be continuous in all dimensions for a peer")
        self.problem, self.seed, self.d = problem, seed, problem.d
        self.left = [problem.n_fast(n_slow), n_slow]
        """Evaluations left of (fast, slow)."""
        self.X = torch.zeros(0, self.d, dtype=torch.float64)
        self.Y = torch.zeros(0, 2, dtype=torch.float64)
        """Minimised values; NaN where not evaluated."""
        self.is_cut = False
        self._started, self._time_limit = time.perf_counter(), time_limit

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the time limit, at least 0; None without one."""
        return None if self._time_limit is None else max(0.0, self._time_limit - self.seconds)

    def has_time(self) -> bool:
        """Say whether time is left. A search ends when it is not, and has then been cut."""
        self.is_cut = self.seconds_left == 0.0
        return not self.is_cut

    @property
    def is_complete(self) -> Bool[Tensor, " n"]:
        """Which points have both values."""
        return ~self.Y.isnan().any(dim=-1)

    def design(self, n: int) -> Float[Tensor, "n d"]:
        """Return the random Latin hypercube that strategies of this seed begin with."""
        u, jitter = uniforms(torch.tensor([self.seed]), "design", 0, (2, n, self.d))[0]
        return latin_hypercube(u, jitter)

    def true_values(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n 2"]:
        """Return minimised values that are not charged; only for what is reported."""
        return self.problem.evaluate(self.problem.from_unit(X)) * self.problem.signs

    def evaluate(
        self, X: Float[Tensor, "n d"], which: tuple[bool, bool] = BOTH
    ) -> Float[Tensor, "n 2"]:
        """Evaluate points, and charge them.

        Args:
            X: Points in the unit cube.
            which: Which of the objectives (fast, slow).

        Returns:
            Minimised values, NaN where not asked for.

        Raises:
            BudgetError: If fewer evaluations are left.
            InvalidInputError: If a point lies outside of the unit cube.
        """
        X = X.detach().clone()
        if not ((X >= 0) & (X <= 1)).all():
            raise InvalidInputError("X must lie in the unit cube")
        for i, name in enumerate(("fast", "slow")):
            if which[i] and self.left[i] < len(X):
                raise BudgetError(f"{len(X)} {name} evaluations, but {self.left[i]} are left")
        mask = torch.tensor(which)
        Y = torch.where(mask, self.true_values(X), torch.nan)
        self.left = [left - len(X) * asked for left, asked in zip(self.left, which, strict=True)]
        for x, y in zip(X, Y, strict=True):
            self._keep(x, y)
        return Y

    def _keep(self, x: Tensor, y: Tensor) -> None:
        """Add a row, or to a known point the value that it lacks."""
        equal = (self.X == x).all(dim=-1) & ~self.is_complete
        if equal.any():
            self.Y = torch.where(equal.unsqueeze(-1) & ~y.isnan(), y, self.Y)
        else:
            self.X, self.Y = torch.cat([self.X, x[None]]), torch.cat([self.Y, y[None]])


Search = Callable[[Evaluations, int], Float[Tensor, "k d"] | None]
"""A peer: gets the evaluations and n_init; returns points that its model recommends, if any."""


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed the global generators that libraries draw from, and put them back at the end."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002


def run(
    search: Search,
    problem: TestProblem,
    seed: int,
    n_slow: int,
    n_init: int,
    time_limit: float | None,
) -> PeerResult:
    """Run a search with a budget and return what it measured."""
    evaluations = Evaluations(problem, seed, n_slow, time_limit)
    with isolated(seed):
        recommended = search(evaluations, n_init)
    seconds, complete = evaluations.seconds, evaluations.is_complete
    if recommended is None:
        recommended = evaluations.X[:0]
    return PeerResult(
        X=evaluations.X[complete],
        Y=evaluations.Y[complete],
        recommended=evaluations.true_values(recommended),
        n_fast=problem.n_fast(n_slow) - evaluations.left[0],
        n_slow=n_slow - evaluations.left[1],
        seconds=seconds,
        is_cut=evaluations.is_cut,
    )
