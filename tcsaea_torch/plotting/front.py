"""The front that a run found, and what else it measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.plotting.drawing import (
    BLUE,
    GREY,
    SIZE,
    axes_of,
    check_results,
    known_front_of,
    objective_labels,
    require_matplotlib,
)
from tcsaea_torch.result import Result
from tcsaea_torch.validation import check_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_front(
    result: Result, ax: Any = None, compare: Result | None = None, known_front: Any = None
) -> "Axes":
    """Draw all points with both objectives and the front among them.

    Fast values of points without a slow value are ticks along the axis.

    Args:
        result: What to draw.
        ax: Matplotlib axes; None makes a figure with pyplot.
        compare: Another result of the same problem, drawn in the background.
        known_front: `k x 2`, points of the true front in the user's units; None: that of a
            test problem, where it is known.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind.
        MissingDependencyError: If matplotlib is not installed.
    """
    check_results(result, compare)
    truth = known_front_of(result.problem, known_front)
    ax = axes_of(ax)
    handles = []
    if compare is not None:
        style = {"color": GREY, "marker": "s"}
        _, front, _ = _draw(ax, compare, edge="--", zorder=2.0, **style)
        handles.append(front)
    points, front, n_dominated = _draw(ax, result, color=BLUE, marker="o", edge="-", zorder=3.0)
    handles.append(front)
    if n_dominated:
        points.set_label(f"dominated: {n_dominated}")
        handles.append(points)
    handles += _draw_fast_only(ax, result)
    if truth is not None:
        dots = {"marker": ".", "color": "black", "linewidths": 0, "label": "known front"}
        ax.scatter(*truth.T.numpy(), s=5, zorder=2.5, **dots)
        handles.append(ax.scatter([], [], s=50, **dots))  # larger in the legend
    for label, text in zip(
        (ax.set_xlabel, ax.set_ylabel), objective_labels(result.problem), strict=True
    ):
        label(text)
    ax.set_title(f"{result.n_slow} slow and {result.n_fast} fast evaluations")
    ax.grid(visible=True, alpha=0.3)
    ax.legend(handles=handles)
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
    check_results(result, compare)
    check_picture("path", path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, layout="constrained")
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
    require_matplotlib()
    from matplotlib.figure import Figure

    endings = ["", *(f".{kind}" for kind in Figure().canvas.get_supported_filetypes())]
    if path.suffix.lower() not in endings:
        raise InvalidInputError(
            f"{name} must end in one of {', '.join(sorted(endings[1:]))}, got {path.suffix!r}"
        )


def _draw(
    ax: Any, result: Result, *, color: str, marker: str, edge: str, zorder: float
) -> tuple[Any, Any, int]:
    """Draw one result: faint open dots, and its front with the edge of the attained region.

    Returns:
        What shows the points and the front, and how many points are not on the front.
    """
    style = {"marker": marker, "color": color, "linestyle": "none", "zorder": zorder}
    (points,) = ax.plot(*result.Y.T.numpy(), alpha=0.5, markersize=4, fillstyle="none", **style)
    front = result.pareto_Y[result.pareto_Y[:, 0].argsort()]
    label = f"{result.strategy}: {len(front)} non-dominated"
    (best,) = ax.plot(*front.T.numpy(), markersize=6, label=label, **style)
    # In order of the first objective, the edge keeps a point's second value up to the next
    # point if the first is minimised, and takes the next point's at once if maximised.
    where = "post" if result.problem.directions[0] == "minimize" else "pre"
    ax.step(
        *front.T.numpy(), where=where, color=color, linestyle=edge, linewidth=1.0, zorder=zorder
    )
    return points, best, len(result.Y) - len(front)


def _draw_fast_only(ax: Any, result: Result) -> list[Any]:
    """Draw the fast values of points without a slow one along the axis, if there are any."""
    fast, slow = result.all_Y.T
    values = fast[~fast.isnan() & slow.isnan()]
    if len(values) == 0:
        return []
    ticks = ax.scatter(
        values.numpy(), [0.015] * len(values), marker="|", s=60, linewidths=0.8, color="0.25",
        transform=ax.get_xaxis_transform(), label=f"fast value only: {len(values)}",
    )  # fmt: skip
    ends = [(float(values.min()), 0.0), (float(values.max()), 0.0)]
    ax.update_datalim(ends, updatey=False)  # which scatter leaves to what is drawn in data units
    ax.autoscale_view()
    return [ticks]
