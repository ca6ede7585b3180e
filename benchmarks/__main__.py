"""Measure, and show what was measured.

    python -m benchmarks run SUITE       make the runs that are missing; stop and go on at will
    python -m benchmarks status          what has been run, and what is missing
    python -m benchmarks tables SUITE    tables of stored runs, as Markdown and CSV
    python -m benchmarks figures SUITE   figures of stored runs, as PNG
    python -m benchmarks verify SUITE    make some stored runs again: are they still the same?
    python -m benchmarks micro [ROW]     speed of the numeric core, against peers
    python -m benchmarks scaling         time over rows and batches, as JSON and a figure
    python -m benchmarks profile         where the time of fits and searches goes

Rows go to benchmarks/results. SUITE-smoke is SUITE with tiny budgets.
"""

import argparse
import os
import sys
from pathlib import Path

from benchmarks import comparisons, figures, micro, runner, suites, tables, verify
from benchmarks.definitions import Suite
from benchmarks.micro import profile, scaling
from benchmarks.micro.peers import MissingPeerError
from benchmarks.store import Store
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.validation import check_device, check_int

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, do what it names and return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        for name, minimum in (
            ("seeds", 1),
            ("workers", 0),
            ("threads", 1),
            ("repeats", 1),
            ("blocks", 1),
        ):
            if getattr(options, name, None) is not None:
                check_int(name, getattr(options, name), minimum=minimum)
        if options.action in (_micro, _scaling, _profile):
            return options.action(options)
        named = [suites.get(name) for name in options.suites or suites.SUITES]
        chosen = [suite.with_seeds(options.seeds) for suite in named]
        with Store(options.results) as store:
            return options.action(store, chosen, options)
    except (InvalidInputError, MissingPeerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted: what was measured is stored; the same command goes on")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="suites:\n" + "\n".join(f"  {s.name:12} {s.about}" for s in suites.SUITES.values()),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="make the runs that are missing")
    run.add_argument("suites", nargs="+", metavar="SUITE")
    run.add_argument("--workers", type=int, default=0, help="worker processes (default: none)")
    run.add_argument("--threads", type=int, default=1, help="numeric threads of each (default 1)")
    run.add_argument("--device", default="cpu", help="where to compute, such as cuda")
    run.add_argument("--export-every", type=float, default=60.0, metavar="SECONDS",
                     help="seconds between exports to CSV (default 60)")  # fmt: skip
    run.set_defaults(action=_run)

    status = commands.add_parser("status", help="what has been run, and what is missing")
    status.add_argument("suites", nargs="*", metavar="SUITE")
    status.add_argument("--device", default="cpu")
    status.set_defaults(action=_status)

    table = commands.add_parser("tables", help="tables of stored runs")
    table.add_argument("suites", nargs="+", metavar="SUITE")
    table.add_argument("--metric", choices=tables.METRICS, action="append",
                       help="which metric (default: each)")  # fmt: skip
    table.set_defaults(action=_tables)

    figure = commands.add_parser("figures", help="figures of stored runs")
    figure.add_argument("suites", nargs="+", metavar="SUITE")
    figure.set_defaults(action=_figures)

    check = commands.add_parser("verify", help="make some stored runs again and compare")
    check.add_argument("suites", nargs="+", metavar="SUITE")
    check.add_argument("--blocks", type=int, default=1,
                       help="batches of each strategy, drawn at random (default 1)")  # fmt: skip
    check.set_defaults(action=_verify)

    rows = commands.add_parser(
        "micro",
        help="speed of the numeric core, against peers",
        description=micro.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="rows:\n" + "\n".join(f"  {r.name:18} {r.what}" for r in micro.ROWS.values()),
    )
    rows.add_argument("rows", nargs="*", metavar="ROW", help="which rows (default: all)")
    rows.set_defaults(action=_micro, repeats=5)

    growth = commands.add_parser(
        "scaling", help="time over rows and batches, as JSON and a figure",
        description=scaling.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    growth.set_defaults(action=_scaling, repeats=3)

    where = commands.add_parser(
        "profile", help="where the time of fits and searches goes, and their limits",
        description=profile.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    where.set_defaults(action=_profile, device="cpu", repeats=1)

    for command in (rows, growth):
        command.add_argument("--repeats", type=int,
                             help=f"rounds (default {command.get_default('repeats')})")  # fmt: skip
        command.add_argument("--device", default="cpu", help="where to compute, such as cuda")
    for command in (rows, growth, where):
        command.add_argument(
            "--quick", action="store_true",
            help="tiny sizes, to see that all works; writes NAME-quick.json",
        )  # fmt: skip
    run.add_argument(
        "--strategy", action="append", metavar="NAME",
        help="runs of this one alone, not of all; may be given several times",
    )  # fmt: skip
    for command in (run, status, table, figure, check):
        command.add_argument("--seeds", type=int,
                             help="number of seeds (default: as the suite says)")  # fmt: skip
    for command in (run, status, table, figure, check, rows, growth, where):
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the rows")
    return parser


def _run(store: Store, chosen: list[Suite], options: argparse.Namespace) -> int:
    check_device(options.device)
    n_failed = 0
    for suite in chosen:
        tasks = runner.missing(store, suite, options.device)
        if options.strategy:
            tasks = [task for task in tasks if task.definition.strategy in options.strategy]
        n_failed += runner.run(
            store,
            tasks,
            n_workers=options.workers,
            n_threads=options.threads,
            export_every=options.export_every,
            report=_print_now,
        )
    return 1 if n_failed else 0


def _status(store: Store, chosen: list[Suite], options: argparse.Namespace) -> int:
    for suite in chosen:
        left = sum(len(t.seeds) for t in runner.missing(store, suite, options.device))
        rows = [row for definition in suite.definitions for row in store.rows(definition)]
        total = sum(suite.takes(d, seed) for d in suite.definitions for seed in suite.seeds)
        hours = sum(r["seconds"] for r in rows) / 3600
        print(f"{suite.name}: {total - left} of {total} runs made by this code on "
              f"{options.device}; {len(rows)} rows of any code, {hours:.2f} h")  # fmt: skip
    return 0


def _tables(store: Store, chosen: list[Suite], options: argparse.Namespace) -> int:
    for suite in chosen:
        shown = [tables.make(store, suite, m) for m in options.metric or tables.METRICS]
        for table in [*shown, *comparisons.make(store, suite)]:
            print(table.markdown, end="\n\n")
            print(f"written: {', '.join(map(str, table.write(options.results / 'tables')))}\n")
    return 0


def _figures(store: Store, chosen: list[Suite], options: argparse.Namespace) -> int:
    for suite in chosen:
        paths = figures.save(store, suite, options.results / "figures")
        print(f"{suite.name}: {', '.join(map(str, paths)) or 'nothing to draw'}")
    return 0


def _verify(store: Store, chosen: list[Suite], options: argparse.Namespace) -> int:
    results = verify.verify(verify.blocks(store, chosen, options.blocks), _print_now)
    path = options.results / "verify.json"
    verify.write(results, path)
    n_same = sum(row["largest_difference"] == 0 for row in results)
    print(f"{n_same} of {len(results)} batches are the same to the last bit; written: {path}")
    return 0


def _micro(options: argparse.Namespace) -> int:
    setting = _setting(options)
    rows = [micro.get(name) for name in options.rows or micro.ROWS]
    micro.run(rows, setting, options.results / "micro", report=_print_now)
    return 0


def _scaling(options: argparse.Namespace) -> int:
    scaling.run(_setting(options), options.results / "micro", report=_print_now)
    return 0


def _profile(options: argparse.Namespace) -> int:
    profile.run(_setting(options), options.results / "micro", report=_print_now)
    return 0


def _setting(options: argparse.Namespace) -> micro.Setting:
    check_device(options.device)
    return micro.Setting(repeats=options.repeats, quick=options.quick, device=options.device)


def _print_now(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
