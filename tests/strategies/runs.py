"""Helpers to drive strategies without an `Optimizer`."""

from dataclasses import dataclass, replace

import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import metrics
from tcsaea_torch.archive import Archive
from tcsaea_torch.problems import TestProblem


class Toy(TestProblem):
    """Two paraboloids with minima at 0.2 and 0.8; cheap, smooth, batched."""

    def __init__(self, d=2, tau=5.0, **options):
        super().__init__(
            fast=lambda X: ((X - 0.2) ** 2).sum(dim=-1),
            slow=lambda X: ((X - 0.8) ** 2).sum(dim=-1),
            bounds=options.pop("bounds", [[0.0] * d, [1.0] * d]),
            tau=tau,
            vectorized=True,
            **options,
        )


@dataclass
class Exact:
    """A model that knows an objective, and is nowhere uncertain but a little."""

    problem: Toy
    column: int
    sd: float = 1e-3

    def mean(self, Xq):
        return self.problem.evaluate(self.problem.from_unit(Xq))[..., self.column]

    def predict(self, Xq):
        mean = self.mean(Xq)
        return mean, torch.full_like(mean, self.sd**2)

    def predict_joint(self, Xq):
        mean, variance = self.predict(Xq)
        return mean, torch.diag_embed(variance)

    def extend(self, X, y, noise_var):
        return self


def steps_of(problem, strategy, seeds, *, n_slow, n_init, n_steps=None):
    """Yield (view before, proposal, state after) for each step of a synchronous run."""
    run = initial_view(problem, seeds, n_slow=n_slow, n_init=n_init, strategy=strategy)
    state = strategy.init(run)
    done = 0
    while n_steps is None or done < n_steps:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            return
        yield run, proposal, state
        run = tell_all(problem, run, proposal)
        done += 1


def with_rows(run, X, Y, observed=None):
    """Return a view with these rows measured (b = 1)."""
    X, Y = X.unsqueeze(0), Y.unsqueeze(0)
    seen = torch.ones_like(Y, dtype=torch.bool) if observed is None else observed.unsqueeze(0)
    archive = Archive(X=X, Y=torch.where(seen, Y, 0.0), observed=seen)
    nothing = torch.zeros_like(seen)
    return replace(run, archive=archive, pending=nothing, failed=nothing)


def igds(problem, strategy, n_seeds, *, n_front=1000, **budget):
    """Return the IGD of each of some synchronous runs."""
    front = problem.pareto_front(n_front)
    result = run_batch(problem, strategy, range(n_seeds), **budget)
    sets = [result.points(i) for i in range(n_seeds)]
    return [metrics.igd(Y[metrics.is_non_dominated(Y)], front) for Y in sets]
