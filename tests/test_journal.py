"""The journal: what is stored, in which files, and who may read meanwhile."""

import json
import math
import os
import resource
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import codec, journal
from tcsaea_torch.errors import InvalidInputError, JournalError
from tcsaea_torch.events import Asked, Attached, Failed, HandedOut, Told, Withdrawn
from tcsaea_torch.evolution import RVEAConfig, Variation
from tcsaea_torch.journal import Journal
from tcsaea_torch.models import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies import Proposal, RunView, State
from tcsaea_torch.study import Study
from tcsaea_torch.transfer import LinkConfig
from tests.journals import INF, NAN, asked, is_same, is_same_list, problem, run

EVENTS = [
    Attached(X=torch.tensor([[0.1, -0.0, 1e-320]]).double(), Y=torch.tensor([[NAN, 0.1]]).double()),
    asked(step=3, name="tc", weight=0.1, low=-INF, gap=NAN, theta=torch.ones(1, 3)),
    Told(id=0, value=0.1 + 0.2),
    Told(id=1, value=-1.7976931348623157e308),
    Failed(id=2, reason='said "no"\0 \ud800 é\n', retry=True),
    asked(step=4, theta=torch.ones(1, 4), none=torch.zeros(0, 2, dtype=torch.int64)),
    Withdrawn(id=3),
    replace(asked(step=5), queued=True),
    HandedOut(ids=(4, 6)),
]


# ------------------------------------------------------------------ what is stored


def states_of(journal):
    """Return the strategy's states."""
    return [event.strategy_state for event in journal.events() if isinstance(event, Asked)]


def test_events_come_back_bit_for_bit(path):
    with Journal.create(path, {"a": (1, 2.5, None, "x")}) as made:
        for event in EVENTS[:3]:
            made.append(event)
        made.append(*EVENTS[3:])
        assert is_same_list(made.events(), EVENTS)
    for read_only in (True, False):
        with Journal.open(path, read_only=read_only) as again:
            assert again.header == {"a": (1, 2.5, None, "x")}
            assert is_same_list(again.events(), EVENTS)


@pytest.mark.parametrize("dtype", codec._DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 2), (2, 0, 5)])
def test_tensors_of_all_dtypes_and_shapes(dtype, shape, path):
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    with Journal.create(path, {}) as made:
        made.append(asked(x=tensor))
        assert is_same(states_of(made)[0]["x"], tensor)


@pytest.mark.parametrize("cut", [lambda T: T.T[::2], lambda T: T[:1, 2], lambda T: T[1:2, ::3]])
def test_memory_layout_of_tensors_does_not_matter(cut, path):
    tensor = cut(torch.arange(12.0).reshape(3, 4))
    with Journal.create(path, {}) as made:
        made.append(asked(x=tensor))
        assert is_same(states_of(made)[0]["x"], tensor.contiguous())


def test_what_a_state_has_in_common_with_the_one_before_is_not_stored_again(path):
    rows, vectors = torch.rand(1, 20000, generator=torch.Generator().manual_seed(1)), torch.ones(99)
    states = [{"rows": rows[:, : 10000 + k], "vectors": vectors} for k in range(50)]
    with Journal.create(path, {}) as made:
        made.append(asked(**states[0]))
        before = path.stat().st_size
        for state in states[1:]:
            made.append(asked(**state))
        assert path.stat().st_size - before < 49 * 1000  # 40 kB each, if stored again
        assert is_same_list(states_of(made), states)
        # A journal that is opened again knows the state before.
    with Journal.open(path) as again:
        again.events()
        again.append(asked(**states[0]))
        assert is_same(states_of(again)[-1], states[0])


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
    strategy: Any = tc.strategies.get(name)
    changed = replace(strategy, name="other")
    for value in (strategy, changed):
        assert codec.loads(codec.dumps(value)) == value


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.usefixtures("unchecked")
def test_a_configuration_of_configurations_is_rebuilt(kind):
    """Sequences may be given as lists."""
    strategy = tc.TCEHVI(
        search=RVEAConfig(n_generations=4, variation=Variation(crossover_index=3.0)),
        link=LinkConfig(
            links=kind(("ratio", "angle")),
            ratio_offsets=kind((0.1, 0.2)),
            kriging=FitConfig(
                kernel="additive",
                starts=kind((2.0,)),
                options=BFGSOptions(max_evaluations=7),
            ),
        ),
        kernels=kind(("smooth", "joint")),
        objective_lower_bounds=kind((None, -0.5)),
    )
    for value in (strategy, replace(strategy, link=None)):
        assert codec.loads(codec.dumps(value)) == value
        assert isinstance(hash(value), int)


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

    def init(self, run: RunView) -> State:
        return {"step": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        step = int(state["step"])
        q = int(bool(run.left.amin() > 0))
        X = torch.full((1, q, run.d), (1 + step) / 500, dtype=run.dtype)
        mask = torch.ones(1, q, 2, dtype=torch.bool)
        return Proposal(X=X, evaluation_mask=mask), {"step": step + 1}
