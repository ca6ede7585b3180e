"""The works that are timed, and in which order: what matters most comes first."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.device.budget import Budget, OutOfTimeError
from benchmarks.micro import data
from benchmarks.micro.batches import fits
from benchmarks.micro.search import search
from benchmarks.run_batch import run_batch
from tcsaea_torch import problems, strategies
from tcsaea_torch.kernels import PowerMode
from tcsaea_torch.strategies.base import Proposal, RunView, State, Strategy

PROBLEM, STRATEGY = problems.get("dtlz2", tau=5.0), strategies.get("tc-saea-released")
"""Of whole runs."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something that can be done in batches of any size."""

    what: str
    make: Callable[[int, str, Budget], Callable[[], str]]
    """(batch size, device, budget) -> what is timed; it returns what is worth a note."""
    cpu: tuple[int, ...]
    """Batch sizes on the CPU, from 1."""
    device: tuple[int, ...]
    """Batch sizes on the device, from 1."""
    is_run: bool = False
    """Whether these are whole runs: too long to be repeated, or to warm up by themselves."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Work of one size on one device."""

    work: Work
    b: int
    device: str

    @property
    def smallest(self) -> int:
        """The smallest batch of this work on this device."""
        return min(self.work.cpu if self.device == "cpu" else self.work.device)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A strategy that gives up when the time is over."""

    strategy: Strategy
    budget: Budget

    @property
    def name(self) -> str:
        """The strategy's own name."""
        return self.strategy.name

    def init(self, run: RunView) -> State:
        """Return the strategy's first state."""
        return self.strategy.init(run)

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return what the strategy proposes.

        Raises:
            OutOfTimeError: If no time is left.
        """
        if self.budget.left <= 0.0:
            used, total = (float(n[:, 1].double().mean()) for n in (run.used, run.total))
            raise OutOfTimeError(f"out of time at {used:g} of {total:g} slow evaluations a run")
        return self.strategy.propose(state, run)


def small_run(device: str) -> None:
    """Make two short runs, which load what runs need."""
    run_batch(PROBLEM, STRATEGY, [0, 1], n_slow=14, n_init=9, device=device)


def works(*, quick: bool) -> tuple[Work, ...]:
    """Return all works; `quick` makes them tiny."""
    if quick:
        return (
            _fit("dtlz2", 12, 3, 2.0, cpu=(1, 2), device=(1, 2, 4)),
            _fit("uf1", 14, 30, 2.0, cpu=(1, 2), device=(1, 2, 4)),
            _fit("dtlz2", 12, 3, "ard", cpu=(1, 2), device=(1, 2)),
            _search(12, 4, cpu=(1, 2), device=(1, 2, 4)),
            _runs(14, 9, cpu=(1, 2), device=(1, 2, 4)),
        )
    return (
        _fit("dtlz2", 145, 11, 2.0, cpu=(1, 20), device=(1, 20, 320)),
        _fit("uf1", 354, 30, 2.0, cpu=(1, 20), device=(1, 20, 320)),
        _fit("dtlz2", 145, 11, "ard", cpu=(1, 20), device=(1, 20)),
        _search(100, 100, cpu=(1, 64), device=(1, 64, 1024)),
        _runs(200, 100, cpu=(1, 20), device=(1, 20, 320)),
    )


def in_order(all_works: tuple[Work, ...], device: str) -> list[Item]:
    """Return the items of a machine whose device is "cuda", or "cpu" if it has none.

    First the parts on the device, then each work once on the CPU, to compare with, then whole
    runs on the device, which may take all the time that is left, then the rest.
    """
    alone = [Item(work=w, b=b, device="cpu") for w in all_works for b in w.cpu[:1]]
    batches = [Item(work=w, b=b, device="cpu") for w in all_works for b in w.cpu[1:]]
    if device == "cpu":
        return alone + batches
    on_device = [Item(work=w, b=b, device=device) for w in all_works for b in w.device]
    parts = [item for item in on_device if not item.work.is_run]
    return parts + alone + [item for item in on_device if item.work.is_run] + batches


def _fit(
    problem: str, n: int, d: int, p: PowerMode, *, cpu: tuple[int, ...], device: tuple[int, ...]
) -> Work:
    def make(b: int, where: str, budget: Budget) -> Callable[[], str]:
        return _silent(fits(b, n, d, where, p=p, problem=problem))

    power = "p = 2" if p == 2.0 else f"free p ({p})"
    return Work(what=f"fit, n = {n}, d = {d}, {power}", make=make, cpu=cpu, device=device)


def _search(r: int, g: int, *, cpu: tuple[int, ...], device: tuple[int, ...]) -> Work:
    def make(b: int, where: str, budget: Budget) -> Callable[[], str]:
        return _silent(search(b, r, g, where))

    what = f"RVEA, {r} vectors, {g} generations, DTLZ2"
    return Work(what=what, make=make, cpu=cpu, device=device)


def _silent(work: Callable[[], object]) -> Callable[[], str]:
    def call() -> str:
        work()
        return ""

    return call


def _runs(n_slow: int, n_init: int, *, cpu: tuple[int, ...], device: tuple[int, ...]) -> Work:
    def make(b: int, where: str, budget: Budget) -> Callable[[], str]:
        def call() -> str:
            watched = Watched(strategy=STRATEGY, budget=budget)
            seeds = range(data.SEED, data.SEED + b)
            done = run_batch(PROBLEM, watched, seeds, n_slow=n_slow, n_init=n_init, device=where)
            return f"{done.n_steps} steps"

        return call

    what = f"run of {STRATEGY.name}, DTLZ2, tau = {PROBLEM.tau:g}, {n_slow} slow evaluations"
    return Work(what=what, make=make, cpu=cpu, device=device, is_run=True)
