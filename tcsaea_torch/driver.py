"""`minimize`: run a problem from start to end. It does no more than ask and tell."""

import logging
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from tcsaea_torch.asking import Evaluation
from tcsaea_torch.command import CommandObjective
from tcsaea_torch.errors import InvalidInputError, JournalError, ObjectiveError, ProtocolError
from tcsaea_torch.events import Attached, Event, Failed, Told
from tcsaea_torch.executors import ExecutorPair, Lanes, Submits, for_each_objective, make_lanes
from tcsaea_torch.journal import Journal
from tcsaea_torch.optimizer import Optimizer
from tcsaea_torch.problem import Problem, call_objective
from tcsaea_torch.progress import Progress
from tcsaea_torch.result import Result
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.strategies.base import asynchronous
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_bool, check_callable, check_instance, check_int, describe

logger = logging.getLogger(__name__)

Callback = Callable[[Optimizer, Event], None]
_Calls = dict[Future[Any], list[Evaluation]]


def minimize(
    problem: Problem,
    *,
    n_slow: int,
    n_init: int | None = None,
    strategy: Strategy | str | None = None,
    seed: int = 0,
    device: Any = None,
    dtype: torch.dtype = torch.float64,
    executor: Submits | Mapping[str, Submits | None] | ExecutorPair | None = None,
    timeout_s: float | Mapping[str, float | None] | None = None,
    workers: int | Mapping[str, int | None] | None = None,
    retries: int | Mapping[str, int] = 0,
    journal: str | os.PathLike[str] | None = None,
    initial_data: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Result:
    """Optimise a problem within its budget and return the front.

    Objectives are called in threads of their own, or in `executor`. An objective that
    raises, takes too long, or returns something other than one finite number, is recorded
    as a failure with its reason; the run goes on. Ctrl-C, or an executor that breaks,
    returns what there is.

    What runs for more than `timeout_s` cannot be stopped. A thread of our own is left to it,
    and another one goes on; it ends with the program. In the user's executor it keeps its
    worker: have one to spare, or nothing else may ever start. If its value comes while the
    run lasts, it counts all the same.

    Example:
        >>> problem = Problem(
        ...     fast=lambda x: float((x**2).sum()),
        ...     slow=lambda x: float(((x - 1) ** 2).sum()),
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]],
        ...     tau=2,
        ... )
        >>> result = minimize(problem, n_slow=12, n_init=9, progress=False)
        >>> result.n_slow, result.n_fast <= 24, result.status
        (12, True, 'finished')

    Args:
        problem: What to optimise; see `Problem`.
        n_slow: Budget of slow evaluations, the initial design included; there are at
            most floor(tau n_slow) fast ones.
        n_init: Size of the initial design; see `Optimizer`.
        strategy: A configured strategy or its name; None means `TCEHVI()`.
        seed: Decides all random numbers.
        device: Where the surrogates are computed; None means the CPU.
        dtype: torch.float64 or torch.float32.
        executor: Anything with `concurrent.futures.Executor.submit`, for both objectives
            or as a dict such as `{"slow": pool}`; None, or a missing key, means a thread.
            A process pool takes objectives that can be pickled. A Dask client, or its
            `get_executor(resources=...)`, takes a cluster; a `JobExecutor` takes jobs such as
            submitit's. With a `VirtualExecutor` evaluations only pretend to take time.
        timeout_s: Seconds that an evaluation may run, for both objectives or as a dict such
            as `{"slow": 3600}`; None, or a missing key, means for ever. They count from when
            it begins, which workers on other machines tell through a directory for temporary
            files in common with this one; without it there is no limit. A call of a
            `vectorized` function has as long for all its points.
        workers: How many calls run at once, for both objectives or as a dict: the number of
            threads where there is no executor, else what an asynchronous strategy reckons
            with. None: one thread; or what the executor says itself, as those of
            `concurrent.futures` do, half of it for each objective if it serves both.
        retries: How often an evaluation that failed is made again, for both objectives or
            as a dict such as `{"slow": 2}`; a missing key means never. Each try counts
            against the budget, and there is none when that is spent. A point whose tries
            have all failed is not proposed again. A resumed run counts the tries before.
        journal: Path of a file that makes the run durable: everything is stored in it
            before it counts. If there is one already, its run goes on: after a crash, call
            the same script again. Evaluations that were under way are made again, with the
            same ids. The problem and all settings but `device` must be the same.
        initial_data: Data that exists already: a dict of arguments for
            `Optimizer.attach`, or a sequence of such dicts, attached in order.
        callbacks: Functions `f(optimizer, event)`, called after each value or failure, such as
            `plotting.LivePlot()` in a notebook.
        progress: Whether to show a progress bar.

    Returns:
        The points with both objectives, the non-dominated ones among them, and the
        history.

    Raises:
        InvalidInputError: If an argument is wrong.
        ObjectiveError: If every evaluation of an objective in the initial design failed,
            its retries too.
        JournalError: If the journal cannot be written, belongs to another run, or is of
            other settings.
    """
    check_bool("progress", progress)
    callbacks = _check_callbacks(callbacks)
    check_instance("problem", problem, Problem)
    lanes = make_lanes(executor, timeout_s, workers)
    tries = for_each_objective("retries", retries, partial(check_int, minimum=0), 0)
    for objective in Objective:
        lanes.check_function(objective, problem.function_of(objective))
    settings = {
        "n_slow": n_slow, "n_init": n_init, "strategy": strategy, "seed": seed,
        "device": device, "dtype": dtype, "initial_data": initial_data,
    }  # fmt: skip
    if journal is not None and Journal.exists(journal):
        optimizer = _resumed(journal, problem, settings)
    else:
        optimizer = Optimizer(problem, journal=journal, **settings)
    if asynchronous(optimizer.strategy):
        try:
            for objective in Objective:
                lanes.n_free(objective)  # refuses what does not say
        except InvalidInputError:
            optimizer.close()
            raise
    with optimizer, lanes, Progress(optimizer, enabled=progress) as bar:
        run = _Run(optimizer, lanes, tries, (bar, *callbacks))
        try:
            run.to_end()
        except (KeyboardInterrupt, BrokenExecutor) as error:
            run.settle_all()
            lanes.close()
            for function in map(problem.function_of, Objective):
                if isinstance(function, CommandObjective):
                    function.stop()
            is_users = isinstance(error, KeyboardInterrupt)
            return optimizer.result(
                interrupted="the user" if is_users else f"a broken executor ({error})"
            )
    return optimizer.result()


def _resumed(path: Any, problem: Problem, settings: dict[str, Any]) -> Optimizer:
    """Go on with the run in a journal, if it has these settings."""
    wanted = Optimizer(problem, **settings)  # checks them
    optimizer = Optimizer.resume(
        path, problem, on_pending="rerun", strategy=wanted.strategy, device=wanted.device
    )
    try:
        for name in ("n_slow", "n_init", "seed", "dtype"):
            stored, given = getattr(optimizer, name), getattr(wanted, name)
            if stored != given:
                raise JournalError(
                    f"the run in {str(path)!r} has {name} = {stored}, not {given}: choose another "
                    "journal, or pass the same settings to go on with it"
                )
        if not _begins_with(optimizer.events, wanted.events):  # initial data, if there are any
            raise JournalError(f"the run in {str(path)!r} has other initial_data")
    except JournalError:
        optimizer.close()
        raise
    return optimizer


def _begins_with(events: Sequence[Event], data: Sequence[Event]) -> bool:
    """Return whether a run began with these data."""
    first = events[: len(data)]
    return len(first) == len(data) and all(map(_is_same, first, data))


def _is_same(a: Event, b: Event) -> bool:
    """Return whether two events attach the same data."""
    return (
        isinstance(a, Attached)
        and isinstance(b, Attached)
        and torch.equal(a.X, b.X)
        and torch.equal(a.Y.isnan(), b.Y.isnan())
        and torch.equal(a.Y.nan_to_num(), b.Y.nan_to_num())
    )


def _check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
        raise InvalidInputError(
            f"callbacks must be a sequence of functions, got {describe(callbacks)}"
        )
    checked = tuple(callbacks)
    for callback in checked:
        check_callable("callbacks", callback)
    return checked


class _Run:
    """What a run has under way: ask, submit and tell until nothing is left to do."""

    def __init__(
        self,
        optimizer: Optimizer,
        lanes: Lanes,
        retries: Mapping[Objective, int],
        callbacks: Sequence[Callback],
    ) -> None:
        self._optimizer, self._lanes, self._callbacks = optimizer, lanes, callbacks
        self._retries = retries
        self._is_asynchronous = asynchronous(optimizer.strategy) is not None
        # Calls that were submitted and have not ended; the late ones were given up.
        self._running: _Calls = {}
        self._late: _Calls = {}
        # What the optimizer waited for when it had nothing to do, and its `n_used` then.
        self._waits_for: frozenset[int] = frozenset()
        self._n_used_then: tuple[int, int] | None = None
        # Failed tries of each value, from the events so far: those before a crash count too.
        self._n_failed: Counter[tuple[int, Objective]] = Counter()
        self._n_read = 0
        self._works: set[Objective] = set()
        self._read()

    def to_end(self) -> None:
        """Go on until nothing is pending and nothing more is proposed."""
        while True:
            # An optimizer that had nothing to do stays so until something comes that it waits
            # for, or a call is to be repeated. To ask it more often would slow down long runs.
            may_have_work = self._is_asynchronous or self._n_used_then != self._optimizer.n_used
            if not self._running or may_have_work:
                self._ask()
            if not self._running:
                return
            ended, overdue = self._lanes.wait()
            for future in ended:
                self._note(self._settle(future))
            for future, reason in overdue.items():
                group = self._late[future] = self._running.pop(future)
                n_before = len(self._optimizer.events)
                self._fail(group, reason)
                self._note(self._optimizer.events[n_before:])

    def settle_all(self) -> None:
        """Keep what has come by now; what runs still is not waited for."""
        for future in [*self._running, *self._late]:
            if future.done() and not future.cancelled() and future.exception() is None:
                with suppress(ProtocolError):  # it was being told when Ctrl-C came
                    self._settle(future)

    def _ask(self) -> None:
        optimizer, problem = self._optimizer, self._optimizer.problem
        evaluations = optimizer.ask(**self._wanted())
        self._waits_for = frozenset(optimizer.waits_for)
        self._n_used_then = None if evaluations else optimizer.n_used
        # Free workers get a point each.
        in_groups = problem.vectorized and self._lanes.takes_groups and not self._is_asynchronous
        for objective, group in _grouped(evaluations, in_groups=in_groups):
            X = torch.stack([torch.from_numpy(e.x) for e in group])
            X = X.to(optimizer.device) if problem.vectorized else X
            future = self._lanes.submit(
                objective, group[0].id,
                call_objective, problem.function_of(objective), X, vectorized=problem.vectorized,
            )  # fmt: skip
            self._running[future] = group

    def _wanted(self) -> dict[str, int]:
        """Return how many evaluations there are workers for, if the strategy needs to know.

        One waits in each lane that has nothing under way, for workers that may come.
        """
        if not self._is_asynchronous:
            return {}
        busy = {evaluation.objective for group in self._running.values() for evaluation in group}
        return {f"n_{o}": max(self._lanes.n_free(o), int(o not in busy)) for o in Objective}

    def _settle(self, future: Future[Any]) -> Sequence[Event]:
        """Tell what a call returned, or that it failed, and return the events."""
        n_before = len(self._optimizer.events)
        error = CancelledError() if future.cancelled() else future.exception()
        is_late = future in self._late
        calls = self._late if is_late else self._running
        group = calls[future]
        if isinstance(error, BrokenExecutor) or not isinstance(error, Exception | None):
            raise error  # no fault of the objective, or KeyboardInterrupt or SystemExit in it
        if is_late:
            self._tell_late(group, future, error)
        elif error is not None:
            self._fail(group, "".join(traceback.format_exception(error)).strip())
        else:
            for evaluation, value in zip(group, future.result(), strict=True):
                try:
                    self._optimizer.tell(evaluation.id, value)
                except InvalidInputError as problem_with_value:
                    self._fail([evaluation], str(problem_with_value).split("; report")[0])
        del calls[future]  # not before, so that Ctrl-C loses no value
        return self._optimizer.events[n_before:]

    def _tell_late(
        self, group: list[Evaluation], future: Future[Any], error: Exception | None
    ) -> None:
        """Tell what came after its time was up: a value counts all the same."""
        for evaluation, value in zip(group, [] if error else future.result(), strict=not error):
            with suppress(InvalidInputError, ProtocolError):  # no value, or a retry has one
                self._optimizer.tell(evaluation.id, value)
                logger.info("%s evaluation %d came late", evaluation.objective, evaluation.id)

    def _fail(self, group: list[Evaluation], reason: str) -> None:
        for evaluation in group:
            logger.warning(
                "%s evaluation %d failed: %s",
                evaluation.objective, evaluation.id, reason.splitlines()[-1],
            )  # fmt: skip
            self._read()
            n = self._n_failed[evaluation.point_id, evaluation.objective]
            retry = n < self._retries[evaluation.objective]
            self._optimizer.fail(evaluation.id, reason, retry=retry)

    def _read(self) -> None:
        """Take the events into account that have come since the last time."""
        events = self._optimizer.events
        for event in events[self._n_read :]:
            if isinstance(event, Told | Failed):
                record = self._optimizer.record(event.id)
                if isinstance(event, Told):
                    self._works.add(record.objective)
                else:
                    self._n_failed[record.point_id, record.objective] += 1
        self._n_read = len(events)

    def _note(self, events: Sequence[Event]) -> None:
        """Call the callbacks, and stop a run that cannot work."""
        self._read()
        for event in events:
            if isinstance(event, Told | Failed) and event.id in self._waits_for:
                self._n_used_then = None
        for event in events:
            for callback in self._callbacks:
                callback(self._optimizer, event)
        failed = [event for event in events if isinstance(event, Failed)]
        if failed:
            self._check_design(failed[-1])

    def _check_design(self, last: Failed) -> None:
        """Stop a run in which an objective has never worked, once it had its design's chances."""
        optimizer = self._optimizer
        objective = optimizer.record(last.id).objective
        if objective in self._works:
            return
        n = sum(k for (_, o), k in self._n_failed.items() if o is objective)
        # An asynchronous run always has more under way.
        is_all = self._is_asynchronous or n == optimizer.n_used[objective.column]
        if n >= optimizer.n_init and is_all:
            raise ObjectiveError(
                f"all {n} evaluations of the {objective} objective failed; "
                f"the last one: {last.reason}"
            )


def _grouped(
    evaluations: list[Evaluation], *, in_groups: bool
) -> list[tuple[Objective, list[Evaluation]]]:
    """Split evaluations into calls: one for each, or one for all of an objective."""
    if not in_groups:
        return [(e.objective, [e]) for e in evaluations]
    groups = [(o, [e for e in evaluations if e.objective is o]) for o in Objective]
    return [(objective, group) for objective, group in groups if group]
