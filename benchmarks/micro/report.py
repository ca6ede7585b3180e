"""Measure rows, show them as a table and keep them as JSON."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks import environment
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
    report("\n".join("| " + " | ".join(cells) + " |" for cells in (HEAD, ["---"] * len(HEAD))))
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
        for outcome in outcomes:
            report("| " + " | ".join(_cells(row, outcome)) + " |")
        if measured.scores:
            scores = ", ".join(f"{k} {v:.5g}" for k, v in measured.scores.items())
            details.append(f"{row.name}, negative log-likelihood a point: {scores}")
        if "igd" in measured.facts:
            igd = ", ".join(f"{k} {v:.3g}" for k, v in measured.facts["igd"].items())
            details.append(f"{row.name}, IGD: {igd}")
        every += outcomes
    report("\n" + "\n".join([*details, _legend(setting, folder)]))
    return every


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


def _cells(row: Row, outcome: Outcome) -> list[str]:
    line = outcome.line
    against = line.against + (f" ({outcome.note})" if outcome.note else "")
    reached = {True: "yes", False: "no", None: ""}[outcome.reached]
    return [
        row.what,
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
    others = ", ".join(f"{name} {version}" for name, version in peers.versions().items())
    return (
        f"{sizes}{setting.repeats} rounds in which rivals take turns (fewer where they take more "
        f"than {MAX_SECONDS:g} s), one thread. Against a peer the ratio is its time over "
        "ours, against bare operations ours over theirs. "
        f"Commit {environment.commit()}; {environment.versions()}; {others}; "
        f"{environment.machine(setting.device)}. Written to {folder}."
    )
