"""A study: the settings in a journal's header, and the run that its events give."""

import json
import math
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tcsaea_torch import codec
from tcsaea_torch.errors import InvalidInputError, JournalError
from tcsaea_torch.events import (
    Asked,
    Attached,
    Event,
    HandedOut,
    RunState,
    Status,
    Told,
    apply,
)
from tcsaea_torch.journal import Journal
from tcsaea_torch.owner import Owner
from tcsaea_torch.problem import Problem
from tcsaea_torch.result import Result, result_of
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.validation import check_device


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was started with, as a journal's header holds it."""

    n_slow: int
    n_init: int
    seed: int
    dtype: str
    device: str
    budget: tuple[int, int]
    """Of (fast, slow) evaluations."""
    strategy_name: str
    strategy: Strategy | None
    """The configured strategy; None if its class is not one of this library's."""
    problem: dict[str, Any]
    """What identifies the problem, by field."""
    created: float
    """Seconds since the epoch."""
    versions: dict[str, str]
    byteorder: str

    @classmethod
    def of_run(
        cls, problem: Problem, strategy: Strategy, budget: tuple[int, int], *,
        device: torch.device, dtype: torch.dtype, **settings: Any,
    ) -> "Settings":  # fmt: skip
        """Return the settings of a run that starts now, here."""
        return cls(
            dtype=str(dtype).removeprefix("torch."),
            device=str(device),
            problem=identity(problem),
            strategy_name=strategy.name,
            strategy=strategy if _is_storable(strategy) else None,
            budget=budget,
            created=time.time(),
            versions=_versions(),
            byteorder=sys.byteorder,
            **settings,
        )

    @classmethod
    def of_header(cls, header: dict[str, Any]) -> "Settings":
        """Return what a header holds.

        Raises:
            JournalError: If it is not as it was written.
        """
        kinds = {f.name: f.type for f in fields(cls)}
        if header.keys() != kinds.keys():
            raise JournalError("the header is damaged: its fields are not those of a study")
        for name, value in header.items():
            kind = {"budget": tuple, "problem": dict, "versions": dict}.get(name, kinds[name])
            is_good = isinstance(value, Strategy | None) if name == "strategy" else (
                type(value) is kind
            )  # fmt: skip
            if not is_good:
                raise JournalError(f"the header is damaged at {name!r}")
        settings = cls(**header)
        if settings.problem.keys() != _IDENTITY:
            raise JournalError("the header is damaged: it describes no problem")
        counts = (settings.n_slow, settings.n_init, *settings.budget)
        if len(counts) != 4 or any(type(n) is not int or n < 0 for n in counts):
            raise JournalError("the header is damaged: budgets are no counts")
        if settings.dtype not in ("float64", "float32"):
            raise JournalError("the header is damaged: its dtype is unknown")
        if settings.byteorder != sys.byteorder:
            raise JournalError(
                f"it was written on a machine with {settings.byteorder}-endian bytes"
            )
        return settings

    @property
    def torch_dtype(self) -> torch.dtype:
        """The run's floating-point type."""
        return {"float64": torch.float64, "float32": torch.float32}[self.dtype]

    def header(self) -> dict[str, Any]:
        """Return what `of_header` takes."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def check_problem(self, problem: Problem) -> None:
        """Refuse another problem than the study's, and say what differs.

        Raises:
            JournalError: If it is another.
        """
        given = identity(problem)
        for name, stored in self.problem.items():
            if given[name] != stored:
                raise JournalError(
                    f"the study is of another problem: its {name} is {stored}, not {given[name]}"
                )

    def choose_strategy(self, given: Strategy | None) -> Strategy:
        """Return the study's strategy.

        Args:
            given: The one that a user gave, if any.

        Raises:
            JournalError: If another is given, or none and the study's class is not one of
                this library's.
        """
        if self.strategy is None:
            if given is None:
                raise JournalError(
                    f"the study's strategy {self.strategy_name!r} is of a class of its own: "
                    "pass strategy=..., configured as it was"
                )
            if given.name != self.strategy_name:
                raise JournalError(
                    f"the study's strategy is {self.strategy_name!r}, not {given.name!r}"
                )
            return given
        if given is not None and given != self.strategy:
            raise JournalError(f"the study has another strategy: {self.strategy!r}, not {given!r}")
        return self.strategy

    def choose_device(self, given: Any) -> torch.device:
        """Return where to go on: the given device, or the study's own.

        Raises:
            InvalidInputError: If this machine does not have the given one.
            JournalError: If it does not have the study's, and none is given.
        """
        if given is not None:
            return check_device(given)
        try:
            return check_device(self.device)
        except InvalidInputError as error:
            raise JournalError(
                f"it was begun on {self.device!r}, which is not present here: pass device='cpu'"
            ) from error

    def arguments(self, problem: Problem, strategy: Strategy | None, device: Any) -> dict[str, Any]:
        """Return what to make the study's optimizer of, but for the problem.

        Args:
            problem: The study's problem.
            strategy: The study's strategy, if a user gave it.
            device: Where to go on, if a user said it.

        Raises:
            InvalidInputError: If this machine does not have the device.
            JournalError: If problem, strategy or device are not the study's.
        """
        self.check_problem(problem)
        return {
            "n_slow": self.n_slow,
            "n_init": self.n_init,
            "strategy": self.choose_strategy(strategy),
            "seed": self.seed,
            "device": self.choose_device(device),
            "dtype": self.torch_dtype,
        }

    def bare_problem(self) -> Problem:
        """Return the study's problem without its functions.

        Raises:
            JournalError: If the header describes none.
        """
        try:
            return Problem(fast=_not_stored, slow=_not_stored, **self.problem)
        except (InvalidInputError, TypeError) as error:
            raise JournalError(f"the header is damaged: {error}") from error


_IDENTITY = {"bounds", "tau", "names", "integers", "directions", "ref_point"}


def identity(problem: Problem) -> dict[str, Any]:
    """Return what makes a problem the same one, but for its functions."""
    point = problem.ref_point
    return {
        "bounds": tuple(tuple(row) for row in problem.bounds.tolist()),
        "tau": problem.tau,
        "names": tuple(problem.names or ()),
        "integers": tuple(problem.integers),
        "directions": tuple(map(str, problem.directions)),
        "ref_point": None if point is None else tuple(point.tolist()),
    }


def _not_stored(_: Any) -> Any:
    raise JournalError("a journal does not hold the problem's functions")


def _is_storable(strategy: Strategy) -> bool:
    """Return whether a strategy can be rebuilt from what a journal holds."""
    try:
        return codec.loads(codec.dumps(strategy)) == strategy
    except InvalidInputError:
        return False


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("tcsaea-torch", "torch", "gpytorch", "botorch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a checkout that is not installed
            found[name] = "unknown"
    return found


# ------------------------------------------------------------------ replay


def replay(state: RunState, events: list[Event]) -> RunState:
    """Apply stored events in order, each checked first.

    Raises:
        JournalError: If an event cannot have happened, or would exceed a budget.
    """
    for number, event in enumerate(events):
        reason = _misfit(state, event)
        if reason is not None:
            raise JournalError(f"event {number} ({type(event).__name__}) is impossible: {reason}")
        apply(state, event)
    return state


def _misfit(state: RunState, event: Event) -> str | None:
    """Say why an event cannot come next, if it cannot."""
    if not math.isfinite(event.time):
        return "its time is no number"
    if isinstance(event, Attached):
        if event.X.shape[-1] != state.problem.d or not event.X.isfinite().all():
            return "its points are wrong"
        return "a value is infinite" if event.Y.isinf().any() else None
    if isinstance(event, Asked):
        return _asked_misfit(state, event)
    for id in event.ids if isinstance(event, HandedOut) else (event.id,):
        if not 0 <= id < len(state.records):
            return f"evaluation {id} was never asked for"
    if isinstance(event, HandedOut):
        ended = [id for id in event.ids if state.records[id].status is not Status.PENDING]
        return (
            f"evaluation {ended[0]} is {state.records[ended[0]].status} already" if ended else None
        )
    record = state.records[event.id]
    if isinstance(event, Told):
        if not math.isfinite(event.value):
            return "its value is not finite"
        is_known = bool(state.observed[record.point_id, record.objective.column])
        is_late = record.status in (Status.FAILED, Status.WITHDRAWN) and not is_known
        is_good = record.status is Status.PENDING or is_late
    else:
        is_good = record.status is Status.PENDING
    return None if is_good else f"evaluation {event.id} is {record.status} already"


def _asked_misfit(state: RunState, event: Asked) -> str | None:
    asked = event.evaluation_mask.any(dim=-1)
    if event.X.shape[-1] != state.problem.d:
        return "its points are wrong"
    X = event.X[asked]
    if not ((X >= 0) & (X <= 1)).all():
        return "a point is outside of the unit cube"
    n = event.evaluation_mask.sum(dim=0)
    if event.archive_mask is not None:
        exists = state.observed | state.pending | state.failed
        if event.archive_mask.shape != exists.shape:
            return "its archive_mask has a wrong shape"
        if (event.archive_mask & (exists | ~exists.any(dim=-1, keepdim=True))).any():
            return "a value is asked for again"
        n = n + event.archive_mask.sum(dim=0)
    spent = zip(state.used, n.tolist(), state.total, strict=True)
    return "the budget is exceeded" if any(a + b > c for a, b, c in spent) else None


# ------------------------------------------------------------------ reading


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """What a journal held when it was read."""

    settings: Settings
    events: list[Event]
    state: RunState
    owner: Owner | None
    """The process that was at work on it, or has left its lock."""

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, thoroughly: bool = False) -> "Study":
        """Read a study, which another process may be writing.

        Args:
            path: The journal.
            thoroughly: Whether to check the file's structure too.

        Raises:
            JournalError: If it cannot be read or is damaged.
        """
        with Journal.open(path, read_only=True) as journal:
            if thoroughly:
                journal.check_pages()
            events = journal.events()
            try:
                settings = Settings.of_header(journal.header)
                n_fast, n_slow = settings.budget
                state = RunState(
                    settings.bare_problem(), n_fast=n_fast, n_slow=n_slow, strategy_state={}
                )
                replay(state, events)
            except JournalError as error:
                raise JournalError(f"journal {str(path)!r} could not be read: {error}") from error
            return cls(settings=settings, events=events, state=state, owner=journal.owner)

    @property
    def pending(self) -> list[int]:
        """Ids of evaluations that have not ended."""
        return [r.id for r in self.state.records if r.status is Status.PENDING]

    def result(self) -> Result:
        """Return what was known when the study was read.

        Only the strategy knows whether it has a use for fast evaluations that are left;
        here, a run is finished when its slow ones are spent and nothing is pending.
        """
        is_over = self.state.used[1] >= self.state.total[1] and not self.pending
        return result_of(
            self.state,
            n_init=self.settings.n_init,
            strategy=self.settings.strategy_name,
            seed=self.settings.seed,
            status="finished" if is_over else "running",
        )

    def write_json(self, path: Path) -> None:
        """Write settings, evaluations and points as strict JSON; null means not measured."""
        result = self.result()
        settings = {
            name: value for name, value in self.settings.header().items() if name != "strategy"
        }
        if self.settings.strategy is not None:
            settings["strategy"] = json.loads(codec.dumps(self.settings.strategy))
        rows = zip(
            result.all_ids.tolist(), result.all_X.tolist(), result.all_Y.tolist(), strict=True
        )
        content = {
            "settings": settings,
            "evaluations": [
                {key: _or_null(value) for key, value in asdict(record).items()}
                for record in result.history
            ],
            "points": [
                {"point_id": i, "x": x, "fast": _or_null(y[0]), "slow": _or_null(y[1])}
                for i, x, y in rows
            ],
        }
        path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _or_null(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
