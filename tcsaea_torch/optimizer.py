"""`Optimizer`: ask for evaluations, tell their values, in any order and at any time."""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.asking import Evaluation, NextAction, check_wanted, evaluation_of
from tcsaea_torch.beginning import check_sizes, reopened
from tcsaea_torch.errors import JournalError
from tcsaea_torch.events import Event, EventLog, Record, RunState, Status
from tcsaea_torch.existing_data import attached, initial_events
from tcsaea_torch.journal import Journal
from tcsaea_torch.planning import Planner
from tcsaea_torch.problem import Problem
from tcsaea_torch.protocol import asked_at, check_points, failed, record_of, told
from tcsaea_torch.recorder import Recorder
from tcsaea_torch.result import Result, ref_point_of, result_of
from tcsaea_torch.strategies import TCEHVI, Strategy, check_strategy
from tcsaea_torch.study import Settings
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import (
    check_bool,
    check_choice,
    check_device,
    check_dtype,
    check_instance,
    check_int,
    check_path,
    check_text,
)


class Optimizer:
    """One run that is told its values from outside.

    All methods may be called from any thread. Neither torch's default settings nor its
    random numbers are touched.

    Example:
        >>> problem = Problem(
        ...     fast=lambda x: float((x**2).sum()),
        ...     slow=lambda x: float(((x - 1) ** 2).sum()),
        ...     bounds=[[0.0, 0.0], [1.0, 1.0]],
        ...     tau=2,
        ... )
        >>> optimizer = Optimizer(problem, n_slow=6, n_init=4, strategy="random")
        >>> while evaluations := optimizer.ask():
        ...     for e in evaluations:
        ...         f = problem.fast if e.objective == "fast" else problem.slow
        ...         optimizer.tell(e.id, f(e.x))
        >>> len(optimizer.result().Y)
        6

    Args:
        problem: What to optimise. Its functions are not called here.
        n_slow: Budget of slow evaluations, the initial design included. There are at
            most floor(tau n_slow) fast ones.
        n_init: Size of the initial design with both objectives; None means
            min(100, max(d + 2, n_slow // 3)). The paper's setting is 100 of 200.
        strategy: A configured strategy or its name; None means `TCEHVI()`.
        seed: Decides all random numbers.
        device: Where to compute; None means the CPU.
        dtype: torch.float64 or torch.float32.
        initial_data: Data that exists already: a dict of arguments for `attach`, or a
            sequence of such dicts, attached in order.
        journal: Path of a file that does not exist yet, for a durable run: everything is
            stored in it before it counts, and `resume` goes on after a crash. Close the
            optimizer, or use it in a `with` statement, to let others go on with the file.

    Raises:
        InvalidInputError: If an argument is wrong.
        JournalError: If the journal exists already or cannot be written.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        n_slow: int,
        n_init: int | None = None,
        strategy: Strategy | str | None = None,
        seed: int = 0,
        device: Any = None,
        dtype: torch.dtype = torch.float64,
        initial_data: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        self.problem: Problem = check_instance("problem", problem, Problem)
        self.n_slow, self.n_init = check_sizes(problem, n_slow, n_init)
        self.strategy = TCEHVI() if strategy is None else check_strategy(strategy)
        self.seed = check_int("seed", seed)
        self.device = check_device(device)
        self.dtype = check_dtype(dtype)
        self._lock = threading.RLock()
        self._planner = Planner(
            self.strategy, problem, n_slow=self.n_slow, n_init=self.n_init, seed=self.seed,
            device=self.device, dtype=self.dtype,
        )  # fmt: skip
        self._run = Recorder(self._planner.first_state(), self.device)
        first = initial_events(problem, initial_data)
        path = None if journal is None else check_path("journal", journal)
        self._run.start(first, path and Journal.create(path, self._header(), first))

    def _header(self) -> dict[str, Any]:
        settings = Settings.of_run(
            self.problem, self.strategy, self._planner.budget, n_slow=self.n_slow,
            n_init=self.n_init, seed=self.seed, device=self.device, dtype=self.dtype,
        )  # fmt: skip
        return settings.header()

    # ------------------------------------------------------------------ durable runs

    @classmethod
    def resume(
        cls,
        path: str | os.PathLike[str],
        problem: Problem,
        *,
        on_pending: str = "wait",
        strategy: Strategy | str | None = None,
        device: Any = None,
    ) -> "Optimizer":
        """Go on with the study in a journal, as if it had not been interrupted.

        The run is rebuilt from its events, bit for bit; no strategy is asked. On another
        device or with other versions of the libraries, what comes next may differ by
        rounding.

        Args:
            path: The journal.
            problem: The study's problem: bounds, tau, names, integers, directions and
                ref_point must be the same. Its functions cannot be compared.
            on_pending: What becomes of evaluations that have not ended: "wait" keeps them
                in `pending`, to be told or failed; "rerun" lets `ask` hand them out again
                with the same ids, without counting them again; "fail" records them as
                failed.
            strategy: Needed for a strategy of the user's own, configured as it was; one
                of this library's is in the journal.
            device: Where to compute; None means where the study began.

        Raises:
            InvalidInputError: If an argument is wrong.
            JournalError: If the journal is damaged, belongs to a living process, or is of
                another problem or strategy.
        """
        check_choice("on_pending", on_pending, ("wait", "rerun", "fail"))
        check_instance("problem", problem, Problem)
        given = None if strategy is None else check_strategy(strategy)
        with reopened(path) as (journal, settings):
            optimizer = cls(problem, **settings.arguments(problem, given, device))
            if optimizer.n_total != settings.budget:
                raise JournalError("its budgets are not those of its strategy")
            optimizer._run.resume(journal, on_pending)
            optimizer._planner.may_have_ended_at = len(optimizer._run.events)
        return optimizer

    def close(self) -> None:
        """Give up the journal; what is known can still be read. Without one, do nothing."""
        with self._lock:
            self._run.close()

    def __enter__(self) -> "Optimizer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ protocol

    def ask(self, n_fast: int | None = None, n_slow: int | None = None) -> list[Evaluation]:
        """Return evaluations that can be decided now and were not handed out before.

        An empty list means that the strategy waits for outstanding values (`waits_for`
        names them) or that the run is over (`is_done`).

        Args:
            n_fast: How many fast evaluations there are free workers for. A strategy that is
                not asynchronous may have fewer for them; what it has beyond that number is
                kept for the next calls.
            n_slow: The same for slow evaluations. If one of the numbers is given, None
                means 0 for the other. If none is, all that can be decided now is returned;
                an asynchronous strategy gives as much as for one period.

        Raises:
            InvalidInputError: If a number is no count.
        """
        wanted = check_wanted(n_fast, n_slow)
        with self._changing():
            chosen = self._planner.hand_out(self._run, wanted)
            return [evaluation_of(self._state, record) for record in chosen]

    def ask_at(self, X: Any) -> list[Evaluation]:
        """Ask for both objectives at points of one's own, as if the strategy had chosen them.

        They cost budget, and proposals take them into account while they are on their way.
        What is known already belongs to `attach`.

        Args:
            X: `n x d` points in user's units, within the bounds, such as those that other
                workers evaluate.

        Returns:
            Two evaluations of each point, in order, the slow one first; `x` is as given up to
            rounding.

        Raises:
            InvalidInputError: If a point is outside of the bounds, or between integers.
            ProtocolError: If the budget is too small.
        """
        points = check_points(self.problem, X)
        with self._changing():
            n_before = len(self._state.records)
            self._run.record(asked_at(self._state, points))
            return [evaluation_of(self._state, r) for r in self._state.records[n_before:]]

    def next_action(self) -> NextAction:
        """Say what a scheduler may do now: ask for work, wait, or stop.

        A synchronous strategy is made to think for it, but only once: the next `ask`
        returns what it has found.
        """
        with self._changing():
            return self._planner.next_action(self._run)

    def tell(self, id: int, value: Any) -> None:
        """Record the value of an evaluation, in the user's sign.

        Telling the same value again changes nothing. A value that comes after the
        evaluation was given up by `fail` counts all the same, unless a retry has
        brought another one.

        Args:
            id: The evaluation's id.
            value: One finite real number.

        Raises:
            InvalidInputError: If the value is no finite real number; report failures
                by `fail`.
            ProtocolError: If the id is unknown or had another value before.
        """
        with self._changing():
            self._run.record(*told(self._state, id, value))

    def fail(self, id: int, reason: str = "", *, retry: bool = False) -> None:
        """Record that an evaluation failed; models learn nothing from it.

        The call stays counted. The point is not proposed again; its other value, if it
        came or comes, is kept.

        Args:
            id: The evaluation's id.
            reason: Why, for the history.
            retry: Whether `ask` should hand it out again, with a new id, while the
                budget lasts; each try counts.

        Raises:
            ProtocolError: If the id is unknown or the evaluation has ended before.
        """
        check_bool("retry", retry)
        check_text("reason", reason)
        with self._changing():
            self._run.record(*failed(self._state, id, reason, retry=retry))

    def attach(
        self, X: Any, fast: Any = None, slow: Any = None, *, tolerance: float = 1e-9
    ) -> None:
        """Add data that exists already. It costs no budget.

        Points with both values reduce the initial design. Values of one point may come
        in several calls and orders: a row belongs to the nearest known point within
        `tolerance`, or else to such an earlier row. Another value of a point that has one,
        or waits for one, counts as a repeated measurement.

        X, fast and slow may be lists, numpy arrays, torch tensors, or pandas objects, whose
        index is ignored: rows count. A DataFrame whose columns are the problem's names is put
        in the problem's order; others are taken in the order given.

        Args:
            X: `n x d` points in user's units. Points outside the bounds are used by the
                models, with a warning; proposals stay inside.
            fast: n fast values; NaN, None or NA where not measured; None: none were.
            slow: n slow values, likewise.
            tolerance: How far apart rows of one point may be, up to 0.1: the largest
                difference of a variable, in parts of the side of its bounds (the maximum
                norm in the unit cube). Integers are compared in steps, and fixed parameters
                in parts of their value. 0: X must be exactly equal. For data that went
                through a file with six digits, 1e-5.

        Raises:
            InvalidInputError: If shapes differ or X has NaN; nothing is changed then.
        """
        with self._changing():
            known = self._state.X_user[self._state.exists]
            self._run.record(attached(self.problem, known, X, fast, slow, tolerance=tolerance))

    # ------------------------------------------------------------------ what is known

    @property
    def pending(self) -> list[Evaluation]:
        """Evaluations that were handed out and have not ended."""
        with self._lock:
            queue = self._state.to_hand_out
            return [
                evaluation_of(self._state, r)
                for r in self._state.records
                if r.status is Status.PENDING and r.id not in queue
            ]

    @property
    def waits_for(self) -> tuple[int, ...]:
        """Ids that the strategy waited for when `ask` last returned nothing."""
        return self._planner.waits_for

    def record(self, id: int) -> Record:
        """Return what became of an evaluation.

        Raises:
            ProtocolError: If the id is unknown.
        """
        with self._lock:
            return Record(**vars(record_of(self._state, id)))

    @property
    def archive(self) -> Archive:
        """All rows in the unit cube, minimised, on the run's device: a batch of one."""
        with self._lock:
            return self._planner.view(self._state).archive

    @property
    def n_used(self) -> tuple[int, int]:
        """Evaluations asked for so far: (fast, slow)."""
        return self._state.used[0], self._state.used[1]

    @property
    def n_total(self) -> tuple[int, int]:
        """Budgets of (fast, slow) evaluations."""
        return self._state.total

    @property
    def is_done(self) -> bool:
        """Whether nothing is pending and nothing more will be proposed."""
        with self._lock:
            return self._planner.status(self._run) in ("finished", "exhausted")

    @property
    def events(self) -> Sequence[Event]:
        """Everything that has happened so far, in order."""
        return EventLog(self._run.events)

    @property
    def ref_point(self) -> Float[Tensor, "2"] | None:
        """Reference point of the hypervolume in the user's units.

        The problem's own, or else the worst values of the initial design plus a tenth of
        their range, as soon as that design is complete.
        """
        with self._lock:
            return ref_point_of(self._state, self.n_init)

    def result(self, *, interrupted: str | None = None) -> Result:
        """Return what is known now; a run can be asked for it at any time.

        Args:
            interrupted: What cut the run short, if anything did.
        """
        if interrupted is not None:
            check_text("interrupted", interrupted)
        with self._lock:
            with suppress(JournalError):  # else what was known before is what is known
                self._run.settle(self._planner.first_state)
            return result_of(
                self._state,
                n_init=self.n_init,
                strategy=self.strategy.name,
                seed=self.seed,
                status=self._planner.status(self._run) if interrupted is None else "interrupted",
                interrupted=interrupted,
            )

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, on a state that is as the journal has it."""
        with self._lock:
            self._run.settle(self._planner.first_state)
            yield

    @property
    def _state(self) -> RunState:
        return self._run.state
