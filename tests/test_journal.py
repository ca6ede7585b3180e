"""The journal: what is stored, who may write, and what happens to broken files."""

import json
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

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import codec, journal
from tcsaea_torch.errors import InvalidInputError, JournalError, TcsaeaError
from tcsaea_torch.events import Asked, Attached, Failed, Told, Withdrawn
from tcsaea_torch.journal import Journal
from tcsaea_torch.owner import Owner
from tcsaea_torch.study import Study
from tests.test_conventions import quick

NAN, INF = math.nan, math.inf


def problem(**changes):
    options = {
        "fast": lambda x: float((x**2).sum()),
        "slow": lambda x: float(((x - 1) ** 2).sum()),
        "bounds": [[0.0, 0.0], [1.0, 1.0]],
        "tau": 2,
    }
    return tc.Problem(**{**options, **changes})


def asked(**state):
    return Asked(
        X=torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        evaluation_mask=torch.tensor([[True, False], [True, True]]),
        strategy_state=state,
    )


EVENTS = [
    Attached(X=torch.tensor([[0.1, -0.0, 1e-320]]).double(), Y=torch.tensor([[NAN, 0.1]]).double()),
    asked(step=3, name="tc", weight=0.1, low=-INF, gap=NAN, theta=torch.ones(1, 3)),
    Told(id=0, value=0.1 + 0.2),
    Told(id=1, value=-1.7976931348623157e308),
    Failed(id=2, reason='said "no"\0 \ud800 é\n', retry=True),
    asked(step=4, theta=torch.ones(1, 4), none=torch.zeros(0, 2, dtype=torch.int64)),
    Withdrawn(id=3),
]


def is_same(a, b):
    """Compare bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and codec._bytes(a) == codec._bytes(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if type(a).__module__ == "tcsaea_torch.events":
        return type(a) is type(b) and is_same(vars(a), vars(b))
    return type(a) is type(b) and repr(a) == repr(b)


def is_same_list(a, b):
    return len(a) == len(b) and all(map(is_same, a, b))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.db"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with failures, attached data and many states."""
    path = tmp_path_factory.mktemp("finished") / "study.db"
    with tc.Optimizer(
        problem(), n_slow=12, n_init=6, strategy=quick(), journal=path, seed=1,
        initial_data={"X": [[0.5, 0.5]], "fast": [0.5]},
    ) as optimizer:  # fmt: skip
        run(optimizer)
    return path.read_bytes()


@pytest.fixture
def study(path, finished):
    """A file of one's own with a finished run."""
    path.write_bytes(finished)
    return path


def run(optimizer, n=10**9):
    """Run to the end, or until n values are told; every seventh evaluation fails."""
    while n and (evaluations := optimizer.ask()):
        for e in evaluations[:n]:
            if e.id % 7 == 3:
                optimizer.fail(e.id, "diverged", retry=e.id % 2 == 0)
            else:
                optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
        n -= min(n, len(evaluations))
    return optimizer


# ------------------------------------------------------------------ what is stored


def test_events_come_back_bit_for_bit(path):
    with Journal.create(path, {"a": (1, 2.5, None, "x")}) as made:
        for event in EVENTS[:3]:
            made.append(event)
        made.append(*EVENTS[3:])
        assert is_same_list(made.events(), EVENTS)
    for read_only in (True, False):
        with Journal.open(path, read_only=read_only) as opened:
            assert opened.header == {"a": (1, 2.5, None, "x")}
            assert is_same_list(opened.events(), EVENTS)


@pytest.mark.parametrize("dtype", codec._DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, 0, 5)])
def test_tensors_of_all_dtypes_and_shapes(dtype, shape, path):
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    with Journal.create(path, {}) as made:
        made.append(asked(x=tensor))
        (event,) = made.events()
    assert is_same(event.strategy_state["x"], tensor)


def test_memory_layout_of_tensors_does_not_matter(path):
    tensor = torch.arange(12.0).reshape(3, 4).T[::2]
    with Journal.create(path, {}) as made:
        made.append(asked(x=tensor))
        assert is_same(made.events()[0].strategy_state["x"], tensor.contiguous())


def test_what_a_state_has_in_common_with_the_one_before_is_not_stored_again(path):
    rows, vectors = torch.rand(1, 20000, generator=torch.Generator().manual_seed(1)), torch.ones(99)
    states = [{"rows": rows[:, : 10000 + k], "vectors": vectors} for k in range(50)]
    with Journal.create(path, {}) as made:
        made.append(asked(**states[0]))
        before = path.stat().st_size
        for state in states[1:]:
            made.append(asked(**state))
        assert path.stat().st_size - before < 49 * 1000  # 40 kB each, if stored again
        assert is_same_list([e.strategy_state for e in made.events()], states)
        # A journal that is opened again knows the state before.
    with Journal.open(path) as opened:
        opened.events()
        opened.append(asked(**states[0]))
        assert is_same(opened.events()[-1].strategy_state, states[0])


def test_nothing_but_strict_json_and_bytes_is_stored(study):
    with closing(sqlite3.connect(study)) as connection:
        texts = connection.execute("SELECT scalars FROM events").fetchall()
        texts += connection.execute("SELECT content FROM header").fetchall()
        blobs = connection.execute("SELECT tensors FROM events").fetchall()
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)

    def refuse(name):
        raise AssertionError(name)

    for (text,) in texts:
        json.loads(text, parse_constant=refuse)
        assert text.isascii()
    assert all(type(blob) is bytes for (blob,) in blobs)


@pytest.mark.parametrize(
    "value", [[1], None, torch.zeros(1, dtype=torch.complex64), np.zeros(2), {"a": 1}]
)
@pytest.mark.usefixtures("unchecked")
def test_a_state_that_cannot_be_stored_is_refused_before_it_counts(value, path):
    with Journal.create(path, {}) as made:
        with pytest.raises(InvalidInputError, match=r"a strategy's state must hold|cannot hold"):
            made.append(asked(x=value))
        assert made.events() == []


@pytest.mark.parametrize("name", tc.strategies.names())
def test_each_strategy_is_rebuilt_from_its_configuration(name):
    strategy = tc.strategies.get(name)
    changed = replace(strategy, name="other")
    for value in (strategy, changed):
        assert codec.loads(codec.dumps(value)) == value


# ------------------------------------------------------------------ files


def test_an_existing_file_is_refused_and_kept(study):
    before = study.read_bytes()
    with pytest.raises(JournalError, match=r"exists: Optimizer.resume goes on with its study"):
        tc.Optimizer(problem(), n_slow=12, journal=study)
    assert study.read_bytes() == before


def test_another_programs_files_are_refused_and_kept(path):
    text = "thickness,yield\n1,2\n" * 100
    path.write_text(text)
    with pytest.raises(JournalError, match="file is not a database"):
        tc.Optimizer(problem(), n_slow=12, journal=path)
    with pytest.raises(JournalError, match="file is not a database"):
        tc.Optimizer.resume(path, problem())
    assert path.read_text() == text
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE accounts (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="it is a database of another program"):
        tc.Optimizer.resume(path, problem())
    with pytest.raises(JournalError, match="exists"):
        tc.Optimizer(problem(), n_slow=12, journal=path)
    assert path.read_bytes() == before


def test_an_empty_file_is_as_good_as_none(path):
    path.touch()
    with pytest.raises(JournalError, match="it is empty: no study was begun in it"):
        tc.Optimizer.resume(path, problem())
    tc.Optimizer(problem(), n_slow=12, journal=path).close()
    tc.Optimizer.resume(path, problem()).close()


def test_names_with_special_characters(tmp_path):
    path = tmp_path / "50%20? a#b;é.db"
    tc.Optimizer(problem(), n_slow=12, journal=path).close()
    tc.Optimizer.resume(path, problem()).close()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_removed_or_replaced_during_the_run_is_noticed(path, tmp_path):
    optimizer = tc.Optimizer(problem(), n_slow=12, n_init=6, strategy="random", journal=path)
    optimizer.ask()
    path.rename(tmp_path / "moved.db")
    for _ in range(2):
        with pytest.raises(JournalError, match="the file was removed or replaced"):
            optimizer.tell(0, 1.0)
        path.touch()
    path.unlink()
    (tmp_path / "moved.db").rename(path)
    optimizer.tell(0, 1.0)
    assert len(optimizer.events) == 2


def test_an_older_format_is_migrated_all_or_nothing_and_a_newer_one_refused(study, monkeypatch):
    expected = Study.read(study).events
    with closing(sqlite3.connect(study)) as connection:  # make it a file of version 0
        connection.execute("ALTER TABLE events RENAME TO log")
        connection.execute("PRAGMA user_version=0")
    with pytest.raises(JournalError, match="its format 0 is unknown"):
        tc.Optimizer.resume(study, problem())
    old = study.read_bytes()

    def migrate(connection):
        connection.execute(journal.TABLES["events"])
        connection.execute("INSERT INTO events SELECT * FROM log")
        connection.execute("DROP TABLE log")

    def breaks(connection):
        migrate(connection)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setitem(journal.MIGRATIONS, 0, breaks)
    with pytest.raises(JournalError, match="could not be opened: disk I/O error"):
        tc.Optimizer.resume(study, problem())
    assert study.read_bytes() == old
    monkeypatch.setitem(journal.MIGRATIONS, 0, migrate)
    assert is_same_list(Study.read(study).events, expected)
    assert study.read_bytes() == old  # reading changes nothing
    with tc.Optimizer.resume(study, problem()) as optimizer:
        assert is_same_list(list(optimizer.events), expected)
    monkeypatch.delitem(journal.MIGRATIONS, 0)
    assert is_same_list(Study.read(study).events, expected)

    with closing(sqlite3.connect(study)) as connection:
        connection.execute("PRAGMA user_version=2")
    for attempt in (lambda: Study.read(study), lambda: tc.Optimizer.resume(study, problem())):
        with pytest.raises(JournalError, match=r"format 2 is newer than 1.*: update the library"):
            attempt()


# ------------------------------------------------------------------ full disks


def tell_all(optimizer, evaluations):
    for e in evaluations:
        optimizer.tell(e.id, float(e.id))


def ask_often(optimizer):
    while optimizer.ask():
        pass


def test_a_full_disk_leaves_the_last_good_state_and_says_so(path):
    optimizer = tc.Optimizer(problem(), n_slow=40, n_init=20, strategy="random", journal=path)
    connection = optimizer._run._journal._connection
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
    opened = optimizer._run._journal
    connection = opened._connection
    opened._connection = Breaks(connection, k, error, after)
    with pytest.raises((JournalError, KeyboardInterrupt)):
        optimizer.tell(0, 0.25)  # with it, the retry is withdrawn
    opened._connection = connection
    optimizer.tell(0, 0.25)
    assert [type(e).__name__ for e in optimizer.events] == ["Asked", "Failed", "Told", "Withdrawn"]
    assert is_same_list(Study.read(path).events, list(optimizer.events))
    again = optimizer.ask()
    assert not {e.id for e in again} & {e.id for e in evaluations}
    optimizer.close()


@pytest.mark.usefixtures("unchecked")
def test_an_interrupted_ask_hands_out_what_it_stored(path):
    optimizer = tc.Optimizer(problem(), n_slow=9, n_init=4, strategy="random", journal=path)
    opened = optimizer._run._journal
    connection = opened._connection
    opened._connection = Breaks(connection, 4, KeyboardInterrupt(), True)
    with pytest.raises(KeyboardInterrupt):
        optimizer.ask()
    opened._connection = connection
    assert [e.id for e in optimizer.ask()] == list(range(8))
    assert optimizer.n_used == (4, 4)
    optimizer.close()


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
    mine = optimizer._run._journal
    mine._owner = replace(mine._owner, pid=os.getpid() + 1)  # as the parent's is to its fork
    with pytest.raises(JournalError, match="it belongs to another process"):
        optimizer.tell(0, 1.0)
    journal._release(mine._connection, mine._owner)
    assert Study.read(path).owner is not None


# ------------------------------------------------------------------ reading meanwhile


def test_reading_while_a_run_goes_on(path):
    with tc.Optimizer(problem(), n_slow=12, n_init=6, strategy="random", journal=path) as optimizer:
        for n in range(1, 4):
            run(optimizer, n)
            study = Study.read(path)
            assert is_same_list(study.events, list(optimizer.events))
            assert study.owner is not None
            assert study.owner.pid == os.getpid()
        here = optimizer.result()
    result = Study.read(path).result()
    assert torch.equal(result.all_Y.nan_to_num(-1), here.all_Y.nan_to_num(-1))
    assert torch.equal(result.all_X, here.all_X)
    assert [repr(r) for r in result.history] == [repr(r) for r in here.history]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_study_on_a_medium_that_cannot_be_written(study):
    study.parent.chmod(0o500)
    study.chmod(0o400)
    try:
        assert Study.read(study).events
    finally:
        study.parent.chmod(0o700)


# ------------------------------------------------------------------ broken files


def rows(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT * FROM events ORDER BY number").fetchall()


def rewrite(path, statements):
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement, *arguments in statements:
            connection.execute(statement, *arguments)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM events WHERE number=5", "event 5 is damaged: it is missing"),
        ("DELETE FROM events WHERE number=(SELECT max(number) FROM events)", "missing after"),
        ("DELETE FROM events", "events are missing after number -1"),
        ("UPDATE events SET number=999 WHERE number=4", "event 4 is damaged: it is missing"),
        ("UPDATE events SET kind='Withdrawn' WHERE number=4", "event 4 .* checksum is wrong"),
        ("UPDATE events SET scalars=scalars||' ' WHERE number=4", "event 4 .* checksum is wrong"),
        ("UPDATE events SET tensors=x'00' WHERE number=4", "event 4 .* checksum is wrong"),
        ("UPDATE events SET kind=7 WHERE number=4", "event 4 .* checksum is wrong"),
        ("UPDATE events SET scalars=x'00' WHERE number=4", "event 4 .* not what they were"),
        ("UPDATE header SET content=replace(content,'12','13')", "header is damaged: its checksum"),
        ("UPDATE header SET content='[1]'", "header is damaged"),
        ("UPDATE header SET content='{'", "header is damaged"),
        ("DELETE FROM header", "header is damaged"),
        ("UPDATE head SET owner='{}'", "lock is damaged"),
        ("UPDATE head SET n_events='x'", "header is damaged"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM header; END", "tables are not"),
        ("CREATE VIEW v AS SELECT 1", "tables are not"),
        ("DROP TABLE head", "tables are not"),
        ("PRAGMA application_id=1", "another program"),
    ],
)
def test_a_changed_row_is_found_and_named(study, statement, message):
    rewrite(study, [(statement,)])
    for attempt in (lambda: Study.read(study), lambda: tc.Optimizer.resume(study, problem())):
        with pytest.raises(JournalError, match=message):
            attempt()


def test_swapped_rows_are_found(study):
    rewrite(study, [
        ("UPDATE events SET number=-1 WHERE number=3",),
        ("UPDATE events SET number=3 WHERE number=4",),
        ("UPDATE events SET number=4 WHERE number=-1",),
    ])  # fmt: skip
    with pytest.raises(JournalError, match="event 3 is damaged: its checksum is wrong"):
        Study.read(study)


def forged(path, changes):
    """Change rows and make all checksums right again."""
    with closing(sqlite3.connect(path)) as connection, connection:
        (header,) = connection.execute("SELECT content FROM header").fetchone()
        digest = journal._digest(header)
        for number, kind, scalars, data, _ in rows(path):
            kind, scalars, data = changes(number, kind, scalars, data)
            digest = journal._chained(digest, number, kind, scalars, data)
            connection.execute(
                "UPDATE events SET kind=?, scalars=?, tensors=?, digest=? WHERE number=?",
                (kind, scalars, data, digest, number),
            )
        connection.execute("UPDATE head SET digest=?", (digest,))


FORGERIES = {
    "a told value that was never asked for": ("Told", '{"id":999,"value":1.0,"time":1.0}'),
    "a negative id": ("Told", '{"id":-1,"value":1.0,"time":1.0}'),
    "an infinite value": ("Told", '{"id":9,"value":{"float":"inf"},"time":1.0}'),
    "an id that is no number": ("Told", '{"id":"9","value":1.0,"time":1.0}'),
    "a truth value as id": ("Told", '{"id":true,"value":1.0,"time":1.0}'),
    "no time": ("Told", '{"id":9,"value":1.0}'),
    "time stands still": ("Told", '{"id":9,"value":1.0,"time":{"float":"nan"}}'),
    "more than is known": ("Told", '{"id":9,"value":1.0,"time":1.0,"code":"x"}'),
    "less than is needed": ("Told", '{"time":1.0}'),
    "another class": ("Path", '{"time":1.0}'),
    "a class of Python's": ("Told", '{"class":"Popen","fields":{"args":"true"}}'),
    "no object": ("Told", "[]"),
    "no JSON": ("Told", "{"),
    "not strict": ("Told", '{"id":9,"value":NaN,"time":1.0}'),
    "a long number": ("Told", '{"id":' + "9" * 5000 + ',"value":1.0,"time":1.0}'),
    "very deep": ("Told", "[" * 100_000),
    "a huge tensor": (
        "Attached",
        '{"X":{"dtype":"float64","shape":[4000000000,4000000000],"kept":0},"Y":1,"time":1.0}',
    ),
    "an empty huge tensor": (
        "Attached",
        '{"X":{"dtype":"float64","shape":[0,9000000000000000000],"kept":0},"Y":1,"time":1.0}',
    ),
    "a negative shape": (
        "Attached", '{"X":{"dtype":"float64","shape":[-1,2],"kept":0},"Y":1,"time":1.0}',
    ),
    "an unknown dtype": (
        "Attached", '{"X":{"dtype":"object","shape":[1,2],"kept":0},"Y":1,"time":1.0}',
    ),
    "no tensors": ("Attached", '{"X":null,"Y":null,"time":1.0}'),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.usefixtures("unchecked")
def test_a_forgery_with_right_checksums_executes_nothing_and_is_refused(study, name):
    kind, scalars = FORGERIES[name]
    number = next(k for k, row in enumerate(rows(study)) if row[1] == "Told")
    forged(study, lambda n, *row: (kind, scalars, b"") if n == number else row)
    for attempt in (lambda: Study.read(study), lambda: tc.Optimizer.resume(study, problem())):
        with pytest.raises(JournalError, match=f"event {number} .*(damaged|impossible)"):
            attempt()


def test_a_budget_that_is_exceeded_is_found(study):
    events, state = Study.read(study).events, {}
    last = [e for e in events if isinstance(e, Asked)][-1]
    assert len(last.X)
    with Journal.open(study) as opened:
        opened.events()
        opened.append(replace(last, strategy_state=state))
    with pytest.raises(JournalError, match=r"event \d+ \(Asked\) is impossible: the budget is"):
        Study.read(study)


def attempt_all(path):
    """Read, check and resume; return the errors."""
    errors = []
    for attempt in (
        lambda: Study.read(path, thoroughly=True),
        lambda: tc.Optimizer.resume(path, problem()).close(),
    ):
        try:
            attempt()
        except TcsaeaError as error:  # anything else fails the test
            errors.append(error)
    return errors


def mutate(data, rng):
    """Change some bytes, cut, repeat or zero a part."""
    data = bytearray(data)
    i, j = sorted(rng.integers(0, len(data), 2).tolist())
    match rng.integers(6):
        case 0 | 1 | 2:
            for k in rng.integers(0, len(data), int(rng.integers(1, 20))):
                data[k] = int(rng.integers(256))
        case 3:
            del data[i : min(j, i + 5000)]
        case 4:
            data[i:i] = data[i : min(j, i + 5000)]
        case 5:
            data[i : min(j, i + 5000)] = bytes(min(j, i + 5000) - i)
    return bytes(data)


@pytest.mark.usefixtures("unchecked")
def test_500_mutations_of_a_good_file_give_clear_errors_or_the_same_run(study, monkeypatch):
    monkeypatch.setattr(journal, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(journal, "SYNCHRONOUS", "OFF")
    good, expected = study.read_bytes(), Study.read(study).events
    rng, n_refused = np.random.default_rng(0), 0
    for _ in range(500):
        study.write_bytes(mutate(good, rng))
        errors = attempt_all(study)
        if errors:
            n_refused += 1
            assert all(str(study) in str(error) for error in errors)
        else:  # a part of the file that holds nothing
            assert is_same_list(Study.read(study).events, expected)
    assert n_refused > 300


# ------------------------------------------------------------------ flat


def test_memory_and_file_handles_are_flat_over_200_periods(path, monkeypatch):
    """Each period asks for one point with both values."""
    monkeypatch.setattr(journal, "SYNCHRONOUS", "OFF")
    optimizer = tc.Optimizer(problem(tau=1), n_slow=250, n_init=2, strategy=Single(), journal=path)
    handles, sizes = [], []
    for period in range(250):
        (slow, fast) = optimizer.ask()
        optimizer.tell(slow.id, 1.0)
        optimizer.tell(fast.id, 2.0)
        if period >= 50:
            handles.append(len(os.listdir("/proc/self/fd")))
            sizes.append(resident())
    optimizer.close()
    assert max(handles) == min(handles)
    assert max(sizes) - sizes[0] < 4e6


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Single:
    """Propose one point at a time."""

    name = "single"

    def init(self, run):
        return {"step": 0}

    def propose(self, state, run):
        q = int(bool(run.left.amin() > 0))
        X = torch.full((1, q, run.d), (1 + state["step"]) / 500, dtype=run.dtype)
        mask = torch.ones(1, q, 2, dtype=torch.bool)
        return tc.strategies.Proposal(X=X, evaluation_mask=mask), {"step": state["step"] + 1}
