"""A progress bar of a run, in a terminal or a notebook."""

import time
from typing import Any

from tcsaea_torch.events import Event, Failed, Status, Told
from tcsaea_torch.optimizer import Optimizer
from tcsaea_torch.types import Objective

_ENDED = (Status.DONE, Status.FAILED)
_PAUSES = 20
"""The hypervolume takes long of many points: at most this part of the run's time."""


class Progress:
    """A progress bar over slow evaluations, as a context and a callback.

    It is tqdm's: a widget in notebooks with ipywidgets, else text on the standard error.

    Args:
        optimizer: The run.
        enabled: Whether to show anything; else nothing is imported, made or printed.
    """

    def __init__(self, optimizer: Optimizer, *, enabled: bool) -> None:
        self._optimizer = optimizer
        n_fast, n_slow = optimizer.n_total
        self._n_fast_total = n_fast
        # A run that is resumed has ended some already.
        ended = [r for r in optimizer.result().history if r.status in _ENDED]
        self._ended = {record.id for record in ended}
        self._done = {o: sum(r.objective is o for r in ended) for o in Objective}
        self._hypervolume, self._next_at, self._n_measured = "", 0.0, 0
        self._bar: Any = None
        if enabled:
            from tqdm.auto import tqdm

            # miniters=0: it is drawn after fast evaluations too, and however quick the first
            # ones were; ten times a second at most.
            self._bar = tqdm(
                total=n_slow, initial=self._done[Objective.SLOW], desc="slow", unit="eval",
                miniters=0, dynamic_ncols=True,
            )  # fmt: skip

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self._bar is None:
            return
        if kind is None:
            self._measure()
            self._write()
        self._bar.close()

    def __call__(self, optimizer: Optimizer, event: Event) -> None:
        """Count an evaluation that has ended."""
        if not isinstance(event, Told | Failed) or event.id in self._ended or self._bar is None:
            return  # a late value was counted when its time was up
        self._ended.add(event.id)
        objective = optimizer.record(event.id).objective
        self._done[objective] += 1
        if time.perf_counter() >= self._next_at:
            self._measure()
        self._write()
        self._bar.update(int(objective is Objective.SLOW))

    def _measure(self) -> None:
        """Compute the hypervolume, and say when to do so again."""
        # This thread's own time: waiting for objectives that hold the interpreter, or for other
        # programs, would put off the next one for long.
        start = time.thread_time()
        result = self._optimizer.result()
        if result.ref_point is None:
            return
        self._hypervolume = f", hypervolume {result.hypervolume():.4g}"
        spent = time.thread_time() - start
        self._n_measured += 1
        if self._n_measured > 1:  # the first one loads and sets up more than the others
            self._next_at = time.perf_counter() + _PAUSES * spent

    def _write(self) -> None:
        fast = f"fast {self._done[Objective.FAST]}/{self._n_fast_total}"
        self._bar.set_postfix_str(fast + self._hypervolume, refresh=False)
