"""Frozen definitions of what is measured: the suites of `python -m benchmarks run`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tcsaea_torch import problems, strategies
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.validation import check_choice

FIRST_SEED = 100
"""No seed from here on was used while anything in the library was tuned."""

DTLZ = ("dtlz1", "dtlz1a", "dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6", "dtlz7")
UF = ("uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7")
ABLATIONS = ("tc-saea", "tc-saea-released", "nt-saea", "ns-saea", "tc-saea-p")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A run but for its seed. Whatever may change a result is a field of it."""

    problem: str
    strategy: str
    settings: str | None = None
    """JSON of fields of the strategy that differ from its defaults."""
    tau: float = 5.0
    box: str = "true"
    """"true" or, for UF, "unit"."""
    corr: float | None = None
    """Wanted correlation of the objectives of cm-onemax, whose map each run draws anew."""
    n_slow: int = 200
    n_init: int = 100

    def problem_for(self, seed: int) -> TestProblem:
        """Make the problem that the run with this seed solves."""
        options: dict[str, Any] = {"tau": self.tau}
        if self.box != "true":
            options["box"] = self.box
        if self.corr is not None:
            options |= {"corr": self.corr, "seed": seed}
        return problems.get(self.problem, **options)

    def make_strategy(self) -> Strategy:
        """Make the strategy with its settings."""
        return strategies.get(self.strategy, **json.loads(self.settings or "{}"))

    @property
    def column(self) -> str:
        """Name of the strategy with its settings."""
        return self.strategy + (f" {self.settings}" if self.settings else "")

    @property
    def label(self) -> str:
        """Name of the problem with all that tells it from others of its kind."""
        box = "" if self.box == "true" else f" ({self.box} box)"
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

    def seeds(self, n: int | None = None) -> range:
        """Return the first n seeds of the suite, or as many as it is meant to have."""
        return range(self.first_seed, self.first_seed + (self.n_seeds if n is None else n))

    def smoke(self) -> "Suite":
        """Return the same suite with tiny budgets, to see that everything works."""
        tiny = tuple(replace(d, n_slow=14, n_init=9) for d in self.definitions)
        return replace(self, name=f"{self.name}-smoke", definitions=tiny, n_seeds=2, n_together=2)


def product(names: Iterable[str], chosen: Sequence[str], **options: Any) -> Iterator[Definition]:
    """Yield a definition for each problem and strategy."""
    for problem in names:
        for strategy in chosen:
            yield Definition(problem=problem, strategy=strategy, **options)


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            name="ablations",
            about="TC-SAEA, its released variant and its ablations on all problems, tau = 5",
            definitions=(
                *product(DTLZ, ABLATIONS),
                *product(UF, ABLATIONS, box="unit"),
                *product(UF, ABLATIONS),
            ),
        ),
        Suite(
            name="released-ablations",
            about="The same ablations of the released variant, tau = 5",
            definitions=tuple(
                definition
                for names, box in ((DTLZ, "true"), (UF, "unit"), (UF, "true"))
                for problem in names
                for settings in (
                    None,
                    '{"transfer": "none"}',
                    '{"transfer": "all"}',
                    '{"co_surrogate": "quadratic"}',
                )
                for definition in product(
                    (problem,), ("tc-saea-released",), box=box, settings=settings
                )
            ),
        ),
        Suite(
            name="mixed",
            about="A problem of each kind; `mixed-smoke` is what the tests run",
            definitions=(
                *product(("dtlz2",), ("tc-saea", "tc-saea-released", "random")),
                *product(("uf1",), ("tc-saea", "tc-saea-released", "random"), box="unit"),
                *product(("cm-onemax",), ("tc-saea", "tc-saea-released", "random"), corr=0.5),
            ),
        ),
    )
}


def get(name: str) -> Suite:
    """Return the suite of this name; NAME-smoke is NAME with tiny budgets.

    Raises:
        InvalidInputError: If the name is unknown; the nearest one is suggested.
    """
    if name.endswith("-smoke") and name.removesuffix("-smoke") in SUITES:
        return SUITES[name.removesuffix("-smoke")].smoke()
    return SUITES[check_choice("suite", name, SUITES)]
