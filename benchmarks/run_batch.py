"""Run many synchronous runs of one strategy as one batch, without an `Optimizer`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies import RunView, Strategy
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


def initial_view(
    problem: TestProblem,
    seeds: Sequence[int],
    *,
    n_slow: int,
    n_init: int,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> RunView:
    """Return the view of b runs before anything was asked."""
    b, where = len(seeds), torch.device(device)
    nothing = torch.zeros(b, 0, 2, dtype=torch.bool, device=where)
    total = torch.tensor([problem.n_fast(n_slow), n_slow], device=where)
    return RunView(
        archive=Archive.empty(b, problem.d, dtype=dtype, device=where),
        pending=nothing,
        failed=nothing,
        used=torch.zeros(b, 2, dtype=torch.int64, device=where),
        total=total.expand(b, 2),
        n_init=n_init,
        tau=problem.tau,
        seeds=torch.tensor(list(seeds), device=where),
        grid=None if problem.grid is None else problem.grid.to(device),
    )


def tell_all(problem: TestProblem, run: RunView, X: Tensor, mask: Tensor) -> RunView:
    """Evaluate a proposal at once and return the view after it."""
    Y = problem.evaluate(problem.from_unit(X)).to(X) * problem.signs.to(X)
    batch = Archive(X=X, Y=torch.where(mask, Y, 0.0), observed=mask)
    archive = run.archive + batch
    nothing = torch.zeros_like(archive.observed)
    return RunView(
        archive=archive,
        pending=nothing,
        failed=nothing,
        used=run.used + mask.sum(dim=1),
        total=run.total,
        n_init=run.n_init,
        tau=run.tau,
        seeds=run.seeds,
        grid=run.grid,
    )


def run_batch(
    problem: TestProblem,
    strategy: Strategy,
    seeds: Sequence[int],
    *,
    n_slow: int = 200,
    n_init: int = 100,
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
    n_steps: int | None = None,
) -> BatchResult:
    """Run one strategy with several seeds as one batch.

    Args:
        problem: A problem that can be evaluated in batches.
        strategy: The strategy.
        seeds: One seed for each run.
        n_slow: Slow evaluations of each run.
        n_init: Size of the initial design.
        device: Where to compute.
        dtype: Floating-point type.
        n_steps: Stop after so many steps; None: at the end of the budget.
    """
    start = time.perf_counter()
    run = initial_view(problem, seeds, n_slow=n_slow, n_init=n_init, device=device, dtype=dtype)
    state = strategy.init(run)
    done = 0
    while n_steps is None or done < n_steps:
        proposal, state = strategy.propose(state, run)
        if not bool(proposal.evaluation_mask.any()):
            break
        run = tell_all(problem, run, proposal.X, proposal.evaluation_mask)
        done += 1
    return BatchResult(
        archive=run.archive, used=run.used, seconds=time.perf_counter() - start, n_steps=done
    )
