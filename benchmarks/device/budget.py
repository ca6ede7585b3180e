"""How much time is left, and how much the next item would take."""

import math
import time
from collections.abc import Callable, Mapping

LEAST_EXPONENT = 0.25
"""A batch on a device is never taken to be free: the device fills up."""

UNKNOWN_EXPONENT = 0.5
"""Of a device of which one batch size is known."""


class OutOfTimeError(Exception):
    """Work was given up, for the time is over."""


class Budget:
    """A span of time that began when this was made."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock, self.start = seconds, clock, clock()

    @property
    def used(self) -> float:
        """Seconds that have passed."""
        return self.clock() - self.start

    @property
    def left(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self.seconds - self.used, 0.0)


def predict(measured: Mapping[int, float], b: int, *, device: str) -> float:
    """Estimate the seconds of a batch of b from those of smaller ones.

    On the CPU time grows in proportion. On a device it grows as a power of b: between the two
    largest batches, within `LEAST_EXPONENT` and 1.

    Args:
        measured: Seconds of at least one smaller batch, by its size.
        b: Size of the batch.
        device: Where it would run.
    """
    *earlier, largest = sorted(measured)
    if device == "cpu":
        exponent = 1.0
    elif earlier:
        growth = math.log(measured[largest] / measured[earlier[-1]])
        exponent = min(max(growth / math.log(largest / earlier[-1]), LEAST_EXPONENT), 1.0)
    else:
        exponent = UNKNOWN_EXPONENT
    return measured[largest] * (b / largest) ** exponent
