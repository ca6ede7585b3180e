"""Pictures of results. The only module that imports matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.result import Result
from tcsaea_torch.validation import check_instance, check_path, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (7.0, 5.0)


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
    if ax is not None and not callable(getattr(ax, "set_xlabel", None)):
        raise InvalidInputError(f"ax must be matplotlib axes, got {describe(ax)}")
    if ax is None:
        _require_matplotlib()
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=_SIZE, layout="constrained").add_subplot()
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
    _require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    endings = ["", *(f".{kind}" for kind in figure.canvas.get_supported_filetypes())]
    if path.suffix.lower() not in endings:
        raise InvalidInputError(
            f"path must end in one of {', '.join(sorted(endings[1:]))}, got {path.suffix!r}"
        )
    plot_front(result, ax=figure.add_subplot(), compare=compare)
    figure.savefig(path, dpi=150)


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
