"""Check and time the library on this machine's accelerator, in under five minutes.

Run `python -m benchmarks.device_check` from the root of the repository. On a machine
without CUDA it does the same on the CPU. It runs the tests that take a device, then times
the parts of a run on the CPU and on the device, alone and in batches, and prints one line
of JSON for each.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from benchmarks import environment
from benchmarks.run_batch import run_batch
from tcsaea_torch import problems, strategies
from tcsaea_torch.evolution import Draws, RVEAConfig, rvea, simplex_lattice
from tcsaea_torch.models.fitting import FitConfig, fit
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import uniforms

TESTS = ("tests/evolution", "tests/contracts", "tests/models", "tests/test_rng.py")


def main() -> None:
    """Run the tests, then the timings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-tests", action="store_true", help="only the timings")
    parser.add_argument("--seconds", type=float, default=200.0, help="bound on the timings")
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(json.dumps({"machine": environment.machine(device), "versions": environment.versions()}))
    if not arguments.no_tests:
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS],
            check=False,
        )
        print(json.dumps({"tests": "passed" if run.returncode == 0 else "FAILED"}))
    end = time.monotonic() + arguments.seconds
    for b in (1, 20, 200):
        for where in dict.fromkeys(("cpu", device)):
            if where == "cpu" and b > 20:
                continue
            for name, work in (("fit", _fit), ("rvea", _rvea), ("run", _run)):
                if time.monotonic() < end:
                    line = {"work": name, "b": b, "device": where, "seconds": work(b, where)}
                    print(json.dumps(line), flush=True)


def _timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds of the second of two calls: the first warms up."""
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return round(seconds, 4)


def _fit(b: int, device: str) -> float:
    """Time b cold fits of DTLZ2's slow objective, n = 145."""
    problem = problems.get("dtlz2")
    X = uniforms(torch.arange(b, device=device), "x", 0, (145, problem.d))
    train = TrainingSet.from_mask(X, problem.evaluate(X)[..., 1], torch.ones_like(X[..., 0]) > 0)
    trend = torch.zeros(b, dtype=torch.bool, device=device)
    return _timed(lambda: fit(train, FitConfig(), trend=trend), device)


def _rvea(b: int, device: str) -> float:
    """Time b searches of DTLZ2 itself, 100 vectors and 100 generations."""
    problem = problems.get("dtlz2")
    seeds = torch.arange(b, device=device)
    X = uniforms(seeds, "x", 0, (100, problem.d))
    alive = torch.ones(b, 100, dtype=torch.bool, device=device)
    vectors = simplex_lattice(100, device=torch.device(device))
    config = RVEAConfig(n_generations=100, each_once=False)

    def work() -> object:
        draws = Draws.make(seeds, "time", 0, 100, 100, problem.d, torch.float64)
        return rvea(problem.evaluate, X, alive, vectors, draws, config)

    return _timed(work, device)


def _run(b: int, device: str) -> float:
    """Time b runs of `tc-saea-released` on DTLZ2 with the paper's budget."""
    strategy = strategies.get("tc-saea-released")
    return round(run_batch(problems.get("dtlz2"), strategy, range(b), device=device).seconds, 2)


if __name__ == "__main__":
    main()
