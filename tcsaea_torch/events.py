"""A run is a fold over events: what was asked, handed out, told, failed, attached, withdrawn.

The live run and a replay take the same path: `apply(state, event)`. `Asked` carries the
strategy's state, so a replay never calls a strategy.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, overload

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Bool, Float, Objective, Tensor

StrategyState = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Asked:
    """Points were proposed; their evaluations are pending from now on."""

    X: Float[Tensor, "q d"]
    """Points in the unit cube, float64 on the CPU."""
    evaluation_mask: Bool[Tensor, "q 2"]
    """Which of (fast, slow) to evaluate."""
    strategy_state: StrategyState
    """The strategy's state after this step."""
    archive_mask: Bool[Tensor, "n 2"] | None = None
    """Missing values of the rows so far to evaluate too."""
    queued: bool = False
    """Whether they wait in the run's queue until workers are free; else `ask` returned all."""
    time: float = field(default_factory=time.time)
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A value came, in the user's sign."""

    id: int
    value: float
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class Failed:
    """An evaluation failed; with `retry` it is to be asked for again."""

    id: int
    reason: str
    retry: bool = False
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True, eq=False)
class Attached:
    """Data that existed already; NaN in Y means not measured."""

    X: Float[Tensor, "n d"]
    """Points in user's units, float64 on the CPU."""
    Y: Float[Tensor, "n 2"]
    """Values of (fast, slow), in the user's signs."""
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """A retry that waits to be handed out is not needed: the value has come late.

    It is not counted.
    """

    id: int
    time: float = field(default_factory=time.time)


@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """`ask` returned evaluations from the queue."""

    ids: tuple[int, ...]
    time: float = field(default_factory=time.time)


Event = Asked | HandedOut | Told | Failed | Attached | Withdrawn


class EventLog(Sequence[Event]):
    """What had happened at some time, in order; it does not grow, and costs no copy.

    Args:
        events: A list to which events are only ever appended.
    """

    def __init__(self, events: list[Event]) -> None:
        self._events, self._n = events, len(events)

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            return tuple(self._events[k] for k in range(*index.indices(self._n)))
        return self._events[range(self._n)[index]]


class Status(StrEnum):
    """What became of an evaluation."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


@dataclass(kw_only=True)
class Record:
    """One evaluation that was asked for, and what became of it."""

    id: int
    point_id: int
    """Row of the archive."""
    objective: Objective
    status: Status = Status.PENDING
    value: float = math.nan
    """In the user's sign; NaN unless done."""
    reason: str = ""
    """Why it failed."""
    asked_at: float = math.nan
    ended_at: float = math.nan


# Codes in `RunState.status`, one for each row and objective.
_ABSENT, _PENDING, _OBSERVED, _FAILED = range(4)


class RunState:
    """The state of one run, in buffers that grow by doubling. Change it by `apply` only.

    Args:
        problem: The problem; it maps between the user's units and the unit cube.
        n_fast: Budget of fast evaluations.
        n_slow: Budget of slow evaluations.
        strategy_state: The strategy's state before the first step.
    """

    def __init__(
        self, problem: Problem, *, n_fast: int, n_slow: int, strategy_state: StrategyState
    ) -> None:
        self.problem = problem
        self.total = (n_fast, n_slow)
        self.used = [0, 0]
        self.strategy_state = strategy_state
        self.records: list[Record] = []
        # The queue: ids in the order of asking. A dict, since a list would be searched for each.
        self.to_hand_out: dict[int, None] = {}
        self.n_rows = 0
        self._X = torch.zeros(16, problem.d, dtype=torch.float64)
        self._X_user = torch.zeros(16, problem.d, dtype=torch.float64)
        self._Y = torch.zeros(16, 2, dtype=torch.float64)
        self._status = torch.zeros(16, 2, dtype=torch.int8)
        self._is_attached = torch.zeros(16, dtype=torch.bool)
        self._row_of: dict[bytes, int] = {}

    @property
    def X(self) -> Float[Tensor, "n d"]:
        """Points in the unit cube."""
        return self._X[: self.n_rows]

    @property
    def X_user(self) -> Float[Tensor, "n d"]:
        """Points in the user's units."""
        return self._X_user[: self.n_rows]

    @property
    def Y(self) -> Float[Tensor, "n 2"]:
        """Minimised values; 0 where not observed."""
        return self._Y[: self.n_rows]

    @property
    def observed(self) -> Bool[Tensor, "n 2"]:
        """Values that are known."""
        return self._status[: self.n_rows] == _OBSERVED

    @property
    def pending(self) -> Bool[Tensor, "n 2"]:
        """Values that are on their way."""
        return self._status[: self.n_rows] == _PENDING

    @property
    def failed(self) -> Bool[Tensor, "n 2"]:
        """Values that failed for good."""
        return self._status[: self.n_rows] == _FAILED

    @property
    def exists(self) -> Bool[Tensor, " n"]:
        """Rows that are no padding: asked for or attached."""
        known = (self._status[: self.n_rows] != _ABSENT).any(dim=-1)
        return known | self._is_attached[: self.n_rows]

    @property
    def n_attached_complete(self) -> int:
        """Attached rows with both values."""
        return int((self._is_attached[: self.n_rows] & self.observed.all(dim=-1)).sum())

    def x(self, row: int) -> np.ndarray:
        """Return a point in user's units as a numpy array of its own."""
        return self._X_user[row].numpy().copy()

    def _append(self, X: Tensor, X_user: Tensor) -> int:
        """Append rows and return the index of the first."""
        start, end = self.n_rows, self.n_rows + len(X)
        while end > len(self._X):
            for name in ("_X", "_X_user", "_Y", "_status", "_is_attached"):
                buffer = getattr(self, name)
                setattr(self, name, torch.cat([buffer, torch.zeros_like(buffer)]))
        self._X[start:end], self._X_user[start:end] = X, X_user
        self.n_rows = end
        return start

    def _new_record(self, row: int, objective: Objective, at: float, *, queued: bool) -> Record:
        record = Record(id=len(self.records), point_id=row, objective=objective, asked_at=at)
        self.records.append(record)
        if queued:
            self.to_hand_out[record.id] = None
        self.used[objective.column] += 1
        self._status[row, objective.column] = _PENDING
        return record

    def _asked(self, event: Asked) -> None:
        X_user = self.problem.from_unit(event.X)
        start = self._append(event.X, X_user)
        for k, wanted in enumerate(event.evaluation_mask.tolist()):
            if any(wanted):
                self._row_of.setdefault(_key(X_user[k]), start + k)
                self._ask(start + k, wanted, event)
        if event.archive_mask is not None:
            for row in event.archive_mask.any(dim=-1).nonzero().flatten().tolist():
                self._ask(row, event.archive_mask[row].tolist(), event)
        self.strategy_state = event.strategy_state

    def _ask(self, row: int, wanted: list[bool], event: Asked) -> None:
        # The slow value first: it takes longest.
        for objective in (Objective.SLOW, Objective.FAST):
            if wanted[objective.column]:
                self._new_record(row, objective, event.time, queued=event.queued)

    def _handed_out(self, event: HandedOut) -> None:
        for id in event.ids:
            self.to_hand_out.pop(id, None)

    def _told(self, event: Told) -> None:
        record = self.records[event.id]
        row, column = record.point_id, record.objective.column
        record.status, record.value, record.ended_at = Status.DONE, event.value, event.time
        record.reason = ""
        if self._status[row, column] != _OBSERVED:  # else a retry and a late value: the first holds
            self._Y[row, column] = event.value * float(self.problem.signs[column])
            self._status[row, column] = _OBSERVED
        self.to_hand_out.pop(record.id, None)

    def _withdrawn(self, event: Withdrawn) -> None:
        record = self.records[event.id]
        record.status, record.ended_at = Status.WITHDRAWN, event.time
        record.reason = "not needed: the value came late"
        self.to_hand_out.pop(event.id, None)
        self.used[record.objective.column] -= 1

    def _ended_badly(self, event: Failed) -> None:
        record = self.records[event.id]
        row, column = record.point_id, record.objective.column
        record.status, record.reason, record.ended_at = Status.FAILED, event.reason, event.time
        self.to_hand_out.pop(event.id, None)
        if self._status[row, column] == _OBSERVED:
            return  # a retry failed, but the value had come late
        self._status[row, column] = _FAILED
        if event.retry and self.used[column] < self.total[column]:
            self._new_record(row, record.objective, event.time, queued=True)

    def _attached(self, event: Attached) -> None:
        U = self.problem.to_unit(event.X)
        for x, u, y in zip(event.X, U, event.Y, strict=True):
            row = self._row_of.get(_key(x))
            if row is None or not self._fits(row, y):
                row = self._append(u.unsqueeze(0), x.unsqueeze(0))
                self._is_attached[row] = True
                self._row_of.setdefault(_key(x), row)
            for column, value in enumerate(y.tolist()):
                if not math.isnan(value):
                    self._Y[row, column] = value * float(self.problem.signs[column])
                    self._status[row, column] = _OBSERVED

    def _fits(self, row: int, y: Tensor) -> bool:
        """Return whether a row can take values: they are new to it, or the same."""
        for column, value in enumerate(y.tolist()):
            status = int(self._status[row, column])
            minimised = value * float(self.problem.signs[column])
            if math.isnan(value) or status in (_ABSENT, _FAILED):
                continue
            if status != _OBSERVED or float(self._Y[row, column]) != minimised:
                return False
        return True


def _key(x: Tensor) -> bytes:
    return (x + 0.0).numpy().tobytes()


def apply(state: RunState, event: Event) -> RunState:
    """Take one event into account, in place, and return the state.

    The event must fit: checks are made before an event is recorded.
    """
    match event:
        case Asked():
            state._asked(event)
        case HandedOut():
            state._handed_out(event)
        case Told():
            state._told(event)
        case Failed():
            state._ended_badly(event)
        case Attached():
            state._attached(event)
        case Withdrawn():
            state._withdrawn(event)
        case _:
            raise InvalidInputError(
                "event must be Asked, HandedOut, Told, Failed, Attached or Withdrawn, "
                f"got {event!r}"
            )
    return state


def fold(state: RunState, events: Iterable[Event]) -> RunState:
    """Apply events in order."""
    for event in events:
        apply(state, event)
    return state
