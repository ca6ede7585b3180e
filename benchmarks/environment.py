"""What a measurement was made with: commit, versions, machine."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

import tcsaea_torch


def commit() -> str:
    """Return the short commit of this checkout, with a plus sign if it has changes."""
    root = Path(__file__).parent
    try:
        run = lambda *args: subprocess.run(  # noqa: E731
            ["git", *args], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = run("status", "--porcelain", "--untracked-files=no", "--", "../tcsaea_torch")
        return run("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def versions(*packages: str) -> str:
    """Return the versions that may change a result, of further packages too."""
    # Its own version without installation metadata, which a bare checkout does not have.
    own = f"python {platform.python_version()}; tcsaea-torch {tcsaea_torch.__version__}; "
    names = dict.fromkeys(("torch", "gpytorch", "botorch", "numpy", *packages))
    return own + "; ".join(f"{name} {version(name)}" for name in names)


def machine(device: str = "cpu") -> str:
    """Return the processor or the GPU, without anything that names its owner."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, {torch.get_num_threads()} used"
