"""Where the time of fits and searches goes, and what they cannot go below.

`python -m benchmarks profile` profiles the works of the rows by operator. The limit of a fit
is the bare operations of as many likelihoods as it evaluates; that of a search is the number
of its operators times what the cheapest of them takes. On the CPU, one thread.
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import markdown
from benchmarks.micro import data, likelihood, search
from benchmarks.micro.batches import counted
from benchmarks.micro.rows import Setting
from benchmarks.micro.stamp import stamp
from benchmarks.micro.timing import one_thread
from tcsaea_torch.kernels import PowerMode
from tcsaea_torch.models import fit_kriging

_FITS: tuple[tuple[str, int, int, PowerMode], ...] = (
    ("dtlz2", 145, 11, 2.0),
    ("dtlz2", 145, 11, "ard"),
    ("uf1", 354, 30, 2.0),
    ("uf1", 354, 30, "ard"),
)
"""Problem, n, d and p of the fits."""
HEAD = ("what", "takes", "operators", "cannot take less than", "shares of the operators' time")
_N_SHOWN = 8
"""Operators shown by name."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where the time of one work goes."""

    what: str
    seconds: float
    """Of one call, without the profiler."""
    n_operators: int
    """Operators called, views among them."""
    shares: dict[str, float]
    """Share of each operator in the time of all operators, the largest first."""
    limit_seconds: float
    limit: str
    """What the limit is."""

    @property
    def cells(self) -> list[str]:
        """The cells of its row in a table."""
        return [
            self.what,
            f"{1e3 * self.seconds:.3g} ms",
            str(self.n_operators),
            f"{1e3 * self.limit_seconds:.3g} ms: {self.limit}",
            ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items()),
        ]


def run(setting: Setting, folder: Path, *, report: Callable[[str], None] = print) -> Path:
    """Profile all works, report a table and write `profile.json` and `profile.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    fits = _FITS[:1] if setting.quick else _FITS
    with one_thread():
        profiles = [profile_fit(problem, setting.pick(n, 12), d, p) for problem, n, d, p in fits]
        profiles.append(profile_search(*setting.pick((100, 100), (12, 4))))
        record = {"name": "profile", **stamp("cpu"), "seeds": [data.SEED]}
    name = "profile" + "-quick" * setting.quick
    path = folder / f"{name}.json"
    path.write_text(
        json.dumps(record | {"profiles": [asdict(p) for p in profiles]}, indent=1) + "\n"
    )
    lines = [
        markdown.table(HEAD, [one.cells for one in profiles]),
        "",
        f"Commit {record['commit']}; {record['versions']}; {record['machine']}.",
    ]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    report("\n".join(lines))
    report(f"written: {path}")
    return path


def profile_fit(problem: str, n: int, d: int, p: PowerMode) -> Profile:
    """Profile a fit as `fit_kriging` makes it."""
    X = data.design(n, d)
    y = data.slow_values(problem, X)
    evaluations = counted(lambda: fit_kriging(X, y, p=p))()
    bare = likelihood.bare(X)
    limit = evaluations * _seconds(bare, 50)
    power = "p = 2" if p == 2.0 else "free p"
    return _profile(
        f"fit, n = {n}, d = {d}, {power}", lambda: fit_kriging(X, y, p=p), 3, limit,
        f"bare operations (p = 2) of its {evaluations} likelihoods",
    )  # fmt: skip


def profile_search(r: int, g: int) -> Profile:
    """Profile a search of DTLZ2."""
    work = search.search(1, r, g, "cpu")
    tiny = torch.zeros(1, dtype=torch.float64)
    n_operators, _ = _operators(work)
    least = _seconds(tiny.neg, 10_000)
    return _profile(
        f"RVEA, {r} vectors, {g} generations", work, 10, n_operators * least,
        f"as many operators on one number, {1e6 * least:.2g} us each",
    )  # fmt: skip


def _profile(
    what: str, work: Callable[[], object], repeats: int, limit_seconds: float, limit: str
) -> Profile:
    seconds = _seconds(work, repeats)
    n_operators, shares = _operators(work)
    return Profile(
        what=what, seconds=seconds, n_operators=n_operators, shares=shares,
        limit_seconds=limit_seconds, limit=limit,
    )  # fmt: skip


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the median of several calls, after one that does not count."""
    work()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _operators(work: Callable[[], object]) -> tuple[int, dict[str, float]]:
    """Return how many operators a call runs, and the largest shares of their time."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        work()
    events = [e for e in profiler.key_averages() if e.key.startswith("aten::")]
    total = sum(e.self_cpu_time_total for e in events)
    largest = sorted(events, key=lambda e: e.self_cpu_time_total, reverse=True)[:_N_SHOWN]
    shares = {e.key.removeprefix("aten::"): e.self_cpu_time_total / total for e in largest}
    return sum(e.count for e in events), shares
