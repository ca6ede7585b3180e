"""The command line: `tcsaea demo`, `run`, and what is to be known of a study's journal."""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tcsaea_torch
from tcsaea_torch import problems, strategies
from tcsaea_torch.cli_run import add_run_command, check_output, hypervolume_of
from tcsaea_torch.driver import minimize
from tcsaea_torch.errors import InvalidInputError, JournalError, TcsaeaError
from tcsaea_torch.events import Status
from tcsaea_torch.journal import Journal
from tcsaea_torch.owner import Owner
from tcsaea_torch.plotting import save_front
from tcsaea_torch.result import Result
from tcsaea_torch.strategies.base import budget as budget_of
from tcsaea_torch.study import Study


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except (TcsaeaError, OSError) as error:
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
    demo.add_argument("--strategy", default="tc-ehvi", help=", ".join(strategies.names()))
    demo.add_argument("--tau", type=float, default=5.0, help="fast evaluations per slow one")
    demo.add_argument("--n-slow", type=int, default=60, help="budget of slow evaluations")
    demo.add_argument("--n-init", type=int, default=None, help="size of the initial design")
    demo.add_argument("--seed", type=int, default=0, help="decides all random numbers")
    demo.add_argument("--device", default="cpu", help="where the surrogates are computed")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for the files")
    demo.set_defaults(run=_demo)
    add_run_command(commands)
    _add_study_commands(commands)
    return parser


def _add_study_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add what reads a journal; all but `unlock` work while its run goes on."""

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.add_argument("study", type=Path, metavar="STUDY.db", help="a journal")
        command.set_defaults(run=run)
        return command

    add("status", _status, "say how the run in a journal stands")
    add("verify", _verify, "check a journal: checksums, replay, budgets; status 1 if damaged")
    add("unlock", _unlock, "remove the lock of a process that has ended on another machine")
    export = add("export", _export, "write the evaluations in a journal to a file")
    export.add_argument("--csv", type=Path, metavar="FILE", help="a line for each evaluation")
    export.add_argument(
        "--json", type=Path, metavar="FILE", help="settings, evaluations and all points"
    )


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


def _status(arguments: argparse.Namespace) -> int:
    study = Study.read(arguments.study)
    result, settings = study.result(), study.settings
    (n_fast, n_slow), (all_fast, all_slow) = study.state.used, study.state.total
    statuses = Counter(record.status for record in result.history)
    n_attached = study.state.n_attached_complete
    front = len(result.pareto_Y)
    print(f"strategy:     {settings.strategy_name}, seed {settings.seed}")
    print(f"evaluations:  {n_slow} of {all_slow} slow, {n_fast} of {all_fast} fast")
    print(f"  done:       {statuses[Status.DONE]}")
    print(f"  pending:    {statuses[Status.PENDING]}" + _listed(study.pending))
    print(f"  failed:     {statuses[Status.FAILED]}")
    if n_attached:
        print(f"attached:     {n_attached} points with both values")
    print(f"front:        {front} of {len(result.Y)} points with both values")
    print(f"hypervolume:  {hypervolume_of(result)}")
    last = study.events[-1].time if study.events else settings.created
    print(f"events:       {len(study.events)}, the last {_age(time.time() - last)} ago")
    print(f"worked on by: {_holder(study.owner)}")
    return 0


def _listed(ids: Sequence[int]) -> str:
    """Name some evaluations."""
    shown = ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")
    return f" (ids {shown})" if ids else ""


def _holder(owner: Owner | None) -> str:
    if owner is None:
        return "nobody"
    return f"{owner}, which has ended" if owner.lives is False else str(owner)


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0.0):.0f} seconds"


def _verify(arguments: argparse.Namespace) -> int:
    if not arguments.study.is_file():
        raise InvalidInputError(f"there is no study at {str(arguments.study)!r}")
    try:
        study = Study.read(arguments.study, thoroughly=True)
    except JournalError as error:
        print(f"damaged: {error}")
        return 1
    print(f"good: {len(study.events)} events, {study.result().message}")
    return 0


def _unlock(arguments: argparse.Namespace) -> int:
    Journal.unlock(arguments.study)
    print(f"{arguments.study} is free")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    targets = {"csv": arguments.csv, "json": arguments.json}
    if not any(targets.values()):
        raise InvalidInputError("export needs --csv FILE or --json FILE")
    study = Study.read(arguments.study)
    for name, path in targets.items():
        if path is not None:
            check_output(name, path, {"the journal": arguments.study})
    if arguments.csv is not None:
        study.result().write_csv(arguments.csv)
    if arguments.json is not None:
        study.write_json(arguments.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
