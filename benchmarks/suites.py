"""Frozen definitions of what is measured: the suites of `python -m benchmarks run`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks.definitions import Definition, Suite, product
from tcsaea_torch import strategies
from tcsaea_torch.validation import check_choice

DTLZ = ("dtlz1", "dtlz1a", "dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6", "dtlz7")
UF = ("uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7")
PROBLEMS = (*DTLZ, *UF)
SCHEMES = ("waiting", "fast-first", "brood-interleaving", "speculative-interleaving")
SYSTEMS = (*SCHEMES, "k-rvea", "hk-rvea", "t-saea", "tc-saea", "tc-saea-released")
"""What the paper's Tables 1, 2 and 5 compare; TC-SAEA as its text and as its code has it."""
OTHERS = ("tr-saea", "undelayed", "tc-saea", "tc-saea-released")
ABLATIONS = ("tc-saea", "tc-saea-released", "nt-saea", "ns-saea", "tc-saea-p")
TAUS = (5.0, 10.0)
CORRELATIONS = tuple(i / 4 for i in range(-4, 5))

OURS = ("tc-ehvi",)
"""What is measured against qLogNEHVI and against the paper's best of each cell."""
ABLATED = "tc-ehvi"
RIVAL = "peer:qlognehvi"
BREADTH = ("zdt1", "zdt3", "wfg4", "branin-currin", "kursawe", "re21")
SEALED = ("zdt2", "zdt4", "zdt6", "wfg2", "wfg9", "re24", "gmm", "dtlz2-rotated")
"""Nothing is tuned on these: they are run once, when all else is settled."""
SHORT = {"n_slow": 60, "n_init": 20}


def _table(name: str, about: str, chosen: Sequence[str], *taus: float) -> Suite:
    definitions = [d for tau in taus for d in product(PROBLEMS, chosen, tau=tau)]
    return Suite(name=name, about=about, definitions=tuple(definitions))


def _released_ablations() -> Iterator[Definition]:
    for names, box in ((DTLZ, "true"), (UF, "unit"), (UF, "true")):
        for problem in names:
            for settings in (
                None,
                '{"transfer": "none"}',
                '{"transfer": "all"}',
                '{"co_surrogate": "quadratic"}',
            ):
                yield Definition(
                    problem=problem, strategy="tc-saea-released", box=box, settings=settings
                )


def _slow_peers() -> Iterator[Definition]:
    """Yield the runs of minutes to half an hour, of which there are few."""
    yield from product(("dtlz2", "dtlz7"), ("peer:hvkg",), time_limit=1800.0)
    yield from product(_WITH_SLOW_PEERS, (RIVAL, "peer:optuna-gp"))


_WITH_SLOW_PEERS = ("dtlz1a", "dtlz2", "dtlz3a", "dtlz4", "dtlz7", "uf1", "uf4")
_PEERS = ("peer:nsga2", "peer:rvea", "peer:tpe")
_FEW_SEEDS = {"peer:qlognehvi": 2, "peer:optuna-gp": 2, "peer:hvkg": 1}


def _with_new_points(u: int) -> str | None:
    """Return settings for u new points a period; none where that is the default."""
    return None if u == 3 else f'{{"n_new": {u}}}'


def _settings(strategy: str, **chosen: Any) -> str | None:
    """Return settings as JSON, without those that the strategy does not have.

    No algorithm of the paper knows the reference point; ours is not told either.
    """
    fields = getattr(type(strategies.get(strategy)), "__dataclass_fields__", {})
    chosen = {k: v for k, v in {**chosen, "uses_ref_point": False}.items() if k in fields}
    return json.dumps(chosen) if chosen else None


def _own(names: Iterable[str], **options: Any) -> Iterator[Definition]:
    """Yield the definitions of our own strategies, with the strict clock first."""
    for strategy in OURS:
        clocks = (_settings(strategy), _settings(strategy, strict_clock=False))
        for settings in dict.fromkeys(clocks):
            for problem in names:
                yield from product((problem,), (strategy,), settings=settings, **options)


def _strict(names: Iterable[str], **options: Any) -> Iterator[Definition]:
    """Yield the definitions of our own strategies with the strict clock, which is the default."""
    for strategy in OURS:
        yield from product(names, (strategy,), settings=_settings(strategy), **options)


_LABELS = {
    f"{ABLATED} {_settings(ABLATED)}": "TC-EHVI",
    f"{ABLATED} {_settings(ABLATED, strict_clock=False)}": "TC-EHVI, relaxed clock",
    "hk-rvea": "HK-RVEA",
    RIVAL: "qLogNEHVI",
}
"""Short names of columns with settings."""

PARTS: dict[str, dict[str, Any]] = {
    "link": {"link": None},
    "calibration": {"calibrated": False},
    "climbing": {"climbs": False},
    "moved variables": {"moves_variables": False},
    "guessed bounds": {"guesses_bounds": False},
    "space-filling start": {"space_share": 0.0},
    "spread": {"spread_share": 0.0},
    "points between": {"between_share": 0.0},
    "joint kernel": {"kernels": ["additive", "smooth", "cautious"]},
    "additive kernel": {"kernels": ["joint", "smooth", "cautious"]},
    "smooth kernel": {"kernels": ["joint", "additive", "cautious"]},
    "cautious kernel": {"kernels": ["joint", "additive", "smooth"]},
    "choice of kernels": {"kernels": ["joint"]},
}
"""What TC-EHVI is without each of its parts."""
WITHOUT = {str(_settings(ABLATED, **settings)): part for part, settings in PARTS.items()}
"""The part that is off, by settings."""
SHORT_WITHOUT = {json.dumps(settings): part for part, settings in PARTS.items()}
"""The same where the reference point is known."""


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            name="fronts",
            about="Final fronts: every system on DTLZ2, DTLZ7 and UF3, TC-SAEA on all DTLZ",
            definitions=tuple(
                dict.fromkeys(
                    (
                        *product(("dtlz2", "dtlz7", "uf3"), SYSTEMS),
                        *product(DTLZ, ("tc-saea", "tc-saea-released")),
                    )
                )
            ),
            traces=("front",),
        ),
        Suite(
            name="co-surrogate-error",
            about="Mean square error of the co-surrogate on the additional points of each period",
            definitions=tuple(product(DTLZ, ("tc-saea", "tc-saea-released"))),
            n_seeds=10,
            traces=("co-surrogate-error",),
        ),
        Suite(
            name="dtlz1a-1000",
            about="IGD over 1000 slow evaluations of DTLZ1a",
            definitions=tuple(product(("dtlz1a",), SYSTEMS, n_slow=1000)),
            traces=("igd-history",),
        ),
        _table("table-1", "The paper's Table 1: all systems, tau = 5", SYSTEMS, 5.0),
        _table("table-2", "The paper's Table 2: all systems, tau = 10", SYSTEMS, 10.0),
        _table("table-add", "The paper's further comparison: Tr-SAEA and Undelayed", OTHERS, *TAUS),
        _table("table-3", "The paper's Table 3: ablations, tau = 5", ABLATIONS, 5.0),
        _table("table-4", "The paper's Table 4: ablations, tau = 10", ABLATIONS, 10.0),
        Suite(
            name="table-5",
            about="The paper's Table 5: cm-OneMax with nine correlations",
            definitions=tuple(
                definition
                for tau in TAUS
                for corr in CORRELATIONS
                for definition in product(("cm-onemax",), SYSTEMS, tau=tau, corr=corr)
            ),
        ),
        Suite(
            name="sensitivity-u",
            about="u = 1, 3, 5, 7 and 10 new points in each period",
            definitions=tuple(
                definition
                for problem in PROBLEMS
                for u in (1, 3, 5, 7, 10)
                for definition in product(
                    (problem,), ("tc-saea", "tc-saea-released"), settings=_with_new_points(u)
                )
            ),
        ),
        Suite(
            name="unit-box",
            about="TC-SAEA and its ablations on UF in the box [0, 1]^30, tau = 5",
            definitions=tuple(product(UF, ABLATIONS, box="unit")),
        ),
        Suite(
            name="released-ablations",
            about="The ablations of the released variant, tau = 5",
            definitions=tuple(_released_ablations()),
        ),
        Suite(
            name="peers",
            about="Rivals from other libraries, tau = 5",
            definitions=(
                *product(PROBLEMS, (*_PEERS, "random", "hk-rvea", "tc-saea", "tc-saea-released")),
                *_slow_peers(),
            ),
            max_seeds=_FEW_SEEDS,
        ),
        Suite(
            name="peers-slow",
            about="The slow ones of `peers` alone, for runs of hours",
            definitions=tuple(_slow_peers()),
            max_seeds=_FEW_SEEDS,
        ),
        Suite(
            name="breadth",
            about="Six problems of other families, few evaluations, tau = 5",
            definitions=tuple(product(BREADTH, (RIVAL, *OURS), **SHORT)),
            rival=RIVAL,
        ),
        Suite(
            name="breadth-tau-1",
            about="The problems and budgets of `breadth`, both objectives equally slow",
            definitions=tuple(product(BREADTH, (RIVAL, *OURS), tau=1, **SHORT)),
            rival=RIVAL,
        ),
        Suite(
            name="breadth-sealed",
            about="Eight further problems with either objective as the slow one, tau = 5",
            definitions=tuple(
                definition
                for problem in SEALED
                for slow in (1, 0)
                for definition in product((problem,), (RIVAL, *OURS), slow=slow, **SHORT)
            ),
            rival=RIVAL,
        ),
        Suite(
            name="own-dtlz",
            about="All DTLZ, strict and relaxed clock, both taus",
            definitions=tuple(d for tau in TAUS for d in _own(DTLZ, tau=tau)),
            n_seeds=10,
            has_targets=True,
            labels=_LABELS,
        ),
        Suite(
            name="own-uf",
            about="All UF in the unit and in the true box, strict and relaxed clock, both taus",
            definitions=tuple(
                d for tau in TAUS for box in ("true", "unit") for d in _own(UF, box=box, tau=tau)
            ),
            has_targets=True,
            labels=_LABELS,
        ),
        Suite(
            name="own-onemax",
            about="cm-OneMax with nine correlations, strict and relaxed clock, both taus",
            definitions=tuple(
                d
                for tau in TAUS
                for corr in CORRELATIONS
                for d in _own(("cm-onemax",), corr=corr, tau=tau)
            ),
            has_targets=True,
            labels=_LABELS,
        ),
        Suite(
            name="own-ablation",
            about="TC-EHVI without each of its parts, all DTLZ and UF, tau = 5, strict clock",
            definitions=tuple(
                Definition(problem=problem, strategy=ABLATED, settings=settings)
                for settings in (_settings(ABLATED), *WITHOUT)
                for problem in PROBLEMS
            ),
            parts=WITHOUT,
        ),
        Suite(
            name="breadth-ablation",
            about="TC-EHVI without each of its parts, on the problems and budgets of `breadth`",
            definitions=tuple(
                definition
                for settings in (None, *SHORT_WITHOUT)
                for definition in product(BREADTH, (ABLATED,), settings=settings, **SHORT)
            ),
            parts=SHORT_WITHOUT,
        ),
        Suite(
            name="own-peer",
            about="Seven of the paper's problems, tau = 5, with the runs that `peers` has",
            definitions=tuple(product(_WITH_SLOW_PEERS, (RIVAL, *OURS))),
            max_seeds=_FEW_SEEDS,
            rival=RIVAL,
        ),
        Suite(
            name="own-history",
            about="IGD over slow evaluations, seven of the paper's problems, tau = 5",
            definitions=(
                *_strict(_WITH_SLOW_PEERS),
                *product(_WITH_SLOW_PEERS, ("tc-saea", "tc-saea-released", "hk-rvea", RIVAL)),
            ),
            max_seeds=_FEW_SEEDS,
            traces=("igd-history",),
            labels=_LABELS,
        ),
        Suite(
            name="headline",
            about="What a user chooses from, all DTLZ and UF, tau = 5; rows of other suites",
            definitions=(
                *product(PROBLEMS, ("waiting", "tc-saea-released", "hk-rvea")),
                *product(_WITH_SLOW_PEERS, (RIVAL,)),
                *_own(PROBLEMS),
            ),
            max_seeds=_FEW_SEEDS,
            labels=_LABELS,
        ),
        Suite(
            name="own-growth",
            about="What a run costs, by its budget: two problems of 10 and 30 variables, tau = 5",
            definitions=tuple(
                definition
                for n_slow in (100, 200, 400, 700, 1000)
                for definition in _strict(("dtlz2", "uf2"), n_slow=n_slow, n_init=50)
            ),
            n_seeds=1,
            shows_cost=True,
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
