"""Whatever happens to a study in whatever order, crashes too: the journal is the run.

The machine draws what a user, workers and fate do. Its model are plain dicts and sets of
what was handed out and answered.
"""

import shutil
import sqlite3
import tempfile
import warnings
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tcsaea_torch import Optimizer, Problem, codec, journal
from tcsaea_torch.errors import ProtocolError
from tcsaea_torch.events import RunState, fold
from tcsaea_torch.owner import Owner
from tcsaea_torch.recorder import INTERRUPTED
from tcsaea_torch.study import Study, replay
from tests.crashes import is_same
from tests.properties.test_events import POOL, VALUES, Steps, check_laws, snapshot
from tests.properties.test_events import is_same as is_same_state

BUDGET: dict[str, Any] = {"n_slow": 9, "n_init": 2}
NUMBERS = st.sampled_from([None, 0, 1, 2, 3])


def problem():
    return Problem(
        fast=abs, slow=abs, bounds=[[0.0, -3.0], [1.0, 3.0]], tau=1.5,
        directions=("minimize", "maximize"),
    )  # fmt: skip


class Runs(RuleBasedStateMachine):
    """A run with a journal, and what is known of it from outside."""

    n_steps = 0
    """Of all runs together."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp(prefix="study"))
        self.path = self.folder / "study.db"
        self.optimizer = Optimizer(problem(), **BUDGET, strategy=Steps(), journal=self.path)
        # What was ever handed out, and what of it is under way or has ended.
        self.asked: dict[int, tuple] = {}
        self.handed_out: set[int] = set()
        self.answers: dict[int, object] = {}
        self.live = {0: self.snapshot()}

    def teardown(self):
        if hasattr(self, "optimizer"):
            self.check_whole()
            self.optimizer.close()
            shutil.rmtree(self.folder)

    # -------------------------------------------------------------- what may happen

    @rule(n_fast=NUMBERS, n_slow=NUMBERS)
    def ask(self, n_fast, n_slow):
        """Ask for some or, most often, for all."""
        self.hand_out(n_fast, n_slow)

    @rule()
    def ask_for_all(self):
        self.hand_out(None, None)

    def hand_out(self, n_fast, n_slow):
        """Ask: the oldest of the queue come first, and new ones where it has too few."""
        before = self.queue
        found = self.optimizer.ask(n_fast=n_fast, n_slow=n_slow)
        records, queue = self.optimizer._state.records, self.queue
        if n_fast is None and n_slow is None:
            assert [e.id for e in found] == (before or queue)
        else:
            for objective, n in (("fast", n_fast or 0), ("slow", n_slow or 0)):
                there = [id for id in queue if records[id].objective == objective]
                assert [e.id for e in found if e.objective == objective] == there[:n]
        for e in found:
            what = (e.point_id, e.objective, tuple(e.x.tolist()))
            assert e.id not in self.answers
            assert e.id not in self.handed_out
            assert self.asked.setdefault(e.id, what) == what  # the same, if after a crash
            self.handed_out.add(e.id)

    @precondition(lambda self: self.open)
    @rule(k=st.integers(0, 99), value=st.sampled_from([*VALUES, 0.1, -1e300]))
    def tell(self, k, value):
        id = self.open[k % len(self.open)]
        self.optimizer.tell(id, value)
        self.answers[id] = value
        self.optimizer.tell(id, value)  # twice is once

    @precondition(lambda self: self.open)
    @rule(k=st.integers(0, 99), retry=st.booleans())
    def fail(self, k, retry):
        id = self.open[k % len(self.open)]
        self.optimizer.fail(id, f"reason {k}", retry=retry)
        self.answers[id] = f"reason {k}"

    @precondition(lambda self: self.failed)
    @rule(k=st.integers(0, 99), value=st.sampled_from(VALUES))
    def tell_late(self, k, value):
        id = self.failed[k % len(self.failed)]
        try:
            self.optimizer.tell(id, value)
        except ProtocolError as error:
            assert "is known from a retry" in str(error)  # noqa: PT017
        else:
            self.answers[id] = value

    @rule(k=st.integers(0, 99), value=st.sampled_from(VALUES))
    def attach(self, k, value):
        known = torch.cat([POOL, self.optimizer._state.X_user])
        fast, slow = [([value], None), ([value], [0.5]), (None, [value])][k % 3]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*outside the bounds")
            self.optimizer.attach(known[k % len(known)].unsqueeze(0), fast=fast, slow=slow)

    @rule(on_pending=st.sampled_from(["wait", "rerun", "fail"]))
    def crash(self, on_pending):
        """Go on with a copy of the file, whose owner has ended."""
        copy = Path(shutil.copy(self.path, self.folder / "copy.db"))
        self.optimizer.close()
        copy.rename(self.path)
        disown(self.path)
        before = self.snapshot()
        self.optimizer = Optimizer.resume(
            self.path, problem(), on_pending=on_pending, strategy=Steps()
        )
        if on_pending == "rerun":
            # All that is under way, but retries whose value came late.
            known = {self.asked[id][:2] for id, y in self.answers.items() if isinstance(y, float)}
            self.handed_out = {
                id for id, what in self.asked.items() if id in self.answers or what[:2] in known
            }
        else:
            self.handed_out = set(self.asked)
        if on_pending == "fail":
            self.answers.update(dict.fromkeys(self.open, INTERRUPTED))
        else:
            assert is_same_state(self.snapshot(), before)

    # -------------------------------------------------------------- what must hold

    @property
    def open(self):
        """Ids that were ever handed out and have no answer, but retries that are not needed."""
        ended = self.answers.keys() | withdrawn(self.optimizer._state)
        return [id for id in self.asked if id not in ended]

    @property
    def failed(self):
        return [id for id, answer in self.answers.items() if isinstance(answer, str)]

    @property
    def queue(self):
        """Ids that wait to be handed out, for the first time or again."""
        state = self.optimizer._state
        return [
            r.id
            for r in state.records
            if r.id not in self.handed_out | self.answers.keys() | withdrawn(state)
        ]

    def snapshot(self):
        """Copy the state; what is to be handed out again is no event."""
        found = snapshot(self.optimizer._state)
        return {**found, "to_hand_out": [i for i in found["to_hand_out"] if i not in self.asked]}

    @invariant()
    def nothing_is_lost(self):
        if not hasattr(self, "optimizer"):
            return
        Runs.n_steps += 1
        state = self.optimizer._state
        self.live[len(self.optimizer.events)] = self.snapshot()
        assert list(state.to_hand_out) == self.queue
        under_way = self.handed_out - self.answers.keys() - withdrawn(state)
        assert [e.id for e in self.optimizer.pending] == sorted(under_way)
        assert [r.id for r in state.records] == list(range(len(state.records)))
        for id, answer in self.answers.items():
            record = state.records[id]
            assert (record.reason if isinstance(answer, str) else record.value) == answer
        pending = {r.id for r in state.records if r.status == "pending"}
        assert pending == {r.id for r in state.records} - self.answers.keys() - withdrawn(state)
        for column, total in enumerate(state.total):
            counted = [r for r in state.records if r.objective.column == column]
            assert state.used[column] == len(counted) - len(
                withdrawn(state) & {r.id for r in counted}
            )
            assert state.used[column] <= total

    def check_whole(self):
        """Check the file against the run, from every prefix."""
        optimizer = self.optimizer
        check_laws(optimizer, optimizer._state)
        events = Study.read(self.path, thoroughly=True).events
        assert is_same(events, list(optimizer.events))
        for n, expected in self.live.items():
            assert is_same_state(snapshot(replay(first(optimizer), events[:n])), expected)
        # From any place on, too.
        n = len(events) // 2
        state = fold(replay(first(optimizer), events[:n]), events[n:])
        assert is_same_state(snapshot(state), self.snapshot())
        if queue := self.queue:
            assert [e.id for e in optimizer.ask()] == queue


def withdrawn(state):
    return {r.id for r in state.records if r.status == "withdrawn"}


def first(optimizer):
    """Return the state before the first event."""
    n_fast, n_slow = optimizer.n_total
    return RunState(problem(), n_fast=n_fast, n_slow=n_slow, strategy_state={"step": 0})


def disown(path):
    """Make a file's owner a process that has ended."""
    ended = replace(Owner.this_process(), started="1")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE head SET owner=?", (codec.dumps(ended.content()),))


@pytest.mark.parametrize(
    ("n_runs", "n_steps"), [(50, 2_000), pytest.param(1_200, 50_000, marks=pytest.mark.slow)]
)
def test_a_study_survives_any_order_of_events(n_runs, n_steps, monkeypatch):
    """Runs of up to fifty steps; nobody pulls the plug."""
    monkeypatch.setattr(journal, "SYNCHRONOUS", "OFF")
    monkeypatch.setattr(Runs, "n_steps", 0)
    checks = settings(
        max_examples=n_runs, stateful_step_count=50, deadline=None, derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(Runs, settings=checks)
    assert Runs.n_steps >= n_steps
