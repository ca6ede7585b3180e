"""Pictures of results. The only module that imports matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.result import Result
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_instance, check_path, check_text, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.0, 5.0)
# Colours that the colour-blind can tell apart, in grey too [Okabe2008]: M. Okabe, K. Ito. Color
# universal design. 2008.
_COLORS = {
    Outcome.DONE: "#0072B2",
    Outcome.FAILED: "#D55E00",
    Outcome.TIMED_OUT: "#F0E442",
    Outcome.LOST: "#999999",
}
_MAX_NAMED_WORKERS = 30


def plot_front(result: Result, ax: Any = None, compare: Result | None = None) -> "Axes":
    """Draw all points with both objectives and the front among them.

    Args:
        result: What to draw.
        ax: Matplotlib axes; None makes a figure with pyplot.
        compare: Another result of the same problem, drawn in the background.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind.
        MissingDependencyError: If matplotlib is not installed.
    """
    _check_results(result, compare)
    ax = _axes(ax)
    if compare is not None:
        _draw(ax, compare, color="tab:gray", marker="s")
    _draw(ax, result, color="tab:blue", marker="o")
    labels = (ax.set_xlabel, ax.set_ylabel)
    for label, kind, way in zip(labels, ("fast", "slow"), result.problem.directions, strict=True):
        label(f"{kind} objective ({way}d)")
    ax.set_title(f"{result.n_slow} slow and {result.n_fast} fast evaluations")
    ax.grid(visible=True, alpha=0.3)
    ax.legend()
    return ax


def save_front(result: Result, path: str | Path, compare: Result | None = None) -> None:
    """Write a picture of the front to a file; the ending decides the format.

    Args:
        result: What to draw.
        path: The file.
        compare: Another result of the same problem, drawn in the background.

    Raises:
        InvalidInputError: If an argument is of the wrong kind, or the ending unknown.
        MissingDependencyError: If matplotlib is not installed.
    """
    path = check_path("path", path)
    _check_results(result, compare)
    check_picture("path", path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    plot_front(result, ax=figure.add_subplot(), compare=compare)
    figure.savefig(path, dpi=150)


def check_picture(name: str, path: Path) -> None:
    """Refuse a file in which no picture can be written, before hours are spent on it.

    Args:
        name: Name of the argument, for messages.
        path: The file.

    Raises:
        InvalidInputError: If its ending is unknown.
        MissingDependencyError: If matplotlib is not installed.
    """
    _require_matplotlib()
    from matplotlib.figure import Figure

    endings = ["", *(f".{kind}" for kind in Figure().canvas.get_supported_filetypes())]
    if path.suffix.lower() not in endings:
        raise InvalidInputError(
            f"{name} must end in one of {', '.join(sorted(endings[1:]))}, got {path.suffix!r}"
        )


def plot_timeline(intervals: Sequence[Interval], ax: Any = None, unit: str = "") -> "Axes":
    """Draw what the workers of both lanes did, a row for each and a bar for each evaluation.

    Args:
        intervals: `VirtualExecutor.timeline`.
        ax: Matplotlib axes; None makes a figure with pyplot.
        unit: Of the virtual time, for the label.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind.
        MissingDependencyError: If matplotlib is not installed.
    """
    if isinstance(intervals, str) or not isinstance(intervals, Sequence):
        raise InvalidInputError(
            f"intervals must be a sequence of Interval, got {describe(intervals)}"
        )
    for interval in intervals:
        check_instance("intervals", interval, Interval)
    check_text("unit", unit)
    ax = _axes(ax)
    from matplotlib.collections import PolyCollection

    workers = sorted({(i.lane.column, i.lane, i.worker) for i in intervals})
    row_of = {(lane, worker): row for row, (_, lane, worker) in enumerate(workers)}
    is_named = len(workers) <= _MAX_NAMED_WORKERS
    height = 0.8 if is_named else 1.0  # gaps between many rows would show as a pattern
    edge = 0.5 if len(intervals) <= 2000 else 0.0
    for outcome, color in _COLORS.items():
        bars = [
            _bar(i, row_of[i.lane, i.worker], height) for i in intervals if i.outcome is outcome
        ]
        if bars:
            label = f"{outcome}: {len(bars)}"
            ax.add_collection(
                PolyCollection(
                    bars, facecolor=color, edgecolor="white", linewidth=edge, label=label
                )
            )
    if is_named:
        ax.set_yticks(range(len(workers)), [f"{lane} {k}" for _, lane, k in workers])
    else:
        rows = {o: [row for (lane, _), row in row_of.items() if lane is o] for o in Objective}
        named = {o: sum(r) / len(r) for o, r in rows.items() if r}
        ax.set_yticks(list(named.values()), [f"{o}: {len(rows[o])}" for o in named])
    ax.set_xlim(0.0, max((i.end for i in intervals), default=1.0))
    ax.set_ylim(max(len(workers), 1) - 0.5, -0.5)  # the fast lane on top
    ax.set_xlabel(f"virtual time ({unit})" if unit else "virtual time")
    ax.set_ylabel("worker")
    if intervals:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(_COLORS), frameon=False)
    return ax


def _bar(interval: Interval, row: int, height: float) -> list[tuple[float, float]]:
    """Return the corners of a bar."""
    start, end, low, high = interval.start, interval.end, row - height / 2, row + height / 2
    return [(start, low), (end, low), (end, high), (start, high)]


def _axes(ax: Any) -> Any:
    """Return the given axes, or make some with pyplot."""
    if ax is not None and not callable(getattr(ax, "set_xlabel", None)):
        raise InvalidInputError(f"ax must be matplotlib axes, got {describe(ax)}")
    if ax is None:
        _require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=_SIZE, layout="constrained").add_subplot()
    return ax


def _check_results(result: Any, compare: Any) -> None:
    check_instance("result", result, Result)
    if compare is not None:
        check_instance("compare", compare, Result)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "plots need matplotlib: pip install 'tcsaea-torch[plot]'"
        ) from error


def _draw(ax: Any, result: Result, *, color: str, marker: str) -> None:
    """Draw one result: faint dots, and its front with the edge of the attained region."""
    style = {"marker": marker, "color": color, "linestyle": "none"}
    ax.plot(*result.Y.T.numpy(), alpha=0.25, markersize=4, **style)
    front = result.pareto_Y[result.pareto_Y[:, 0].argsort()]
    label = f"{result.strategy}: {len(front)} non-dominated"
    ax.plot(*front.T.numpy(), markersize=6, label=label, **style)
    # In order of the first objective, the edge keeps a point's second value up to the next
    # point if the first is minimised, and takes the next point's at once if maximised.
    where = "post" if result.problem.directions[0] == "minimize" else "pre"
    ax.step(*front.T.numpy(), where=where, color=color, linewidth=1.0, alpha=0.7)
