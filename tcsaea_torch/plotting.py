"""Pictures of results. The only module that imports matplotlib."""

from typing import Any

import torch

from tcsaea_torch.errors import MissingDependencyError
from tcsaea_torch.result import Result


def plot_front(result: Result, ax: Any = None, compare: Result | None = None) -> Any:
    """Draw all points with both objectives and the front among them.

    Args:
        result: What to draw.
        ax: Matplotlib axes; None makes a new figure.
        compare: Another result of the same problem, drawn in the background.

    Returns:
        The axes.

    Raises:
        MissingDependencyError: If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingDependencyError(
            "plots need matplotlib: pip install 'tcsaea-torch[plot]'"
        ) from error
    if ax is None:
        ax = plt.figure(figsize=(7.0, 5.0), layout="constrained").add_subplot()
    if compare is not None:
        _draw(ax, compare, color="tab:gray", marker="s")
    _draw(ax, result, color="tab:blue", marker="o")
    names = [f"{kind} ({way}d)" for kind, way in zip(
        ("fast objective", "slow objective"), result.problem.directions, strict=True
    )]  # fmt: skip
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    ax.set_title(f"{result.n_slow} slow and {result.n_fast} fast evaluations")
    ax.grid(visible=True, alpha=0.3)
    ax.legend()
    return ax


def _draw(ax: Any, result: Result, *, color: str, marker: str) -> None:
    """Draw one result: faint dots, and its front as a staircase between its points."""
    ax.plot(*result.Y.T.numpy(), marker, color=color, alpha=0.25, markersize=4, linestyle="none")
    front = result.pareto_Y[result.pareto_Y[:, 0].argsort()]
    label = f"{result.strategy}: {len(front)} non-dominated"
    ax.plot(*front.T.numpy(), marker, color=color, markersize=6, linestyle="none", label=label)
    if len(front) > 1:
        # The attained region's edge: along the first axis, then along the second.
        x = front[:, 0].repeat_interleave(2)[1:]
        y = front[:, 1].repeat_interleave(2)[:-1]
        signs = result.problem.signs
        if not bool(torch.equal(signs, torch.ones(2, dtype=signs.dtype))):
            return
        ax.plot(x.numpy(), y.numpy(), color=color, linewidth=1.0, alpha=0.7)
