"""A virtual clock: runs of any schedule in no real time.

Objectives are called for real, in the thread of the run, at
the virtual time when they end; only the time that they take is made up.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.executors import ExecutorPair, Lanes, Limits, for_each_objective
from tcsaea_torch.rng import signed64, uniforms
from tcsaea_torch.simulation import SimulatedLane, SimulatedLanes
from tcsaea_torch.timeline import Interval
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import (
    as_scalar,
    check_choice,
    check_int,
    check_real,
    describe,
)

_BLOCK = 1024  # random numbers that are drawn at a time


@runtime_checkable
class Distribution(Protocol):
    """A distribution such as `scipy.stats.lognorm(0.5)`."""

    def ppf(self, q: Any) -> Any:
        """Return the quantile of each probability in `q`."""
        ...


Duration = float | Callable[[float], float] | Distribution
Change = tuple[float, str, int]


class VirtualExecutor(ExecutorPair):
    """An executor of `minimize` for which evaluations take virtual time.

    Each lane has its workers and its queue. Evaluations are made one by one, of
    `vectorized` problems too. A time limit of `minimize` is in the clock's unit; what
    exceeds it is stopped, and its worker goes on. Times in `Result.history` are real ones.

    Example:
        >>> from tcsaea_torch import Problem, VirtualExecutor, minimize
        >>> problem = Problem(
        ...     fast=lambda x: float((x**2).sum()),
        ...     slow=lambda x: float(((x - 1) ** 2).sum()),
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]],
        ...     tau=5,
        ... )
        >>> clock = VirtualExecutor(time_slow=5.0, workers={"slow": 2})
        >>> result = minimize(problem, n_slow=8, strategy="random", executor=clock, progress=False)
        >>> clock.makespan, clock.idle_share["slow"], clock.idle_share["fast"]
        (20.0, 0.0, 0.6)

    Args:
        time_fast: What a fast evaluation takes, in any unit: a number; a function of a
            number that is uniform in (0, 1); or a distribution with `ppf`, such as those of
            `scipy.stats`.
        time_slow: What a slow evaluation takes.
        workers: How many there are at the start, for each lane or as a dict.
        failures: Probability that an evaluation fails, for both lanes or as a dict.
        schedule: Workers that come and go, as (time, "fast" or "slow", change of their
            number). Idle ones go first; what a busy one does is lost and begins anew.
        seed: Decides times and failures. They belong to the k-th evaluation of a lane,
            whatever a strategy makes of it.

    Raises:
        InvalidInputError: If an argument is not as described.
    """

    def __init__(
        self,
        *,
        time_fast: Duration = 1.0,
        time_slow: Duration,
        workers: int | Mapping[str, int] = 1,
        failures: float | Mapping[str, float] = 0.0,
        schedule: Iterable[Change] = (),
        seed: int = 0,
    ) -> None:
        seed = check_int("seed", seed)
        given = {Objective.FAST: time_fast, Objective.SLOW: time_slow}
        self._times = {o: _Times(f"time_{o}", time, seed) for o, time in given.items()}
        self._workers = for_each_objective("workers", workers, _check_workers, 1)
        probability = partial(check_real, minimum=0.0, maximum=1.0)
        shares = for_each_objective("failures", failures, probability, 0.0)
        self._fails = {o: _Fails(f"failure_{o}", share, seed) for o, share in shares.items()}
        self._schedule = _check_schedule(schedule, self._workers)
        self._run: SimulatedLanes | None = None

    def lanes(self, limits: Limits) -> Lanes:
        """Start the clock anew, with time limits of the calls; `minimize` does that."""
        lanes = {
            o: SimulatedLane(
                n_workers=self._workers[o], limit=limits[o] or math.inf,
                times=self._times[o], fails=self._fails[o],
            )
            for o in Objective
        }  # fmt: skip
        self._run = SimulatedLanes(lanes, self._schedule)
        return self._run

    @property
    def timeline(self) -> list[Interval]:
        """What the workers did in the latest run, in the order of the ends."""
        return [] if self._run is None else list(self._run.timeline)

    @property
    def makespan(self) -> float:
        """When the latest run's last evaluation ended."""
        return 0.0 if self._run is None or not self._run.timeline else self._run.timeline[-1].end

    @property
    def idle_share(self) -> dict[str, float]:
        """Share of the workers' time up to `makespan` that they did nothing, for each lane."""
        shares, end = {}, self.makespan
        for objective in Objective:
            n, since, areas = self._workers[objective], 0.0, []
            for time, lane, change in self._schedule:
                if lane is objective and time < end:
                    areas.append(n * (time - since))
                    n, since = n + change, time
            present = math.fsum([*areas, n * (end - since)])
            busy = math.fsum(i.end - i.start for i in self.timeline if i.lane is objective)
            shares[str(objective)] = 1.0 - busy / present if present > 0 else 0.0
        return shares


def _check_workers(name: str, value: Any) -> int:
    return check_int(name, value, minimum=0)


def _check_schedule(
    schedule: Any, workers: Mapping[Objective, int]
) -> tuple[tuple[float, Objective, int], ...]:
    """Return the changes in the order of time, if no lane gets less than no workers."""
    if isinstance(schedule, str | Mapping) or not isinstance(schedule, Iterable):
        raise InvalidInputError(
            f"schedule must be a sequence of (time, lane, change), got {describe(schedule)}"
        )
    changes = []
    for entry in schedule:
        if isinstance(entry, str) or not isinstance(entry, Sequence) or len(entry) != 3:
            raise InvalidInputError(
                f"schedule must be a sequence of (time, lane, change), got {describe(entry)} in it"
            )
        time = check_real("schedule's time", entry[0], minimum=0.0)
        lane = Objective(check_choice("schedule's lane", entry[1], tuple(map(str, Objective))))
        changes.append((time, lane, check_int("schedule's change", entry[2])))
    changes.sort(key=lambda change: change[0])
    for objective in Objective:
        n = most = workers[objective]
        for time, lane, change in changes:
            n += change * (lane is objective)
            most = max(most, n)
            if n < 0:
                raise InvalidInputError(
                    f"schedule must not take away more workers than the {objective} lane has, "
                    f"got {n} at time {time:g}"
                )
        if most == 0:
            raise InvalidInputError(
                f"workers must be at least 1 in the {objective} lane, now or by schedule, got 0"
            )
    return tuple(changes)


class _Uniforms:
    """Numbers uniform in (0, 1) with a name and a seed, drawn in blocks."""

    def __init__(self, name: str, seed: int) -> None:
        self._name, self._seeds = name, torch.tensor([signed64(seed)])
        self._blocks: list[list[float]] = []

    def __call__(self, k: int) -> float:
        while len(self._blocks) <= k // _BLOCK:
            self._blocks.append(self._block(len(self._blocks)))
        return self._blocks[k // _BLOCK][k % _BLOCK]

    def _block(self, step: int) -> list[float]:
        return uniforms(self._seeds, f"virtual {self._name}", step, (_BLOCK,))[0].tolist()


class _Times(_Uniforms):
    """What the k-th evaluation of a lane takes."""

    def __init__(self, name: str, time: Any, seed: int) -> None:
        super().__init__(name, seed)
        self._time = time
        self(0)

    def _block(self, step: int) -> list[float]:
        time, u = self._time, super()._block(step)
        if as_scalar(time) is not None:
            return [check_real(self._name, time, minimum=0.0, exclusive=True)] * _BLOCK
        try:
            draw = getattr(time, "ppf", None)
            times = [time(v) for v in u] if draw is None else draw(np.array(u)).tolist()
        except TypeError as error:  # no function at all, or one of something else
            raise InvalidInputError(
                f"{self._name} must be a finite real number > 0, a function of a uniform number, "
                f"or a distribution with ppf, got {describe(time)}: {error}"
            ) from error
        return [check_real(self._name, value, minimum=0.0, exclusive=True) for value in times]


class _Fails(_Uniforms):
    """Whether the k-th evaluation of a lane fails."""

    def __init__(self, name: str, share: float, seed: int) -> None:
        super().__init__(name, seed)
        self._share = share

    def __call__(self, k: int) -> bool:
        return self._share > 0 and super().__call__(k) < self._share
