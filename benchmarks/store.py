"""What was measured: one row for each run, in SQLite, with CSV copies that are committed."""

import csv
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.suites import Definition
from tcsaea_torch.errors import InvalidInputError

Row = dict[str, Any]

_IDENTITY = {
    "problem": "TEXT", "box": "TEXT", "corr": "REAL", "tau": "REAL", "strategy": "TEXT",
    "settings": "TEXT", "budget": "INTEGER", "n_init": "INTEGER", "device": "TEXT",
    "code": "TEXT", "seed": "INTEGER",
}  # fmt: skip
_REST = {
    "n_slow": "INTEGER", "n_fast": "INTEGER", "igd": "REAL", "hv": "REAL", "seconds": "REAL",
    "n_together": "INTEGER", "suite": "TEXT", "made": "TEXT", "commit": "TEXT",
    "versions": "TEXT", "machine": "TEXT",
}  # fmt: skip
COLUMNS = {**_IDENTITY, **_REST}
"""Columns and their SQL types.

`budget` is what was allowed and `n_slow` what was used; `seconds` is the wall time of a batch
of `n_together` runs, divided by them; `suite` is the one that a run was first made for.
"""


class Store:
    """Rows of runs in `folder`: `runs.sqlite`, and one CSV for each suite.

    Opening reads the CSV files, so that a fresh clone knows the runs that were committed.
    A run is identified by its definition, seed, device and code; a second row for the same
    run is not stored.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._sql = sqlite3.connect(folder / "runs.sqlite", timeout=60.0)
        self._sql.row_factory = sqlite3.Row
        columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
        # Two NULLs differ in a UNIQUE constraint; an index over coalesced values knows better.
        unique = ", ".join(f"coalesce(\"{name}\", '')" for name in _IDENTITY)
        with self._sql:
            self._sql.execute(f"CREATE TABLE IF NOT EXISTS runs ({columns})")
            self._sql.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS identity ON runs ({unique})")
        for path in sorted(folder.glob("*.csv")):
            self.add(_read_csv(path))

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sql.close()

    def add(self, rows: Iterable[Row]) -> None:
        """Store rows, all or none of them; those that are known already stay as they are."""
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        marks = ", ".join(f":{name}" for name in COLUMNS)
        with self._sql:
            self._sql.executemany(
                f"INSERT OR IGNORE INTO runs ({names}) VALUES ({marks})", list(rows)
            )

    def rows(self, definition: Definition) -> list[Row]:
        """Return the rows of a definition, of all seeds, devices and codes, oldest first."""
        values = identity(definition)
        where = " AND ".join(f'"{name}" IS :{name}' for name in values)
        query = f"SELECT * FROM runs WHERE {where} ORDER BY made, seed"
        return [dict(row) for row in self._sql.execute(query, values)]

    def suites(self) -> list[str]:
        """Return the names of the suites that rows were made for."""
        query = "SELECT DISTINCT suite FROM runs ORDER BY suite"
        return [row["suite"] for row in self._sql.execute(query)]

    def export(self) -> None:
        """Write one CSV for each suite; each file is replaced as a whole or not at all."""
        order = ", ".join(
            f'"{name}"' for name in ("problem", "box", "corr", "tau", "strategy", "settings")
        )
        query = f"SELECT * FROM runs WHERE suite = ? ORDER BY {order}, code, made, seed"
        for suite in self.suites():
            path = self.folder / f"{suite}.csv"
            draft = path.with_suffix(f".csv.{os.getpid()}")
            with draft.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(tuple(row) for row in self._sql.execute(query, (suite,)))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)


def identity(definition: Definition) -> Row:
    """Return the columns that a definition decides."""
    values = asdict(definition)
    values["budget"] = values.pop("n_slow")
    return values


def _read_csv(path: Path) -> list[Row]:
    convert = {"INTEGER": int, "REAL": float, "TEXT": str}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(COLUMNS):
            raise InvalidInputError(
                f"{path} must have the columns {', '.join(COLUMNS)}, got {reader.fieldnames}"
            )
        return [
            {
                name: None if row[name] == "" else convert[kind](row[name])
                for name, kind in COLUMNS.items()
            }
            for row in reader
        ]
