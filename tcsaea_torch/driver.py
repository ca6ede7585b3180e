"""`minimize`: run a problem from start to end. It does no more than ask and tell."""

import logging
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import Any

import torch
from tqdm.auto import tqdm

from tcsaea_torch.errors import InvalidInputError, JournalError, ObjectiveError
from tcsaea_torch.events import Attached, Event, Failed, Status, Told
from tcsaea_torch.executors import Lanes
from tcsaea_torch.journal import Journal
from tcsaea_torch.optimizer import Evaluation, Optimizer
from tcsaea_torch.problem import Problem, call_objective
from tcsaea_torch.result import Result
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_bool, check_callable, describe

logger = logging.getLogger(__name__)

Callback = Callable[[Optimizer, Event], None]
_ENDED = (Status.DONE, Status.FAILED)
_Running = dict[Future[list[Any]], list[Evaluation]]


def minimize(
    problem: Problem,
    *,
    n_slow: int,
    n_init: int | None = None,
    strategy: Strategy | str | None = None,
    seed: int = 0,
    device: Any = None,
    dtype: torch.dtype = torch.float64,
    executor: Executor | None = None,
    journal: str | os.PathLike[str] | None = None,
    initial_data: dict[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Result:
    """Optimise a problem within its budget and return the front.

    Objectives are called in threads of their own, or in `executor`. An objective that
    raises, or returns something other than one finite number, is recorded as a failure
    with its reason; the run goes on. Ctrl-C, or an executor that
    breaks, returns what there is.

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
        strategy: A configured strategy or its name; None means `TCSAEA()`.
        seed: Decides all random numbers.
        device: Where the surrogates are computed; None means the CPU.
        dtype: torch.float64 or torch.float32.
        executor: Anything with `concurrent.futures.Executor.submit`; None means one
            thread for each objective.
        journal: Path of a file that makes the run durable: everything is stored in it
            before it counts. If there is one already, its run goes on: after a crash, call
            the same script again. Evaluations that were under way are made again, with the
            same ids. The problem and all settings but `device` must be the same.
        initial_data: Data that exists already: a dict of arguments for
            `Optimizer.attach`.
        callbacks: Functions `f(optimizer, event)`, called after each value or failure.
        progress: Whether to show a progress bar.

    Returns:
        The points with both objectives, the non-dominated ones among them, and the
        history.

    Raises:
        InvalidInputError: If an argument is wrong.
        ObjectiveError: If every evaluation of an objective in the initial design failed.
        JournalError: If the journal cannot be written, belongs to another run, or is of
            other settings.
    """
    check_bool("progress", progress)
    callbacks = _check_callbacks(callbacks)
    lanes = Lanes.make(executor)
    settings = {
        "n_slow": n_slow, "n_init": n_init, "strategy": strategy, "seed": seed,
        "device": device, "dtype": dtype, "initial_data": initial_data,
    }  # fmt: skip
    if journal is not None and Journal.exists(journal):
        optimizer = _resumed(journal, problem, settings)
    else:
        optimizer = Optimizer(problem, journal=journal, **settings)
    running: _Running = {}
    with optimizer, lanes, _Progress(optimizer, enabled=progress) as bar:
        try:
            _run(optimizer, lanes, running, (bar, *callbacks))
        except (KeyboardInterrupt, BrokenExecutor) as error:
            for future, group in running.items():
                # What has come in the meantime is kept; what runs still is not waited for.
                if future.done() and not future.cancelled() and future.exception() is None:
                    _settle(optimizer, group, future)
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
        for data in wanted.events:  # initial data, if there are any
            if not _begins_with(optimizer.events, data):
                raise JournalError(f"the run in {str(path)!r} has other initial_data")
    except JournalError:
        optimizer.close()
        raise
    return optimizer


def _begins_with(events: Sequence[Event], data: Event) -> bool:
    """Return whether a run began with these data."""
    first = events[0] if events else None
    return (
        isinstance(first, Attached)
        and isinstance(data, Attached)
        and torch.equal(first.X, data.X)
        and torch.equal(first.Y.isnan(), data.Y.isnan())
        and torch.equal(first.Y.nan_to_num(), data.Y.nan_to_num())
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


def _run(
    optimizer: Optimizer, lanes: Lanes, running: _Running, callbacks: Sequence[Callback]
) -> None:
    """Ask, submit and tell until nothing is pending and nothing more is proposed.

    `running` holds the calls that were submitted and not told yet, at any time.
    """
    problem = optimizer.problem
    while True:
        for objective, group in _grouped(problem, optimizer.ask()):
            X = torch.stack([torch.from_numpy(e.x) for e in group])
            X = X.to(optimizer.device) if problem.vectorized else X
            future = lanes.of(objective).submit(
                call_objective, problem.function_of(objective), X, vectorized=problem.vectorized
            )
            running[future] = group
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in [f for f in running if f in done]:  # in the order of asking
            events = _settle(optimizer, running.pop(future), future)
            for event in events:
                for callback in callbacks:
                    callback(optimizer, event)
            if any(isinstance(event, Failed) for event in events):
                _check_design(optimizer)


def _grouped(
    problem: Problem, evaluations: list[Evaluation]
) -> list[tuple[Objective, list[Evaluation]]]:
    """Split evaluations into calls: one for each, or one for all if vectorised."""
    if not problem.vectorized:
        return [(e.objective, [e]) for e in evaluations]
    groups = [(o, [e for e in evaluations if e.objective is o]) for o in Objective]
    return [(objective, group) for objective, group in groups if group]


def _settle(
    optimizer: Optimizer, group: list[Evaluation], future: Future[list[Any]]
) -> list[Event]:
    """Tell what a call returned, or that it failed, and return the events."""
    error = future.exception()
    if error is not None and (
        isinstance(error, BrokenExecutor) or not isinstance(error, Exception)
    ):
        raise error  # no fault of the objective, or KeyboardInterrupt or SystemExit in it
    if error is not None:
        reason = "".join(traceback.format_exception(error)).strip()
        values: list[Any] = [None] * len(group)
    else:
        reason, values = "", future.result()
    n_before = len(optimizer.events)
    for evaluation, value in zip(group, values, strict=True):
        if error is not None:
            _fail(optimizer, evaluation, reason)
            continue
        try:
            optimizer.tell(evaluation.id, value)
        except InvalidInputError as problem_with_value:
            _fail(optimizer, evaluation, str(problem_with_value).split("; report")[0])
    return list(optimizer.events[n_before:])


def _fail(optimizer: Optimizer, evaluation: Evaluation, reason: str) -> None:
    logger.warning(
        "%s evaluation %d failed: %s",
        evaluation.objective, evaluation.id, reason.splitlines()[-1],
    )  # fmt: skip
    optimizer.fail(evaluation.id, reason)


def _check_design(optimizer: Optimizer) -> None:
    """Stop a run in which an objective has never worked, once it had its design's chances."""
    history = optimizer.result().history
    for objective in Objective:
        records = [r for r in history if r.objective is objective]
        failed = [r for r in records if r.status is Status.FAILED]
        if len(failed) >= optimizer.n_init and len(failed) == len(records):
            raise ObjectiveError(
                f"all {len(failed)} evaluations of the {objective} objective failed; "
                f"the last one: {failed[-1].reason}"
            )


class _Progress:
    """A progress bar over slow evaluations, as a context and a callback."""

    def __init__(self, optimizer: Optimizer, *, enabled: bool) -> None:
        n_fast, n_slow = optimizer.n_total
        self._n_fast_total = n_fast
        # A run that is resumed has ended some already.
        ended = [r.objective for r in optimizer.result().history if r.status in _ENDED]
        self._done = {objective: ended.count(objective) for objective in Objective}
        self._hypervolume = ""
        self._bar = tqdm(
            total=n_slow, initial=self._done[Objective.SLOW], desc="slow",
            disable=not enabled, unit="eval",
        )  # fmt: skip

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def __call__(self, optimizer: Optimizer, event: Event) -> None:
        if not isinstance(event, Told | Failed):
            return
        objective = optimizer.record(event.id).objective
        self._done[objective] += 1
        if not self._bar.disable and objective is Objective.SLOW:
            result = optimizer.result()
            if result.ref_point is not None:
                self._hypervolume = f", hypervolume {result.hypervolume():.4g}"
        fast = f"fast {self._done[Objective.FAST]}/{self._n_fast_total}"
        self._bar.set_postfix_str(fast + self._hypervolume, refresh=False)
        self._bar.update(int(objective is Objective.SLOW))
