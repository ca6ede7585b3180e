"""What is measured: runs but for their seeds, and suites of them that are shown together."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import peers
from tcsaea_torch import problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies import Strategy

FIRST_SEED = 100
"""No seed from here on was used while anything in the library was tuned."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A run but for its seed. Whatever may change a result is a field of it."""

    problem: str
    strategy: str
    """A strategy of the library, or peer:NAME for one of `benchmarks.peers`."""
    settings: str | None = None
    """JSON of fields of the strategy that differ from its defaults."""
    tau: float = 5.0
    box: str = "true"
    """"true" or, for UF, "unit"."""
    corr: float | None = None
    """Wanted correlation of the objectives of cm-onemax, whose map each run draws anew."""
    n_slow: int = 200
    n_init: int = 100
    time_limit: float | None = None
    """Seconds after which a run of a peer is cut; None: it may take its time."""
    slow: int = 1
    """Which of the problem's two published objectives is the slow one, 0 or 1."""

    def __post_init__(self) -> None:
        peer = self.peer  # refuses unknown names
        if peer is None and self.time_limit is not None:
            raise InvalidInputError(f"time_limit must be None but for peers: {self.strategy}")
        if peer is not None and self.settings is not None:
            raise InvalidInputError(f"settings must be None for a peer, got {self.settings}")

    @property
    def peer(self) -> peers.Peer | None:
        """The peer that runs it; None for a strategy of the library."""
        if not self.strategy.startswith(peers.PREFIX):
            return None
        return peers.get(self.strategy.removeprefix(peers.PREFIX))

    def problem_for(self, seed: int) -> TestProblem:
        """Make the problem that the run with this seed solves."""
        options: dict[str, Any] = {"tau": self.tau}
        if self.box != "true":
            options["box"] = self.box
        if self.corr is not None:
            options |= {"corr": self.corr, "seed": seed}
        return problems.get(self.problem, slow=self.slow, **options)

    def make_strategy(self) -> Strategy:
        """Make the strategy with its settings."""
        settings = json.loads(self.settings or "{}")
        # JSON has no tuples, and strategies no lists.
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        return strategies.get(self.strategy, **settings)

    @property
    def column(self) -> str:
        """Name of the strategy with its settings."""
        return self.strategy + (f" {self.settings}" if self.settings else "")

    @property
    def label(self) -> str:
        """Name of the problem with all that tells it from others of its kind."""
        box = "" if self.box == "true" else f" ({self.box} box)"
        box += "" if self.slow == 1 else " (f1 slow)"
        return self.problem + box + ("" if self.corr is None else f" {self.corr:+g}")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Definitions that are shown together."""

    name: str
    about: str
    definitions: tuple[Definition, ...]
    n_seeds: int = 5
    first_seed: int = FIRST_SEED
    n_together: int = 5
    """Seeds that run as one batch."""
    traces: tuple[str, ...] = ()
    """What its runs leave beside their scores, see `benchmarks.traces`."""
    max_seeds: Mapping[str, int] = field(default_factory=dict)
    """Strategies that are too slow for all seeds, with how many they get at most."""
    rival: str | None = None
    """A strategy to which tables compare the others' hypervolumes, seed by seed."""
    has_targets: bool = False
    """Whether tables compare to the paper's best of each cell."""
    shows_cost: bool = False
    """Whether tables show how the time of a run grows with its budget."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Shorter names of columns."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Of an ablation: the part that is off, by settings; the first definitions have them all."""

    @property
    def seeds(self) -> range:
        """Its seeds."""
        return range(self.first_seed, self.first_seed + self.n_seeds)

    def with_seeds(self, n: int | None) -> "Suite":
        """Return the same suite with n seeds; None: as many as it is meant to have."""
        return self if n is None else replace(self, n_seeds=n)

    def takes(self, definition: Definition, seed: int) -> bool:
        """Say whether a definition is run with a seed; not all have as many."""
        n = self.max_seeds.get(definition.strategy)
        return n is None or seed < self.first_seed + n

    def smoke(self) -> "Suite":
        """Return the same suite with tiny budgets, to see that everything works.

        Of each peer only its first definition is left: they are slow.
        """
        firsts = {d.strategy: d for d in reversed(self.definitions)}
        tiny = tuple(
            replace(d, n_slow=14, n_init=9, time_limit=5.0 if d.time_limit else None)
            for d in self.definitions
            if d.peer is None or d is firsts[d.strategy]
        )
        return replace(self, name=f"{self.name}-smoke", definitions=tiny, n_seeds=2, n_together=2)


def product(names: Iterable[str], chosen: Sequence[str], **options: Any) -> Iterator[Definition]:
    """Yield a definition for each problem and strategy."""
    for problem in names:
        for strategy in chosen:
            yield Definition(problem=problem, strategy=strategy, **options)
