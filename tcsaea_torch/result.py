"""What a run found, in the user's units and signs."""

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from tcsaea_torch import metrics
from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.events import Record, RunState, Status, StrategyState
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_choice, check_path, check_vector

if TYPE_CHECKING:
    import pandas as pd

RunStatus = Literal["running", "finished", "exhausted", "interrupted"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """What a run found. Tensors are float64 on the CPU, in the user's units and signs."""

    problem: Problem
    """The problem that was solved."""
    strategy: str
    """Name of the strategy."""
    seed: int
    """Seed of the run."""
    all_ids: Int[Tensor, " k"]
    """Ids of all points that were asked for or attached."""
    all_X: Float[Tensor, "k d"]
    """These points."""
    all_Y: Float[Tensor, "k 2"]
    """Their values (fast, slow); NaN where not measured."""
    n_fast: int
    """Fast evaluations that were asked for."""
    n_slow: int
    """Slow evaluations that were asked for."""
    status: RunStatus
    """How the run stands."""
    message: str
    """The same for a person to read."""
    history: tuple[Record, ...]
    """Every evaluation in the order of asking."""
    ref_point: Float[Tensor, "2"] | None
    """Reference point of the hypervolume; None before the initial design is complete."""
    strategy_state: StrategyState = field(default_factory=dict, repr=False)
    """What the strategy keeps, for pictures: its own affair, minimised and in the unit cube."""

    @property
    def X(self) -> Float[Tensor, "n d"]:
        """All points with both values."""
        return self.all_X[~self.all_Y.isnan().any(dim=-1)]

    @property
    def Y(self) -> Float[Tensor, "n 2"]:
        """Their values (fast, slow)."""
        return self.all_Y[~self.all_Y.isnan().any(dim=-1)]

    @property
    def pareto_X(self) -> Float[Tensor, "p d"]:
        """Non-dominated points."""
        return self.X[self._is_on_front]

    @property
    def pareto_Y(self) -> Float[Tensor, "p 2"]:
        """Their values (fast, slow)."""
        return self.Y[self._is_on_front]

    @property
    def _is_on_front(self) -> Bool[Tensor, " n"]:
        return metrics.is_non_dominated(self.Y * self.problem.signs)

    def hypervolume(self, ref_point: Any = None) -> float:
        """Return the dominated hypervolume.

        Args:
            ref_point: In the user's units; None: the run's own reference point.

        Raises:
            InvalidInputError: If none is given and the run has none yet.
        """
        point = self.ref_point if ref_point is None else ref_point
        if point is None:
            raise InvalidInputError(
                "ref_point must be given: this run's initial design is not complete"
            )
        point = check_vector("ref_point", point, length=2)
        if not point.isfinite().all():  # before signs change what came
            raise InvalidInputError(f"ref_point must be finite, got {point.tolist()}")
        signs = self.problem.signs
        return metrics.hypervolume(self.Y * signs, point * signs)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return a table with a row for each point; NaN means not measured.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise MissingDependencyError(
                "to_dataframe needs pandas: pip install 'tcsaea-torch[plot]'"
            ) from error
        table = pd.DataFrame(self.all_X.numpy(), columns=list(self.problem.names or ()))
        table.insert(0, "point_id", self.all_ids.numpy())
        table["fast"], table["slow"] = self.all_Y.T.numpy()
        complete = ~self.all_Y.isnan().any(dim=-1)
        on_front = torch.zeros(len(table), dtype=torch.bool)
        on_front[complete] = self._is_on_front
        table["on_front"] = on_front.numpy()
        return table

    def plot(self, ax: Any = None, *, kind: str = "front", **options: Any) -> Any:
        """Draw the run; see `tcsaea_torch.plotting`.

        Args:
            ax: Matplotlib axes; None makes a figure with pyplot.
            kind: "front", "convergence", "timeline", "transfer" or "co-surrogate-error".
            **options: Passed on to the function of `tcsaea_torch.plotting` that draws it.

        Raises:
            InvalidInputError: If an argument is wrong.
            MissingDependencyError: If matplotlib is not installed.
        """
        from tcsaea_torch.plotting import KINDS

        draw = KINDS[check_choice("kind", kind, KINDS)]
        for option in options:
            check_choice(f"options of plot kind {kind!r}", option, _options_of(draw))
        return draw(self, ax=ax, **options)

    def write_csv(self, path: str | Path) -> None:
        """Write a line for each evaluation: ids, objective, status, value, point, reason."""
        x_of = dict(zip(self.all_ids.tolist(), self.all_X.tolist(), strict=True))
        names = list(self.problem.names or ())
        with check_path("path", path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "point_id", "objective", "status", "value", *names, "reason"])
            for record in self.history:
                start = (record.id, record.point_id, record.objective, record.status)
                x = map(repr, x_of[record.point_id])
                writer.writerow([*start, repr(record.value), *x, record.reason])


def _options_of(draw: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of what a function takes besides the result and the axes."""
    return tuple(name for name in list(signature(draw).parameters)[1:] if name != "ax")


def result_of(
    state: RunState,
    *,
    n_init: int,
    strategy: str,
    seed: int,
    status: RunStatus,
    interrupted: str | None = None,
) -> Result:
    """Return what a run has found.

    Args:
        state: The run.
        n_init: Size of its initial design.
        strategy: Name of its strategy.
        seed: Its seed.
        status: How it stands.
        interrupted: What cut it short, if anything did.
    """
    exists = (state.observed | state.pending | state.failed).any(dim=-1)
    return Result(
        problem=state.problem,
        strategy=strategy,
        seed=seed,
        all_ids=exists.nonzero().squeeze(-1),
        all_X=state.X_user[exists],
        all_Y=torch.where(state.observed, state.Y * state.problem.signs, torch.nan)[exists],
        n_fast=state.used[0],
        n_slow=state.used[1],
        status=status,
        message=describe_run(state, status, interrupted),
        history=tuple(Record(**vars(r)) for r in state.records),
        ref_point=ref_point_of(state, n_init),
        strategy_state=state.strategy_state,
    )


def ref_point_of(state: RunState, n_init: int) -> Float[Tensor, "2"] | None:
    """Return the hypervolume's reference point of a run, in the user's units.

    The problem's own, or else the worst values of the initial design plus a tenth of
    their range, as soon as that design is complete.
    """
    if state.problem.ref_point is not None:
        return state.problem.ref_point
    known = state.observed | state.pending | state.failed
    rows = known.all(dim=-1).nonzero().flatten()[:n_init]
    Y = state.Y[rows][state.observed[rows].all(dim=-1)]
    if len(rows) < n_init or len(Y) < 2 or state.pending[rows].any():
        return None
    low, high = Y.amin(dim=0), Y.amax(dim=0)
    return (high + 0.1 * (high - low)) * state.problem.signs


def describe_run(state: RunState, status: RunStatus, interrupted: str | None) -> str:
    """Say in a sentence how a run stands.

    Args:
        state: The run.
        status: Its status.
        interrupted: What cut it short, if anything did.
    """
    (n_fast, n_slow), (all_fast, all_slow) = state.used, state.total
    counts = f"{n_slow} of {all_slow} slow and {n_fast} of {all_fast} fast evaluations"
    n_failed = sum(r.status is Status.FAILED for r in state.records)
    failures = f", {n_failed} failed" if n_failed else ""
    reason = {
        "finished": "the slow budget is spent",
        "exhausted": "the strategy has nothing more to propose",
        "interrupted": f"interrupted by {interrupted}",
        "running": "running",
    }[status]
    return f"{reason}: {counts}{failures}"
