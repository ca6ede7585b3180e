"""What asynchronous runs gain: `python -m benchmarks.asynchronous`.

TC-SAEA in periods, as in the paper, and asynchronous, on a virtual clock with random
durations: how long runs take (makespan), how long workers of each lane do nothing, how near
the true front they come (IGD), and what `ask` takes, in runs and at 1,000 points that are
known. Both kinds of a run have the same durations: the k-th evaluation of a lane takes as
long in either. Writes `results/asynchronous.json` and `results/figures/asynchronous.png`.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import tcsaea_torch as tc
from benchmarks import markdown
from benchmarks.micro import peers
from benchmarks.micro.stamp import stamp
from tcsaea_torch import metrics
from tcsaea_torch.optimizer import Optimizer
from tcsaea_torch.plotting import plot_timeline
from tcsaea_torch.rng import uniforms
from tcsaea_torch.timeline import Interval
from tcsaea_torch.virtual import VirtualExecutor

RESULTS = Path(__file__).parent / "results" / "asynchronous.json"
FIGURE = Path(__file__).parent / "results" / "figures" / "asynchronous.png"
PROBLEMS = ("dtlz2", "dtlz7")
WORKERS = ((1, 1), (4, 4), (8, 2))
"""Workers for the (fast, slow) objective."""
DRAWN = ("dtlz2", (4, 4))
"""The runs in the figure, of the first seed."""
SEEDS = (100, 101, 102)
TAU = 5.0
SIGMA = 0.5
"""Standard deviation of the logarithm of durations."""
N_FRONT = 10_000

Row = dict[str, Any]
Timelines = dict[str, list[Interval]]


def measure(
    *,
    problems: Sequence[str] = PROBLEMS,
    workers: Sequence[tuple[int, int]] = WORKERS,
    seeds: Sequence[int] = SEEDS,
    n_slow: int = 60,
    n_init: int = 20,
    n_known: int = 1000,
    n_asks: int = 5,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> tuple[dict[str, Any], Timelines]:
    """Return the figures, and the timelines of the pair that is drawn.

    Args:
        problems: Their names.
        workers: Workers for the (fast, slow) objective.
        seeds: Of runs and durations.
        n_slow: Budget of slow evaluations.
        n_init: Size of the initial design.
        n_known: Points with a fast value when `ask` is timed; a tenth have both values.
        n_asks: Calls of each kind that are timed.
        report: Called with a line for each run.
        **options: Fields of both strategies.
    """
    strategies = {
        name: tc.TCSAEA(asynchronous=name == "asynchronous", **options)
        for name in ("synchronous", "asynchronous")
    }
    runs: list[Row] = []
    drawn: Timelines = {}
    for problem in problems:
        for lanes in workers:
            for seed in seeds:
                for name, strategy in strategies.items():
                    row, timeline = _run(problem, strategy, lanes, seed, n_slow, n_init)
                    runs.append({"problem": problem, "workers": lanes, "strategy": name, **row})
                    report(json.dumps(runs[-1]))
                    if (problem, lanes) == DRAWN and seed == seeds[0]:
                        drawn[name] = timeline
    found = {
        "tau": TAU, "sigma": SIGMA, "n_slow": n_slow, "n_init": n_init, "seeds": list(seeds),
        "means": _means(runs),
        "n_known": n_known,
        "asks_median_ms": {name: _asks(s, n_known, n_asks) for name, s in strategies.items()},
        "runs": runs,
    }  # fmt: skip
    return found, drawn


def duration(mean: float) -> Callable[[float], float]:
    """Return the quantiles of a log-normal distribution with this mean."""
    normal = statistics.NormalDist(-(SIGMA**2) / 2.0, SIGMA)
    return lambda u: mean * math.exp(normal.inv_cdf(u))


def _run(
    name: str,
    strategy: tc.TCSAEA,
    workers: tuple[int, int],
    seed: int,
    n_slow: int,
    n_init: int,
) -> tuple[Row, list[Interval]]:
    """Make one run on a virtual clock."""
    problem = tc.problems.get(name, tau=TAU)
    clock = VirtualExecutor(
        time_fast=duration(1.0),
        time_slow=duration(TAU),
        workers=dict(zip(("fast", "slow"), workers, strict=True)),
        seed=seed,
    )
    seconds: list[float] = []
    ask = Optimizer.ask

    def timed(optimizer: Optimizer, **wanted: int) -> list[Any]:
        start = time.perf_counter()
        evaluations = ask(optimizer, **wanted)
        if evaluations:
            seconds.append(time.perf_counter() - start)
        return evaluations

    with patch.object(Optimizer, "ask", timed):
        result = tc.minimize(
            problem, n_slow=n_slow, n_init=n_init, strategy=strategy, seed=seed,
            executor=clock, progress=False,
        )  # fmt: skip
    return {
        "seed": seed,
        "makespan": clock.makespan,
        **{f"idle_{lane}": share for lane, share in clock.idle_share.items()},
        "igd": metrics.igd(result.pareto_Y, problem.pareto_front(N_FRONT)),
        "n_fast": result.n_fast,
        "n_slow": result.n_slow,
        "n_asks": len(seconds),
        "ask_mean_ms": 1e3 * statistics.mean(seconds),
        "ask_max_ms": 1e3 * max(seconds),
    }, clock.timeline


def _means(runs: Iterable[Row]) -> list[Row]:
    """Return the means over the seeds of each pair of runs, side by side."""
    groups: dict[tuple[str, tuple[int, int]], dict[str, list[Row]]] = {}
    for row in runs:
        kinds = groups.setdefault((row["problem"], row["workers"]), {})
        kinds.setdefault(row["strategy"], []).append(row)
    keys = ("makespan", "idle_fast", "idle_slow", "igd", "n_asks", "ask_mean_ms")
    return [
        {"problem": problem, "workers": workers}
        | {
            kind: {key: statistics.mean(row[key] for row in rows) for key in keys}
            for kind, rows in kinds.items()
        }
        for (problem, workers), kinds in groups.items()
    ]


def _asks(strategy: tc.TCSAEA, n: int, n_asks: int) -> dict[str, float]:
    """Return milliseconds that `ask` takes where n fast values are known, and n / 10 slow ones."""
    problem = tc.problems.get("dtlz2", tau=TAU)
    u = uniforms(torch.tensor([0]), "asynchronous/points", 0, (n, problem.d))[0]
    X = problem.from_unit(u)
    slow = torch.as_tensor(problem.slow(X))
    slow[n // 10 :] = math.nan
    optimizer = tc.Optimizer(
        problem, n_slow=20 * n_asks, n_init=n // 10, strategy=strategy,
        initial_data={"X": X, "fast": problem.fast(X), "slow": slow},
    )  # fmt: skip
    found = {}
    forms = {"ask()": {}, "ask(n_slow=1)": {"n_slow": 1}, "ask(n_fast=1)": {"n_fast": 1}}
    for form, wanted in forms.items():
        times = []
        for _ in range(n_asks):
            start = time.perf_counter()
            evaluations = optimizer.ask(**wanted)
            times.append(time.perf_counter() - start)
            if not evaluations:
                raise RuntimeError(f"{form} of {strategy} returned nothing")
            if not strategy.asynchronous:  # the whole period must have ended before the next one
                _tell(optimizer, [*evaluations, *optimizer.ask()])
            elif "n_slow" in wanted:  # its fast evaluation must not be what is asked for next
                optimizer.ask(n_fast=1)
        found[form] = 1e3 * statistics.median(times)
    return found


def _tell(optimizer: tc.Optimizer, evaluations: Iterable[Any]) -> None:
    for e in evaluations:
        x = torch.from_numpy(e.x).unsqueeze(0)
        optimizer.tell(e.id, float(optimizer.problem.function_of(e.objective)(x)))


def table(found: dict[str, Any]) -> str:
    """Return the means as a table, of the runs in periods and asynchronous ones."""
    head = ("problem", "workers", "makespan", "fast idle", "slow idle", "IGD", "asks", "ms an ask")
    formats = {
        "makespan": "{:.0f}", "idle_fast": "{:.0%}", "idle_slow": "{:.0%}", "igd": "{:.3f}",
        "n_asks": "{:.0f}", "ask_mean_ms": "{:.0f}",
    }  # fmt: skip
    rows = []
    for row in found["means"]:
        kinds = row["synchronous"], row["asynchronous"]
        cells = [", ".join(form.format(k[key]) for k in kinds) for key, form in formats.items()]
        rows.append([row["problem"], "{} + {}".format(*row["workers"]), *cells])
    return markdown.table(head, rows)


def draw(timelines: Timelines, path: Path) -> None:
    """Draw the timelines above each other, with one scale of time."""
    figure = peers.load("matplotlib.figure").Figure(figsize=(9.0, 5.4), layout="constrained")
    end = max(interval.end for timeline in timelines.values() for interval in timeline)
    for ax, (name, timeline) in zip(
        figure.subplots(len(timelines)), timelines.items(), strict=True
    ):
        plot_timeline(timeline, ax=ax)
        ax.set_xlim(0.0, end)
        ax.get_legend().remove()
        ax.set_title(f"{name}: {max(i.end for i in timeline):.0f}", fontsize=10, loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Measure what asynchronous runs gain.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for the figures")
    parser.add_argument("--figure", type=Path, default=FIGURE, help="file for the timelines")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found, timelines = measure(report=print)
    found |= stamp("cpu")
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")
    print(table(found))
    print(json.dumps(found["asks_median_ms"], indent=2))
    draw(timelines, arguments.figure)


if __name__ == "__main__":
    main()
