"""Where objectives run: one lane for the fast objective and one for the slow one.

A lane is an executor and a time limit. `Lanes` is what `minimize` needs of both: to submit
a call, and to wait until one has ended or runs for too long. `Pools` are lanes of real
executors; `tcsaea_torch.virtual` has lanes that only pretend to take time.
"""

import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar, runtime_checkable

from tcsaea_torch import dask_calls
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.threads import OwnThreads, Timed
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_choice, check_int, check_real, describe

T = TypeVar("T")


@runtime_checkable
class Submits(Protocol):
    """Anything like a `concurrent.futures.Executor`."""

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Call `fn(*arguments, **options)` some time, and return a future at once."""
        ...


class Lanes(ABC):
    """Two lanes of one run; use them in a `with` block."""

    takes_groups = True
    """Whether one call may evaluate several points."""

    @abstractmethod
    def check_function(self, objective: Objective, function: Callable[..., Any]) -> None:
        """Refuse a function that cannot run in its lane."""

    @abstractmethod
    def n_free(self, objective: Objective) -> int:
        """Return how many workers of a lane have nothing to do."""

    @abstractmethod
    def submit(
        self,
        objective: Objective,
        id: int,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        **options: Any,
    ) -> Future[Any]:
        """Put a call into a lane.

        Args:
            objective: Which lane.
            id: The (first) evaluation's id, for reports.
            function: What to call.
            *arguments: Its arguments.
            **options: Its arguments by name.
        """

    @abstractmethod
    def wait(self) -> tuple[list[Future[Any]], dict[Future[Any], str]]:
        """Wait until a call has ended or is overdue.

        Returns:
            Calls that have ended, in the order of submission, and calls whose time was up
            before that, with the reason. One that was overdue may still end later.
        """

    def close(self) -> None:  # noqa: B027  not all have something to close
        """Drop what has not started, and do not wait for what runs."""

    def __enter__(self) -> "Lanes":
        """Return the lanes themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the lanes."""
        self.close()


Limits = Mapping[Objective, float | None]


class ExecutorPair(ABC):
    """An executor that brings both lanes, such as `VirtualExecutor`."""

    @abstractmethod
    def lanes(self, limits: Limits) -> Lanes:
        """Make the lanes of a run, with the time limits of their calls."""


Workers = Mapping[Objective, int | None]


def for_each_objective(
    name: str, value: Any, check: Callable[[str, Any], T], default: T
) -> dict[Objective, T]:
    """Return a checked value for each objective, from one for both or a dict of fast and slow.

    Args:
        name: Name of the argument, for messages.
        value: One value for both, or a dict; an objective that it lacks has the default.
        check: `check(name, value)` returns a value in the form to be used.
        default: For an objective that a dict lacks.

    Raises:
        InvalidInputError: If a dict has other keys, or a value is wrong.
    """
    if not isinstance(value, Mapping):
        return dict.fromkeys(Objective, check(name, value))
    for key in value:
        check_choice(f"{name}'s keys", key, tuple(map(str, Objective)))
    return {o: check(f"{name}[{str(o)!r}]", value[o]) if o in value else default for o in Objective}


def make_lanes(executor: Any, timeout_s: Any = None, workers: Any = None) -> Lanes:
    """Make the lanes of a run.

    Args:
        executor: An executor for both objectives, a dict of fast and slow ones, or an
            `ExecutorPair`; None makes a thread for each.
        timeout_s: How long a call may run, for both or as a dict; None: for ever.
        workers: How many calls run at once, for both or as a dict. None: as many as an
            executor says itself, and one without an executor.

    Raises:
        InvalidInputError: If an argument is none of these.
    """
    limits = for_each_objective("timeout_s", timeout_s, _check_limit, None)
    numbers = for_each_objective("workers", workers, _check_workers, None)
    if isinstance(executor, ExecutorPair):
        if any(numbers.values()):
            raise InvalidInputError(
                f"workers must be None with a {type(executor).__name__}, which has its own, "
                f"got {describe(workers)}"
            )
        return executor.lanes(limits)
    executors = for_each_objective("executor", executor, _check_executor, None)
    return Pools(executors, limits, numbers)


def _check_workers(name: str, value: Any) -> int | None:
    return None if value is None else check_int(name, value, minimum=1)


def _check_limit(name: str, value: Any) -> float | None:
    return None if value is None else check_real(name, value, minimum=0.0, exclusive=True)


def _check_executor(name: str, value: Any) -> Submits | None:
    if value is None or (isinstance(value, Submits) and not isinstance(value, type)):
        return dask_calls.as_executor(value)
    raise InvalidInputError(
        f"{name} must be a concurrent.futures.Executor, or a dict of fast and slow ones, "
        f"got {describe(value)}"
    )


class Pools(Lanes):
    """Lanes of real executors and a real clock.

    By default each objective has a thread of its own, so that the fast one goes on while
    the slow one runs, and neither is called twice at a time. Executors that the user passed
    in are left open.

    A limit counts from when a call begins to run. A call that is overdue cannot be stopped.
    A thread of our own is left to it, and another one goes on; in a user's executor the call
    keeps its worker.

    Args:
        executors: An executor for each objective; None makes a thread.
        limits: Seconds that a call may run, for each objective; None: for ever.
        workers: Calls that each makes at once; None: as many as it says, or one thread.
    """

    def __init__(
        self,
        executors: Mapping[Objective, Submits | None],
        limits: Limits,
        workers: Workers | None = None,
    ) -> None:
        numbers = {o: None if workers is None else workers[o] for o in Objective}
        self._executors = {
            o: OwnThreads(str(o), numbers[o] or 1) if e is None else e for o, e in executors.items()
        }
        self._workers = {o: n or (1 if executors[o] is None else None) for o, n in numbers.items()}
        self._limits = limits
        self._counter = itertools.count()
        self._place: dict[Future[Any], int] = {}  # calls that have not ended
        self._occupies: dict[Future[Any], Objective] = {}  # calls that keep a worker busy
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        # When to look next after a call: (time, place, its objective, its start, its future).
        self._watch: list[tuple[float, int, Objective, Timed, Future[Any]]] = []
        # Workers in other processes leave a mark here when they begin with a call.
        self._marks: TemporaryDirectory[str] | None = None

    def of(self, objective: Objective) -> Submits:
        """Return the executor of an objective."""
        return self._executors[objective]

    def check_function(self, objective: Objective, function: Callable[..., Any]) -> None:
        """Refuse a function that cannot be sent to another process, where it would have to."""
        if isinstance(self.of(objective), ProcessPoolExecutor):
            try:
                ForkingPickler.dumps(function)
            except Exception as error:  # whatever pickling raises
                raise InvalidInputError(
                    f"{objective} must be picklable to run in a process pool, such as a function "
                    f"at the top level of a module, got {describe(function)}: {error}"
                ) from error

    def n_free(self, objective: Objective) -> int:
        """Return how many workers have nothing to do.

        An executor that serves both objectives has half of its workers for each.

        Raises:
            InvalidInputError: If an executor does not say how many workers it has.
        """
        executor = self.of(objective)
        n = self._workers[objective]
        if n is None:
            n = getattr(executor, "_max_workers", None)
            if not isinstance(n, int):
                raise InvalidInputError(
                    f"workers must say how many calls the {objective} objective's executor makes "
                    f"at once, since {describe(executor)} does not"
                )
            if self.of(Objective.FAST) is self.of(Objective.SLOW):
                n = max(1, (n + (objective is Objective.SLOW)) // 2)
        return max(0, n - sum(o is objective for o in self._occupies.values()))

    def submit(
        self,
        objective: Objective,
        id: int,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        **options: Any,
    ) -> Future[Any]:
        """Put a call into a lane; see `Lanes`."""
        place, limit = next(self._counter), self._limits[objective]
        if limit is not None:
            function = Timed(function, self._mark(objective, place))
        executor = self.of(objective)
        if dask_calls.is_dask(executor):
            future = dask_calls.submit(executor, function, *arguments, **options)
        else:
            future = executor.submit(function, *arguments, **options)
        if not callable(getattr(future, "add_done_callback", None)):
            raise InvalidInputError(
                f"executor must return a concurrent.futures.Future from submit, "
                f"got {describe(future)}"
            )
        self._place[future], self._occupies[future] = place, objective
        future.add_done_callback(self._ended.put)
        if isinstance(function, Timed) and limit is not None:
            heapq.heappush(self._watch, (time.time() + limit, place, objective, function, future))
        return future

    def wait(self) -> tuple[list[Future[Any]], dict[Future[Any], str]]:
        """Wait until a call has ended or is overdue; see `Lanes`."""
        while True:
            pause = None
            if self._watch:
                pause = min(max(0.0, self._watch[0][0] - time.time()), threading.TIMEOUT_MAX)
            ended = self._take_ended(pause)
            overdue = self._take_overdue()
            if ended or overdue:
                return ended, overdue

    def _take_ended(self, pause: float | None) -> list[Future[Any]]:
        ended = []
        with suppress(Empty):
            ended.append(self._ended.get(timeout=pause))
            while True:
                ended.append(self._ended.get_nowait())
        for future in ended:
            objective = self._occupies.pop(future, None)
            if objective is not None and future.cancelled():
                self._check_connection(self.of(objective))
        return sorted(ended, key=self._place.pop)

    def _check_connection(self, executor: Submits) -> None:
        """Tell calls that are lost with a cluster from those that someone cancelled."""
        if dask_calls.is_dask(executor) and dask_calls.is_lost(executor):
            raise BrokenExecutor("the connection to the Dask cluster is lost")

    def _take_overdue(self) -> dict[Future[Any], str]:
        now, overdue = time.time(), {}
        while self._watch and self._watch[0][0] <= now:
            _, place, objective, timed, future = heapq.heappop(self._watch)
            limit = self._limits[objective]
            assert limit is not None
            if future.done():
                continue
            started = timed.started_at()
            due = now + limit if started is None else started + limit
            if due > now:
                heapq.heappush(self._watch, (due, place, objective, timed, future))
                continue
            overdue[future] = f"timed out after {limit:g} s"
            executor = self.of(objective)
            if isinstance(executor, OwnThreads):
                executor.leave_behind(future)
                self._occupies.pop(future)
        return overdue

    def _mark(self, objective: Objective, place: int) -> Path | None:
        if isinstance(self.of(objective), OwnThreads):
            return None
        if self._marks is None:
            self._marks = TemporaryDirectory(prefix="tcsaea-", ignore_cleanup_errors=True)
        return Path(self._marks.name, str(place))

    def __enter__(self) -> "Pools":
        """Return the lanes themselves."""
        return self

    def close(self) -> None:
        """Drop what has not started, and do not wait for what runs."""
        for executor in self._executors.values():
            if isinstance(executor, OwnThreads):
                executor.shutdown(wait=False, cancel_futures=True)
        if self._marks is not None:
            self._marks.cleanup()
