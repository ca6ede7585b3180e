"""RVEA on DTLZ2 itself, against pymoo and EvoX, and a batch against its bare operations.

All have the same numbers of vectors, generations and offspring. Ours crosses as pymoo's
RVEA does by default; the others are taken as they come. EvoX penalises angles without
dividing them by those between the vectors, so it converges faster here, and computes in
float32, the others in float64.
EvoX is compiled once: its time is that of the compiled steps, and what compiling took is
reported beside it.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.micro import data, peers
from benchmarks.micro.rows import OURS, Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from tcsaea_torch import metrics, problems
from tcsaea_torch.evolution import Draws, RVEAConfig, Variation, rvea, simplex_lattice
from tcsaea_torch.rng import uniforms
from tcsaea_torch.types import Tensor


def search(b: int, r: int, g: int, device: str) -> Callable[[], Tensor]:
    """Return our search with r vectors, g generations and b runs; it returns run 0's front."""
    problem = problems.get("dtlz2")
    seeds = torch.arange(data.SEED, data.SEED + b, device=device)
    alive = torch.ones(b, r, dtype=torch.bool, device=device)
    vectors = simplex_lattice(r, device=torch.device(device))
    variation = Variation(crossover_probability=0.5, crossover_index=30.0)
    config = RVEAConfig(n_generations=g, each_once=False, variation=variation)

    def work() -> Tensor:
        X = uniforms(seeds, "micro/start", 0, (r, problem.d))
        draws = Draws.make(seeds, "micro/rvea", 0, g, r, problem.d, torch.float64)
        population, _ = rvea(problem.evaluate, X, alive, vectors, draws, config)
        return population.F[0][population.alive[0]]

    return work


def _pymoo(r: int, g: int) -> Callable[[], Tensor]:
    algorithms, optimize, test_problems, directions = (
        peers.load(f"pymoo.{name}")
        for name in ("algorithms.moo.rvea", "optimize", "problems", "util.ref_dirs")
    )
    problem = test_problems.get_problem("dtlz2", n_var=11, n_obj=2)
    vectors = directions.get_reference_directions("das-dennis", 2, n_partitions=r - 1)

    def work() -> Tensor:
        algorithm = algorithms.RVEA(vectors, pop_size=r, n_offsprings=r)
        # pymoo counts the start population as a generation.
        end = ("n_gen", g + 1)
        result = optimize.minimize(problem, algorithm, end, seed=data.SEED, verbose=False)
        return torch.as_tensor(result.F)

    return work


class _EvoX:
    """A search by EvoX, which can be run again from its start, and compiled."""

    def __init__(self, r: int, g: int, device: str, *, compiled: bool = False) -> None:
        algorithms, numerical, workflows = (
            peers.load(f"evox.{name}") for name in ("algorithms", "problems.numerical", "workflows")
        )
        self.n_generations, self.device = g, torch.device(device)
        low, high = torch.zeros(11, device=device), torch.ones(11, device=device)
        with self._own_numbers():
            kind = _without_cond(algorithms.RVEA) if compiled else algorithms.RVEA
            algorithm = kind(r, 2, low, high, max_gen=g, device=self.device)
            problem = numerical.DTLZ2(d=11, m=2)
            self.workflow = workflows.StdWorkflow(algorithm, problem, device=self.device)
        self.start = {k: v.clone() for k, v in self.workflow.state_dict().items()}
        self.step = self.workflow.step
        if compiled:
            self.step = torch.compile(self.workflow.step)
            with self._own_numbers():
                self.workflow.init_step()
                self.step()
                self.step()

    def _own_numbers(self) -> Any:
        """Keep EvoX, which draws from torch's global generator, from changing it for others."""
        devices = [self.device] if self.device.type == "cuda" else []
        return torch.random.fork_rng(devices=devices)

    def __call__(self) -> Tensor:
        """Search once and return the values of the last population."""
        with self._own_numbers():
            torch.manual_seed(data.SEED)
            self.workflow.load_state_dict(self.start)
            self.workflow.init_step()
            for _ in range(self.n_generations):
                self.step()
            F = self.workflow.algorithm.fit
        return F[~F.isnan().any(dim=-1)].double()


def _without_cond(rvea_class: Any) -> Any:
    """Return EvoX's RVEA with the same values, but without a branch that torch refuses to compile.

    Both sides of the branch are cheap, so this costs EvoX nothing.
    """

    class Compilable(rvea_class):
        def _update_pop_and_rv(self, survivor: Tensor, survivor_fit: Tensor) -> None:
            self.pop, self.fit = survivor, survivor_fit
            adapted = self._rv_adaptation(survivor_fit)
            is_due = self.gen % self.rv_adapt_every == 0
            self.reference_vector = torch.where(is_due, adapted, self.reference_vector)

    return Compilable


def _compiled(
    r: int, g: int, device: str, notes: dict[str, str], facts: dict[str, Any]
) -> Callable[[], Tensor]:
    start = time.perf_counter()
    try:
        evox = _EvoX(r, g, device, compiled=True)
    except peers.MissingPeerError:
        raise
    except Exception as error:  # whatever a compiler that is not there raises
        reason = f"torch.compile does not work here: {type(error).__name__}"
        raise peers.MissingPeerError(reason) from error
    facts["seconds to compile EvoX"] = time.perf_counter() - start
    notes["evox_compiled"] = (
        f"after compiling for {facts['seconds to compile EvoX']:.0f} s, its torch.cond replaced"
    )
    return evox


def measure_search(setting: Setting) -> Measured:
    """Time one search."""
    r, g, device = *setting.pick((100, 100), (12, 4)), setting.device
    works: dict[str, Callable[[], Any]] = {OURS: search(1, r, g, device)}
    notes: dict[str, str] = {}
    facts: dict[str, Any] = {}
    peers.add(works, notes, "pymoo", lambda: _pymoo(r, g))
    peers.add(works, notes, "evox", lambda: _EvoX(r, g, device))
    if setting.quick:
        notes["evox_compiled"] = "compiling takes too long for --quick"
    else:
        make = peers.quietly(lambda: _compiled(r, g, device, notes, facts))
        peers.add(works, notes, "evox_compiled", make)
    rounds = paired(
        works,
        setting.repeats,
        optional=[name for name in works if name != OURS],
        synchronise=synchroniser(device),
    )
    front = problems.get("dtlz2").pareto_front(1000)
    facts["igd"] = {n: float(metrics.igd(F.cpu(), front)) for n, F in rounds.results.items()}
    return Measured(
        raw=rounds.seconds, sizes={"vectors": r, "generations": g, "d": 11},
        seeds=(data.SEED,), notes=notes | rounds.failures, facts=facts,
    )  # fmt: skip


def bare(b: int, r: int, g: int, device: str) -> Callable[[], Tensor]:
    """Return the GEMMs, sorts and arg-mins of g generations of b runs, on fixed numbers."""
    seeds = torch.arange(b, device=device)
    unit, directions, table, mating = (
        uniforms(seeds, f"micro/{name}", 0, shape)
        for name, shape in (
            ("unit", (r, 2)), ("directions", (2 * r, 2)), ("table", (r, 2 * r)), ("mating", (r,)),
        )
    )  # fmt: skip

    def work() -> Tensor:
        for _ in range(g):
            (unit @ unit.mT).amax(dim=-1)
            (unit @ directions.mT).max(dim=-2)
            table.argmin(dim=-1)
            mating.argsort(dim=-1)
        return mating

    return work


def measure_batch(setting: Setting) -> Measured:
    """Time a batch of searches."""
    (b, r, g), device = setting.pick((64, 100, 100), (4, 12, 4)), setting.device
    rounds = paired(
        {OURS: search(b, r, g, device), "bare": bare(b, r, g, device)},
        setting.repeats,
        synchronise=synchroniser(device),
    )
    return Measured(
        raw=rounds.seconds, sizes={"b": b, "vectors": r, "generations": g, "d": 11},
        seeds=tuple(range(data.SEED, data.SEED + b)),
    )  # fmt: skip


ROWS = (
    Row(
        name="rvea",
        what="RVEA, 100 vectors x 100 generations, DTLZ2",
        lines=(
            Line(against="pymoo", kind="speed-up", target=12.0, rivals=("pymoo",)),
            Line(against="EvoX, eager", kind="speed-up", target=12.0, rivals=("evox",)),
            Line(against="EvoX, compiled", kind="speed-up", target=1.5, rivals=("evox_compiled",)),
        ),
        measure=measure_search,
    ),
    Row(
        name="rvea-batch-64",
        what="64 such searches as one batch",
        lines=(
            Line(against="the GEMMs, sorts and arg-mins of their generations alone",
                 kind="overhead", target=4.0, rivals=("bare",)),
        ),
        measure=measure_batch,
    ),
)  # fmt: skip
