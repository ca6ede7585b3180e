"""What the workers of both lanes did when."""

import heapq
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Status
from tcsaea_torch.plotting.drawing import BLUE, GREY, RED, YELLOW, axes_of, time_scale
from tcsaea_torch.result import Result
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_instance, check_text, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# They differ in grey too, and those that need attention are hatched.
_LOOKS: dict[Outcome, dict[str, Any]] = {
    Outcome.DONE: {"facecolor": BLUE},
    Outcome.FAILED: {"facecolor": RED, "hatch": "xxxx"},
    Outcome.TIMED_OUT: {"facecolor": YELLOW, "hatch": "////"},
    Outcome.LOST: {"facecolor": GREY, "hatch": "...."},
}
_MAX_NAMED_WORKERS = 30


def plot_timeline(intervals: Result | Sequence[Interval], ax: Any = None, unit: str = "") -> "Axes":
    """Draw what the workers of both lanes did, a row for each and a bar for each evaluation.

    Of a result there is only known when each evaluation was asked for and when its value came,
    in real time: a row is then no worker, but one of the evaluations that were under way at the
    same time. Those that have not ended are left out.

    Args:
        intervals: A result, or `VirtualExecutor.timeline`.
        ax: Matplotlib axes; None makes a figure with pyplot.
        unit: Of the virtual time, for the label. Real time has its own.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_text("unit", unit)
    labels = f"virtual time ({unit})" if unit else "virtual time", "worker"
    if isinstance(intervals, Result):
        intervals, unit = _real(intervals)
        labels = f"time since the start ({unit})", "evaluations under way"
    elif isinstance(intervals, str) or not isinstance(intervals, Sequence):
        raise InvalidInputError(
            f"intervals must be a Result or a sequence of Interval, got {describe(intervals)}"
        )
    for interval in intervals:
        check_instance("intervals", interval, Interval)
    ax = axes_of(ax)
    _draw(ax, intervals)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    return ax


def _draw(ax: Any, intervals: Sequence[Interval]) -> None:
    from matplotlib.collections import PolyCollection

    workers = sorted({(i.lane.column, i.lane, i.worker) for i in intervals})
    row_of = {(lane, worker): row for row, (_, lane, worker) in enumerate(workers)}
    is_named = len(workers) <= _MAX_NAMED_WORKERS
    height = 0.8 if is_named else 1.0  # gaps between many rows would show as a pattern
    edge = 0.5 if len(intervals) <= 2000 else 0.0
    for outcome, look in _LOOKS.items():
        bars = [
            _bar(i, row_of[i.lane, i.worker], height) for i in intervals if i.outcome is outcome
        ]
        if bars:
            label = f"{outcome}: {len(bars)}"
            ax.add_collection(
                PolyCollection(bars, edgecolor="white", linewidth=edge, label=label, **look)
            )
    if is_named:
        ax.set_yticks(range(len(workers)), [f"{lane} {k}" for _, lane, k in workers])
    else:
        rows = {o: [row for (lane, _), row in row_of.items() if lane is o] for o in Objective}
        named = {o: sum(r) / len(r) for o, r in rows.items() if r}
        ax.set_yticks(list(named.values()), [f"{o}: {len(rows[o])}" for o in named])
    n_fast = sum(lane is Objective.FAST for _, lane, _ in workers)
    if 0 < n_fast < len(workers):
        ax.axhline(n_fast - 0.5, color="black", linewidth=0.8)
    ax.set_xlim(0.0, max((i.end for i in intervals), default=0.0) or 1.0)
    ax.set_ylim(max(len(workers), 1) - 0.5, -0.5)  # the fast lane on top
    if intervals:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(_LOOKS), frameon=False)


def _bar(interval: Interval, row: int, height: float) -> list[tuple[float, float]]:
    """Return the corners of a bar."""
    start, end, low, high = interval.start, interval.end, row - height / 2, row + height / 2
    return [(start, low), (end, low), (end, high), (start, high)]


def _real(result: Result) -> tuple[list[Interval], str]:
    """Return what was under way when, in rows without overlap, and the unit of time."""
    ended = [r for r in result.history if not math.isnan(r.ended_at)]
    ended = [r for r in ended if r.status in (Status.DONE, Status.FAILED)]
    ended.sort(key=lambda record: (record.asked_at, record.id))
    start = ended[0].asked_at if ended else 0.0
    size, unit = time_scale(max((r.ended_at - start for r in ended), default=0.0))
    free: dict[Objective, list[int]] = {o: [] for o in Objective}
    busy: dict[Objective, list[tuple[float, int]]] = {o: [] for o in Objective}
    intervals = []
    for record in ended:
        lane = record.objective
        while busy[lane] and busy[lane][0][0] <= record.asked_at:
            heapq.heappush(free[lane], heapq.heappop(busy[lane])[1])
        row = heapq.heappop(free[lane]) if free[lane] else len(busy[lane])
        heapq.heappush(busy[lane], (record.ended_at, row))
        intervals.append(
            Interval(
                lane=lane, worker=row, evaluation_id=record.id,
                start=(record.asked_at - start) / size, end=(record.ended_at - start) / size,
                outcome=Outcome.DONE if record.status is Status.DONE else Outcome.FAILED,
            )
        )  # fmt: skip
    return intervals, unit
