"""Time items one after the other, as far as the time goes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from benchmarks.device.budget import Budget, OutOfTimeError, predict
from benchmarks.device.items import Item, small_run
from benchmarks.micro.timing import Spread, synchroniser

REPEATS = 5
"""How often an item is timed, if time allows."""

SECONDS_OF_REPEATS = 4.0
"""No repeat begins after the earlier ones took this long."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What became of an item."""

    what: str
    b: int
    device: str
    status: Literal["measured", "skipped", "cut", "failed"]
    is_run: bool = False
    seconds: Spread | None = None
    """Of the whole batch."""
    per_item: float | None = None
    """Median of the seconds, over b."""
    repeats: int = 0
    peak_bytes: int | None = None
    """Most memory that tensors took on the device; None on the CPU."""
    note: str = ""

    @property
    def summary(self) -> str:
        """One line that says what became of it."""
        outcome = self.status if self.seconds is None else f"{self.seconds.median:.3g} s"
        note = f" ({self.note})" if self.note else ""
        return f"{self.what}, batch {self.b}, {self.device}: {outcome}{note}"

    @classmethod
    def of(cls, item: Item, status: Any, **values: Any) -> "Timing":
        """Return the timing of an item."""
        work = item.work
        return cls(what=work.what, b=item.b, device=item.device, status=status,
                   is_run=work.is_run, **values)  # fmt: skip


def measure(items: Sequence[Item], budget: Budget) -> Iterator[Timing]:
    """Time items, and yield what became of each as soon as it is done.

    An item is skipped if it would take more than the time left, judged by the smaller batches
    of the same work, or if none of these was measured.
    """
    medians: dict[tuple[str, str], dict[int, float]] = {}
    for item in items:
        known = medians.setdefault((item.work.what, item.device), {})
        reason = _reason_to_skip(item, known, budget)
        timing = Timing.of(item, "skipped", note=reason) if reason else _measured(item, budget)
        if timing.seconds is not None:
            known[item.b] = timing.seconds.median
        yield timing


def _reason_to_skip(item: Item, known: dict[int, float], budget: Budget) -> str:
    """Return why there is no time for an item, or nothing."""
    if known:
        n_calls = 2 if _warms_up_by_itself(item) else 1
        needed = n_calls * predict(known, item.b, device=item.device)
        fits_in, about = needed < budget.left, f"would take about {needed:.3g} s, "
    elif item.b == item.smallest:
        fits_in, about = budget.left > 0.0, ""
    else:
        return "no smaller batch was measured"
    return "" if fits_in else f"{about}{budget.left:.3g} s left"


def _warms_up_by_itself(item: Item) -> bool:
    """Whether a call of the same size comes first: on the CPU the smaller batch is enough."""
    return not item.work.is_run and (item.device != "cpu" or item.b == item.smallest)


def _measured(item: Item, budget: Budget) -> Timing:
    begin = budget.used
    try:
        return _timed(item, budget)
    except OutOfTimeError as error:
        return Timing.of(item, "cut", note=f"{error}, {budget.used - begin:.3g} s")
    except Exception as error:  # such as out of memory: the other numbers are still wanted
        reason = str(error).partition("\n")[0]
        return Timing.of(item, "failed", note=f"{type(error).__name__}: {reason}")


def _timed(item: Item, budget: Budget) -> Timing:
    """Warm up, then time calls until there are enough, or for `SECONDS_OF_REPEATS`."""
    on_device, synchronise = item.device != "cpu", synchroniser(item.device)
    if on_device:
        torch.cuda.empty_cache()
    work = item.work.make(item.b, item.device, budget)
    if _warms_up_by_itself(item):
        work()
    elif item.b == item.smallest:
        small_run(item.device)
    if on_device:
        torch.cuda.reset_peak_memory_stats(item.device)
    begin, seconds, note = budget.used, [], ""
    for _ in range(1 if item.work.is_run else REPEATS):
        synchronise()
        start = budget.clock()
        note = work()
        synchronise()
        seconds.append(budget.clock() - start)
        if budget.used - begin > SECONDS_OF_REPEATS or budget.left <= 0.0:
            break
    spread = Spread.of(seconds)
    return Timing.of(
        item, "measured", seconds=spread, per_item=spread.median / item.b, repeats=len(seconds),
        peak_bytes=torch.cuda.max_memory_allocated(item.device) if on_device else None, note=note,
    )  # fmt: skip
