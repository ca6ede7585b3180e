"""What the transfer brings to BoTorch's own loop: `python -m benchmarks.co_surrogate_model`.

qLogNEHVI proposes batches; while their slow objective runs, the fast one is evaluated elsewhere,
as often as tau allows: at the best of a random pool. All that differs are the models:

    botorch        a `SingleTaskGP` of each objective, with BoTorch's defaults
    kriging        `CoSurrogateModel` without links
    co-surrogate   `CoSurrogateModel`

Each learns from all values of its own run, also the fast ones alone; runs of one seed begin with
the same points. Hypervolume and IGD are those of the points with both values. Writes
`results/co-surrogate-model.json` and `results/tables/co-surrogate-model.md` after each run.

[Ament2023] S. Ament, S. Daulton, D. Eriksson, M. Balandat, E. Bakshy. Unexpected improvements
to expected improvement for Bayesian optimization. NeurIPS 2023.
"""

import argparse
import math
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import SumMarginalLogLikelihood

from benchmarks import markdown
from benchmarks.micro.stamp import stamp, write_rows
from benchmarks.peers.base import isolated
from benchmarks.peers.botorch_models import maximise, reference_point
from tcsaea_torch import metrics, problems
from tcsaea_torch.botorch_models import CoSurrogateModel
from tcsaea_torch.problem import call_objective
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.types import Tensor

RESULTS = Path(__file__).parent / "results" / "co-surrogate-model.json"
TABLE = Path(__file__).parent / "results" / "tables" / "co-surrogate-model.md"
PROBLEMS = ("dtlz2", "dtlz4", "crash-beam")
SEEDS = (100, 101, 102, 103, 104)
ARMS = ("botorch", "kriging", "co-surrogate")
TAU = 5
N_FRONT = 500
STEP = 0.1
"""Standard deviation, in the unit cube, of the points of the pool that lie near the front."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much a run evaluates, and how hard it searches."""

    n_slow: int = 60
    n_init: int = 20
    q: int = 4
    n_samples: int = 64
    n_restarts: int = 4
    n_raw: int = 128
    max_iterations: int = 100
    n_pool: int = 256


QUICK = Size(
    n_slow=14, n_init=12, q=2, n_samples=16, n_restarts=1, n_raw=8, max_iterations=5, n_pool=32
)


class Run:
    """Values of a run, minimised, in the unit cube; NaN where not measured."""

    def __init__(self, problem: TestProblem, seed: int) -> None:
        self.problem, self.seed, self.n_draws = problem, seed, 0
        self.X = torch.zeros(0, problem.d, dtype=torch.float64)
        self.Y = torch.zeros(0, 2, dtype=torch.float64)

    @property
    def is_complete(self) -> Tensor:
        """Which points have both values."""
        return ~self.Y.isnan().any(dim=-1)

    def draw(self, *shape: int) -> Tensor:
        """Return uniform numbers that no earlier call has returned."""
        self.n_draws += 1
        return uniforms(torch.tensor([self.seed]), "co-surrogate-model", self.n_draws, shape)[0]

    def evaluate(self, X: Tensor, *, slow: bool) -> None:
        """Evaluate the fast objective, and the slow one as well if wanted."""
        points, problem = self.problem.from_unit(X), self.problem
        functions = (problem.fast, problem.slow) if slow else (problem.fast,)
        Y = torch.full((len(X), 2), torch.nan, dtype=torch.float64)
        for i, function in enumerate(functions):
            values = call_objective(function, points, vectorized=problem.vectorized)
            Y[:, i] = torch.as_tensor(values, dtype=torch.float64) * problem.signs[i]
        self.X, self.Y = torch.cat([self.X, X]), torch.cat([self.Y, Y])

    def pool(self, n: int) -> Tensor:
        """Return random points, half of them near the front."""
        u, v = self.draw(2, n, self.problem.d)
        front = self.X[self.is_complete][metrics.is_non_dominated(self.Y[self.is_complete])]
        near = front[torch.arange(n) % len(front)] + STEP * torch.special.ndtri(v.clamp(1e-9))
        return torch.where((torch.arange(n) < n // 2).unsqueeze(-1), u, near.clamp(0.0, 1.0))


def fit(arm: str, run: Run) -> ModelListGP:
    """Fit the models of an arm; their outputs are negated, as BoTorch maximises."""
    if arm == "botorch":
        models = []
        for y in -run.Y.T:
            known = ~y.isnan()
            y = y[known].unsqueeze(-1)
            models.append(SingleTaskGP(run.X[known], y, outcome_transform=Standardize(m=1)))
        model = ModelListGP(*models)
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        return model
    if arm == "kriging":
        return CoSurrogateModel.fit(run.X, -run.Y, link=None)
    return CoSurrogateModel.fit(run.X, -run.Y)


def search(problem: TestProblem, arm: str, seed: int, size: Size) -> tuple[Run, list[str]]:
    """Spend both budgets.

    Returns:
        The values, and the link of each model ("none" where there is none).
    """
    run, links = Run(problem, seed), []
    design = latin_hypercube(*run.draw(2, size.n_init, problem.d))
    run.evaluate(design, slow=True)
    n_more = problem.n_fast(size.n_init) - size.n_init
    run.evaluate(latin_hypercube(*run.draw(2, n_more, problem.d)), slow=False)
    left = size.n_slow - size.n_init
    while left:
        model = fit(arm, run)
        links.append(getattr(model, "link", None) or "none")
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model=model,
            ref_point=reference_point(problem),
            X_baseline=run.X[run.is_complete],
            sampler=SobolQMCNormalSampler(torch.Size([size.n_samples]), seed=seed),
            prune_baseline=True,
            cache_root=True,
        )
        q = min(size.q, left)
        X, _ = maximise(
            acquisition,
            problem.d,
            q=q,
            num_restarts=size.n_restarts,
            raw_samples=size.n_raw,
            options={"batch_limit": 5, "maxiter": size.max_iterations},
            sequential=True,
        )
        left -= q
        # While these run, fast values alone: what is best once these are known.
        acquisition.set_X_pending(X)
        pool = run.pool(size.n_pool)
        with torch.no_grad():
            value = torch.cat([acquisition(part.unsqueeze(1)) for part in pool.split(64)])
        n_more = problem.n_fast(size.n_slow - left) - len(run.X) - q
        run.evaluate(X, slow=True)
        run.evaluate(pool[value.argsort(descending=True)[:n_more]], slow=False)
    return run, links


def measure(name: str, seed: int, arm: str, size: Size) -> Row:
    """Return the row of a run, which is made on one thread."""
    torch.set_num_threads(1)
    problem, start = problems.get(name, tau=TAU), time.perf_counter()
    with isolated(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of BoTorch's optimisers: flat starts
        run, links = search(problem, arm, seed, size)
    row = {"problem": name, "arm": arm, "seed": seed} | _scores(problem, run)
    row["seconds"] = round(time.perf_counter() - start, 1)
    return row | {"n_linked": sum(link != "none" for link in links), "links": links}


def _scores(problem: TestProblem, run: Run) -> Row:
    Y = run.Y[run.is_complete]
    front, igd = Y[metrics.is_non_dominated(Y)], None
    with suppress(AttributeError):  # the true front is not known
        igd = float(metrics.igd(front, problem.pareto_front(N_FRONT) * problem.signs))
    return {
        "n_slow": len(Y),
        "n_fast": len(run.Y),
        "hypervolume": float(metrics.hypervolume(Y, problem.ref_point * problem.signs)),
        "igd": igd,
    }


def table(rows: Iterable[Row]) -> str:
    """Return means over the seeds, with standard deviations."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["arm"]), []).append(row)
    lines = []
    for (problem, arm), group in groups.items():
        cells = [problem, arm]
        for key in ("hypervolume", "igd"):
            values = [row[key] for row in group]
            if None in values:
                cells.append("-")
                continue
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3g} ({spread:.2g})")
        rival = {row["seed"]: row["hypervolume"] for row in groups.get((problem, ARMS[0]), ())}
        n_better = sum(row["hypervolume"] > rival.get(row["seed"], math.inf) for row in group)
        cells.append("·" if arm == ARMS[0] else f"{n_better} of {len(group)}")
        n_steps = sum(len(row["links"]) for row in group)
        cells.append(f"{sum(row['n_linked'] for row in group)} of {n_steps}")
        lines.append([*cells, f"{statistics.mean(row['seconds'] for row in group):.3g}"])
    head = ["problem", "models", "hypervolume", "IGD", f"better than {ARMS[0]}",
            "steps with a link", "seconds a run"]  # fmt: skip
    return markdown.table(head, lines)


def write(
    out: Path, shown: Path, rows: Sequence[Row], size: Size, seconds: float, made: Row
) -> None:
    """Write all rows and their table, and what they were made with."""
    write_rows(out, {"tau": TAU} | asdict(size) | {"seconds": round(seconds)} | made, rows)
    seeds = sorted({row["seed"] for row in rows})
    shown.write_text(
        f"{table(rows)}\n\nMean (standard deviation) of runs with {size.n_slow} slow evaluations, "
        f"{size.n_init} of them at the start, tau = {TAU}; better: with more hypervolume than the "
        f"run of the same seed. Seconds are wall time beside other work. Seeds {seeds[0]} to "
        f"{seeds[-1]}; commit {made['commit']}; {made['versions']}; {made['machine']}.\n"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="qLogNEHVI with and without the transfer.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file for all rows")
    parser.add_argument("--table", type=Path, default=TABLE, help="file for the table")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS, choices=problems.names())
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--quick", action="store_true", help="tiny runs, to see that all works")
    given = parser.parse_args(arguments)
    if given.quick and (given.out == RESULTS or given.table == TABLE):
        parser.error("--quick needs --out and --table: its numbers are no results")
    torch.set_num_threads(1)  # as in the processes, which the stamp is of
    start, made, size = time.perf_counter(), stamp("cpu"), QUICK if given.quick else Size()
    runs: list[tuple[str, int, str]] = list(product(given.problems, given.seeds, ARMS))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        waiting = [pool.submit(measure, name, seed, arm, size) for name, seed, arm in runs]
        for done in as_completed(waiting):
            row = done.result()
            print({key: value for key, value in row.items() if key != "links"}, flush=True)
            rows = [run.result() for run in waiting if run.done()]
            write(given.out, given.table, rows, size, time.perf_counter() - start, made)
    print(table([run.result() for run in waiting]))


if __name__ == "__main__":
    main()
