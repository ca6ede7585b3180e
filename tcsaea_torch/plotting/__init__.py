"""Pictures of runs, their results and their surrogates. Nothing else imports matplotlib.

Functions return matplotlib's axes and take `ax`, the axes to draw on; None makes a figure with
pyplot, which notebooks show. Nothing is shown or saved by them. Values are in the user's units
and signs. Colours are those that the colour-blind can tell apart; markers, lines and hatches
tell the same in grey.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from tcsaea_torch.plotting.convergence import plot_convergence
from tcsaea_torch.plotting.front import check_picture, plot_front, save_front
from tcsaea_torch.plotting.live import LivePlot
from tcsaea_torch.plotting.slices import plot_slices
from tcsaea_torch.plotting.timeline import plot_timeline
from tcsaea_torch.plotting.transfer import Transfer, plot_co_surrogate_error, plot_transfer

KINDS = MappingProxyType[str, Callable[..., Any]](
    {
        "front": plot_front,
        "convergence": plot_convergence,
        "timeline": plot_timeline,
        "transfer": plot_transfer,
        "co-surrogate-error": plot_co_surrogate_error,
    }
)
"""What `Result.plot` can draw."""

__all__ = [
    "LivePlot",
    "Transfer",
    "check_picture",
    "plot_co_surrogate_error",
    "plot_convergence",
    "plot_front",
    "plot_slices",
    "plot_timeline",
    "plot_transfer",
    "save_front",
]
