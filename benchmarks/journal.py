"""What a durable run costs: `python -m benchmarks.journal`.

Measures events a second into a journal (each a transaction that is on the disk when the
call returns), and how long `ask` takes at 1,000 told values, with a journal and without.
The disk decides, so the same is measured for bare transactions of SQLite, and without
waiting for the disk. Writes `results/journal.json`.
"""

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import tcsaea_torch as tc
from benchmarks.micro.stamp import stamp
from tcsaea_torch.journal import SYNCHRONOUS
from tcsaea_torch.rng import uniforms
from tcsaea_torch.study import Study

RESULTS = Path(__file__).parent / "results" / "journal.json"


def measure(
    *, n_events: int = 1000, n_told: int = 1000, folder: Path | None = None
) -> dict[str, Any]:
    """Return the figures.

    Args:
        n_events: Told values whose storing is timed.
        n_told: Told values of the run whose `ask` is timed.
        folder: Where the journals lie; None: a temporary folder of the system.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        found = _events(n_events, Path(name) / "events.db")
        found |= _asks(n_told, Path(name) / "asks.db")
    return found


def _events(n: int, path: Path) -> dict[str, Any]:
    """Time `tell` of a run that searches at random, with a journal and without."""
    found: dict[str, Any] = {"n_events": n}
    for name, journal, wait in (
        ("memory", None, "OFF"),
        ("unsynchronised", path.with_name("unsynchronised.db"), "OFF"),
        ("journal", path, SYNCHRONOUS),
    ):
        with (
            patch("tcsaea_torch.journal.SYNCHRONOUS", wait),
            tc.Optimizer(
                tc.problems.get("dtlz2"), n_slow=n, n_init=2, strategy="random", journal=journal
            ) as optimizer,
        ):
            evaluations = []
            while len(evaluations) < n and (more := optimizer.ask()):
                evaluations += more
            times = []
            for e in evaluations[:n]:
                start = time.perf_counter()
                optimizer.tell(e.id, 0.5)
                times.append(time.perf_counter() - start)
        found[f"{name}_events_per_second"] = len(times) / sum(times)
        found[f"{name}_tell_median_ms"] = 1e3 * statistics.median(times)
        found[f"{name}_tell_p99_ms"] = 1e3 * statistics.quantiles(times, n=100)[-1]
    found["sqlite_transactions_per_second"] = _bare(n // 4, path.with_name("bare.db"))
    found["bytes_per_event"] = path.stat().st_size / len(Study.read(path).events)
    return found


def _bare(n: int, path: Path) -> float:
    """Return transactions of SQLite a second, each of one small row."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
    connection.execute("CREATE TABLE rows (content BLOB)")
    start = time.perf_counter()
    for _ in range(n):
        connection.execute("INSERT INTO rows VALUES (zeroblob(200))")
    seconds = time.perf_counter() - start
    connection.close()
    return n / seconds


def _asks(n: int, path: Path) -> dict[str, Any]:
    """Time `ask` of TC-SAEA and a resume, at n told values (two for each of n / 2 points)."""
    problem = tc.problems.get("dtlz2")
    X = problem.from_unit(uniforms(torch.tensor([0]), "journal/points", 0, (n // 2, problem.d))[0])
    data = {"X": X, "fast": problem.fast(X), "slow": problem.slow(X)}
    found: dict[str, Any] = {"n_told": n}
    for name, journal in (("memory", None), ("journal", path)):
        with tc.Optimizer(
            problem, n_slow=20, n_init=4, strategy="tc-saea", initial_data=data, journal=journal
        ) as optimizer:
            times = []
            for _ in range(5):
                start = time.perf_counter()
                evaluations = optimizer.ask()
                times.append(time.perf_counter() - start)
                for e in evaluations:
                    x = torch.from_numpy(e.x).unsqueeze(0)
                    optimizer.tell(e.id, float(problem.function_of(e.objective)(x)))
        found[f"{name}_ask_median_ms"] = 1e3 * statistics.median(times)
    start = time.perf_counter()
    with tc.Optimizer.resume(path, problem):
        found["resume_ms"] = 1e3 * (time.perf_counter() - start)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Measure what a durable run costs.")
    parser.add_argument("--folder", type=Path, default=None, help="where the journals lie")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(folder=arguments.folder)
    found |= stamp("cpu")
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
