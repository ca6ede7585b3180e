"""What was measured: one row for each run, in SQLite, with CSV copies that are committed."""

import csv
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.definitions import Definition
from tcsaea_torch.errors import InvalidInputError

Row = dict[str, Any]

_IDENTITY = {
    "problem": "TEXT", "box": "TEXT", "corr": "REAL", "tau": "REAL", "strategy": "TEXT",
    "settings": "TEXT", "budget": "INTEGER", "n_init": "INTEGER",
    "time_limit": "REAL", "slow": "INTEGER", "device": "TEXT", "code": "TEXT", "seed": "INTEGER",
}  # fmt: skip
_REST = {
    "n_slow": "INTEGER", "n_fast": "INTEGER", "igd": "REAL", "hv": "REAL", "volume": "REAL",
    "seconds": "REAL", "n_together": "INTEGER", "suite": "TEXT", "made": "TEXT", "commit": "TEXT",
    "versions": "TEXT", "machine": "TEXT",
}  # fmt: skip
COLUMNS = {**_IDENTITY, **_REST}
"""Columns and their SQL types.

`budget` is what was allowed and `n_slow` what was used: less where the `time_limit` cut a run;
`hv` is on PlatEMO's scale, which depends on a run's own points where values are below 0; `volume`
is the plain hypervolume up to the problem's reference point, empty in rows of earlier versions;
`seconds` is the wall time of a batch of `n_together` runs, divided by them; `suite` is the one
that a run was first made for.
"""

_TRACE = {"trace": "TEXT", "x": "REAL", "y": "REAL"}
TRACE_COLUMNS = {**_IDENTITY, "suite": "TEXT", **_TRACE}
"""Columns of what runs leave beside their scores, see `benchmarks.traces`."""


class Store:
    """Rows of runs in `folder`: `runs.sqlite`, and one CSV for each suite.

    Opening reads the CSV files, so that a fresh clone knows the runs that were committed.
    A run is identified by its definition, seed, device and code; a second row for the same
    run is not stored. Traces of runs lie in `traces/`, one CSV for each suite.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._sql = sqlite3.connect(folder / "runs.sqlite", timeout=60.0)
        self._sql.row_factory = sqlite3.Row
        self._create("runs", COLUMNS, unique=tuple(_IDENTITY))
        self._create("traces", TRACE_COLUMNS, unique=tuple(TRACE_COLUMNS))
        for path in sorted(folder.glob("*.csv")):
            self.add(_read_csv(path, COLUMNS))
        for path in sorted((folder / "traces").glob("*.csv")):
            self.add([], _read_csv(path, TRACE_COLUMNS))

    def _create(self, table: str, columns: dict[str, str], unique: tuple[str, ...]) -> None:
        kinds = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        # Two NULLs differ in a UNIQUE constraint; an index over coalesced values knows better.
        keys = ", ".join(f"coalesce(\"{name}\", '')" for name in unique)
        with self._sql:
            known = [row["name"] for row in self._sql.execute(f"PRAGMA table_info({table})")]
            if known and known != list(columns):  # of another version; the CSV files have its rows
                self._sql.execute(f"DROP TABLE {table}")
            self._sql.execute(f"CREATE TABLE IF NOT EXISTS {table} ({kinds})")
            self._sql.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {table}_once ON {table} ({keys})")

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sql.close()

    def add(self, rows: Iterable[Row], traces: Iterable[Row] = ()) -> None:
        """Store rows and traces, all or none; those that are known already stay as they are."""
        with self._sql:
            for table, columns, new in (
                ("runs", COLUMNS, rows),
                ("traces", TRACE_COLUMNS, traces),
            ):
                names = ", ".join(f'"{name}"' for name in columns)
                marks = ", ".join(f":{name}" for name in columns)
                self._sql.executemany(
                    f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", list(new)
                )

    def rows(self, definition: Definition) -> list[Row]:
        """Return the rows of a definition, of all seeds, devices and codes, oldest first."""
        return self._select("runs", identity(definition), "made, seed")

    def traces(self, definition: Definition, trace: str) -> list[Row]:
        """Return the points of a trace, of all seeds, devices and codes, by seed and x."""
        return self._select("traces", {**identity(definition), "trace": trace}, "seed, x, y")

    def traced(self, definition: Definition, trace: str, same: Row) -> set[int]:
        """Return the seeds whose trace is stored, of rows with the same values of some columns."""
        return {r["seed"] for r in self.traces(definition, trace) if same.items() <= r.items()}

    def _select(self, table: str, values: Row, order: str) -> list[Row]:
        where = " AND ".join(f'"{name}" IS :{name}' for name in values)
        query = f"SELECT * FROM {table} WHERE {where} ORDER BY {order}"
        return [dict(row) for row in self._sql.execute(query, values)]

    def suites(self) -> list[str]:
        """Return the names of the suites that rows or traces were made for."""
        query = "SELECT suite FROM runs UNION SELECT suite FROM traces ORDER BY suite"
        return [row["suite"] for row in self._sql.execute(query)]

    def export(self) -> None:
        """Write one CSV for each suite; each file is replaced as a whole or not at all."""
        order = ", ".join(
            f'"{name}"' for name in ("problem", "box", "corr", "tau", "strategy", "settings")
        )
        for suite in self.suites():
            query = f"SELECT * FROM runs WHERE suite = ? ORDER BY {order}, code, made, seed"
            _write_csv(self.folder / f"{suite}.csv", COLUMNS, self._sql.execute(query, (suite,)))
            query = (
                f"SELECT * FROM traces WHERE suite = ? ORDER BY trace, {order}, code, seed, x, y"
            )
            traces = self._sql.execute(query, (suite,)).fetchall()
            if traces:
                (self.folder / "traces").mkdir(exist_ok=True)
                _write_csv(self.folder / "traces" / f"{suite}.csv", TRACE_COLUMNS, traces)


def identity(definition: Definition) -> Row:
    """Return the columns that a definition decides."""
    values = asdict(definition)
    values["budget"] = values.pop("n_slow")
    return values


def _write_csv(path: Path, columns: Iterable[str], rows: Iterable[sqlite3.Row]) -> None:
    """Write a file as a whole, or leave it as it is."""
    draft = path.with_suffix(f".csv.{os.getpid()}")
    with draft.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(tuple(row) for row in rows)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _read_csv(path: Path, columns: dict[str, str]) -> list[Row]:
    convert = {"INTEGER": int, "REAL": float, "TEXT": str}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != list(columns):
            raise InvalidInputError(
                f"{path} must have the columns {', '.join(columns)}, got {reader.fieldnames}"
            )
        return [
            {
                name: None if row[name] == "" else convert[kind](row[name])
                for name, kind in columns.items()
            }
            for row in reader
        ]
