"""The README's picture: `python -m benchmarks.pictures`.

One run of `crash-beam` beside random search with the same budget: the fronts, and what the
workers of both lanes did on a virtual clock with random durations and failures.
Writes `results/figures/overview.png`.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from scipy import stats

import tcsaea_torch as tc
from benchmarks.micro import peers
from tcsaea_torch import problems
from tcsaea_torch.plotting import plot_front, plot_timeline
from tcsaea_torch.virtual import Duration

FIGURE = Path(__file__).parent / "results" / "figures" / "overview.png"
TAU = 5.0
SIGMA = 0.4
"""Standard deviation of the logarithm of durations."""
WORKERS = {"fast": 2, "slow": 2}
FAILURES = {"fast": 0.0, "slow": 0.05}
"""Probability that an evaluation fails."""


def draw(path: Path, *, n_slow: int = 60, seed: int = 0, **options: Any) -> tc.Result:
    """Make both runs, and draw them.

    Args:
        path: Where the picture goes.
        n_slow: Slow evaluations of each run.
        seed: Of both runs and of the durations.
        **options: Fields of `TCEHVI`.

    Returns:
        The run of TC-EHVI.
    """
    Figure = peers.load("matplotlib.figure").Figure
    problem = problems.get("crash-beam", tau=TAU)
    strategy = tc.TCEHVI(asynchronous=True, **options)
    clock = tc.VirtualExecutor(
        time_fast=_log_normal(1.0),
        time_slow=_log_normal(TAU),
        workers=WORKERS,
        failures=FAILURES,
        seed=seed,
    )
    run = {"n_slow": n_slow, "seed": seed, "progress": False}
    result = tc.minimize(problem, strategy=strategy, executor=clock, **run)
    others = tc.minimize(problem, strategy="random", **run)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 4))
    plot_front(result, ax=left, compare=others)
    plot_timeline(clock.timeline, ax=right, unit="hours")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return result


def _log_normal(mean: float) -> Duration:
    return stats.lognorm(SIGMA, scale=mean * math.exp(-(SIGMA**2) / 2.0))


def main() -> None:
    """Draw, and say where."""
    parser = argparse.ArgumentParser(description="Draw the README's picture.")
    parser.add_argument("--out", type=Path, default=FIGURE, help="file for the picture")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw(arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
