"""Paired timing: rivals take turns in one process, so that a busy machine slows all alike."""

import importlib
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

MAX_SECONDS = 600.0
"""When the rounds of one comparison end, however many are left."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The middle of a sample and its quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value."""
        if len(values) == 1:
            return cls(median=values[0], low=values[0], high=values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What rivals took; round i of one is the pair of round i of another."""

    seconds: dict[str, tuple[float, ...]]
    """Of one call."""
    results: dict[str, Any]
    """What the last call returned."""
    failures: dict[str, str]
    """Why a rival could not be run at all; it took no part."""


def paired(
    works: Mapping[str, Callable[[], Any]],
    repeats: int,
    *,
    optional: Collection[str] = (),
    min_seconds: float = 0.0,
    max_seconds: float = MAX_SECONDS,
    synchronise: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Time rivals in rounds: each round calls all of them, every other one in reverse order.

    One call of each comes first and does not count.

    Args:
        works: What is timed, by name.
        repeats: Number of rounds.
        optional: Names that are left out if their first call raises: a peer that does not
            work here must not cost the other numbers.
        min_seconds: Short work is called so often in a round that it takes about this long.
        max_seconds: No round begins after the rounds took this long, but one is made always.
        synchronise: Waits for the device.
        clock: Seconds since whenever.
    """

    def seconds_of(work: Callable[[], Any], n_calls: int) -> tuple[float, Any]:
        synchronise()
        start, result = clock(), None
        for _ in range(n_calls):
            result = work()
        synchronise()
        return (clock() - start) / n_calls, result

    n_calls: dict[str, int] = {}
    results: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, work in works.items():
        try:
            taken, results[name] = seconds_of(work, 1)
            if taken < min_seconds:  # the first call also loads and allocates: look again
                taken, _ = seconds_of(work, 1)
            n_calls[name] = max(1, math.ceil(min_seconds / max(taken, 1e-9)))
        except Exception as error:
            if name not in optional:
                raise
            failures[name] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    order = list(n_calls)
    seconds: dict[str, list[float]] = {name: [] for name in order}
    start = clock()
    for i in range(repeats):
        if i > 0 and clock() - start > max_seconds:
            break
        for name in order if i % 2 == 0 else reversed(order):
            taken, results[name] = seconds_of(works[name], n_calls[name])
            seconds[name].append(taken)
    return Rounds(
        seconds={name: tuple(values) for name, values in seconds.items()},
        results=results,
        failures=failures,
    )


def synchroniser(device: str) -> Callable[[], None]:
    """Return what waits for a device."""
    if torch.device(device).type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, and through threadpoolctl what numpy and scipy use, to one thread."""
    n_threads = torch.get_num_threads()
    pools = nullcontext()
    if importlib.util.find_spec("threadpoolctl"):
        pools = importlib.import_module("threadpoolctl").threadpool_limits(1)
    with pools:
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(n_threads)
