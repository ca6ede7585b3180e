"""What all pictures share: axes, colours, labels."""

from typing import Any

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.problem import Problem
from tcsaea_torch.result import Result
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_instance, check_matrix, describe

SIZE = (7.0, 5.0)
"""Of a figure, in inches."""

# M. Okabe, K. Ito. Color universal design. 2008.
BLUE, RED, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
YELLOW, GREY, BLACK = "#F0E442", "#999999", "#000000"

STYLES: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": RED, "linestyle": "--", "marker": "s"},
    {"color": GREEN, "linestyle": "-.", "marker": "^"},
    {"color": PURPLE, "linestyle": ":", "marker": "D"},
    {"color": BLACK, "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
)
"""Of the first, second, ... line on the same axes: they differ in grey too."""

_N_FRONT = 500
_TIME_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))


def require_matplotlib() -> None:
    """Refuse to draw without matplotlib.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "plots need matplotlib: pip install 'tcsaea-torch[plot]'"
        ) from error


def check_axes(name: str, ax: Any) -> Any:
    """Return `ax` if it is matplotlib's axes."""
    if not callable(getattr(ax, "set_xlabel", None)):
        raise InvalidInputError(f"{name} must be matplotlib axes, got {describe(ax)}")
    return ax


def axes_of(ax: Any) -> Any:
    """Return the given axes, or make some with pyplot, which shows them in a notebook.

    Raises:
        InvalidInputError: If it is something else.
        MissingDependencyError: If matplotlib is not installed.
    """
    if ax is not None:
        return check_axes("ax", ax)
    require_matplotlib()
    import matplotlib.pyplot as plt

    return plt.figure(figsize=SIZE, layout="constrained").add_subplot()


def check_results(result: Any, compare: Any = None) -> None:
    """Refuse what is no `Result`."""
    check_instance("result", result, Result)
    if compare is not None:
        check_instance("compare", compare, Result)


def objective_names(problem: Problem) -> tuple[str, ...]:
    """Return what (fast, slow) are called."""
    return tuple(problem.objective_names or ("fast objective", "slow objective"))


def objective_labels(problem: Problem) -> tuple[str, ...]:
    """Return how the axes of (fast, slow) are labelled: name, unit if there is one, direction."""
    pairs = zip(objective_names(problem), problem.directions, strict=True)
    return tuple(f"{name} ({way}d)" for name, way in pairs)


def known_front_of(problem: Problem, given: Any) -> Float[Tensor, "k 2"] | None:
    """Return the given front, or that of a test problem, in the user's units; None: unknown.

    Raises:
        InvalidInputError: If it is no table of (fast, slow).
    """
    if given is not None:
        front = check_matrix("known_front", given, columns=2)
        if len(front) == 0:
            raise InvalidInputError("known_front must have at least one row, got none")
        return front
    try:
        return problem.pareto_front(_N_FRONT)  # pyright: ignore
    except AttributeError:  # a user's problem, or one whose front nobody knows
        return None


def time_scale(span: float) -> tuple[float, str]:
    """Return the seconds of a unit in which a span of time reads well, and its name."""
    for size, name in _TIME_UNITS:
        if span >= 2 * size:
            return size, name
    return 1.0, "seconds"


def log_scale(ax: Any) -> None:
    """Scale the y axis by logarithms, with plain numbers where it spans little."""

    def plain(value: float, _: int | None) -> str:
        return f"{value:g}"

    def some(value: float, _: int | None) -> str:
        low, high = ax.get_ylim()
        digits = "23456789" if high < 4 * low else "235" if high < 30 * low else ""
        return f"{value:g}" if f"{value:e}"[0] in digits else ""

    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(plain)
    ax.yaxis.set_minor_formatter(some)
