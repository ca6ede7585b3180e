"""`TrialRun`: an `Optimizer` that follows the trials of another tool.

The other tool's trials are the truth. Before each choice they are compared with what the
optimizer knows; where the two cannot be brought together, a new optimizer is made from them.
So nothing is lost when processes end, and trials may come from anywhere.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.existing_data import is_off
from tcsaea_torch.integrations.space import Params, Space
from tcsaea_torch.optimizer import Optimizer
from tcsaea_torch.rng import signed64, uniforms
from tcsaea_torch.strategies import TCEHVI, Strategy, check_strategy
from tcsaea_torch.strategies.base import asynchronous
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_int

_N_TRIES = 20
"""Proposals that rounding may turn into parameters of a known trial, one after the other."""
_N_RANDOM = 256
"""Random points tried where a strategy has nothing to propose."""


class Outcome(StrEnum):
    """How far a trial has come."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What another tool knows of a trial."""

    params: Params
    outcome: Outcome = Outcome.RUNNING
    values: tuple[float | None, float | None] = (None, None)
    """Finite values, as the user sees them; None: there is none."""

    @property
    def is_complete(self) -> bool:
        """Whether it has ended with both values."""
        return self.outcome is Outcome.DONE and None not in self.values


@dataclass(kw_only=True, eq=False)
class _Point:
    """A point that the optimizer waits for."""

    params: Params
    place: tuple[float, ...]
    """`Space.key` of the parameters; x may lie elsewhere, before rounding."""
    x: np.ndarray
    ids: dict[Objective, int] = field(default_factory=dict)


class TrialRun:
    """Chooses the parameters of trials, given all trials that there are.

    Args:
        space: The parameters.
        directions: "minimize" or "maximize" for both objectives.
        strategy: A strategy or its name; None means `TCEHVI(asynchronous=True)`.
        n_trials: How many trials there are to be, all together. It is doubled when there are
            more.
        n_init: How many of these are the initial design; None: as in `Optimizer`.
        seed: Decides all random numbers.
        ref_point: `Problem.ref_point`.
    """

    def __init__(
        self,
        space: Space,
        *,
        directions: Sequence[str],
        strategy: Strategy | str | None,
        n_trials: int,
        n_init: int | None,
        seed: int,
        ref_point: Any = None,
    ) -> None:
        self.space = space
        self._problem = space.problem(directions, ref_point)
        self._strategy = checked_strategy(strategy)
        self._n_trials, self._seed = n_trials, seed
        self._n_init = self._make(n_trials, n_init).n_init
        self._loose: dict[tuple[float, ...], list[_Point]] = {}
        self._rebuild({})

    def _make(self, n_slow: int, n_init: int | None, data: Any = None) -> Optimizer:
        return Optimizer(
            self._problem,
            n_slow=n_slow,
            n_init=n_init,
            strategy=self._strategy,
            seed=self._seed,
            initial_data=data,
        )

    # ------------------------------------------------------------------ protocol

    def sync(self, trials: Mapping[Hashable, Trial]) -> None:
        """Take in what has become of all trials, whoever chose their parameters."""
        is_new = not self._optimizer.events
        if is_new or self._contradict(trials) or not self._has_room(len(self._strangers(trials))):
            self._rebuild(trials)
            return
        self._trials = dict(trials)
        for key, trial in trials.items():
            self._take(key, trial)
        # What was handed out and has become no trial may be handed out again.
        for points in reversed(self._loose.values()):
            self._queue.extendleft(reversed(points))
        self._loose.clear()

    def next(self, key: Hashable = None) -> Params:
        """Return the parameters of a trial to come, new ones as long as there are.

        Args:
            key: The trial's key; None: not known yet.
        """
        point = self._new_point()
        if key is None:
            self._loose[point.place] = [point]
        else:
            self._points[key] = [point] if point.ids else []
            self._key_of.setdefault(point.place, key)
            self._trials[key] = Trial(params=point.params)
        return dict(point.params)

    # ------------------------------------------------------------------ what has happened

    def _contradict(self, trials: Mapping[Hashable, Trial]) -> bool:
        """Whether trials have vanished, or are not what they were taken for."""
        if any(trials.get(key) != trial for key, trial in self._settled.items()):
            return True
        for key, points in self._points.items():
            trial = trials.get(key)
            if trial is None:
                return True
            if points and self.space.key(trial.params) != points[0].place:
                return True
        return False

    def _strangers(self, trials: Mapping[Hashable, Trial]) -> list[Hashable]:
        """Return the trials that will cost budget, since others chose their parameters."""
        own = self._loose.keys() | {point.place for point in self._queue}
        return [
            key
            for key, trial in trials.items()
            if key not in self._settled
            and key not in self._points
            and not trial.is_complete
            and self.space.key(trial.params) not in own
        ]

    def _has_room(self, n: int) -> bool:
        used, total = self._optimizer.n_used, self._optimizer.n_total
        return all(u + n <= t for u, t in zip(used, total, strict=True))

    def _take(self, key: Hashable, trial: Trial) -> None:
        """Take in one trial."""
        if key in self._settled:
            return
        if key not in self._points:
            place = self.space.key(trial.params)
            points = self._claim(place)
            if not points and not trial.is_complete:
                points = self._ask_at(trial.params)
            self._points[key] = points
            self._key_of.setdefault(place, key)
        if trial.outcome is Outcome.RUNNING:
            return
        points = self._points.pop(key)
        for point in points:
            self._end(point, trial)
        if trial.is_complete and not points:
            fast, slow = trial.values
            x = [self.space.key(trial.params)]
            self._optimizer.attach(x, fast=[fast], slow=[slow], tolerance=0)
        self._settled[key] = trial

    def _claim(self, place: tuple[float, ...]) -> list[_Point]:
        """Return points that were chosen here and have become a trial."""
        if place in self._loose:
            return self._loose.pop(place)
        for point in self._queue:
            if point.place == place:
                self._queue.remove(point)
                return [point]
        return []

    def _end(self, point: _Point, trial: Trial) -> None:
        """Tell the optimizer how a trial ended."""
        for objective, id in point.ids.items():
            value = trial.values[objective.column]
            if trial.outcome is Outcome.FAILED or value is None:
                self._optimizer.fail(id, "the trial failed")
            else:
                self._optimizer.tell(id, value)
        missing = [o for o in Objective if o not in point.ids]
        if missing and trial.is_complete:  # the strategy asks for one value only
            known = {str(o): [trial.values[o.column]] for o in missing}
            self._optimizer.attach([point.x], **known, tolerance=0)

    def _ask_at(self, params: Params) -> list[_Point]:
        """Let the optimizer wait for a point that it has not chosen, if it lies in the box."""
        x = self.space.to_x(params)
        X = torch.from_numpy(x).unsqueeze(0)
        if bool(is_off(self._problem, X).any()):
            return []
        ids = {e.objective: e.id for e in self._optimizer.ask_at(X)}
        return [_Point(params=dict(params), place=self.space.key(params), x=x, ids=ids)]

    def _rebuild(self, trials: Mapping[Hashable, Trial]) -> None:
        """Begin anew with all trials, and with a budget that is large enough."""
        loose = [points[0].params for points in self._loose.values() if points]
        complete = {key: trial for key, trial in trials.items() if trial.is_complete}
        while self._n_trials <= len(trials) + len(loose):
            self._n_trials *= 2
        n_slow = self._n_trials - len(complete)
        running = [t for t in trials.values() if t.outcome is Outcome.RUNNING]
        n_init = max(1, min(self._n_init - len(running) - len(loose), n_slow))
        done = list(complete.values())
        data = {
            "X": [self.space.key(trial.params) for trial in done],
            "fast": [trial.values[0] for trial in done],
            "slow": [trial.values[1] for trial in done],
            "tolerance": 0,
        }
        self._optimizer = self._make(n_slow, n_init, data if done else None)
        self._is_designed = self._is_design = False
        self._queue: deque[_Point] = deque()
        self._loose = {}
        self._points: dict[Hashable, list[_Point]] = {}
        self._settled: dict[Hashable, Trial] = dict(complete)
        self._key_of: dict[tuple[float, ...], Hashable] = {}
        self._trials = dict(trials)
        for key, trial in complete.items():
            self._key_of.setdefault(self.space.key(trial.params), key)
        for key, trial in trials.items():
            self._take(key, trial)
        for params in loose:
            place = self.space.key(params)
            if place not in self._key_of:
                self._loose[place] = self._ask_at(params)

    # ------------------------------------------------------------------ what comes next

    def _new_point(self) -> _Point:
        """Return a point with parameters that no trial has, as long as there are any."""
        for _ in range(_N_TRIES):
            if not self._queue:
                self._ask()
            elif self._is_design and self._n_alive() >= self._n_init:
                self._rebuild(self._trials)  # others have made the rest of the design
                continue
            if not self._queue:
                break
            point = self._queue.popleft()
            place = point.place
            other = self._key_of.get(place)
            if place in self._loose:
                self._loose[place].append(point)
            elif place not in self._key_of:
                return point
            # Rounding has made two points of the box one: one evaluation serves both.
            elif other in self._settled:
                self._end(point, self._settled[other])
            else:
                self._points[other].append(point)
        return self._at_random()

    def _ask(self) -> None:
        """Let the strategy choose, if there is anything to choose now."""
        if not self._has_room(1):
            self._rebuild(self._trials)
        n_complete = sum(trial.is_complete for trial in self._settled.values())
        self._is_design = not self._is_designed and n_complete < self._optimizer.n_init
        self._is_designed = True
        if not self._is_design and asynchronous(self._strategy) is not None:
            evaluations = self._optimizer.ask(n_fast=1, n_slow=1)
        else:
            evaluations = self._optimizer.ask()
        points: dict[int, _Point] = {}
        for e in evaluations:
            if e.point_id not in points:
                params = self.space.to_params(e.x)
                place = self.space.key(params)
                points[e.point_id] = _Point(params=params, place=place, x=e.x)
            points[e.point_id].ids[e.objective] = e.id
        self._queue.extend(points.values())

    def _n_alive(self) -> int:
        """Return how many trials run or have succeeded."""
        n = sum(trial.outcome is not Outcome.FAILED for trial in self._trials.values())
        return n + len(self._loose)

    def _at_random(self) -> _Point:
        """Return a random point, for a strategy that waits or has nothing more."""
        if not self._has_room(1):
            self._rebuild(self._trials)
        seeds = torch.tensor([signed64(self._seed)])
        shape = (_N_RANDOM, self._problem.d)
        u = uniforms(seeds, "integrations", len(self._optimizer.events), shape)[0]
        X = self._problem.from_unit(u).numpy()
        for x in X:
            params = self.space.to_params(x)
            place = self.space.key(params)
            if place not in self._key_of and place not in self._loose:
                return self._ask_at(params)[0]
        # A finite space is used up: a point is evaluated again.
        params = self.space.to_params(X[0])
        return _Point(params=params, place=self.space.key(params), x=X[0])


def check_counts(n_trials: Any, n_init: Any) -> tuple[int, int | None]:
    """Return how many trials there are to be, and how many of them are the initial design.

    Raises:
        InvalidInputError: If they are no counts, or the design is too large.
    """
    n = check_int("n_trials", n_trials, minimum=1)
    if n_init is None:
        return n, None
    first = check_int("n_init", n_init, minimum=1)
    if first > n:
        raise InvalidInputError(f"n_init must be at most n_trials = {n}, got {first}")
    return n, first


def checked_strategy(strategy: Strategy | str | None) -> Strategy:
    """Return the strategy to be used for what a user gave."""
    return TCEHVI(asynchronous=True) if strategy is None else check_strategy(strategy)
