"""How the front became better: hypervolume or IGD over slow evaluations or over time."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tcsaea_torch import metrics
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Record, Status
from tcsaea_torch.plotting.drawing import (
    STYLES,
    axes_of,
    check_results,
    known_front_of,
    log_scale,
    time_scale,
)
from tcsaea_torch.result import Result
from tcsaea_torch.timeline import Interval
from tcsaea_torch.types import Float, Objective, Tensor
from tcsaea_torch.validation import check_choice, check_instance, check_text, check_vector, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = ("hypervolume", "igd")


def plot_convergence(
    result: Result,
    metric: str = "hypervolume",
    x: str = "slow",
    *,
    ref_point: Any = None,
    known_front: Any = None,
    timeline: Sequence[Interval] | None = None,
    unit: str = "",
    label: str | None = None,
    ax: Any = None,
) -> "Axes":
    """Draw a measure of the front over slow evaluations or over time, as a curve of steps.

    To compare runs, draw them one after another on the same axes, with the same `ref_point`.

    Args:
        result: The run.
        metric: "hypervolume", or "igd", the mean distance from the known front.
        x: "slow", the slow evaluations that have ended, failed ones too; or "time".
        ref_point: Of the hypervolume, in the user's units; None: the run's own.
        known_front: For IGD, `k x 2` points in the user's units; None: that of a test problem.
        timeline: `VirtualExecutor.timeline` of this run, for virtual time; None: real time.
        unit: Of the virtual time, for the label.
        label: In the legend; None: the strategy's name.
        ax: Matplotlib axes; None makes a figure with pyplot.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is wrong, or the reference point or the front is needed
            and not known.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_results(result)
    check_choice("metric", metric, METRICS)
    check_choice("x", x, ("slow", "time"))
    check_text("unit", unit)
    if label is not None:
        check_text("label", label)
    if metric == "igd":
        measure, what = _igd(result, known_front), "inverted generational distance (IGD)"
    else:
        measure, what = _hypervolume(result, ref_point)
    when, axis = _clock(result, x, timeline, unit)
    places, values = trace(result, when, measure, counts=x == "slow")
    ax = axes_of(ax)
    style = STYLES[len(ax.get_lines()) % len(STYLES)]
    every = max(1, len(places) // 10)
    ax.step(
        places, values, where="post", markevery=every, markersize=4,
        label=result.strategy if label is None else label, **style,
    )  # fmt: skip
    if metric == "igd" and values:
        log_scale(ax)
    ax.set_xlabel(axis)
    ax.set_ylabel(what)
    ax.grid(visible=True, alpha=0.3)
    ax.legend()
    return ax


def trace(
    result: Result,
    when: Callable[[Record], float],
    measure: Callable[[Tensor], float],
    *,
    counts: bool,
) -> tuple[list[float], list[float]]:
    """Return where a measure of the front changed, and to what.

    Args:
        result: The run.
        when: When an evaluation ended; NaN if it did not.
        measure: Of minimised non-dominated values; what is not finite is left out.
        counts: Whether places are numbers of slow evaluations that have ended, or times.
    """
    row_of = {point: row for row, point in enumerate(result.all_ids.tolist())}
    Y = result.all_Y * result.problem.signs
    ended = [r for r in result.history if r.status in (Status.DONE, Status.FAILED)]
    times = [when(r) for r in ended]
    order = sorted((t, r.id, r) for t, r in zip(times, ended, strict=True) if not math.isnan(t))
    lacking = ~Y.isnan()  # what is known at the end and not yet
    asked = torch.zeros_like(lacking)
    for record in ended:
        asked[row_of[record.point_id], record.objective.column] = True
    lacking &= asked  # the rest was there at the start
    is_known = ~Y.isnan() & ~lacking
    front = _best(Y[is_known.all(dim=-1)])
    n_slow, place = 0, 0.0
    found: dict[float, float] = {}
    if len(front):
        found[place] = measure(front)
    for time, _, record in order:
        n_slow += record.objective is Objective.SLOW
        place = float(n_slow) if counts else time
        row, column = row_of[record.point_id], record.objective.column
        if record.status is Status.DONE and lacking[row, column]:
            lacking[row, column] = False
            is_known[row, column] = True
            if is_known[row].all():
                front = _best(torch.cat([front, Y[row].unsqueeze(0)]))
                found[place] = measure(front)
    if found:
        found.setdefault(place, list(found.values())[-1])  # up to the end
    found = {at: value for at, value in found.items() if math.isfinite(value)}
    return list(found), list(found.values())


def _best(Y: Float[Tensor, "n 2"]) -> Float[Tensor, "k 2"]:
    return Y[metrics.is_non_dominated(Y)] if len(Y) else Y


def _hypervolume(result: Result, given: Any) -> tuple[Callable[[Tensor], float], str]:
    """Return the measure, and how its axis is labelled."""
    point = result.ref_point if given is None else check_vector("ref_point", given, length=2)
    if point is None:
        raise InvalidInputError(
            "ref_point must be given: this run's initial design is not complete"
        )
    if not point.isfinite().all():
        raise InvalidInputError(f"ref_point must be finite, got {point.tolist()}")
    low = point * result.problem.signs
    shown = ", ".join(f"{value:.4g}" for value in point.tolist())
    return lambda Y: metrics.hypervolume(Y, low), f"hypervolume, reference point ({shown})"


def _igd(result: Result, given: Any) -> Callable[[Tensor], float]:
    front = known_front_of(result.problem, given)
    if front is None:
        raise InvalidInputError("known_front must be given: this problem's own is not known")
    truth = front.cpu().double() * result.problem.signs
    return lambda Y: metrics.igd(Y, truth)


def _clock(
    result: Result, x: str, timeline: Any, unit: str
) -> tuple[Callable[[Record], float], str]:
    """Return when evaluations ended, and how the axis is labelled."""
    if timeline is not None:
        if isinstance(timeline, str) or not isinstance(timeline, Sequence):
            raise InvalidInputError(
                f"timeline must be a sequence of Interval, got {describe(timeline)}"
            )
        for interval in timeline:
            check_instance("timeline", interval, Interval)
        ends = {interval.evaluation_id: interval.end for interval in timeline}

        def when(record: Record) -> float:
            return ends.get(record.id, math.nan)

        axis = f"virtual time ({unit})" if unit else "virtual time"
        return when, "slow evaluations" if x == "slow" else axis
    if x == "slow":
        return lambda record: record.ended_at, "slow evaluations"
    start = min((r.asked_at for r in result.history), default=0.0)
    span = max((r.ended_at - start for r in result.history if r.ended_at > start), default=0.0)
    size, name = time_scale(span)
    return lambda record: (record.ended_at - start) / size, f"time since the start ({name})"
