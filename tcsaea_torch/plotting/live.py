"""A picture of a run in a notebook that follows it."""

import io
import logging
import math
import time
from typing import Any

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.events import Event, Failed, Told
from tcsaea_torch.plotting.convergence import plot_convergence
from tcsaea_torch.plotting.drawing import require_matplotlib
from tcsaea_torch.plotting.front import plot_front
from tcsaea_torch.validation import check_real

logger = logging.getLogger(__name__)

_SIZE = (11.0, 4.2)
_DPI = 90
_SHARE = 0.2
"""Of a run's time that drawing may take."""
_INSTEAD = "elsewhere, leave LivePlot out and call result.plot() at the end"


class LivePlot:
    """A callback of `minimize` that shows the front and the hypervolume in a notebook.

    One picture is brought up to date under its cell: at most every so many seconds, and at the
    end. Drawing takes a fifth of the time at most. If it fails, a warning is logged and the run
    goes on without it.

    Example:
        >>> import tcsaea_torch as tc
        >>> tc.minimize(problem, n_slow=200, callbacks=[tc.plotting.LivePlot()])  # doctest: +SKIP

    Args:
        every: Seconds between two pictures, at least.

    Raises:
        InvalidInputError: If `every` is no number >= 0, or this is no notebook.
        MissingDependencyError: If matplotlib or IPython is not installed.
    """

    def __init__(self, every: float = 1.0) -> None:
        self._every = check_real("every", every, minimum=0.0)
        require_matplotlib()
        self._display, self._image = _notebook()
        self._handle: Any = None
        self._next_at = -math.inf
        self._is_on = True

    def __call__(self, optimizer: Any, event: Event) -> None:
        """Draw the run as it is now, if the last picture is old enough or the run has ended.

        Args:
            optimizer: The run, an `Optimizer`.
            event: What has just happened.
        """
        if not self._is_on or not isinstance(event, Told | Failed):
            return
        if time.perf_counter() < self._next_at and not _is_last(optimizer):
            return
        start = time.thread_time()  # what others do meanwhile would put off the next one
        try:
            self._show(_picture(optimizer))
        except Exception:  # a picture must not end a run of days
            self._is_on = False
            logger.warning("the live plot failed; the run goes on without it", exc_info=True)
        spent = time.thread_time() - start
        self._next_at = time.perf_counter() + max(self._every, spent * (1.0 / _SHARE - 1.0))

    def _show(self, png: bytes) -> None:
        image = self._image(data=png, format="png")
        if self._handle is None:
            self._handle = self._display(image, display_id=True)
        else:
            self._handle.update(image)


def _is_last(optimizer: Any) -> bool:
    """Return whether a run has ended, as far as is known without asking for more."""
    spent, total = optimizer.n_used, optimizer.n_total
    return spent[1] >= total[1] and optimizer.is_done


def _notebook() -> tuple[Any, Any]:
    """Return IPython's `display` and `Image`, if this is a notebook."""
    try:
        from IPython.core.getipython import get_ipython  # pyright: ignore
        from IPython.display import Image, display  # pyright: ignore
    except ImportError as error:
        raise MissingDependencyError(
            f"a live plot needs a notebook (pip install jupyterlab); {_INSTEAD}"
        ) from error
    if getattr(get_ipython(), "kernel", None) is None:
        raise InvalidInputError(f"LivePlot must be in a notebook, which this is not; {_INSTEAD}")
    return display, Image


def _picture(optimizer: Any) -> bytes:
    """Return a PNG of the run as it is now."""
    from matplotlib.figure import Figure

    result = optimizer.result()
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_front(result, ax=left)
    if result.ref_point is None:
        right.set_axis_off()
        right.text(0.5, 0.5, "initial design ...", ha="center", transform=right.transAxes)
    else:
        plot_convergence(result, ax=right)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
