"""Repeat some stored runs with the code at hand, and see whether they are the same.

A change that should leave results alone leaves them alone to the last bit, on the machine
that made them: searches are chaotic, and no smaller difference stays small.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import runner
from benchmarks.definitions import Definition, Suite
from benchmarks.micro.stamp import stamp
from benchmarks.store import Row, Store
from benchmarks.tables import chosen_rows


@dataclass(frozen=True, kw_only=True)
class Block:
    """Runs that were made together."""

    suite: Suite
    definition: Definition
    rows: tuple[Row, ...]


def blocks(store: Store, suites: Sequence[Suite], n: int, seed: int = 0) -> list[Block]:
    """Draw n complete batches of each strategy at random from the stored runs.

    Args:
        store: The runs.
        suites: From which of them.
        n: How many batches of each strategy, at most.
        seed: Decides which.
    """
    found: dict[str, list[Block]] = {}
    seen = set()
    for suite in suites:
        for definition in suite.definitions:
            rows = chosen_rows(store, suite, definition)[: suite.n_together]
            is_batch = rows and all(row["n_together"] == len(rows) for row in rows)
            if definition.peer is None and is_batch and definition not in seen:
                seen.add(definition)
                block = Block(suite=suite, definition=definition, rows=tuple(rows))
                found.setdefault(definition.column, []).append(block)
    draw = random.Random(seed)
    return [b for all_ in found.values() for b in draw.sample(all_, min(n, len(all_)))]


def verify(chosen: Sequence[Block], report: Callable[[str], None]) -> list[Row]:
    """Make the runs again, and compare their scores.

    Args:
        chosen: Which runs.
        report: Called with a line for each block.

    Returns:
        A row for each block: what it is, and the largest relative difference of IGD and
        hypervolume, 0 if all are equal to the last bit.
    """
    torch.set_num_threads(1)
    results = []
    for k, block in enumerate(chosen, start=1):
        definition, rows = block.definition, sorted(block.rows, key=lambda row: row["seed"])
        made = runner.make(
            runner.Task(
                suite=block.suite.name,
                definition=definition,
                seeds=tuple(row["seed"] for row in rows),
                device=rows[0]["device"],
            )
        )
        largest = max(
            abs(new[name] - old[name]) / max(abs(old[name]), 1e-300)
            for new, old in zip(made.rows, rows, strict=True)
            for name in ("igd", "hv")
        )
        what = f"{definition.label} {definition.column}, tau = {definition.tau:g}"
        report(
            f"[{k}/{len(chosen)}] {what}: " + (f"differs by {largest:.2g}" if largest else "same")
        )
        results.append(
            {
                "runs": what, "seeds": [row["seed"] for row in rows], "largest_difference": largest,
                "code_then": rows[0]["code"], "code_now": made.rows[0]["code"],
                "commit_then": rows[0]["commit"],
            }
        )  # fmt: skip
    return results


def write(results: Sequence[Row], path: Path) -> None:
    """Write what was found, and with what."""
    content = {
        **stamp("cpu"),
        "n_same": sum(row["largest_difference"] == 0 for row in results),
        "blocks": list(results),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
