"""What numbers were made with, for those who read them later."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks import environment


def stamp(device: str) -> dict[str, Any]:
    """Return date, commit, versions, machine and threads, as entries of a record."""
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": environment.commit(),
        "versions": environment.versions(),
        "machine": environment.machine(device),
        "device": device,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def write_rows(path: Path, record: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
    """Write a record and its rows, of which each has a line."""
    body = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    head = json.dumps(record, indent=1).rstrip("}\n")
    path.write_text(f'{head},\n "rows": [\n{body}\n ]\n}}\n')
