"""What must hold on a device, whatever the speed."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tcsaea_torch import problems
from tcsaea_torch.evolution import Draws, Population, RVEAConfig, rvea, simplex_lattice
from tcsaea_torch.rng import uniforms

ROOT = Path(__file__).parent.parent.parent
NEEDED = ("pytest", "hypothesis", "jaxtyping", "beartype")
"""What the tests cannot do without."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What became of a check."""

    status: Literal["passed", "failed", "unfinished", "skipped"]
    note: str = ""
    failures: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """Status and note."""
        return f"{self.status} ({self.note})" if self.note else self.status


def run_tests(device: str, *, seconds: float) -> Check:
    """Run the tests' cases of the device in a process of their own."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return Check(status="skipped", note=f"not installed: {', '.join(missing)}")
    returncode, output = run_for(command_of_tests(device), seconds)
    return judge_tests(returncode, output, seconds)


def run_for(command: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """Run a command for so long at most; return its status, or None, and what it printed."""
    # In a session of its own, so that its workers can be stopped with it.
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            output, _ = process.communicate(timeout=seconds)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]


def command_of_tests(device: str) -> list[str]:
    """Return the command that runs only the cases that need the device."""
    # Wrong arguments name devices too, but need none.
    cases = f"({device} and not bad_ and not do_not_exist)"
    if device == "cuda":
        cases += " or does_not_wait_for_the_device"
    parallel = ["-n", "4"] if importlib.util.find_spec("xdist") else []
    options = ["-q", "-p", "no:cacheprovider", "--maxfail=20", *parallel]
    return [sys.executable, "-m", "pytest", *options, "-k", cases, "tests"]


def judge_tests(returncode: int | None, output: str, seconds: float) -> Check:
    """Read what pytest printed; a status of None means that it was stopped."""
    lines = output.strip().splitlines()
    failures = tuple(line for line in lines if re.match(r"(FAILED|ERROR) ", line))
    last = lines[-1].strip("= ") if lines else ""
    if returncode is None:
        marks = "".join(line.split()[0] for line in lines if re.match(r"[.FEsxX]+( |$)", line))
        n_failed = marks.count("F") + marks.count("E")
        note = f"stopped after {seconds:g} s: {marks.count('.')} passed, {n_failed} failed so far"
        return Check(status="failed" if n_failed else "unfinished", note=note)
    return Check(status="failed" if returncode else "passed", note=last, failures=failures)


def search_does_not_wait(device: str, *, n_vectors: int, n_generations: int) -> Check:
    """Search while CUDA raises at every operation that waits for the device."""
    if device != "cuda":
        return Check(status="skipped", note="needs CUDA")
    return without_waiting(prepared_search(device, n_vectors, n_generations))


def prepared_search(device: str, r: int, g: int) -> Callable[[], Population]:
    """Return four searches with r vectors and g generations, whose inputs are ready."""
    problem, seeds = problems.get("dtlz2"), torch.arange(4, device=device)
    X = uniforms(seeds, "check/start", 0, (r, problem.d))
    alive = torch.ones(X.shape[:2], dtype=torch.bool, device=device)
    vectors = simplex_lattice(r, device=torch.device(device))
    draws = Draws.make(seeds, "check", 0, g, r, problem.d, X.dtype)
    config = RVEAConfig(n_generations=g, each_once=False)
    return lambda: rvea(problem.evaluate, X, alive, vectors, draws, config)[0]


def without_waiting(work: Callable[[], object]) -> Check:
    """Do work while waiting for CUDA is an error; how it was before is restored."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        work()
    except RuntimeError as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = str(error).partition("\n")[0]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return Check(status="failed", note=f"{reason} ({place})")
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return Check(status="passed")
