"""The command line: `tcsaea demo`."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import tcsaea_torch
from tcsaea_torch import problems, strategies
from tcsaea_torch.driver import minimize
from tcsaea_torch.errors import InvalidInputError, TcsaeaError
from tcsaea_torch.plotting import save_front
from tcsaea_torch.result import Result
from tcsaea_torch.strategies.base import budget as budget_of


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except TcsaeaError as error:
        print(f"tcsaea: error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tcsaea",
        description="Bi-objective optimization when one objective is fast and the other slow.",
    )
    parser.add_argument("--version", action="version", version=tcsaea_torch.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="optimise a built-in problem and draw its front",
        description="Optimise a built-in problem, compare with random search at the same "
        "budget, and write front.png and evaluations.csv.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--problem", default="crash-beam", help=", ".join(problems.names()))
    demo.add_argument("--strategy", default="tc-saea", help=", ".join(strategies.names()))
    demo.add_argument("--tau", type=float, default=5.0, help="fast evaluations per slow one")
    demo.add_argument("--n-slow", type=int, default=60, help="budget of slow evaluations")
    demo.add_argument("--n-init", type=int, default=None, help="size of the initial design")
    demo.add_argument("--seed", type=int, default=0, help="decides all random numbers")
    demo.add_argument("--device", default="cpu", help="where the surrogates are computed")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the files")
    demo.set_defaults(run=_demo)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    """Run the strategy and random search on one problem, and write and say what came out."""
    problem = problems.get(arguments.problem, tau=arguments.tau)
    _check_folder(arguments.out)
    budget = {"n_slow": arguments.n_slow, "n_init": arguments.n_init, "seed": arguments.seed}
    strategy = strategies.get(arguments.strategy)
    n_fast, n_slow = budget_of(strategy, problem, arguments.n_slow)
    print(
        f"{arguments.problem}: {problem.d} variables, {n_slow} slow and {n_fast} fast "
        f"evaluations, strategy {strategy.name}"
    )
    start = time.perf_counter()
    result = minimize(problem, strategy=strategy, device=arguments.device, **budget)
    seconds = time.perf_counter() - start
    if result.status == "interrupted":
        comparison = None
    else:
        print("random search, with as many slow evaluations:")
        comparison = minimize(problem, strategy="random", **{**budget, "n_slow": n_slow})

    arguments.out.mkdir(parents=True, exist_ok=True)
    picture, table = arguments.out / "front.png", arguments.out / "evaluations.csv"
    result.write_csv(table)
    save_front(result, picture, compare=comparison)
    print(f"{result.message}, in {seconds:.0f} s")
    if comparison is not None:
        _print_hypervolumes(result, comparison)
    print(f"picture of the front: {picture.resolve()}")
    print(f"all evaluations:      {table.resolve()}")
    return 130 if result.status == "interrupted" else 0


def _check_folder(path: Path) -> None:
    """Refuse a folder that cannot be made, before hours are spent on what goes there."""
    nearest = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InvalidInputError(f"out must be a folder that can be written to, got {str(path)!r}")


def _print_hypervolumes(result: Result, comparison: Result) -> None:
    """Print both hypervolumes for one reference point."""
    point = result.ref_point
    if point is None:
        return
    mine, theirs = result.hypervolume(point), comparison.hypervolume(point)
    reference = ", ".join(f"{value:.4g}" for value in point.tolist())
    print(f"hypervolume below ({reference}):")
    print(f"  {result.strategy:<20} {mine:.6g}")
    print(f"  {comparison.strategy:<20} {theirs:.6g}")


if __name__ == "__main__":
    sys.exit(main())
