"""Measure rows, show them as a table and keep them as JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import environment, markdown
from benchmarks.micro import peers
from benchmarks.micro.rows import Line, Measured, Outcome, Row, Setting, judge
from benchmarks.micro.stamp import stamp
from benchmarks.micro.timing import MAX_SECONDS, Spread, one_thread

HEAD = ("what", "against", "ours (median, quartiles)", "theirs",
        "ratio (median of paired ratios, quartiles)", "target", "reached")  # fmt: skip


def run(
    rows: list[Row], setting: Setting, folder: Path, *, report: Callable[[str], None] = print
) -> list[Outcome]:
    """Measure rows one after the other, write a file for each and report the table."""
    folder.mkdir(parents=True, exist_ok=True)
    report(markdown.table(HEAD, []))
    every, details = [], []
    for row in rows:
        with one_thread():
            measured = row.measure(setting)
            record = _record(row, setting, measured)
        outcomes = [judge(line, measured) for line in row.lines]
        if setting.quick:  # tiny sizes reach or miss nothing
            outcomes = [replace(outcome, reached=None) for outcome in outcomes]
        name = row.name + ("-quick" if setting.quick else "")
        record["lines"] = [asdict(outcome) for outcome in outcomes]
        (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        report(markdown.lines([_cells(row.what, outcome) for outcome in outcomes]))
        details += _quality(record)
        every += outcomes
    report("\n" + "\n".join([*details, _legend(setting, folder)]))
    if not setting.quick:
        report(f"All that is stored: {write_table(folder)}")
    return every


def write_table(folder: Path) -> Path:
    """Write `table.md` with all stored rows, of whichever day, and say what made them."""
    files = (path for path in sorted(folder.glob("*.json")) if not path.stem.endswith("-quick"))
    records = [record for path in files if "lines" in (record := json.loads(path.read_text()))]
    cells = [
        _cells(record["what"], _outcome(line)) for record in records for line in record["lines"]
    ]
    makers = dict.fromkeys(
        _maker(r["commit"], r["versions"], r["peers"], r["machine"]) for r in records
    )
    details = [f"- {line}" for record in records for line in _quality(record)]
    path = folder / "table.md"
    path.write_text("\n".join([markdown.table(HEAD, cells), "", *details, "", *makers]) + "\n")
    return path


def _outcome(stored: dict[str, Any]) -> Outcome:
    """Return the outcome that a record holds."""
    spreads = {
        name: None if stored[name] is None else Spread(**stored[name])
        for name in ("ours", "theirs", "ratio")
    }
    return Outcome(**{**stored, **spreads, "line": Line(**stored["line"])})


def _quality(record: dict[str, Any]) -> list[str]:
    """Return how good the results were that took these times."""
    lines = []
    if record["scores"]:
        scores = ", ".join(f"{k} {v:.5g}" for k, v in record["scores"].items())
        lines.append(f"{record['name']}, negative log-likelihood a point: {scores}")
    if "igd" in record["facts"]:
        igd = ", ".join(f"{k} {v:.3g}" for k, v in record["facts"]["igd"].items())
        lines.append(f"{record['name']}, IGD: {igd}")
    return lines


def _record(row: Row, setting: Setting, measured: Measured) -> dict[str, Any]:
    return {
        "name": row.name,
        "what": row.what,
        **stamp(setting.device),
        "peers": peers.versions(),
        "quick": setting.quick,
        "repeats": setting.repeats,
        "seeds": list(measured.seeds),
        "sizes": measured.sizes,
        "raw": {name: list(values) for name, values in measured.raw.items()},
        "scores": measured.scores,
        "notes": measured.notes,
        "facts": measured.facts,
    }


def _cells(what: str, outcome: Outcome) -> list[str]:
    line = outcome.line
    against = line.against + (f" ({outcome.note})" if outcome.note else "")
    reached = {True: "yes", False: "no", None: ""}[outcome.reached]
    return [
        what,
        against,
        _shown(outcome.ours, line.unit),
        "" if outcome.theirs is None else _shown(outcome.theirs, line.unit),
        "" if outcome.ratio is None else _shown(outcome.ratio, "x"),
        _target(line),
        reached,
    ]


def _target(line: Line) -> str:
    if line.target is None:
        return ""
    sign, unit = (">=" if line.kind == "speed-up" else "<="), "x"
    if line.kind == "value":
        unit = line.unit
    return f"{sign} {line.target:g} {unit}".rstrip()


def _shown(spread: Spread, unit: str) -> str:
    """Show a median with its quartiles, seconds in a unit that suits them."""
    factor = 1.0
    if unit == "s" and spread.median < 1.0:
        factor, unit = (1e3, "ms") if spread.median >= 1e-3 else (1e6, "us")
    low, median, high = (f"{factor * v:.3g}" for v in (spread.low, spread.median, spread.high))
    return f"{median} {unit}".rstrip() + f" ({low} to {high})"


def _legend(setting: Setting, folder: Path) -> str:
    sizes = "Tiny sizes (--quick): the numbers mean nothing. " if setting.quick else ""
    machine = environment.machine(setting.device)
    return (
        f"{sizes}{setting.repeats} rounds in which rivals take turns (fewer where they take more "
        f"than {MAX_SECONDS:g} s), one thread. Against a peer the ratio is its time over "
        "ours, against bare operations ours over theirs. "
        f"{_maker(environment.commit(), environment.versions(), peers.versions(), machine)} "
        f"Written to {folder}."
    )


def _maker(commit: str, versions: str, others: dict[str, str], machine: str) -> str:
    listed = [versions, *(f"{name} {version}" for name, version in others.items()), machine]
    return f"Commit {commit}; {'; '.join(listed)}."
