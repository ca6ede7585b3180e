"""Figures of stored runs: the paper's fronts, curves and box plots."""

import math
import statistics
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.definitions import Definition, Suite
from benchmarks.micro import peers
from benchmarks.store import Row, Store
from benchmarks.tables import REFERENCES, chosen_rows, made_with, run_of
from tcsaea_torch.strategies.assisted import SurrogateAssisted

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that all eyes tell apart [Okabe and Ito]."""

MARKERS = "osD^vP*X<>"
N_FRONT = 500
"""Points with which the true front is drawn."""

Curve = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Traced:
    """Traces of one definition's runs."""

    definition: Definition
    label: str
    """Its strategy's name in figures."""
    by_seed: dict[int, Curve]
    rows: list[Row]


def make(store: Store, suite: Suite) -> dict[str, Any]:
    """Return matplotlib's figures of a suite by name; none for a suite that has no figure.

    Raises:
        MissingPeerError: If matplotlib is not installed.
    """
    name = suite.name.removesuffix("-smoke")
    draw = _FIGURES.get(name)
    return {} if draw is None else dict(draw(store, suite))


def save(store: Store, suite: Suite, folder: Path) -> list[Path]:
    """Write the figures of a suite and return their paths."""
    paths = []
    for name, figure in make(store, suite).items():
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=130, bbox_inches="tight")
    return paths


def traced(store: Store, suite: Suite, definition: Definition, trace: str) -> Traced:
    """Return a trace of the runs of this code or, without any, of the last code that left it."""
    rows = chosen_rows(store, suite, definition, trace)
    chosen = {run_of(row) for row in rows}
    curves: dict[int, Curve] = {}
    for point in store.traces(definition, trace):
        if run_of(point) in chosen:
            curves.setdefault(point["seed"], []).append((point["x"], point["y"]))
    label = suite.labels.get(definition.column, definition.column)
    return Traced(definition=definition, label=label, by_seed=curves, rows=rows)


def median_seed(rows: Sequence[Row]) -> int:
    """Return the seed of the run with the median IGD; of two middle ones, the better."""
    return sorted(rows, key=lambda row: (row["igd"], row["seed"]))[(len(rows) - 1) // 2]["seed"]


def summary(curves: Sequence[Curve]) -> list[tuple[float, float, float]]:
    """Return (x, mean, standard deviation) at each x that all curves have."""
    tables = [dict(curve) for curve in curves]
    shared = sorted(set.intersection(*(set(table) for table in tables)))
    points = []
    for x in shared:
        values = [table[x] for table in tables]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        points.append((x, statistics.fmean(values), spread))
    return points


def quartiles(curves: Sequence[Curve]) -> list[tuple[float, float, float, float]]:
    """Return (x, lower quartile, median, upper quartile) at the last curve's x.

    Curves are steps: a curve's value between its points is that of the last one.
    """
    points = []
    for x, _ in curves[-1]:
        values = [[y for at, y in curve if at <= x] for curve in curves]
        last = sorted(found[-1] for found in values if found)
        if len(last) > 1:
            low, middle, high = statistics.quantiles(last, n=4, method="inclusive")
        else:
            low = middle = high = last[0]
        points.append((x, low, middle, high))
    return points


def _fronts(store: Store, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Draw the fronts of the runs with the median IGD."""
    by_problem: dict[str, list[Traced]] = {}
    for definition in suite.definitions:
        t = traced(store, suite, definition, "front")
        if t.rows:
            by_problem.setdefault(definition.problem, []).append(t)
    for problem, group in by_problem.items():
        if len(group) > 2:
            titles = [t.label for t in group]
            panels = [[t] for t in group]
            yield f"fronts-{problem}", _panels(panels, titles, _draw_fronts, _rows(group))
    ours = {
        problem: [t for t in group if t.definition.column in REFERENCES]
        for problem, group in sorted(by_problem.items())
        if problem.startswith("dtlz")
    }
    ours = {problem: group for problem, group in ours.items() if group}
    if ours:
        rows = [row for group in ours.values() for row in _rows(group)]
        yield "fronts-tc-saea", _panels(list(ours.values()), list(ours), _draw_fronts, rows)


def _draw_fronts(ax: Any, group: Sequence[Traced]) -> None:
    problem = group[0].definition.problem_for(0)
    truth = problem.pareto_front(N_FRONT)
    ax.plot(*truth.T.numpy(), ".", color="0.6", markersize=2, label="true front")
    for k, t in enumerate(group):
        points = sorted(t.by_seed[median_seed(t.rows)])
        ax.plot(*zip(*points, strict=True), MARKERS[k], color=COLOURS[k], markersize=5,
                fillstyle="none" if k else "full", label=t.label)  # fmt: skip
    ax.set_xlabel("fast objective")
    ax.set_ylabel("slow objective")
    ax.legend(fontsize=7)


def _igd_history(store: Store, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Draw IGD over slow evaluations, all systems in one panel."""
    found = [traced(store, suite, d, "igd-history") for d in suite.definitions]
    found = [t for t in found if t.rows]
    if found:
        yield (
            suite.name,
            _panels([found], ["DTLZ1a"], _draw_histories, _rows(found), size=(7.5, 5.0)),
        )


def _histories_by_problem(store: Store, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Draw IGD over slow evaluations, a panel for each problem; peers have their end alone."""
    groups: dict[str, list[Traced]] = {}
    for definition in suite.definitions:
        t = traced(store, suite, definition, "igd-history")
        rows = chosen_rows(store, suite, definition) if definition.peer else t.rows
        if rows:
            group = groups.setdefault(definition.label, [])
            group.append(replace(t, rows=rows))
    if groups:
        rows = [row for group in groups.values() for row in _rows(group)]
        panels, titles = list(groups.values()), list(groups)
        figure = _panels(panels, titles, _draw_histories, rows, size=(5.0, 4.0))
        _share_legend(figure)
        yield suite.name, figure


def _share_legend(figure: Any) -> None:
    """Replace the panels' legends by one above them."""
    entries: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
        ax.get_legend().remove()
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries))


def _draw_histories(ax: Any, group: Sequence[Traced]) -> None:
    for k, t in enumerate(group):
        if not t.by_seed:
            _draw_ends(ax, t)
            continue
        x, low, middle, high = zip(*quartiles(list(t.by_seed.values())), strict=True)
        colour = COLOURS[k % len(COLOURS)]
        ax.plot(x, middle, color=colour, marker=MARKERS[k % len(MARKERS)],
                markevery=max(1, len(x) // 8), linestyle="-" if k < len(COLOURS) else "--",
                label=t.label)  # fmt: skip
        ax.fill_between(x, low, high, color=colour, alpha=0.15)
    ax.set_yscale("log")
    ax.set_xlabel("slow evaluations")
    ax.set_ylabel("IGD (median, quartiles shaded)")
    ax.legend(fontsize=8, ncols=2)


def _draw_ends(ax: Any, t: Traced) -> None:
    """Draw the median of runs of which the end is known, from the least to the largest."""
    scores = [row["igd"] for row in t.rows]
    middle = statistics.median(scores)
    reach = [[middle - min(scores)], [max(scores) - middle]]
    ax.errorbar(t.definition.n_slow, middle, yerr=reach, fmt="k*", markersize=10, capsize=3,
                clip_on=False, label=f"{t.label}, end")  # fmt: skip


def _co_surrogate_error(store: Store, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Draw the co-surrogate's error over the periods, a panel for each problem."""
    found = [traced(store, suite, d, "co-surrogate-error") for d in suite.definitions]
    groups: dict[str, list[Traced]] = {}
    for t in found:
        if t.rows:
            groups.setdefault(t.definition.label, []).append(t)
    if groups:
        yield suite.name, _panels(list(groups.values()), list(groups), _draw_errors, _rows(found))


def _draw_errors(ax: Any, group: Sequence[Traced]) -> None:
    for k, t in enumerate(group):
        x, mean, spread = zip(*summary(list(t.by_seed.values())), strict=True)
        ax.plot(x, mean, color=COLOURS[k], marker=MARKERS[k], markersize=3,
                label=t.label)  # fmt: skip
        low = [max(m - s, m / 10) for m, s in zip(mean, spread, strict=True)]
        high = [m + s for m, s in zip(mean, spread, strict=True)]
        ax.fill_between(x, low, high, color=COLOURS[k], alpha=0.2)
    ax.set_yscale("log")
    ax.set_xlabel("period")
    ax.set_ylabel("mean square error")
    ax.legend(fontsize=7)


def _sensitivity(store: Store, suite: Suite) -> Iterator[tuple[str, Any]]:
    """Draw box plots of the IGD over u, a panel for each problem with more than one u."""
    groups: dict[str, list[tuple[Definition, list[Row]]]] = {}
    for definition in suite.definitions:
        rows = chosen_rows(store, suite, definition)
        if rows:
            groups.setdefault(definition.label, []).append((definition, rows))
    groups = {k: group for k, group in groups.items() if len({_n_new(d) for d, _ in group}) > 1}
    if groups:
        used = [row for group in groups.values() for _, rows in group for row in rows]
        yield suite.name, _panels(list(groups.values()), list(groups), _draw_boxes, used)


def _draw_boxes(ax: Any, group: Sequence[tuple[Definition, list[Row]]]) -> None:
    strategies = list(dict.fromkeys(definition.strategy for definition, _ in group))
    new_points = sorted({_n_new(definition) for definition, _ in group})
    for k, strategy in enumerate(strategies):
        chosen = [(d, rows) for d, rows in group if d.strategy == strategy]
        places = [new_points.index(_n_new(d)) for d, _ in chosen]
        boxes = ax.boxplot(
            [[row["igd"] for row in rows] for _, rows in chosen],
            positions=[place + 0.35 * (k - (len(strategies) - 1) / 2) for place in places],
            widths=0.28,
            patch_artist=True,
            manage_ticks=False,
            medianprops={"color": "#111111"},
        )
        for box in boxes["boxes"]:
            box.set(facecolor=COLOURS[k], alpha=0.5)
        boxes["boxes"][0].set_label(strategy)
    ax.set_xticks(range(len(new_points)), labels=[str(u) for u in new_points])
    ax.set_yscale("log")
    ax.set_xlabel("new points in a period (u)")
    ax.set_ylabel("IGD")
    ax.legend(fontsize=7)


def _n_new(definition: Definition) -> int:
    strategy = definition.make_strategy()
    assert isinstance(strategy, SurrogateAssisted)
    return strategy.n_new


def _rows(group: Sequence[Traced]) -> list[Row]:
    return [row for t in group for row in t.rows]


_FIGURES: dict[str, Callable[[Store, Suite], Iterator[tuple[str, Any]]]] = {
    "fronts": _fronts,
    "dtlz1a-1000": _igd_history,
    "own-history": _histories_by_problem,
    "co-surrogate-error": _co_surrogate_error,
    "sensitivity-u": _sensitivity,
}


def _panels(
    groups: Sequence[Sequence[Any]],
    titles: Sequence[str],
    draw: Callable[[Any, Sequence[Any]], None],
    rows: list[Row],
    size: tuple[float, float] = (3.6, 3.0),
) -> Any:
    """Return a figure with a panel for each group, and below it how it was made."""
    columns = min(3, len(groups))
    lines = math.ceil(len(groups) / columns)
    figure = peers.load("matplotlib.figure").Figure(
        figsize=(size[0] * columns, size[1] * lines), layout="constrained"
    )
    for k, (group, title) in enumerate(zip(groups, titles, strict=True)):
        ax = figure.add_subplot(lines, columns, k + 1)
        draw(ax, group)
        ax.set_title(title, fontsize=10)
        ax.grid(visible=True, alpha=0.3)
    below = "\n".join(textwrap.wrap(made_with(rows), width=int(18 * size[0] * columns)))
    figure.text(0.5, -0.01, below, ha="center", va="top", fontsize=7)
    return figure
