"""What numbers were made with, for those who read them later."""

import os
from datetime import UTC, datetime
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
