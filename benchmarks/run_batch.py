"""Run many synchronous runs of one strategy as one batch, without an `Optimizer`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems.base import TestProblem
from tcsaea_torch.strategies.base import Proposal, RunView, State, Strategy, budget
from tcsaea_torch.types import Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchResult:
    """What b runs measured."""

    archive: Archive
    """All rows, minimised, in the unit cube."""
    used: Tensor
    """`b x 2`: evaluations of (fast, slow)."""
    seconds: float
    """Wall time of all runs together."""
    n_steps: int
    """How often the strategy was asked."""

    def points(self, i: int) -> Tensor:
        """Return the complete rows of run i: `n x 2` objective values."""
        return self.archive.Y[i][self.archive.complete[i]]


Problems = TestProblem | Sequence[TestProblem]
"""One problem for all runs, or one for each, alike in all but their objectives."""


def initial_view(
    problem: Problems,
    seeds: Sequence[int],
    *,
    n_slow: int,
    n_init: int,
    strategy: Strategy | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> RunView:
    """Return the view of b runs before anything was asked, with the strategy's budget.

    Raises:
        InvalidInputError: If problems differ in what a strategy may know of them.
    """
    b, where = len(seeds), torch.device(device)
    every = [problem] * b if isinstance(problem, TestProblem) else problem
    problem, ref_point = _common(problem, b), None
    if problem.ref_point is not None:
        ref_point = torch.stack([one.ref_point * one.signs for one in every]).to(where, dtype)
    nothing = torch.zeros(b, 0, 2, dtype=torch.bool, device=where)
    total = (problem.n_fast(n_slow), n_slow)
    if strategy is not None:
        total = budget(strategy, problem, n_slow)
    return RunView(
        archive=Archive.empty(b, problem.d, dtype=dtype, device=where),
        pending=nothing,
        failed=nothing,
        used=torch.zeros(b, 2, dtype=torch.int64, device=where),
        total=torch.tensor(total, device=where).expand(b, 2),
        n_init=n_init,
        tau=problem.tau,
        seeds=torch.tensor(list(seeds), device=where),
        grid=None if problem.grid is None else problem.grid.to(device),
        ref_point=ref_point,
    )


def _common(problem: Problems, b: int) -> TestProblem:
    """Return a problem that stands for all as far as strategies know them."""
    if isinstance(problem, TestProblem):
        return problem
    if len(problem) != b:
        raise InvalidInputError(f"problem must have one entry a seed, {b}, got {len(problem)}")
    first = problem[0]
    for other in problem[1:]:
        for name in ("d", "tau", "bounds", "integers", "directions"):
            a, z = getattr(first, name), getattr(other, name)
            if not (torch.equal(a, z) if isinstance(a, Tensor) else a == z):
                raise InvalidInputError(f"problems of a batch must agree in {name}: {a}, {z}")
        if (first.ref_point is None) != (other.ref_point is None):
            raise InvalidInputError("all problems of a batch must have a ref_point, or none")
    return first


def _evaluate(problem: Problems, X: Tensor) -> Tensor:
    """Return minimised values `b x q x 2` of points `b x q x d` in the unit cube."""
    if isinstance(problem, TestProblem):
        return problem.evaluate(problem.from_unit(X)).to(X) * problem.signs.to(X)
    return torch.stack([_evaluate(one, X[i]) for i, one in enumerate(problem)])


def tell_all(problem: Problems, run: RunView, proposal: Proposal) -> RunView:
    """Evaluate a proposal at once and return the view after it."""
    archive, again = run.archive, proposal.archive_mask
    if again is not None:
        Y = torch.where(again, _evaluate(problem, archive.X), archive.Y)
        archive = replace(archive, Y=Y, observed=archive.observed | again)
    X, mask = proposal.X, proposal.evaluation_mask
    archive = archive + Archive(X=X, Y=torch.where(mask, _evaluate(problem, X), 0.0), observed=mask)
    nothing = torch.zeros_like(archive.observed)
    return replace(
        run, archive=archive, pending=nothing, failed=nothing, used=run.used + proposal.n_asked
    )


def run_batch(
    problem: Problems,
    strategy: Strategy,
    seeds: Sequence[int],
    *,
    n_slow: int = 200,
    n_init: int = 100,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
    n_steps: int | None = None,
    watch: Callable[[RunView, State], None] | None = None,
) -> BatchResult:
    """Run one strategy with several seeds as one batch.

    Args:
        problem: A problem that can be evaluated in batches, or one for each seed.
        strategy: The strategy.
        seeds: One seed for each run.
        n_slow: Slow evaluations of each run.
        n_init: Size of the initial design.
        device: Where to compute.
        dtype: Floating-point type.
        n_steps: Stop after so many steps; None: at the end of the budget.
        watch: Called after each step with the runs and the strategy's state.
    """
    start = time.perf_counter()
    run = initial_view(
        problem,
        seeds,
        n_slow=n_slow,
        n_init=n_init,
        strategy=strategy,
        device=device,
        dtype=dtype,
    )
    state = strategy.init(run)
    done = 0
    while n_steps is None or done < n_steps:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            break
        run = tell_all(problem, run, proposal)
        done += 1
        if watch is not None:
            watch(run, state)
    return BatchResult(
        archive=run.archive, used=run.used, seconds=time.perf_counter() - start, n_steps=done
    )
