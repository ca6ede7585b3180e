"""Tables of the site as Markdown, made of registries and of stored benchmark results."""

import csv
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parent
RESULTS = GUIDE.parents[1] / "benchmarks" / "results"


def strategies() -> str:
    """Return all strategies with the first sentence of their pages."""
    from tcsaea_torch.strategies import get, names

    rows = []
    for name in names():
        text = (GUIDE / "strategies" / f"{name}.md").read_text().split("\n\n")[1]
        link = f"{{doc}}`{name} </guide/strategies/{name}>`"
        rows.append((link, f"`{type(get(name)).__name__}`", " ".join(text.split())))
    return table(("name", "class", "what it is"), rows)


def settings(name: str) -> str:
    """Return in which settings a registered strategy differs from its class."""
    from tcsaea_torch.strategies import get

    strategy = get(name)
    rows = [
        (f"`{path}`", f"`{here!r}`", f"`{default!r}`")
        for path, here, default in _differences(strategy, type(strategy)())
    ]
    return table(("setting", f"in `{name}`", f"in `{type(strategy).__name__}`"), rows)


def _differences(a: Any, b: Any, path: str = "") -> Iterable[tuple[str, Any, Any]]:
    for field in fields(a):
        x, y, name = getattr(a, field.name), getattr(b, field.name), f"{path}{field.name}"
        if is_dataclass(x) and type(x) is type(y):
            yield from _differences(x, y, f"{name}.")
        elif x != y and name != "name":
            yield name, x, y


def problems() -> str:
    """Return all built-in problems."""
    from tcsaea_torch.problems import get, names

    rows = []
    for name in names():
        problem = get(name)
        point = problem.ref_point
        try:
            n_front = len(problem.pareto_front(1000))
        except AttributeError:
            n_front = 0
        rows.append(
            (
                f"`{name}`",
                problem.d,
                "yes" if problem.integers else "no",
                "yes" if n_front else "no",
                "" if point is None else ", ".join(f"{value:.4g}" for value in point.tolist()),
                f"{{py:class}}`~tcsaea_torch.problems.{type(problem).__name__}`",
            )
        )
    return table(("name", "d", "integers", "front known", "reference point", "class"), rows)


def igd(suite: str, keep: str = "all") -> str:
    """Return how the strategies of a suite compare over its problems, by IGD.

    Args:
        suite: Its name.
        keep: "all"; "problems": those alone that all strategies were run on; or "strategies":
            those alone that were run on all problems.
    """
    scores = _scores(suite, keep)
    rows = sorted(scores.items(), key=lambda item: item[1]["rank"])
    n = max(score["n"] for score in scores.values())
    return table(
        ("strategy", f"best mean, of {n} problems", *_HEAD),
        [(label, score["n_best"], *_shown(score)) for label, score in rows],
    )


def measured(name: str) -> str:
    """Return how a strategy did in the suites of stored results."""
    rows = []
    for suite, keep in _SUITES.items():
        scores = _scores(suite, keep)
        page = f"[{suite}](path:../../../benchmarks/results/tables/{suite}-igd.md)"
        for label, score in scores.items():
            if label.split()[0] == f"`{name}`":
                best = f"{score['n_best']} of {score['n']}"
                rows.append((page, label, len(scores), best, *_shown(score)))
    if not rows:
        return "No results are stored."
    note = "[Benchmarks](../benchmarks.md) says what the suites are and how to run them again."
    head = ("suite", "run as", "strategies", "best mean", *_HEAD)
    return table(head, rows) + f"\n\n{note}"


_SUITES = {
    **dict.fromkeys(["table-1", "table-2", "table-3", "table-4", "table-5", "table-add"], "all"),
    "peers": "strategies",  # some rivals were run on few of its problems
    "headline": "strategies",
    "breadth": "all",
}
"""Suites to be shown on strategies' pages, and what of them is kept."""

_HEAD = (
    "mean rank",
    "mean IGD over the best one (median)",
    "significantly better / worse than `tc-saea-released`",
    "seconds a run",
)


def _shown(score: dict[str, Any]) -> tuple[str, ...]:
    return f"{score['rank']:.1f}", f"{score['ratio']:.2g}", score["marks"], score["seconds"]


@cache
def _scores(suite: str, keep: str = "all") -> dict[str, dict[str, Any]]:
    """Return the scores of each strategy of a suite, over its problems and taus."""
    with (RESULTS / "tables" / f"{suite}-igd.csv").open() as file:
        cells = [row for row in csv.DictReader(file) if row["mean"]]
    by_problem, marks, compared = defaultdict(dict), defaultdict(list), set[str]()
    seconds = defaultdict(list)
    for row in cells:
        label = _label(row["strategy"], row["settings"])
        place = tuple(row[key] for key in ("problem", "box", "corr", "tau"))
        by_problem[place][label] = float(row["mean"])
        marks[label].append(row.get("vs_tc-saea-released", ""))
        if int(row["n_runs"]) > 3 and marks[label][-1]:  # three runs are never significant
            compared.add(label)
        seconds[label] += [float(row["seconds"])] * int(row["n_runs"])
    scores = {}
    labels = dict.fromkeys(label for means in by_problem.values() for label in means)
    if keep == "problems":
        by_problem = {key: means for key, means in by_problem.items() if len(means) == len(labels)}
    elif keep == "strategies":
        labels = [key for key in labels if all(key in means for means in by_problem.values())]
        by_problem = {key: {label: means[label] for label in labels}
                      for key, means in by_problem.items()}  # fmt: skip
    for label in labels:
        rivals = [(means[label], sorted(means.values())) for means in by_problem.values()
                  if label in means]  # fmt: skip
        ranks = [1 + order.index(mean) for mean, order in rivals]
        n_better, n_worse = marks[label].count("-"), marks[label].count("+")
        is_compared = label in compared and label != "`tc-saea-released`"
        scores[label] = {
            "n": len(rivals),
            "n_best": ranks.count(1),
            "rank": statistics.mean(ranks),
            "ratio": statistics.median(mean / order[0] for mean, order in rivals),
            "marks": f"{n_better} / {n_worse}" if is_compared else "",
            "seconds": f"{statistics.fmean(seconds[label]):.2g}",
        }
    return scores


def _label(strategy: str, settings: str) -> str:
    chosen = json.loads(settings or "{}").items()
    return f"`{strategy}` {', '.join(f'{name}={value!r}' for name, value in chosen)}".strip()


def asynchronous() -> str:
    """Return what asynchronous runs of TC-SAEA gained over those in periods."""
    means = json.loads((RESULTS / "asynchronous.json").read_text())["means"]
    rows = []
    for mean in means:
        pair = mean["synchronous"], mean["asynchronous"]
        rows.append(
            (
                mean["problem"],
                " + ".join(map(str, mean["workers"])),
                *(f"{run['makespan']:.0f}" for run in pair),
                *(f"{run['idle_slow']:.0%}" for run in pair),
                *(f"{run['igd']:.3f}" for run in pair),
            )
        )
    head = [f"{what}, {how}" for what in ("makespan", "slow workers idle", "IGD")
            for how in ("in periods", "asynchronous")]  # fmt: skip
    return table(("problem", "workers", *head), rows)


def stored(suite: str) -> str:
    """Return a stored table without its title, such as that of breadth-ratio."""
    lines = (RESULTS / "tables" / f"{suite}.md").read_text().splitlines()
    return "\n".join(line for line in lines if not line.startswith("# "))


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
