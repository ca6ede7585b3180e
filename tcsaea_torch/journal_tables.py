"""The tables of a journal's file, and which versions of them there are."""

import sqlite3
from collections.abc import Callable
from typing import Any

from tcsaea_torch.errors import JournalError

SCHEMA_VERSION = 1
APPLICATION_ID = 0x54435341  # "TCSA"

MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {}
"""For each version before `SCHEMA_VERSION`, what turns its tables into the next one's."""

TABLES = {
    "header": "CREATE TABLE header (content TEXT NOT NULL, digest BLOB NOT NULL)",
    "head": "CREATE TABLE head (n_events INTEGER NOT NULL, digest BLOB NOT NULL, owner TEXT)",
    "events": "CREATE TABLE events (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, "
    "scalars TEXT NOT NULL, tensors BLOB NOT NULL, digest BLOB NOT NULL)",
}
"""Settings of the run; the end of the chain of events and who may append; the events."""


def has_content(connection: sqlite3.Connection) -> bool:
    """Say whether there is any table in a file."""
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,)


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of a new study."""
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    for table in TABLES.values():
        connection.execute(table)


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Refuse what is no study or too new, and bring an older one up to date.

    Raises:
        JournalError: If the file is no study of a known version.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not has_content(connection):
        raise JournalError("it is empty: no study was begun in it")
    if application != APPLICATION_ID:
        raise JournalError("it is a database of another program")
    if version > SCHEMA_VERSION:
        raise JournalError(
            f"its format {version} is newer than {SCHEMA_VERSION}, the newest that this "
            "version of tcsaea-torch knows: update the library"
        )
    while version < SCHEMA_VERSION:
        if version not in MIGRATIONS:
            raise JournalError(f"its format {version} is unknown")
        MIGRATIONS[version](connection)
        version += 1
        connection.execute(f"PRAGMA user_version={version}")
    found = dict(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    if found != TABLES:
        raise JournalError("its tables are not those of a study")


def only_row(connection: sqlite3.Connection, query: str, *kinds: Any) -> Any:
    """Return the columns of the only row of a table.

    Raises:
        JournalError: If there is no such row, or its columns are of other kinds.
    """
    rows = connection.execute(query).fetchall()
    if len(rows) != 1 or not all(map(isinstance, rows[0], kinds)):
        raise JournalError("its header is damaged")
    return rows[0]
