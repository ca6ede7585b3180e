"""How well the slow objective follows from the fast one: `python -m benchmarks.links`.

Models learn from a Latin hypercube with both values, and predict the slow value at uniform
points whose fast value they are given: the slow objective's own model, which makes no use of
it; each link, whether or not it would be chosen; and what `fit_links` makes of them. R^2, and
which share of values lies within the intervals of 68 % and 95 %. Where a link says nothing,
the slow model's mean stands for its own. Writes `results/links.json` and
`results/tables/links.md`.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import tcsaea_torch as tc
from benchmarks import markdown
from benchmarks.micro.stamp import stamp, write_rows
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import leave_one_out
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.transfer import LinkConfig, fit_links
from tcsaea_torch.transfer.links import LINK_NAMES
from tcsaea_torch.types import Tensor

RESULTS = Path(__file__).parent / "results" / "links.json"
TABLE = Path(__file__).parent / "results" / "tables" / "links.md"
PROBLEMS = (
    "dtlz1", "dtlz1a", "dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6", "dtlz7",
    "uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7",
)  # fmt: skip
SEEDS = (100, 101, 102)
ROWS = (20, 100)
"""How many points with both values there are."""
N_TEST = 500
OWN = FitConfig(kernel="additive", nugget="fit")
"""Of the slow objective's own model."""

Row = dict[str, Any]


def measure(
    *,
    problems: Sequence[str] = PROBLEMS,
    seeds: Sequence[int] = SEEDS,
    rows: Sequence[int] = ROWS,
    n_test: int = N_TEST,
    kriging: FitConfig | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Return a row for each problem, number of points and seed.

    Args:
        problems: Their names.
        seeds: Of the points.
        rows: How many points with both values there are.
        n_test: Points at which slow values are predicted.
        kriging: How all models are fitted; None: links by their default, the slow objective's own
            model with all starts.
        report: Called with a line for each problem and number of points.
    """
    config = LinkConfig() if kriging is None else LinkConfig(kriging=kriging)
    found = []
    for problem in problems:
        for n in rows:
            start = time.perf_counter()
            found += _measure(problem, seeds, n, n_test, kriging or OWN, config)
            report(f"{problem}, {n} points: {time.perf_counter() - start:.1f} s")
    return found


def _measure(
    name: str, seeds: Sequence[int], n: int, n_test: int, own: FitConfig, config: LinkConfig
) -> list[Row]:
    problem, b = tc.problems.get(name), len(seeds)
    u, jitter, X_test = (
        uniforms(torch.tensor(seeds), f"links/{part}", n, (size, problem.d))
        for part, size in (("order", n), ("jitter", n), ("test", n_test))
    )
    X = latin_hypercube(u, jitter)
    Y, Y_test = (
        problem.evaluate(problem.from_unit(points.flatten(0, 1))).unflatten(0, (b, -1))
        for points in (X, X_test)
    )
    y_fast, y_slow = Y.unbind(dim=-1)
    fast, slow = Y_test.unbind(dim=-1)
    both = torch.ones(b, n, dtype=torch.bool)
    constant = torch.zeros(b, dtype=torch.bool)
    gp = fit(TrainingSet.from_mask(X, y_slow, both), own, trend=constant)
    loo = leave_one_out(gp)
    mean_s, variance_s = gp.predict(X_test)
    scores: dict[str, Tensor] = {"r2_slow": _r2(mean_s, slow)}
    links = fit_links(X, y_fast, y_slow, both, loo, config)
    learned = links.learned
    for k, link in enumerate(config.links):
        can_be = learned.score[:, k] < torch.inf
        hyper = map_tensors(learned.starts, lambda t, k=k: t[:, k])
        choice = torch.full_like(learned.choice, k)
        forced = replace(learned, choice=choice, hyperparameters=hyper)
        forced = forced.condition(config, X, y_fast, y_slow, both)
        mean, variance = forced.predict(X_test, fast)
        r2 = _r2(torch.where(variance < torch.inf, mean, mean_s), slow)
        scores[f"r2_{link}"] = torch.where(can_be, r2, torch.nan)
    _, variance_l = links.predict(X_test, fast)
    mean, variance = links.refine(X_test, fast, mean_s, variance_s, belief=config.belief)
    scores |= {
        "r2_chosen": _r2(mean, slow),
        "says": (variance_l < torch.inf).double().mean(dim=-1),
        **_coverage("slow", mean_s, variance_s, slow),
        **_coverage("slow_scaled", mean_s, variance_s * learned.slow_factor[:, None], slow),
        **_coverage("chosen", mean, variance, slow),
    }
    names = [*LINK_NAMES, "none"]
    return [
        {"problem": name, "n": n, "seed": seed, "chosen": names[int(links.choice[i])]}
        | {key: round(float(value[i]), 4) for key, value in scores.items()}
        for i, seed in enumerate(seeds)
    ]


def _r2(mean: Tensor, y: Tensor) -> Tensor:
    residual = (y - mean).square().sum(dim=-1)
    return 1.0 - residual / (y - y.mean(dim=-1, keepdim=True)).square().sum(dim=-1)


def _coverage(name: str, mean: Tensor, variance: Tensor, y: Tensor) -> dict[str, Tensor]:
    distance = (y - mean).abs() / variance.sqrt()
    normal = statistics.NormalDist()
    return {
        f"within{level}_{name}": (distance <= normal.inv_cdf(0.5 + level / 200)).double().mean(-1)
        for level in (68, 95)
    }


def table(rows: Iterable[Row]) -> str:
    """Return the means over the seeds; links that cannot be taken have a dash."""
    columns = ("r2_slow", *(f"r2_{name}" for name in LINK_NAMES), "r2_chosen")
    shares = ("slow", "slow_scaled", "chosen")
    head = ["problem", "n", "slow alone", *LINK_NAMES, "chosen", "links"]
    head += ["within, slow alone", "scaled", "chosen"]
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["n"]), []).append(row)
    lines = []
    for (problem, n), group in groups.items():
        means = {key: statistics.mean(row[key] for row in group) for key in group[0] if "_" in key}
        cells = ["-" if means[c] != means[c] else f"{means[c]:.3f}" for c in columns]
        within = [f"{means[f'within68_{s}']:.2f}, {means[f'within95_{s}']:.2f}" for s in shares]
        chosen = ", ".join(dict.fromkeys(row["chosen"] for row in group))
        lines.append([problem, str(n), *cells, chosen, *within])
    return markdown.table(head, lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="Measure how the slow objective follows.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for all rows")
    parser.add_argument("--table", type=Path, default=TABLE, help="file for the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows = measure(report=print)
    record = {"n_test": N_TEST, "seconds": round(time.perf_counter() - start)} | stamp("cpu")
    # NaN, of links that cannot be taken, is no JSON.
    clean = [{k: None if v != v else v for k, v in row.items()} for row in rows]
    write_rows(arguments.out, record, clean)
    arguments.table.write_text(table(rows) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
