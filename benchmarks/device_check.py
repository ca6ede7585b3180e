"""Check and time the library on this machine's accelerator, in under five minutes.

Run `python -m benchmarks.device_check` from the root of the repository. It runs the tests'
cases of the device, and times fits, searches and whole runs, alone and in batches, on the
device and on one thread of the CPU. What there is no time for is skipped. One JSON document,
written again after each item, goes to --out, to the folder that $OUT names, or to
benchmarks/results/device; tables are printed at the end. Without CUDA only the CPU is timed.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import environment
from benchmarks.device.budget import Budget
from benchmarks.device.checks import Check, run_tests, search_does_not_wait
from benchmarks.device.items import Item, in_order, works
from benchmarks.device.measure import measure
from benchmarks.device.record import Record, file_name
from benchmarks.micro.timing import one_thread

RESULTS = Path(__file__).parent / "results" / "device"
TEST_SECONDS = 100.0
"""Time-out of the tests, which also take no more than `TEST_SHARE` of the time."""
TEST_SHARE = 0.4


def main(arguments: list[str] | None = None) -> int:
    """Check and time as the command line says, and return the exit status."""
    options = _parser().parse_args(arguments)
    budget = Budget(options.seconds)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    items = in_order(works(quick=options.quick), device)
    with one_thread():
        record = run(items, budget, device, options)
    print(f"\n{record.markdown()}\n\nwritten: {record.path}")
    return 1 if record.has_failures else 0


def run(items: list[Item], budget: Budget, device: str, options: argparse.Namespace) -> Record:
    """Make all checks and time all items, and write the record after each."""
    options.out.mkdir(parents=True, exist_ok=True)
    name = file_name(environment.machine(device), quick=options.quick)
    record = Record(path=options.out / name, device=device, quick=options.quick, budget=budget,
                    n_planned=len(items))  # fmt: skip
    record.write()
    for name, check in _checks(budget, device, options):
        record.checks[name] = check
        record.write()
        print(f"{name}: {check.summary}", flush=True)
    for timing in measure(items, budget):
        record.timings.append(timing)
        record.write()
        print(timing.summary, flush=True)
    return record


def _checks(
    budget: Budget, device: str, options: argparse.Namespace
) -> Iterator[tuple[str, Check]]:
    if options.no_tests:
        yield "tests", Check(status="skipped", note="--no-tests")
    else:
        seconds = min(TEST_SECONDS, TEST_SHARE * budget.seconds)
        yield "tests", run_tests(device, seconds=seconds)
    r, g = (12, 4) if options.quick else (100, 100)
    yield "RVEA does not wait", search_does_not_wait(device, n_vectors=r, n_generations=g)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.device_check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=280.0,
                        help="time for everything (default 280)")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or RESULTS),
                        help="folder of the document")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works")
    parser.add_argument("--no-tests", action="store_true", help="only the timings")
    return parser


if __name__ == "__main__":
    sys.exit(main())
