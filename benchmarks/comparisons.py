"""Tables that compare: to a rival, to the paper's best, to all parts of a whole, over budgets."""

import csv
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import markdown, tables
from benchmarks.definitions import Definition, Suite
from benchmarks.store import Row, Store
from benchmarks.tables import Table
from tcsaea_torch import metrics

N_FRONT = 1000
NOT_TARGETS = ("Undelayed",)
"""What the paper shows for reference only: it waits for nothing."""

Line = dict[str, Any]
"""A line of a table, by column."""


def make(store: Store, suite: Suite) -> list[Table]:
    """Return the comparisons that a suite asks for."""
    made = []
    if suite.rival is not None:
        made.append(ratios(store, suite, suite.rival))
    if suite.has_targets:
        made.append(targets(store, suite))
    if suite.parts:
        made.append(parts(store, suite))
    if suite.shows_cost:
        made.append(cost(store, suite))
    return made


# ---------------------------------------------------------------- one rival, seed by seed


def ratios(store: Store, suite: Suite, rival: str) -> Table:
    """Return the table of hypervolumes over the rival's, of runs with the same seed.

    Args:
        store: Where the runs are.
        suite: What to show.
        rival: The strategy to compare to.
    """
    chosen = {d: tables.chosen_rows(store, suite, d) for d in suite.definitions}
    theirs = {
        (_problem(d), row["seed"]): row
        for d, rows in chosen.items()
        if d.strategy == rival
        for row in rows
    }
    lines: list[Line] = []
    used: list[Row] = []
    for definition, rows in chosen.items():
        pairs = [
            (row, theirs[_problem(definition), row["seed"]])
            for row in rows
            if definition.strategy != rival and (_problem(definition), row["seed"]) in theirs
        ]
        if pairs:
            lines.append(_ratio_line(definition, pairs))
            used += [row for pair in pairs for row in pair]
    body = [
        [
            line["problem"], line["strategy"], _percent(line["rival_share"]),
            _percent(line["share"]), _number(line["ratio"]), _number(line["lowest"]),
            _number(line["highest"]), f"{line['n_better']} / {line['n_worse']}",
            str(line["n_pairs"] - line["n_without_ratio"]),
        ]
        for line in lines
    ]  # fmt: skip
    for name in dict.fromkeys(line["strategy"] for line in lines):
        means = [x["ratio"] for x in lines if x["strategy"] == name and x["ratio"] is not None]
        if means:
            body.append(
                ["mean of problems", name, "", "", _number(statistics.fmean(means)), *[""] * 4]
            )
            body.append(
                ["median of problems", name, "", "", _number(statistics.median(means)), *[""] * 4]
            )
    head = ["problem", "strategy", f"{rival}, % of front", "% of front", "ratio", "least", "most",
            "better / worse", "ratios"]  # fmt: skip
    legend = (
        f"Hypervolumes up to the problem's reference point, over those of {rival} in the run with "
        "the same seed: mean, least and most. Seeds in which the rival has none give no ratio, "
        "but count as better or worse. In per cent: the mean hypervolume over that of the front."
    )
    return _table(f"{suite.name}-ratio", f"{suite.name}: hypervolume to {rival}", suite, head, body,
                  legend, lines, used)  # fmt: skip


def _problem(definition: Definition) -> tuple[str, float, int, int]:
    return definition.label, definition.tau, definition.n_slow, definition.n_init


def _ratio_line(definition: Definition, pairs: Sequence[tuple[Row, Row]]) -> Line:
    """Compare the runs of one definition to the rival's."""
    problem = definition.problem_for(pairs[0][0]["seed"])
    front = problem.pareto_front(N_FRONT)
    # Rows of earlier versions lack the plain volume. Their problems have no values below 0, so
    # that PlatEMO's scale does not depend on the run.
    if all(row["volume"] is not None for pair in pairs for row in pair):
        column, best = "volume", metrics.hypervolume(front, problem.ref_point)
    else:
        column, best = "hv", metrics.normalized_hypervolume(front, front)
    scores = [(a[column], b[column]) for a, b in pairs]
    found = [a / b for a, b in scores if b > 0]
    return {
        **_names(definition),
        "n_pairs": len(scores),
        "n_without_ratio": len(scores) - len(found),
        "ratio": statistics.fmean(found) if found else None,
        "lowest": min(found, default=None),
        "highest": max(found, default=None),
        "n_better": sum(a > b for a, b in scores),
        "n_worse": sum(a < b for a, b in scores),
        "share": statistics.fmean(a for a, _ in scores) / best,
        "rival_share": statistics.fmean(b for _, b in scores) / best,
    }


# ---------------------------------------------------------------- the paper's best


def targets(store: Store, suite: Suite) -> Table:
    """Return the table of mean IGD, the paper's best mean of that cell, and their ratio.

    Args:
        store: Where the runs are.
        suite: What to show; definitions that the paper does not have are left out.
    """
    lines: list[Line] = []
    used: list[Row] = []
    for definition in suite.definitions:
        rows, target = tables.chosen_rows(store, suite, definition), best_of_paper(definition)
        if not rows or target is None:
            continue
        used += rows
        mean = statistics.fmean(row["igd"] for row in rows)
        ratio = mean / target[1] if target[1] > 0 else None
        lines.append({**_names(definition), "n_runs": len(rows), "igd": mean,
                      "target_of": target[0], "target": target[1], "ratio": ratio})  # fmt: skip
    names = list(dict.fromkeys(line["strategy"] for line in lines))
    body = []
    for place in dict.fromkeys((line["problem"], line["tau"]) for line in lines):
        here = {x["strategy"]: x for x in lines if (x["problem"], x["tau"]) == place}
        first = next(iter(here.values()))
        shown = [_with_ratio(here[name]) if name in here else "" for name in names]
        goal = f"{first['target']:g} ({first['target_of']})"
        body.append([place[0], f"{place[1]:g}", goal, *shown])
    met, middle = ["targets met", "", ""], ["median ratio", "", ""]
    for name in names:
        of_name = [x for x in lines if x["strategy"] == name]
        found = [x["ratio"] for x in of_name if x["ratio"] is not None]
        met.append(f"{sum(x['igd'] <= x['target'] for x in of_name)} of {len(of_name)}")
        middle.append(_number(statistics.median(found)) if found else "")
    body += [met, middle]
    legend = (
        "Target: the best of the paper's means of 20 runs over all its algorithms but "
        f"{', '.join(NOT_TARGETS)}. Mean IGD, and in brackets that over the target."
    )
    head = ["problem", "tau", "target", *(suite.labels.get(name, name) for name in names)]
    return _table(f"{suite.name}-targets", f"{suite.name}: IGD and the paper's best", suite, head,
                  body, legend, lines, used)  # fmt: skip


def _with_ratio(line: Line) -> str:
    ratio = "" if line["ratio"] is None else f" ({_number(line['ratio'])})"
    return f"{_number(line['igd'])}{ratio}"


def best_of_paper(definition: Definition) -> tuple[str, float] | None:
    """Return the algorithm with the paper's least mean IGD on a problem, and that mean."""
    name = tables.name_in_paper(definition)
    if name is None:
        return None
    means = {
        algorithm: value[0]
        for (problem, algorithm, tau), value in tables.paper_values().items()
        if (problem, tau) == (name, definition.tau) and algorithm not in NOT_TARGETS
    }
    if not means:
        return None
    best = min(means, key=lambda algorithm: means[algorithm])
    return best, means[best]


# ---------------------------------------------------------------- parts of a whole


def parts(store: Store, suite: Suite) -> Table:
    """Return the table of mean IGD without each part, over that with all parts.

    Args:
        store: Where the runs are.
        suite: What to show.
    """
    whole = {d.problem: d for d in suite.definitions if d.settings not in suite.parts}
    families = [name for name in ("dtlz", "uf") if any(p.startswith(name) for p in whole)]
    lines: list[Line] = []
    used: list[Row] = []
    for settings, part in suite.parts.items():
        pairs: dict[str, tuple[list[float], list[float]]] = {}
        for d in suite.definitions:
            if d.settings == settings and d.problem in whole:
                without = tables.chosen_rows(store, suite, d)
                with_all = _of_the_code(without, store, suite, whole[d.problem])
                if with_all:
                    pairs[d.problem] = (_igd(without), _igd(with_all))
                    used += without + with_all
        if not pairs:
            continue
        ratio = {
            name: statistics.fmean(without) / statistics.fmean(with_all)
            for name, (without, with_all) in pairs.items()
        }
        marks = [tables.mark(w, o, is_low_good=True) for o, w in pairs.values()]
        lines.append({
            "part": part,
            "n_problems": len(pairs),
            **{
                family: statistics.geometric_mean(values)
                if (values := [r for name, r in ratio.items() if name.startswith(family)])
                else None
                for family in families
            },
            "all": statistics.geometric_mean(ratio.values()),
            "largest": max(ratio.values()),
            "largest_on": max(ratio, key=lambda name: ratio[name]),
            "smallest": min(ratio.values()),
            "smallest_on": min(ratio, key=lambda name: ratio[name]),
            "n_worse": marks.count("+"),
            "n_better": marks.count("-"),
        })  # fmt: skip
    body = [
        [line["part"], *(_number(line[family]) for family in [*families, "all"]),
         f"{line['largest']:.3g} ({line['largest_on']})",
         f"{line['smallest']:.3g} ({line['smallest_on']})",
         f"{line['n_worse']} / {line['n_better']}", str(line["n_problems"])]
        for line in lines
    ]  # fmt: skip
    legend = (
        "Mean IGD without the part, over that with all parts: geometric means over the problems, "
        "the largest and the smallest ratio; above 1, the part is worth having. Worse and better "
        "without it, on how many problems: two-sided rank-sum test, 5 %."
    )
    head = ["without", *(family.upper() for family in families), "all", "largest", "smallest",
            "worse / better", "problems"]  # fmt: skip
    return _table(f"{suite.name}-parts", f"{suite.name}: what each part is worth", suite, head,
                  body, legend, lines, used)  # fmt: skip


def _of_the_code(like: list[Row], store: Store, suite: Suite, definition: Definition) -> list[Row]:
    """Return rows by the code that made others; what newer code gains is not a part's worth."""
    made_by = {tables.code_of(row) for row in like}
    rows = tables.rows_of(store, suite, definition)
    return [row for row in rows if tables.code_of(row) in made_by]


def _igd(rows: Sequence[Row]) -> list[float]:
    return [row["igd"] for row in rows]


# ---------------------------------------------------------------- budgets


def cost(store: Store, suite: Suite) -> Table:
    """Return the table of a run's seconds by its budget, and how they grow with it.

    Args:
        store: Where the runs are.
        suite: What to show.
    """
    lines: list[Line] = []
    used: list[Row] = []
    last: dict[tuple[str, float, str], Line] = {}
    for definition in sorted(suite.definitions, key=lambda d: (d.label, d.column, d.n_slow)):
        rows = tables.chosen_rows(store, suite, definition)
        if not rows:
            continue
        used += rows
        names = _names(definition)
        seconds = statistics.fmean(row["seconds"] for row in rows)
        line = {**names, "n_slow": definition.n_slow, "n_runs": len(rows), "seconds": seconds,
                "exponent": None, "igd": statistics.fmean(_igd(rows))}  # fmt: skip
        before = last.get(key := tuple(names.values()))
        if before:
            growth = math.log(seconds / before["seconds"])
            line["exponent"] = growth / math.log(definition.n_slow / before["n_slow"])
        last[key] = line
        lines.append(line)
    body = [
        [line["problem"], line["strategy"], str(line["n_slow"]), _number(line["seconds"]),
         _number(line["seconds"] / line["n_slow"]), _number(line["exponent"]),
         _number(line["igd"])]
        for line in lines
    ]  # fmt: skip
    legend = (
        "Seconds of a run, by its number of slow evaluations; e, where seconds grew as that "
        "number to the power e since the line above. Wall time beside other work."
    )
    head = ["problem", "strategy", "slow", "seconds", "a slow evaluation", "e", "IGD"]
    return _table(f"{suite.name}-cost", f"{suite.name}: seconds of a run", suite, head, body,
                  legend, lines, used)  # fmt: skip


# ---------------------------------------------------------------- text


def _names(definition: Definition) -> Line:
    return {"problem": definition.label, "tau": definition.tau, "strategy": definition.column}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _percent(value: float) -> str:
    return f"{100.0 * value:.1f}"


def _table(
    name: str,
    title: str,
    suite: Suite,
    head: list[str],
    body: list[list[str]],
    legend: str,
    lines: list[Line],
    used: list[Row],
) -> Table:
    foot = f"{legend} {tables.made_with(used)}" if used else "Nothing has been run."
    text = [f"# {title}", "", suite.about + ".", "", markdown.table(head, body), "", foot]
    file = io.StringIO()
    if lines:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    return Table(name=name, markdown="\n".join(text), csv=file.getvalue())
