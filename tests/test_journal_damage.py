"""Broken, changed and forged journals: clear errors, and nothing is executed."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

import tcsaea_torch as tc
from tcsaea_torch import journal
from tcsaea_torch.errors import JournalError, TcsaeaError
from tcsaea_torch.events import Asked, HandedOut
from tcsaea_torch.journal import Journal
from tcsaea_torch.study import Study
from tests.journals import is_same_list, problem

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
    "what was never asked for is handed out": ("HandedOut", '{"ids":[999],"time":1.0}'),
    "a negative id is handed out": ("HandedOut", '{"ids":[-1],"time":1.0}'),
    "a truth value is handed out": ("HandedOut", '{"ids":[true],"time":1.0}'),
    "one id is handed out, in no list": ("HandedOut", '{"ids":0,"time":1.0}'),
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
    with Journal.open(study) as again:
        again.events()
        again.append(replace(last, strategy_state=state))
    with pytest.raises(JournalError, match=r"event \d+ \(Asked\) is impossible: the budget is"):
        Study.read(study)


def test_what_has_ended_cannot_be_handed_out(study):
    with Journal.open(study) as again:
        again.events()
        again.append(HandedOut(ids=(0,)))
    match = r"event \d+ \(HandedOut\) is impossible: evaluation 0 is done already"
    with pytest.raises(JournalError, match=match):
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
