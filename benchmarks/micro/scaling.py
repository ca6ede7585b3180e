"""How time grows with the rows of a fit and with the size of a batch, beside its limits.

`python -m benchmarks scaling` writes the numbers as JSON and, from this file, a figure. The
limit of a fit is the bare operations of as many likelihoods as it evaluated. The limit of a
batch of searches is their GEMMs, sorts and arg-mins. What a batch must beat is the time of a
member alone.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from benchmarks.micro import data, likelihood, search
from benchmarks.micro.batches import counted, fits
from benchmarks.micro.growth import exponent
from benchmarks.micro.peers import MissingPeerError
from benchmarks.micro.rows import OURS, Setting
from benchmarks.micro.scaling_figure import save
from benchmarks.micro.stamp import stamp
from benchmarks.micro.timing import Rounds, Spread, one_thread, paired, synchroniser

MAX_SECONDS = 90.0
"""When the rounds of one panel end, however many are left."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Seconds over sizes."""

    label: str
    kind: Literal["measured", "limit", "alone"]
    points: tuple[Spread, ...]


@dataclass(frozen=True, kw_only=True)
class Panel:
    """What one part of the figure shows."""

    name: str
    title: str
    x: str
    y: str
    sizes: tuple[int, ...]
    curves: tuple[Curve, ...]
    raw: dict[str, list[tuple[float, ...]]]
    """Seconds of one call, for each size those of its rounds."""
    facts: dict[str, Any] = field(default_factory=dict)


def run(setting: Setting, folder: Path, *, report: Callable[[str], None] = print) -> Path:
    """Measure all panels, write `scaling.json` and, with matplotlib, `scaling.png`.

    Returns:
        The JSON file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with one_thread():
        panels = [measure(setting) for measure in (fit_over_rows, fit_batches, search_batches)]
        record = {
            "name": "scaling",
            **stamp(setting.device),
            "quick": setting.quick,
            "repeats": setting.repeats,
            "panels": [asdict(panel) for panel in panels],
        }
    device = torch.device(setting.device).type
    name = "scaling" + (f"-{device}" if device != "cpu" else "") + "-quick" * setting.quick
    path = folder / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    report(f"written: {path}")
    try:
        save(json.loads(path.read_text()), path.with_suffix(".png"))
        report(f"written: {path.with_suffix('.png')}")
    except MissingPeerError as error:
        report(f"no figure: {error}")
    return path


def fit_over_rows(setting: Setting) -> Panel:
    """Time fits over n, and the bare operations of the likelihoods that they evaluate."""
    d, sizes = setting.pick((10, (100, 200, 500, 1000, 2000)), (3, (10, 20, 40)))
    rounds = _paired(
        setting,
        {f"{OURS} {n}": counted(fits(1, n, d, setting.device)) for n in sizes}
        | {f"bare {n}": likelihood.bare(data.design(n, d, setting.device)) for n in sizes},
    )
    ours, bare = (_over(rounds, kind, sizes) for kind in (OURS, "bare"))
    evaluations = [int(rounds.results[f"{OURS} {n}"]) for n in sizes]
    limit = [_scaled(one, count) for one, count in zip(bare, evaluations, strict=True)]
    points = {
        kind: tuple(map(Spread.of, values)) for kind, values in ((OURS, ours), ("bare", limit))
    }
    exponents = {k: exponent(sizes, [one.median for one in v]) for k, v in points.items()}
    growth = {kind: f"$n^{{{value:.2f}}}$" for kind, value in exponents.items()}
    return Panel(
        name="fit over rows", title=f"one fit, d = {d}, p = 2", x="rows n", y="time of a fit",
        sizes=sizes,
        curves=(
            Curve(label=f"fit, as {growth[OURS]}", kind="measured", points=points[OURS]),
            Curve(label=f"bare operations, as {growth['bare']}", kind="limit",
                  points=points["bare"]),
        ),
        raw={OURS: ours, "bare": bare},
        facts={"evaluations": evaluations, "exponent": exponents[OURS],
               "exponent of the limit": exponents["bare"], "d": d, "p": 2.0, "problem": "dtlz2",
               "seeds": [data.SEED]},
    )  # fmt: skip


def fit_batches(setting: Setting) -> Panel:
    """Time batches of fits."""
    n, d = setting.pick((145, 11), (12, 3))
    most = 320 if torch.device(setting.device).type == "cuda" else 64
    sizes = setting.pick(tuple(b for b in (1, 4, 16, 64, 320) if b <= most), (1, 2, 4))
    works = {f"{OURS} {b}": counted(fits(b, n, d, setting.device)) for b in sizes}
    rounds = _paired(setting, works)
    ours = _over(rounds, OURS, sizes)
    # Members differ in how many likelihoods they need, so this belongs to the record.
    evaluations = [int(rounds.results[f"{OURS} {b}"]) for b in sizes]
    return Panel(
        name="fit over batch", title=f"fits, n = {n}, d = {d}, p = 2", x="fits in a batch",
        y="time per fit", sizes=sizes,
        curves=(_each("in a batch", "measured", ours, sizes), _alone(ours, sizes)),
        raw={OURS: ours},
        facts={"evaluations": evaluations, "n": n, "d": d, "p": 2.0, "problem": "dtlz2",
               "seeds": _seeds(sizes)},
    )  # fmt: skip


def search_batches(setting: Setting) -> Panel:
    """Time batches of searches, and the operations that they cannot avoid."""
    r, g = setting.pick((100, 100), (12, 4))
    most = 1024 if torch.device(setting.device).type == "cuda" else 64
    sizes = setting.pick(tuple(b for b in (1, 4, 16, 64, 256, 1024) if b <= most), (1, 2, 4))
    rounds = _paired(
        setting,
        {f"{OURS} {b}": search.search(b, r, g, setting.device) for b in sizes}
        | {f"bare {b}": search.bare(b, r, g, setting.device) for b in sizes},
    )
    ours, bare = (_over(rounds, kind, sizes) for kind in (OURS, "bare"))
    return Panel(
        name="search over batch", title=f"RVEA, {r} vectors, {g} generations",
        x="searches in a batch", y="time per search", sizes=sizes,
        curves=(
            _each("in a batch", "measured", ours, sizes),
            _alone(ours, sizes),
            _each("its GEMMs, sorts and arg-mins", "limit", bare, sizes),
        ),
        raw={OURS: ours, "bare": bare},
        facts={"vectors": r, "generations": g, "problem": "dtlz2", "seeds": _seeds(sizes)},
    )  # fmt: skip


def _paired(setting: Setting, works: Mapping[str, Callable[[], Any]]) -> Rounds:
    return paired(
        works,
        setting.repeats,
        min_seconds=setting.pick(0.05, 0.0),
        max_seconds=MAX_SECONDS,
        synchronise=synchroniser(setting.device),
    )


def _over(rounds: Rounds, kind: str, sizes: tuple[int, ...]) -> list[tuple[float, ...]]:
    return [rounds.seconds[f"{kind} {size}"] for size in sizes]


def _scaled(seconds: tuple[float, ...], factor: float) -> tuple[float, ...]:
    return tuple(factor * value for value in seconds)


def _each(
    label: str,
    kind: Literal["measured", "limit"],
    seconds: list[tuple[float, ...]],
    sizes: tuple[int, ...],
) -> Curve:
    """Return the seconds of one member of each batch."""
    pairs = zip(seconds, sizes, strict=True)
    points = tuple(Spread.of(_scaled(values, 1 / b)) for values, b in pairs)
    return Curve(label=label, kind=kind, points=points)


def _alone(seconds: list[tuple[float, ...]], sizes: tuple[int, ...]) -> Curve:
    """Return the constant time of a member alone; sizes begin at one."""
    return Curve(label="as alone", kind="alone", points=(Spread.of(seconds[0]),) * len(sizes))


def _seeds(sizes: tuple[int, ...]) -> list[int]:
    return list(range(data.SEED, data.SEED + max(sizes)))
