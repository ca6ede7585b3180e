"""The journal of a study: events in a SQLite file, appended and never changed.

A transaction is on the disk, or it never happened (`synchronous=EXTRA`, with a rollback
journal: a write-ahead log fails on network file systems). Each row has a checksum over
itself and the one before. Nothing in a file is executed: see `codec`.
"""

import hashlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tcsaea_torch import codec
from tcsaea_torch.errors import JournalError
from tcsaea_torch.events import Event, Failed, Told, Withdrawn
from tcsaea_torch.journal_tables import (
    MIGRATIONS,
    TABLES,
    bring_up_to_date,
    has_content,
    make_tables,
    only_row,
)
from tcsaea_torch.owner import Owner
from tcsaea_torch.validation import check_path

__all__ = ["BUSY_SECONDS", "MIGRATIONS", "SYNCHRONOUS", "TABLES", "Journal"]

SYNCHRONOUS = "EXTRA"
"""What SQLite waits for before a transaction counts: that it survives a loss of power."""
BUSY_SECONDS = 30.0
"""How long to wait for another process that reads or writes the file."""

_BROKEN = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""What reading content that is not as it was written raises."""


class Journal:
    """The events of one study. One process may write, others may read at any time.

    Make one by `create` or `open`; close it, or use it in a `with` statement.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, owner: Owner | None) -> None:
        self.path = path
        self._connection = connection
        self._owner = owner
        self._inode = None if owner is None else _inode(path)
        text, self._start = only_row(connection, "SELECT content, digest FROM header", str, bytes)
        try:
            self.header: dict[str, Any] = codec.loads(text)
            if self._start != _digest(text) or not isinstance(self.header, dict):
                raise ValueError("its checksum is wrong")
        except _BROKEN as error:
            raise JournalError(f"the header is damaged: {error}") from error
        self._forget()
        # At the latest when the program ends, also after an error.
        self._finalizer = weakref.finalize(self, _release, connection, owner)

    def _forget(self) -> None:
        """Go back to before the first event."""
        self._n, self._digest, self._state = 0, self._start, codec.Pieces()

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], header: dict[str, Any], events: tuple[Event, ...] = ()
    ) -> "Journal":
        """Begin a study in a file that does not exist, or is empty.

        Header, first events and lock are stored together or not at all.

        Raises:
            JournalError: If there is something at the path, or it cannot be written.
        """
        path = check_path("journal", path)
        if cls.exists(path):
            raise JournalError(
                f"journal {str(path)!r} exists: Optimizer.resume goes on with its study; "
                "choose another path for a new one"
            )
        owner, text = Owner.this_process(), codec.dumps(header)
        with _saying(path, "created"), _connected(path, "rwc") as connection:
            with _transaction(connection):
                if has_content(connection):
                    raise JournalError("another process has just begun a study there")
                make_tables(connection)
                start, owned = _digest(text), codec.dumps(owner.content())
                connection.execute("INSERT INTO header VALUES (?, ?)", (text, start))
                connection.execute("INSERT INTO head VALUES (0, ?, ?)", (start, owned))
                journal = cls(path, connection, owner)
                journal._n, journal._digest, journal._state = journal._insert(events)
            return journal

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> "Journal":
        """Open a study, to go on with it or to read what it holds at this moment.

        Args:
            path: The file.
            read_only: Whether to read only; that works while another process writes.

        Raises:
            JournalError: If the file is no study, is damaged, comes from a newer version,
                or belongs to another process.
        """
        path = check_path("path", path)
        if not path.is_file():
            raise JournalError(f"there is no study at {str(path)!r}")
        if read_only:
            return cls._snapshot(path)
        with _saying(path, "opened"), _connected(path, "rw") as connection:
            with _transaction(connection):
                bring_up_to_date(connection)
                owner = _take_over(connection, path)
            connection.execute("PRAGMA journal_mode=DELETE")
            return cls(path, connection, owner)

    @classmethod
    def _snapshot(cls, path: Path) -> "Journal":
        """Copy a study into memory: that blocks its writer least."""
        with _saying(path, "read"), _connected(None) as memory:
            # Writable, so that what a killed process left half-written is undone.
            mode = "rw" if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK) else "ro"
            with _connected(path, mode) as connection:
                connection.backup(memory)
                connection.close()
            with _transaction(memory):
                bring_up_to_date(memory)
            return cls(path, memory, None)

    @staticmethod
    def exists(path: str | os.PathLike[str]) -> bool:
        """Return whether there is a study, or anything else, at a path.

        An empty file is nothing: a process was killed there before it began.
        """
        path = check_path("journal", path)
        if not path.exists():
            return False
        if not path.is_file():
            raise JournalError(f"journal must be the path of a file, got {str(path)!r}")
        with _saying(path, "read"), _connected(path, "rw") as connection:
            found = has_content(connection)
            connection.close()
            return found

    @classmethod
    def unlock(cls, path: str | os.PathLike[str]) -> None:
        """Remove the lock that a process of another machine has left.

        Raises:
            JournalError: If the owner is a living process of this machine.
        """
        cls.open(path, read_only=True).close()  # it is a study
        with _saying(check_path("path", path), "unlocked"), _connected(Path(path), "rw") as c:
            with _transaction(c):
                owner = _owner_in(c)
                if owner is not None and owner.lives:
                    raise JournalError(f"{owner} works on it")
                c.execute("UPDATE head SET owner=NULL")
            c.close()

    # ------------------------------------------------------------------ use

    @property
    def owner(self) -> Owner | None:
        """The process that may write the study, if any."""
        return _owner_in(self._connection)

    def append(self, *events: Event) -> None:
        """Store events, all of them or none.

        Raises:
            JournalError: If they could not be stored; a later call may work.
        """
        self._check_writable(events)
        try:
            with _saying(self.path, f"given {_names(events)}"), _transaction(self._connection):
                n, digest, state = self._insert(events)
        except JournalError as error:
            raise JournalError(f"{error}; nothing of this was stored or counted") from error
        self._n, self._digest, self._state = n, digest, state

    def _insert(self, events: tuple[Event, ...]) -> tuple[int, bytes, codec.Pieces]:
        """Insert rows within a transaction, and return where the chain is then."""
        assert self._owner is not None
        n, digest, state, rows = self._n, self._digest, self._state, []
        for event in events:
            kind, scalars, data, state = codec.encode(event, state)
            digest = _chained(digest, n, kind, scalars, data)
            rows.append((n, kind, scalars, data, digest))
            n += 1
        found = self._connection.execute(
            "UPDATE head SET n_events=?, digest=? WHERE n_events=? AND digest=? AND owner=?",
            (n, digest, self._n, self._digest, codec.dumps(self._owner.content())),
        )
        if found.rowcount != 1:
            raise JournalError("it was changed or taken over by another process")
        self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
        return n, digest, state

    def events(self) -> list[Event]:
        """Return all events, and go on after the last.

        Raises:
            JournalError: If a row is damaged, missing or not where it was.
        """
        with _saying(self.path, "read"):
            self._forget()
            head = only_row(self._connection, "SELECT n_events, digest FROM head", int, bytes)
            rows = self._connection.execute(
                "SELECT number, kind, scalars, tensors, digest FROM events ORDER BY number"
            ).fetchall()
            found = [self._decoded(row) for row in rows]
            if head != (self._n, self._digest):
                raise JournalError(f"events are missing after number {self._n - 1}")
            return found

    def _decoded(self, row: tuple[Any, ...]) -> Event:
        """Return the next event."""
        number, kind, scalars, data, digest = row
        try:
            if number != self._n:
                raise ValueError("it is missing")
            if [type(v) for v in row] != [int, str, str, bytes, bytes]:
                raise ValueError("its columns are not what they were")
            if digest != _chained(self._digest, number, kind, scalars, data):
                raise ValueError("its checksum is wrong")
            event, self._state = codec.decode(kind, scalars, data, self._state)
        except _BROKEN as error:
            raise JournalError(f"event {self._n} is damaged: {error}") from error
        self._n, self._digest = number + 1, digest
        return event

    def check_pages(self) -> None:
        """Check the file's structure.

        Raises:
            JournalError: If SQLite finds a fault.
        """
        with _saying(self.path, "checked"):
            faults = self._connection.execute("PRAGMA integrity_check(1)").fetchall()
            if faults != [("ok",)]:
                raise JournalError(f"SQLite finds: {faults}")

    def _check_writable(self, events: tuple[Event, ...]) -> None:
        what = f"{str(self.path)!r} could not be given {_names(events)}"
        if not self._finalizer.alive:
            raise JournalError(f"journal {what}: it is closed")
        if self._owner is None or self._owner.pid != os.getpid():
            raise JournalError(f"journal {what}: it belongs to another process")
        if _inode(self.path) != self._inode:
            raise JournalError(f"journal {what}: the file was removed or replaced")

    def close(self) -> None:
        """Give up the lock and close the file."""
        self._finalizer()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------ inside


def _release(connection: sqlite3.Connection, owner: Owner | None) -> None:
    """Give up a lock, unless it is another process's: this one may be its fork."""
    if owner is not None and owner.pid != os.getpid():
        return
    if owner is not None:
        # A full disk or a lost file: the lock is found stale as soon as this process ends.
        with suppress(sqlite3.Error), _transaction(connection):
            mine = codec.dumps(owner.content())
            connection.execute("UPDATE head SET owner=NULL WHERE owner=?", (mine,))
    connection.close()


@contextmanager
def _saying(path: Path, done: str) -> Iterator[None]:
    """Turn what goes wrong into an error that names the file and what was tried."""
    try:
        yield
    # A UnicodeDecodeError: the message of SQLite quotes what is broken.
    except (sqlite3.Error, OSError, UnicodeDecodeError, JournalError) as error:
        raise JournalError(f"journal {str(path)!r} could not be {done}: {error}") from error


@contextmanager
def _connected(path: Path | None, mode: str = "memory") -> Iterator[sqlite3.Connection]:
    """Connect to a file, or to memory; the connection is closed after an error only."""
    place = ":memory:" if path is None else f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        place, uri=path is not None, timeout=BUSY_SECONDS, isolation_level=None,
        check_same_thread=False,
    )  # fmt: skip
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        yield connection
    except BaseException:
        connection.close()
        raise


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what is done inside, all or nothing."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _take_over(connection: sqlite3.Connection, path: Path) -> Owner:
    """Make this process the owner, if the one before is gone."""
    before = _owner_in(connection)
    lives = False if before is None else before.lives
    if before is not None and lives:
        is_me = before.pid == os.getpid()
        raise JournalError(
            "this process works on it already: close() the other optimizer first"
            if is_me
            else f"{before} works on it"
        )
    if lives is None:
        raise JournalError(
            f"{before} works on it, or has ended without saying so, which cannot be seen from "
            f"here; if it has ended, run `tcsaea unlock {path}`"
        )
    owner = Owner.this_process()
    connection.execute("UPDATE head SET owner=?", (codec.dumps(owner.content()),))
    return owner


def _owner_in(connection: sqlite3.Connection) -> Owner | None:
    (text,) = only_row(connection, "SELECT owner FROM head", str | None)
    try:
        return None if text is None else Owner.of(codec.loads(text))
    except _BROKEN as error:
        raise JournalError(f"the lock is damaged: {error}") from error


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _chained(before: bytes, number: int, kind: str, scalars: str, data: bytes) -> bytes:
    """Return the checksum of a row that follows another."""
    found = hashlib.sha256(before + number.to_bytes(8, "little"))
    for part in (kind.encode(), scalars.encode(), data):
        found.update(len(part).to_bytes(8, "little") + part)
    return found.digest()


def _names(events: tuple[Event, ...]) -> str:
    """Say which events these are."""
    return ", ".join(
        f"{type(event).__name__} of evaluation {event.id}"
        if isinstance(event, Told | Failed | Withdrawn)
        else type(event).__name__
        for event in events
    )


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
