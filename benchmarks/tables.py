"""Tables of stored runs: mean, spread, the best, rank-sum marks, and the paper's values."""

import csv
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from pathlib import Path

from scipy.stats import mannwhitneyu

from benchmarks import markdown
from benchmarks.definitions import Definition, Suite
from benchmarks.fingerprint import fingerprint
from benchmarks.store import Row, Store

METRICS = ("igd", "hv")
"""IGD is better when lower, the hypervolume when higher."""

REFERENCES = ("tc-saea-released", "tc-saea")
"""What other strategies are marked against, in this order."""

LEVEL = 0.05
PAPER = Path(__file__).parent / "paper" / "tables.csv"
_IN_PAPER = {
    "tc-saea": "TC-SAEA", "tc-saea-released": "TC-SAEA", "nt-saea": "NT-SAEA",
    "ns-saea": "NS-SAEA", "tc-saea-p": "TC-SAEAp", "t-saea": "T-SAEA", "tr-saea": "Tr-SAEA",
    "k-rvea": "K-RVEA", "hk-rvea": "HK-RVEA", "undelayed": "Undelayed", "waiting": "Waiting",
    'tc-saea-released {"transfer": "none"}': "NT-SAEA",
    'tc-saea-released {"transfer": "all"}': "NS-SAEA",
    'tc-saea-released {"co_surrogate": "quadratic"}': "TC-SAEAp",
    "fast-first": "Fast-first", "brood-interleaving": "BI", "speculative-interleaving": "SI",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is shown of one definition."""

    definition: Definition
    rows: tuple[Row, ...]
    metric: str
    marks_against: dict[str, str] = field(default_factory=dict)
    is_best: bool = False

    @property
    def values(self) -> tuple[float, ...]:
        """The runs' scores."""
        return tuple(row[self.metric] for row in self.rows)

    @property
    def n_cut(self) -> int:
        """Runs that a limit of time has ended before their budget."""
        return sum(row["n_slow"] < row["budget"] for row in self.rows)

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return statistics.fmean(self.values)

    @property
    def sd(self) -> float:
        """Standard deviation of the sample; 0 for one run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table as text, in two formats."""

    name: str
    markdown: str
    csv: str

    def write(self, folder: Path) -> list[Path]:
        """Write NAME.md and NAME.csv and return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.md", folder / f"{self.name}.csv"]
        for path, text in zip(paths, (self.markdown + "\n", self.csv), strict=True):
            path.write_text(text)
        return paths


def make(store: Store, suite: Suite, metric: str) -> Table:
    """Return the table of a suite, of the runs that there are.

    Args:
        store: Where the runs are.
        suite: What to show.
        metric: One of `METRICS`.
    """
    chosen = {d: chosen_rows(store, suite, d) for d in suite.definitions}
    columns = list(dict.fromkeys(d.column for d in suite.definitions))
    lines = list(dict.fromkeys((d.label, d.tau) for d in suite.definitions))
    has_taus = len({tau for _, tau in lines}) > 1
    body, cells = [], []
    for label, tau in lines:
        row = _compare(
            {
                d.column: Cell(definition=d, rows=tuple(rows), metric=metric)
                for d, rows in chosen.items()
                if (d.label, d.tau) == (label, tau) and rows
            },
            is_low_good=metric == "igd",
        )
        cells += row.values()
        head = f"{label}, tau {tau:g}" if has_taus else label
        body.append([head, *(_shown(row.get(name), metric) for name in columns)])
    if len(lines) > 1:
        body += _counts(cells, columns)
    if metric == "igd" and any(_paper_value(cell.definition) for cell in cells):
        body.append(_ratios_to_paper(cells, columns))
    body.append(_seconds(cells, columns))
    used = [row for rows in chosen.values() for row in rows]
    text = [
        f"# {suite.name}: {metric.upper()}", "", suite.about + ".", "",
        markdown.table(["problem", *(suite.labels.get(c, c) for c in columns)], body), "",
        _legend(suite, metric, used, n_missing=sum(not rows for rows in chosen.values())),
    ]  # fmt: skip
    return Table(name=f"{suite.name}-{metric}", markdown="\n".join(text), csv=_csv(cells, metric))


def mark(reference: Sequence[float], other: Sequence[float], *, is_low_good: bool) -> str:
    """Compare two samples by the two-sided Wilcoxon rank-sum test at 5 %, as the paper does.

    Returns:
        "+" if the reference is significantly better, "-" if it is worse, else "≈".
    """
    if p_value(reference, other) >= LEVEL:
        return "≈"
    # Where the test is significant, the sum of ranks tells the direction.
    higher = sum((a > b) - (a < b) for a in reference for b in other) > 0
    return "-" if higher == is_low_good else "+"


def p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the p-value: exact for small samples without ties, else asymptotic."""
    if len(set(a) | set(b)) == 1:
        return 1.0
    return float(mannwhitneyu(a, b, alternative="two-sided", method="auto").pvalue)


@cache
def paper_values() -> dict[tuple[str, str, float], tuple[float, float]]:
    """Return the paper's (mean, standard deviation) of the IGD by (problem, strategy, tau).

    Where its tables disagree, the first one counts.
    """
    values: dict[tuple[str, str, float], tuple[float, float]] = {}
    with PAPER.open(newline="") as file:
        for row in csv.DictReader(file):
            key = (row["problem"].lower(), row["algorithm"], float(row["tau"]))
            values.setdefault(key, (float(row["igd_mean"]), float(row["igd_std"])))
    return values


def name_in_paper(definition: Definition) -> str | None:
    """Return the problem's name in the paper's tables; None for other budgets or objectives."""
    if (definition.n_slow, definition.n_init, definition.slow) != (200, 100, 1):
        return None  # the paper has one budget only
    corr = "" if definition.corr is None else f" corr={definition.corr:g}"
    return definition.problem + corr


def _paper_value(definition: Definition) -> tuple[float, float] | None:
    name = name_in_paper(definition)
    if name is None:
        return None
    return paper_values().get((name, _IN_PAPER.get(definition.column, ""), definition.tau))


code_of = itemgetter("code", "device")
"""What rows that are compared with each other have in common."""
run_of = itemgetter("code", "device", "seed")
"""What tells the runs of a definition apart."""


def rows_of(store: Store, suite: Suite, definition: Definition) -> list[Row]:
    """Return the rows of the suite's seeds, of any code and device."""
    return [row for row in store.rows(definition) if row["seed"] in suite.seeds]


def chosen_rows(
    store: Store, suite: Suite, definition: Definition, trace: str | None = None
) -> list[Row]:
    """Return rows of the suite's seeds and of this code or, without any, of the last code.

    They are of one device, and of runs that left a `trace`, where one is named.
    """
    rows = rows_of(store, suite, definition)
    if trace is not None:
        traced = {run_of(point) for point in store.traces(definition, trace)}
        rows = [row for row in rows if run_of(row) in traced]
    if not rows:
        return []
    current = fingerprint(definition)
    last = max(rows, key=lambda row: (row["code"] == current, row["made"]))
    return [row for row in rows if code_of(row) == code_of(last)]


def _compare(row: dict[str, Cell], *, is_low_good: bool) -> dict[str, Cell]:
    """Add marks, and which cell is the best."""
    if not row:
        return {}
    means = [cell.mean for cell in row.values()]
    best = (min if is_low_good else max)(means)
    all_equal = len(means) > 1 and len(set(means)) == 1
    references = {name: row[name].values for name in REFERENCES if name in row}
    return {
        name: replace(
            cell,
            is_best=cell.mean == best and not all_equal,
            marks_against={
                reference: mark(values, cell.values, is_low_good=is_low_good)
                for reference, values in references.items()
                if reference != name
            },
        )
        for name, cell in row.items()
    }  # fmt: skip


def _counts(cells: list[Cell], columns: list[str]) -> list[list[str]]:
    """Return a row for each reference: how often it is better / neither / worse."""
    rows = []
    for reference in REFERENCES:
        if reference not in columns:
            continue
        row = [f"+ / ≈ / - against {reference}"]
        for column in columns:
            marks = [c.marks_against[reference] for c in cells if c.definition.column == column
                     and reference in c.marks_against]  # fmt: skip
            count = " / ".join(str(marks.count(sign)) for sign in "+≈-")
            row.append("·" if column == reference else count)
        rows.append(row)
    return rows


def _ratios_to_paper(cells: list[Cell], columns: list[str]) -> list[str]:
    """Return the row of median ratios of our means to the paper's, and their range."""
    row = ["ours / the paper's"]
    for column in columns:
        here = [cell for cell in cells if cell.definition.column == column]
        pairs = [(cell.mean, _paper_value(cell.definition)) for cell in here]
        ratios = sorted(mean / paper[0] for mean, paper in pairs if paper and paper[0] > 0)
        text = ""
        if ratios:
            low, high = _rounded(ratios[0], 2), _rounded(ratios[-1], 2)
            text = f"{_rounded(statistics.median(ratios), 2)} ({low} to {high})"
        row.append(text)
    return row


def _seconds(cells: list[Cell], columns: list[str]) -> list[str]:
    """Return the last row: mean seconds of a run, over all problems."""
    row = ["seconds a run"]
    for column in columns:
        of_column = [cell for cell in cells if cell.definition.column == column]
        row.append(_rounded(_seconds_of(of_column), 2) if of_column else "")
    return row


def _seconds_of(cells: list[Cell]) -> float:
    return statistics.fmean(row["seconds"] for cell in cells for row in cell.rows)


def _shown(cell: Cell | None, metric: str) -> str:
    if cell is None:
        return ""
    mean = _rounded(cell.mean, 3)
    text = f"**{mean}**" if cell.is_best else mean
    text += f" ({_rounded(cell.sd, 2)})"
    if cell.marks_against:
        own = cell.definition.column
        marks = (cell.marks_against.get(name, "·" * (name == own)) for name in REFERENCES)
        text += f" {''.join(marks)}"
    if cell.n_cut:
        text += f" (cut at {', '.join(str(row['n_slow']) for row in cell.rows)})"
    paper = _paper_value(cell.definition) if metric == "igd" else None
    return text + (f" [{paper[0]:g}]" if paper else "")


def _rounded(value: float, digits: int) -> str:
    """Return a value with so many significant digits, without an exponent if it is large."""
    return f"{float(f'{value:.{digits}g}'):g}"


def _legend(suite: Suite, metric: str, rows: list[Row], *, n_missing: int) -> str:
    if not rows:
        return "Nothing has been run."
    what = (
        "IGD to 10,000 points of the true front (lower is better)"
        if metric == "igd"
        else "Hypervolume, normalised by the front and 1.1 of its nadir (higher is better)"
    )
    groups = _by_definition(rows)
    counts = sorted({len(runs) for runs in groups.values()})
    text = [
        f"{what}: mean (standard deviation) of {' or '.join(map(str, counts))} runs, budgets "
        f"of {_all(rows, 'budget')} slow evaluations, {_all(rows, 'n_init')} of them at the "
        "start; the best mean in bold."
    ]
    columns = {definition.column for definition in groups}
    references = [name for name in REFERENCES if name in columns]
    if references:
        text.append(
            f"Marks against {', then '.join(references)}: + the reference is better, "
            "- it is worse, ≈ neither (two-sided rank-sum test, 5 %), · the reference itself."
        )
    if metric == "igd" and any(_paper_value(definition) for definition in groups):
        text.append(
            "In brackets: the paper's mean of 20 runs; below, the median ratio of our means to "
            "these, and the range."
        )
    if any(row["n_slow"] < row["budget"] for row in rows):
        text.append("A limit of time cut some runs, at so many slow evaluations.")
    text.append("Seconds are wall time beside other work, of a batch divided by its runs.")
    # All rows of a group are of one code.
    n_old = sum(len(runs) for d, runs in groups.items() if runs[0]["code"] != fingerprint(d))
    if n_old:
        text.append(f"{n_old} of {len(rows)} rows were made by an earlier version of the code.")
    if n_missing:
        text.append(f"{n_missing} of {len(suite.definitions)} cells are missing.")
    return " ".join([*text, made_with(rows)])


def made_with(rows: list[Row]) -> str:
    """Return seeds, commits, versions and machine of some rows, as a sentence."""
    seeds = sorted({row["seed"] for row in rows})
    return (
        f"Seeds {seeds[0]} to {seeds[-1]}; commits {_all(rows, 'commit')}; "
        f"{_all(rows, 'versions')}; {_all(rows, 'machine')}; {_all(rows, 'device')}."
    )


def _all(rows: list[Row], name: str) -> str:
    """Return all values of a column."""
    return ", ".join(sorted({str(row[name]) for row in rows}))


def _definition_of(row: Row) -> Definition:
    names = ("problem", "strategy", "settings", "tau", "box", "corr", "n_init", "time_limit",
             "slow")  # fmt: skip
    return Definition(**{name: row[name] for name in names}, n_slow=row["budget"])


def _by_definition(rows: list[Row]) -> dict[Definition, list[Row]]:
    groups: dict[Definition, list[Row]] = {}
    for row in rows:
        groups.setdefault(_definition_of(row), []).append(row)
    return groups


def _csv(cells: list[Cell], metric: str) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["problem", "box", "corr", "tau", "strategy", "settings", "n_runs", "mean",
                     "sd", "is_best", *(f"vs_{name}" for name in REFERENCES),
                     "paper_mean", "paper_sd", "seconds"])  # fmt: skip
    for cell in cells:
        d, marks = cell.definition, [cell.marks_against.get(name, "") for name in REFERENCES]
        paper = _paper_value(d) if metric == "igd" else None
        writer.writerow([d.problem, d.box, d.corr, d.tau, d.strategy, d.settings,
                         len(cell.rows), cell.mean, cell.sd, cell.is_best, *marks,
                         *(paper or ("", "")), _seconds_of([cell])])  # fmt: skip
    return file.getvalue()
