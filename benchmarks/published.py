"""TC-SAEA on the DTLZ problems at the paper's budget, beside what others measured.

Every run goes through `minimize`, with calls counted inside the objective functions. Rows
are appended to a CSV as they come; runs that stand in it already are not repeated, unless
they were made by another commit.
"""

import csv
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import tcsaea_torch as tc
from benchmarks import environment

N_SLOW, N_INIT = 200, 100
PROBLEMS = ("dtlz2", "dtlz1a", "dtlz4", "dtlz7", "dtlz3a")
STRATEGIES = ("tc-saea-released", "tc-saea")

RELEASED_CODE = {
    "dtlz1": 35.4, "dtlz1a": 0.656, "dtlz2": 0.0286, "dtlz3": 380.0, "dtlz3a": 15.9,
    "dtlz4": 0.389, "dtlz5": 0.0243, "dtlz6": 6.60, "dtlz7": 0.948,
}  # fmt: skip
"""Mean IGD of the authors' released code run under GNU Octave, tau = 5, 4 to 7 seeds."""

PAPER = {
    "dtlz1": 20.1, "dtlz1a": 0.36, "dtlz2": 0.02, "dtlz3": 132.0, "dtlz3a": 2.30,
    "dtlz4": 0.44, "dtlz5": 0.03, "dtlz6": 2.62, "dtlz7": 0.05,
}  # fmt: skip
"""Mean IGD of TC-SAEA in the paper's Table 1, tau = 5, 20 runs."""

COLUMNS: tuple[str, ...] = (
    "suite", "problem", "box", "tau", "strategy", "seed", "n_slow", "n_fast", "igd", "hv",
    "seconds", "device", "commit", "versions", "machine",
)  # fmt: skip


class Counted:
    """A vectorised objective that counts the points that it was called with."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.n_calls = function, 0

    def __call__(self, X: torch.Tensor) -> Any:
        """Evaluate and count."""
        self.n_calls += len(X)
        return self.function(X)


def run_once(name: str, strategy: str, seed: int, *, tau: float, device: str) -> dict[str, Any]:
    """Make one run and return its row."""
    problem = tc.problems.get(name, tau=tau)
    fast, slow = Counted(problem.fast), Counted(problem.slow)
    counted = tc.Problem(
        fast=fast, slow=slow, bounds=problem.bounds, tau=tau, vectorized=True,
        ref_point=problem.ref_point,
    )  # fmt: skip
    start = time.perf_counter()
    result = tc.minimize(
        counted, n_slow=N_SLOW, n_init=N_INIT, strategy=strategy, seed=seed, device=device,
        progress=False,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    if slow.n_calls != N_SLOW or fast.n_calls > problem.n_fast(N_SLOW):
        raise AssertionError(f"budget broken: {slow.n_calls} slow and {fast.n_calls} fast calls")
    front = problem.pareto_front(10_000)
    values = {
        "suite": "published", "problem": name, "box": "true", "tau": tau, "strategy": strategy,
        "seed": seed, "n_slow": slow.n_calls, "n_fast": fast.n_calls,
        "igd": tc.metrics.igd(result.pareto_Y, front),
        "hv": tc.metrics.normalized_hypervolume(result.pareto_Y, front),
        "seconds": round(seconds, 2), "device": device, "commit": environment.commit(),
        "versions": environment.versions(), "machine": environment.machine(device),
    }  # fmt: skip
    return {column: values[column] for column in COLUMNS}


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV, none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_suite(
    path: Path,
    *,
    problems: Sequence[str] = PROBLEMS,
    strategies: Sequence[str] = STRATEGIES,
    seeds: Iterable[int] = range(5),
    tau: float = 5.0,
    device: str = "cpu",
) -> None:
    """Make the runs that are missing and append their rows to a CSV.

    Args:
        path: The CSV.
        problems: Names of problems.
        strategies: Names of strategies.
        seeds: Seeds of the runs.
        tau: Fast evaluations per slow one.
        device: Where surrogates are computed.
    """
    key = ("problem", "strategy", "seed", "tau", "device", "commit")
    done = {tuple(row[k] for k in key) for row in read_rows(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in problems:
            for strategy in strategies:
                values = (name, strategy, seed, tau, device, environment.commit())
                if tuple(map(str, values)) in done:
                    continue
                row = run_once(name, strategy, seed, tau=tau, device=device)
                is_new = not path.exists()
                with path.open("a", newline="") as file:
                    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                    if is_new:
                        writer.writeheader()
                    writer.writerow(row)
                calls = f"{row['n_slow']} slow, {row['n_fast']} fast"
                head = f"{name:7} {strategy:17} seed {seed}"
                print(f"{head}: IGD {row['igd']:.4g}, {calls}, {row['seconds']} s", flush=True)


def table(path: Path) -> str:
    """Return the stored runs as a Markdown table of mean IGD and standard deviation."""
    rows = read_rows(path)
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    strategies = list(dict.fromkeys(row["strategy"] for row in rows))
    head = ["problem", *strategies, "released code (Octave)", "paper, Table 1"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for problem in problems:
        cells = [problem]
        for strategy in strategies:
            values = [
                float(row["igd"])
                for row in rows
                if row["problem"] == problem and row["strategy"] == strategy
            ]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.3g} ({spread:.2g})")
        cells += [f"{RELEASED_CODE[problem]:.3g}", f"{PAPER[problem]:.3g}"]
        lines.append("| " + " | ".join(cells) + " |")
    seeds = sorted({int(row["seed"]) for row in rows})
    budgets = sorted({(row["n_slow"], row["n_fast"]) for row in rows})
    lines.append("")
    lines.append(f"Mean (standard deviation) of the IGD to 10,000 points of the front; tau = "
                 f"{rows[0]['tau']}, seeds {seeds[0]} to {seeds[-1]}; calls of (slow, fast): "
                 f"{', '.join(f'({s}, {f})' for s, f in budgets)}. Commits "
                 f"{', '.join(sorted({row['commit'] for row in rows}))}; {rows[0]['versions']}; "
                 f"{rows[0]['machine']}.")  # fmt: skip
    return "\n".join(lines)
