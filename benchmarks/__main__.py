"""Command line of the benchmarks: `python -m benchmarks --help`."""

import argparse
from pathlib import Path

import torch

from benchmarks import published

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="numeric threads (default 1)")
    commands = parser.add_subparsers(dest="command", required=True)
    suite = commands.add_parser("published", help="TC-SAEA at the paper's budget")
    suite.add_argument("--problems", default=",".join(published.PROBLEMS))
    suite.add_argument("--strategies", default=",".join(published.STRATEGIES))
    suite.add_argument("--seeds", type=int, default=5, help="number of seeds")
    suite.add_argument("--first-seed", type=int, default=0)
    suite.add_argument("--tau", type=float, default=5.0)
    suite.add_argument("--device", default="cpu")
    suite.add_argument("--results", type=Path, default=RESULTS / "published.csv")
    show = commands.add_parser("table", help="show stored runs as a Markdown table")
    show.add_argument("--results", type=Path, default=RESULTS / "published.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.command == "published":
        published.run_suite(
            arguments.results,
            problems=arguments.problems.split(","),
            strategies=arguments.strategies.split(","),
            seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
            tau=arguments.tau,
            device=arguments.device,
        )
    print(published.table(arguments.results))


if __name__ == "__main__":
    main()
