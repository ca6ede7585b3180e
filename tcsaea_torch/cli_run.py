"""`tcsaea run`: optimise a problem from a user's file, and go on with its journal."""

import argparse
import json
import multiprocessing
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcsaea_torch import strategies
from tcsaea_torch.driver import minimize
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Status
from tcsaea_torch.journal import Journal
from tcsaea_torch.loading import Loaded, Target, begin_worker
from tcsaea_torch.plotting import check_picture, save_front
from tcsaea_torch.result import Result
from tcsaea_torch.strategies import TCEHVI, Strategy
from tcsaea_torch.strategies.base import budget as budget_of
from tcsaea_torch.strategies.base import check_strategy
from tcsaea_torch.study import Study
from tcsaea_torch.threads import OwnThreads
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_int, check_options


def add_run_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `tcsaea run`."""
    run = commands.add_parser(
        "run",
        help="optimise a problem of your own, from a Python file",
        description="Optimise a problem of your own. With --journal the run survives crashes: "
        "the same command with --resume goes on with it.",
    )
    add = run.add_argument
    add(
        "problem", metavar="FILE.py:NAME",
        help="a Problem in a file, or a function without arguments that returns one; "
        "package.module:NAME works too",
    )  # fmt: skip
    settings = "the journal's with --resume, else "
    add("--n-slow", type=int, help="budget of slow evaluations; the journal's with --resume")
    add("--n-init", type=int, help=f"size of the initial design; {settings}by the problem's size")
    names = ", ".join(strategies.names())
    add("--strategy", help=f"{names}; {settings}tc-ehvi")
    add(
        "--set", action="append", default=[], metavar="OPTION=VALUE",
        help="an option of the strategy, such as asynchronous=true or n_new=5; may be repeated",
    )  # fmt: skip
    add("--seed", type=int, help=f"decides all random numbers; {settings}0")
    add("--device", help=f"where the surrogates are computed; {settings}cpu")
    add("--journal", type=Path, metavar="FILE", help="store the run in a file, at every event")
    add("--resume", action="store_true", help="go on with the run in the journal")
    for lane in Objective:
        add(
            f"--workers-{lane}", type=int, default=1, metavar="N",
            help=f"{lane} evaluations at a time (default: 1)",
        )  # fmt: skip
    add(
        "--processes", action="store_true",
        help="evaluate in processes, not threads; then one that is overdue keeps its worker",
    )  # fmt: skip
    for lane in Objective:
        add(
            f"--timeout-{lane}", type=float, metavar="SECONDS",
            help=f"how long a {lane} evaluation may run (default: for ever)",
        )  # fmt: skip
    add(
        "--retries", type=int, default=0, metavar="N",
        help="how often to make an evaluation again that failed; each try counts (default: 0)",
    )  # fmt: skip
    add("--csv", type=Path, metavar="FILE", help="write a line for each evaluation at the end")
    add("--figure", type=Path, metavar="FILE", help="write a picture of the front at the end")
    add("--quiet", action="store_true", help="show no progress bar")
    run.set_defaults(run=_run)


_NOT_STORED = {
    "device": None, "workers_fast": 1, "workers_slow": 1, "processes": False, "timeout_fast": None,
    "timeout_slow": None, "retries": 0, "csv": None, "figure": None, "quiet": False,
}  # fmt: skip
"""Options that a journal does not hold, with their defaults."""


def _run(arguments: argparse.Namespace) -> int:
    target = Target.of(arguments.problem)
    _check_files(arguments, target)
    start = time.perf_counter()
    result = None
    try:
        with target.loaded() as loaded:
            result = _minimized(arguments, loaded)
    except KeyboardInterrupt:
        print("interrupted before the run could go on")
    if result is not None:
        _write(arguments, result, time.perf_counter() - start)
    if result is not None and result.status != "interrupted":
        return 0
    print(_how_to_go_on(arguments))
    is_users = result is None or result.message.startswith("interrupted by the user")
    return 130 if is_users else 1


def _check_files(arguments: argparse.Namespace, target: Target) -> None:
    """Refuse files that cannot be written, and a journal that was not meant."""
    journal = arguments.journal
    if journal is None and arguments.resume:
        raise InvalidInputError("--resume needs --journal FILE, the run to go on with")
    if journal is not None:
        exists = Journal.exists(journal)
        if exists and not arguments.resume:
            raise InvalidInputError(
                f"there is a run in {str(journal)!r} already: add --resume to go on with it, or "
                "choose another journal"
            )
        if arguments.resume and not exists:
            raise InvalidInputError(
                f"there is no run in {str(journal)!r} to go on with: leave out --resume to begin "
                "one"
            )
    if arguments.n_slow is None and not arguments.resume:
        raise InvalidInputError("--n-slow N is missing, the budget of slow evaluations")
    taken = {"the problem's file": target.path}
    for name in ("journal", "csv", "figure"):
        path = getattr(arguments, name)
        if path is not None:
            check_output(name, path, taken)
            taken[f"the {name}"] = path
    if arguments.figure is not None:
        check_picture("figure", arguments.figure)


def check_output(name: str, path: Path, taken: Mapping[str, Path | None]) -> None:
    """Refuse a file that cannot be written, or that is needed for something else.

    Args:
        name: Name of the argument, for messages.
        path: The file.
        taken: Other files, by what they are.

    Raises:
        InvalidInputError: If the file will not do.
    """
    for what, other in taken.items():
        if other is None:
            continue
        is_linked = path.exists() and other.exists() and path.samefile(other)
        if is_linked or path.resolve() == other.resolve():
            raise InvalidInputError(f"{name} must be another file than {what}, got {str(path)!r}")
    place = path if path.exists() else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(place, os.W_OK):
        raise InvalidInputError(f"{name} must be a file that can be written, got {str(path)!r}")


def _minimized(arguments: argparse.Namespace, loaded: Loaded) -> Result:
    problem, settings = loaded.problem, _settings(arguments)
    strategy = settings["strategy"]
    n_fast, n_slow = budget_of(strategy, problem, settings["n_slow"])
    print(
        f"{loaded.target}: {problem.d} variables, {n_slow} slow and {n_fast} fast evaluations, "
        f"strategy {strategy.name}",
        flush=True,
    )
    with _executors(arguments, loaded) as executors:
        return minimize(
            problem,
            **settings,
            executor=executors,
            workers={str(o): getattr(arguments, f"workers_{o}") for o in Objective},
            timeout_s={str(o): getattr(arguments, f"timeout_{o}") for o in Objective},
            retries=arguments.retries,
            journal=arguments.journal,
            progress=not arguments.quiet,
        )


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what was given, and else what the journal has; `minimize` refuses what differs."""
    names = ("n_slow", "n_init", "strategy", "seed", "device")
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    strategy: Strategy | str = TCEHVI()
    stored: dict[str, Any] = {}
    if arguments.resume:
        study = Study.read(arguments.journal).settings
        strategy = study.strategy or study.strategy_name
        stored = {"n_slow": study.n_slow, "seed": study.seed, "device": study.device}
        stored["dtype"] = study.torch_dtype
        if given.get("n_slow", study.n_slow) == study.n_slow:  # else that is what is wrong
            stored["n_init"] = study.n_init
    strategy = check_strategy(given.pop("strategy", strategy))
    options = dict(_option(text) for text in arguments.set)
    if options:
        check_options(f"strategy {strategy.name!r}", type(strategy), options)
        strategy = replace(strategy, **options)  # pyright: ignore
    return {**stored, **given, "strategy": strategy}


def _option(text: str) -> tuple[str, Any]:
    """Return the name and the value in NAME=VALUE; what is no JSON is a string."""
    name, is_there, value = text.partition("=")
    if not is_there or not name:
        raise InvalidInputError(f"--set must be OPTION=VALUE, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@contextmanager
def _executors(arguments: argparse.Namespace, loaded: Loaded) -> Iterator[dict[str, Executor]]:
    """Make a pool for each objective, which does not outlive the run."""
    n = {
        o: check_int(f"--workers-{o}", getattr(arguments, f"workers_{o}"), minimum=1)
        for o in Objective
    }
    if not arguments.processes:
        yield {str(o): OwnThreads(str(o), n[o]) for o in Objective}  # `minimize` ends them
        return
    before = set(multiprocessing.active_children())
    # A fork would copy threads in the middle of what they do.
    context = multiprocessing.get_context("spawn")
    pools = {
        str(o): ProcessPoolExecutor(
            n[o], mp_context=context, initializer=begin_worker, initargs=loaded.for_workers
        )
        for o in Objective
    }
    try:
        yield dict(pools)
    finally:
        for pool in pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for worker in set(multiprocessing.active_children()) - before:
            worker.terminate()  # it may be in an evaluation of hours


def _write(arguments: argparse.Namespace, result: Result, seconds: float) -> None:
    """Write the files, and say what came out."""
    if arguments.csv is not None:
        result.write_csv(arguments.csv)
    if arguments.figure is not None:
        save_front(result, arguments.figure)
    print(f"{result.message}, in {seconds:.0f} s")
    failed = [record for record in result.history if record.status is Status.FAILED]
    if failed:
        counts = Counter(str(record.objective) for record in failed)
        last = max(failed, key=lambda record: record.ended_at).reason.splitlines()
        print(
            f"failures:     {counts['slow']} slow, {counts['fast']} fast; "
            f"the last: {last[-1] if last else 'no reason given'}"
        )
    print(f"front:        {len(result.pareto_Y)} of {len(result.Y)} points with both values")
    print(f"hypervolume:  {hypervolume_of(result)}")
    files = {
        "journal": arguments.journal,
        "evaluations": arguments.csv,
        "picture": arguments.figure,
    }
    for name, path in files.items():
        if path is not None:
            print(f"{name + ':':<13} {path.resolve()}")


def hypervolume_of(result: Result) -> str:
    """Say how large the hypervolume is, and below which point."""
    if result.ref_point is None:
        return "none before the initial design is complete"
    point = ", ".join(f"{value:.4g}" for value in result.ref_point.tolist())
    return f"{result.hypervolume():.6g} below ({point})"


def _how_to_go_on(arguments: argparse.Namespace) -> str:
    journal = arguments.journal
    if journal is None:
        return "without --journal FILE there is nothing to go on with"
    if not Journal.exists(journal):
        return "nothing was measured yet"
    words = ["tcsaea", "run", arguments.problem, "--journal", str(journal), "--resume"]
    for name, default in _NOT_STORED.items():
        value = getattr(arguments, name)
        if value != default:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
    return f"to go on: {shlex.join(words)}"
