"""What a run leaves beside its final score: curves and points that figures are made of."""

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Protocol

import torch

from tcsaea_torch import metrics
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies import RunView, State
from tcsaea_torch.types import Tensor

N_FRONT = 10_000
"""Points of the true front that IGD and hypervolume are computed with."""

Points = list[tuple[float, float]]


class Trace(Protocol):
    """Watches a batch of runs, and keeps something of each as pairs (x, y)."""

    def watch(self, run: RunView, state: State) -> None:
        """Look at the runs after a step, whose values are all known."""
        ...

    def points(self, i: int) -> Points:
        """Return what was kept of run i."""
        ...


def non_dominated(run: RunView, i: int) -> Tensor:
    """Return the non-dominated values of run i."""
    Y = run.archive.Y[i][run.archive.complete[i]].cpu()
    return Y[metrics.is_non_dominated(Y)]


@dataclass(kw_only=True)
class IGDHistory:
    """IGD of what is known, over slow evaluations; at most fifty points."""

    problems: InitVar[Sequence[TestProblem]]
    fronts: list[Tensor] = field(init=False)
    kept: list[Points] = field(init=False)

    def __post_init__(self, problems: Sequence[TestProblem]) -> None:
        self.fronts = [problem.pareto_front(N_FRONT) for problem in problems]
        self.kept = [[] for _ in problems]

    def watch(self, run: RunView, state: State) -> None:
        """Add a point to runs that have gone on by a fiftieth of their budget."""
        for i, (front, points) in enumerate(zip(self.fronts, self.kept, strict=True)):
            used, total = int(run.archive.complete[i].sum()), int(run.total[i, 1])
            if used and (not points or used == total or used - points[-1][0] >= total / 50):
                points.append((float(used), metrics.igd(non_dominated(run, i), front)))

    def points(self, i: int) -> Points:
        """Return (slow evaluations, IGD)."""
        return self.kept[i]


@dataclass(kw_only=True)
class Front:
    """The final non-dominated points."""

    problems: Sequence[TestProblem]
    last: RunView | None = None

    def watch(self, run: RunView, state: State) -> None:
        """Remember the last view."""
        self.last = run

    def points(self, i: int) -> Points:
        """Return (fast, slow) values."""
        assert self.last is not None
        return [(fast, slow) for fast, slow in non_dominated(self.last, i).tolist()]


@dataclass(kw_only=True)
class CoSurrogateError:
    """Mean square error of TC-SAEA's co-surrogate on the additional points of a period.

    The slow values of these points are computed for this purpose and not shown to anyone.
    """

    problems: Sequence[TestProblem]
    kept: list[Points] = field(init=False)

    def __post_init__(self) -> None:
        self.kept = [[] for _ in self.problems]

    def watch(self, run: RunView, state: State) -> None:
        """Add the error of the period that the state has just finished."""
        period, born, co_mean = state.get("period", 0), state.get("born"), state.get("co_mean")
        if not period or not isinstance(born, Tensor) or not isinstance(co_mean, Tensor):
            return
        for i, problem in enumerate(self.problems):
            rows = (born[i] == period) & run.archive.observed[i, :, 0]
            if bool(rows.any()):
                Y = problem.evaluate(problem.from_unit(run.archive.X[i][rows])) * problem.signs
                difference = co_mean[i][rows] - (Y[:, 1] - Y[:, 0])
                self.kept[i].append((float(period), float(difference.square().mean())))

    def points(self, i: int) -> Points:
        """Return (period, mean square error)."""
        return self.kept[i]


TRACES: dict[str, Callable[..., Trace]] = {
    "igd-history": IGDHistory,
    "front": Front,
    "co-surrogate-error": CoSurrogateError,
}


def make(names: Sequence[str], problems: Sequence[TestProblem]) -> dict[str, Trace]:
    """Make the traces of these names for runs of these problems."""
    return {name: TRACES[name](problems=problems) for name in names}


def watch_all(traces: dict[str, Trace]) -> Callable[[RunView, State], None] | None:
    """Return what `run_batch` calls after each step."""
    if not traces:
        return None

    @torch.no_grad()
    def watch(run: RunView, state: State) -> None:
        for trace in traces.values():
            trace.watch(run, state)

    return watch
