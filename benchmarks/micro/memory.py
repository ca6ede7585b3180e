"""Print the bytes that a fit takes at its peak: `python -m benchmarks.micro.memory N D DEVICE`.

A process of its own, since a peak cannot be lowered again. On the CPU it is the resident
memory, which Linux tells.
"""

import json
import re
import sys
from pathlib import Path

import torch

from benchmarks.micro import data
from tcsaea_torch.models import fit_kriging
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions


def resident(name: str) -> int:
    """Return bytes of resident memory: VmRSS now, VmHWM at the peak."""
    text = Path("/proc/self/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise OSError(f"{name} is not in /proc/self/status")
    return 1024 * int(found[1])


def extra_bytes(n: int, d: int, device: str) -> int:
    """Return the peak memory of a fit beyond what was there before it."""
    # Every evaluation of a fit takes the same memory: a few show its peak.
    config = FitConfig(options=BFGSOptions(max_evaluations=10))
    small = data.design(20, d, device)
    fit_kriging(small, data.slow_values("dtlz2", small), config=config)  # loads what loads late
    X = data.design(n, d, device)
    y = data.slow_values("dtlz2", X)
    if torch.device(device).type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        fit_kriging(X, y, config=config)
        return torch.cuda.max_memory_allocated(device) - before
    before = resident("VmRSS")
    fit_kriging(X, y, config=config)
    return resident("VmHWM") - before


def main() -> None:
    """Measure as the command line says."""
    n, d, device = sys.argv[1:]
    torch.set_num_threads(1)
    print(json.dumps({"bytes": extra_bytes(int(n), int(d), device)}))


if __name__ == "__main__":
    main()
