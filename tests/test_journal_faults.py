"""Full disks, errors at any moment, and several processes."""

import math
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace

import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import codec, journal
from tcsaea_torch.errors import JournalError
from tcsaea_torch.journal import Journal
from tcsaea_torch.owner import Owner
from tcsaea_torch.study import Study
from tests.journals import is_same_list, opened, problem, run
from tests.test_driver import AtOnce

# ------------------------------------------------------------------ full disks


def tell_all(optimizer, evaluations):
    for e in evaluations:
        optimizer.tell(e.id, float(e.id))


def ask_often(optimizer):
    while optimizer.ask():
        pass


def test_a_full_disk_leaves_the_last_good_state_and_says_so(path):
    optimizer = tc.Optimizer(problem(), n_slow=40, n_init=20, strategy="random", journal=path)
    connection = opened(optimizer)._connection
    evaluations = optimizer.ask()
    connection.execute(f"PRAGMA max_page_count={path.stat().st_size // 4096}")
    with pytest.raises(JournalError, match="full; nothing of this was stored or counted"):
        tell_all(optimizer, evaluations)
    n_told = len(optimizer.events) - 1
    assert 0 < n_told < len(evaluations) - 2
    for _ in range(2):
        with pytest.raises(JournalError, match="could not be given Told of evaluation"):
            optimizer.tell(evaluations[n_told].id, 0.5)
        with pytest.raises(JournalError, match="could not be given Attached"):
            optimizer.attach(torch.rand(50, 2, generator=torch.Generator()), fast=range(50))
        with pytest.raises(JournalError, match="could not be given Failed of evaluation"):
            optimizer.fail(evaluations[n_told].id, "x" * 5000)
        with pytest.raises(JournalError, match="could not be given Asked"):
            ask_often(optimizer)
        assert len(optimizer.events) == 1 + n_told
        assert len(optimizer.pending) == len(evaluations) - n_told
        assert len(Study.read(path).events) == 1 + n_told
    connection.execute("PRAGMA max_page_count=1000000")
    for e in optimizer.pending:
        optimizer.tell(e.id, float(e.id))
    run(optimizer)
    assert optimizer.result().status == "finished"
    assert is_same_list(Study.read(path).events, list(optimizer.events))
    optimizer.close()


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs limits of file sizes")
def test_a_real_limit_of_the_system_is_survived(path):
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    optimizer = tc.Optimizer(problem(), n_slow=60, n_init=20, strategy="random", journal=path)
    evaluations = optimizer.ask()
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    try:
        with pytest.raises(JournalError, match="nothing of this was stored or counted"):
            tell_all(optimizer, evaluations)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    run(optimizer)
    for e in optimizer.pending:
        optimizer.tell(e.id, float(e.id))
    run(optimizer)
    assert optimizer.result().status == "finished"
    optimizer.close()
    assert is_same_list(Study.read(path).events, list(optimizer.events))


class Breaks:
    """A connection that raises at the k-th statement, before or after it took effect."""

    def __init__(self, connection, k, error, after):
        self.connection, self.k, self.error, self.after = connection, k, error, after

    def execute(self, sql, *arguments):
        return self._do(self.connection.execute, sql, *arguments)

    def executemany(self, sql, *arguments):
        return self._do(self.connection.executemany, sql, *arguments)

    def _do(self, method, *arguments):
        self.k -= 1
        if self.k == 0 and not self.after:
            raise self.error
        found = method(*arguments)
        if self.k == 0:
            raise self.error
        return found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("error", [sqlite3.OperationalError("disk I/O error"), KeyboardInterrupt()])
@pytest.mark.usefixtures("unchecked")
def test_an_error_or_ctrl_c_at_any_moment_leaves_no_doubt(error, k, after, path):
    """BEGIN, two statements, COMMIT: whatever of it took effect, the run is as the file."""
    optimizer = tc.Optimizer(problem(), n_slow=9, n_init=4, strategy="random", journal=path)
    evaluations = optimizer.ask()
    optimizer.fail(0, "try again", retry=True)
    stored = opened(optimizer)
    connection = stored._connection
    stored._connection = Breaks(connection, k, error, after)
    with pytest.raises((JournalError, KeyboardInterrupt)):
        optimizer.tell(0, 0.25)  # with it, the retry is withdrawn
    stored._connection = connection
    optimizer.tell(0, 0.25)
    assert [type(e).__name__ for e in optimizer.events] == ["Asked", "Failed", "Told", "Withdrawn"]
    assert is_same_list(Study.read(path).events, list(optimizer.events))
    again = optimizer.ask()
    assert not {e.id for e in again} & {e.id for e in evaluations}
    optimizer.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [3, 4, 13])
@pytest.mark.usefixtures("unchecked")
def test_ctrl_c_while_minimize_stores_loses_no_value(n, k, after, path):
    """All that was measured is in the result and in the file, which are the same."""
    measured = []

    def noted(function):
        def call(x):
            measured.append(math.nan if len(measured) % 5 == 4 else function(x))
            return measured[-1]

        return call

    def break_next(optimizer, event):
        if len(optimizer.events) == n:
            stored = opened(optimizer)
            stored._connection = Breaks(stored._connection, k, KeyboardInterrupt(), after)

    box = problem(fast=noted(problem().fast), slow=noted(problem().slow))
    result = tc.minimize(
        box, n_slow=12, n_init=6, strategy="random", journal=path, executor=AtOnce(), retries=1,
        progress=False, callbacks=[break_next],
    )  # fmt: skip
    assert result.status == "interrupted"
    history = Study.read(path).result().history
    assert [(r.status, r.value) for r in result.history if r.status == "done"] == [
        (r.status, r.value) for r in history if r.status == "done"
    ]
    assert [r.status for r in result.history] == [r.status for r in history]
    told = [r.value for r in history if r.status == "done"]
    assert sorted(told) == sorted(value for value in measured if not math.isnan(value))


@pytest.mark.usefixtures("unchecked")
def test_an_interrupted_ask_hands_out_what_it_stored(path):
    optimizer = tc.Optimizer(problem(), n_slow=9, n_init=4, strategy="random", journal=path)
    stored = opened(optimizer)
    connection = stored._connection
    stored._connection = Breaks(connection, 4, KeyboardInterrupt(), True)
    with pytest.raises(KeyboardInterrupt):
        optimizer.ask()
    stored._connection = connection
    assert [e.id for e in optimizer.ask()] == list(range(8))
    assert optimizer.n_used == (4, 4)
    optimizer.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("k", range(1, 9))
@pytest.mark.usefixtures("unchecked")
def test_an_interrupted_ask_for_some_hands_out_the_same_again(k, after, path):
    """First the step is stored, then what is handed out of it; nothing has arrived."""
    optimizer = tc.Optimizer(problem(), n_slow=9, n_init=4, strategy="random", journal=path)
    stored = opened(optimizer)
    connection = stored._connection
    stored._connection = Breaks(connection, k, KeyboardInterrupt(), after)
    with pytest.raises(KeyboardInterrupt):
        optimizer.ask(n_fast=1, n_slow=2)
    stored._connection = connection
    assert optimizer.pending == []
    assert [e.id for e in optimizer.ask(n_fast=1, n_slow=2)] == [0, 1, 2]
    assert [e.id for e in optimizer.pending] == [0, 1, 2]
    assert [e.id for e in optimizer.ask()] == [3, 4, 5, 6, 7]
    assert optimizer.n_used == (4, 4)
    optimizer.close()
    assert len(Study.read(path, thoroughly=True).pending) == 8


# ------------------------------------------------------------------ one process at a time


def test_a_study_in_use_is_refused_until_it_is_closed(path):
    first = tc.Optimizer(problem(), n_slow=12, journal=path)
    with pytest.raises(JournalError, match=r"this process works on it already: close\(\)"):
        tc.Optimizer.resume(path, problem())
    first.close()
    first.close()
    second = tc.Optimizer.resume(path, problem())
    with pytest.raises(JournalError, match="could not be given Asked: it is closed"):
        first.ask()
    assert first.result().n_slow == 0  # reading goes on
    del second  # without closing
    with tc.Optimizer.resume(path, problem()) as third:
        third.ask()
    assert Study.read(path).owner is None


def test_an_error_while_resuming_frees_the_study(study):
    for changes in ({"tau": 3}, {"bounds": [[0.0, 0.0], [1.0, 2.0]]}):
        with pytest.raises(JournalError, match=r"cannot resume .* another problem: its"):
            tc.Optimizer.resume(study, problem(**changes))
    tc.Optimizer.resume(study, problem()).close()


HOLD = """
import sys, time
import tcsaea_torch as tc
problem = tc.Problem(fast=abs, slow=abs, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
optimizer = tc.Optimizer(problem, n_slow=12, n_init=6, strategy="random", journal=sys.argv[1])
optimizer.ask()
print("ready", flush=True)
time.sleep(600)
"""


def start(code, *arguments):
    """Start Python in another process; its output is a pipe."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_living_process_is_named_and_a_killed_one_is_no_hindrance(path):
    with start(HOLD, path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for attempt in (lambda: tc.Optimizer.resume(path, problem()), lambda: Journal.unlock(path)):
            with pytest.raises(JournalError, match=f"process {process.pid} .* works on it"):
                attempt()
        assert Study.read(path).pending == list(range(12))
        process.kill()
    assert Study.read(path).owner is not None
    with tc.Optimizer.resume(path, problem()) as optimizer:
        assert [e.id for e in optimizer.pending] == list(range(12))


def test_a_later_process_with_the_same_number_is_no_hindrance(path):
    tc.Optimizer(problem(), n_slow=12, journal=path).close()
    set_owner(path, replace(Owner.this_process(), started="1"))
    tc.Optimizer.resume(path, problem()).close()


def set_owner(path, owner):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE head SET owner=?", (codec.dumps(owner.content()),))


def test_a_process_of_another_machine_keeps_its_study_until_it_is_unlocked(path):
    tc.Optimizer(problem(), n_slow=12, journal=path).close()
    set_owner(path, replace(Owner.this_process(), host="elsewhere"))
    with pytest.raises(JournalError, match=r"process \d+ on elsewhere .*run `tcsaea unlock .*db`"):
        tc.Optimizer.resume(path, problem())
    Journal.unlock(path)
    tc.Optimizer.resume(path, problem()).close()


def test_who_lost_the_study_cannot_write(path):
    optimizer = tc.Optimizer(problem(), n_slow=12, journal=path)
    evaluations = optimizer.ask()
    set_owner(path, replace(Owner.this_process(), host="elsewhere"))
    with pytest.raises(JournalError, match="changed or taken over by another process"):
        optimizer.tell(evaluations[0].id, 1.0)
    optimizer.close()
    assert Study.read(path).owner is not None  # the other's lock stays
    assert len(Study.read(path).events) == 1


RACE = """
import os, sys, time
import tcsaea_torch as tc
from tcsaea_torch.errors import JournalError
folder, n = sys.argv[1], int(sys.argv[2])
problem = tc.Problem(fast=abs, slow=abs, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
children = []
for _ in range(2):
    if pid := os.fork():
        children.append(pid)
        continue
    won = 0
    for k in range(n):
        path = f"{folder}/{k}.db"
        while time.time() < start + 0.05 * (k + 1):
            pass
        try:
            if os.path.exists(f"{folder}/old{k}.db"):
                optimizer = tc.Optimizer.resume(f"{folder}/old{k}.db", problem)
            else:
                optimizer = tc.Optimizer(problem, n_slow=9, strategy="random", journal=path)
            kept = optimizer, globals().get("kept")  # and so its lock
            won |= 1 << k
        except JournalError as error:
            assert any(w in str(error) for w in ("works on it", "exists", "just begun")), error
    os.write(1, f"{won}\\n".encode())
    time.sleep(0.5)
    os._exit(0)
"""


def test_of_two_processes_at_the_same_moment_one_wins(tmp_path):
    n = 20
    for k in range(0, n, 2):
        tc.Optimizer(problem(), n_slow=9, journal=tmp_path / f"old{k}.db").close()
    code = RACE.replace("children = []", "children, start = [], time.time()")
    code += "for child in children:\n    os.waitpid(child, 0)\n"
    with start(code, tmp_path, n) as process:
        output, _ = process.communicate(timeout=120)
    a, b = map(int, output.split())
    assert a & b == 0
    assert a | b == 2**n - 1


def test_a_fork_neither_writes_nor_frees(path):
    optimizer = tc.Optimizer(problem(), n_slow=12, n_init=6, strategy="random", journal=path)
    optimizer.ask()
    mine = opened(optimizer)
    mine._owner = replace(mine._owner, pid=os.getpid() + 1)  # as the parent's is to its fork
    with pytest.raises(JournalError, match="it belongs to another process"):
        optimizer.tell(0, 1.0)
    journal._release(mine._connection, mine._owner)
    assert Study.read(path).owner is not None
