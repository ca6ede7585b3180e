import csv
import io
import statistics
from dataclasses import replace

import pytest

from benchmarks import tables
from benchmarks.definitions import Definition, Suite
from benchmarks.fingerprint import fingerprint
from benchmarks.store import Store
from benchmarks.tables import mark, p_value, paper_values
from tests.benchmarks.rows import row
from tests.conftest import load_reference

PAIRS = load_reference("ranksum")["pairs"]
IDS = [pair["name"] for pair in PAIRS]


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_p_values_are_those_of_scipy_and_octave(pair):
    p = p_value(pair["a"], pair["b"])
    assert p == pytest.approx(pair["mwu_asymptotic_continuity_pvalue"], rel=1e-9)
    assert p == pytest.approx(pair["octave_ranksum_approximate_pvalue"], rel=1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids=IDS)
def test_marks_follow_the_test_and_the_direction(pair):
    a, b = pair["a"], pair["b"]
    significant = pair["mwu_asymptotic_continuity_pvalue"] < 0.05
    a_is_lower = pair["mwu_U"] < 200
    expected = ("+" if a_is_lower else "-") if significant else "≈"
    assert mark(a, b, is_low_good=True) == expected
    swapped = {"+": "-", "-": "+", "≈": "≈"}[expected]
    assert mark(b, a, is_low_good=True) == swapped
    assert mark(a, b, is_low_good=False) == swapped


def test_equal_samples_do_not_differ():
    assert mark([0.0] * 5, [0.0] * 5, is_low_good=True) == "≈"


def test_five_runs_each_can_be_significant():
    assert mark([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], is_low_good=True) == "+"
    # 2 of the 252 orders are as extreme.
    assert p_value([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)


def test_values_of_the_paper():
    values = paper_values()
    assert values["dtlz2", "TC-SAEA", 5.0] == (0.02, 0.0)
    assert values["uf1", "NT-SAEA", 10.0] == (0.44, 0.26)
    assert values["cm-onemax corr=-1", "Waiting", 5.0] == (0.41, 0.12)
    # 16 problems and 9 correlations, both taus, of every algorithm that has them.
    assert len(values) == 2 * 16 * 13 + 2 * 9 * 8


BEST = Definition(problem="dtlz2", strategy="tc-saea-released")
WORSE = Definition(problem="dtlz2", strategy="tc-saea")
OTHER = Definition(problem="dtlz2", strategy="nt-saea")
SUITE = Suite(name="some", about="Three strategies", definitions=(BEST, WORSE, OTHER))


def store_with(folder, **values):
    store = Store(folder)
    for definition, numbers in (
        (BEST, values.get("best", [0.1, 0.2, 0.3, 0.4, 0.5])),
        (WORSE, values.get("worse", [1.1, 1.2, 1.3, 1.4, 1.5])),
        (OTHER, values.get("other", [0.15, 0.25, 0.35, 0.45, 0.55])),
    ):
        store.add(
            row(definition, seed, igd=x, hv=1 / x, code=values.get("code", "old"))
            for seed, x in enumerate(numbers, start=100)
        )
    return store


def test_a_row_of_a_table(tmp_path):
    with store_with(tmp_path) as store:
        text = tables.make(store, SUITE, "igd").markdown
    assert "| problem | tc-saea-released | tc-saea | nt-saea |" in text
    # Marks against the released variant, then against tc-saea; the paper's mean in brackets.
    assert (
        "| dtlz2 | **0.3** (0.16) ·- [0.02] | 1.3 (0.16) +· [0.02] | 0.35 (0.16) ≈- [0.05] |"
        in text
    )
    assert "5 runs, budgets of 200 slow evaluations, 100 of them" in text
    assert "15 of 15 rows were made by an earlier version" in text


def test_columns_may_have_shorter_names(tmp_path):
    with store_with(tmp_path) as store:
        suite = replace(SUITE, labels={"tc-saea": "Algorithm 1"})
        text = tables.make(store, suite, "igd").markdown
        assert tables.make(store, suite, "igd").csv == tables.make(store, SUITE, "igd").csv
    assert "| problem | tc-saea-released | Algorithm 1 | nt-saea |" in text


def test_more_hypervolume_is_better(tmp_path):
    with store_with(tmp_path) as store:
        text = tables.make(store, SUITE, "hv").markdown
    assert "**4.57**" in text
    assert "+· |" in text
    assert "[" not in text  # the paper has no hypervolumes


def test_the_csv_has_the_numbers_themselves(tmp_path):
    with store_with(tmp_path) as store:
        table = tables.make(store, SUITE, "igd")
    paths = table.write(tmp_path / "tables")
    assert [path.name for path in paths] == ["some-igd.md", "some-igd.csv"]
    rows = list(csv.DictReader(io.StringIO(paths[1].read_text())))
    assert [r["strategy"] for r in rows] == ["tc-saea-released", "tc-saea", "nt-saea"]
    assert float(rows[2]["mean"]) == statistics.fmean([0.15, 0.25, 0.35, 0.45, 0.55])
    assert float(rows[2]["sd"]) == statistics.stdev([0.15, 0.25, 0.35, 0.45, 0.55])
    assert (rows[2]["vs_tc-saea-released"], rows[2]["vs_tc-saea"]) == ("≈", "-")
    assert (rows[2]["paper_mean"], rows[2]["paper_sd"], rows[2]["n_runs"]) == ("0.05", "0.01", "5")
    assert [r["is_best"] for r in rows] == ["True", "False", "False"]


def test_rows_of_this_code_displace_older_ones(tmp_path):
    with store_with(tmp_path) as store:
        store.add([row(BEST, 100, igd=9.0, code=fingerprint(BEST), made="2020")])
        store.add([row(OTHER, 100, igd=7.0, code="newer", made="2027")])
        text = tables.make(store, SUITE, "igd").markdown
    assert "| 9 (0)" in text
    assert "| 7 (0)" in text
    assert "**1.3** (0.16)" in text
    assert "1 or 5 runs" in text


def test_missing_cells_are_empty(tmp_path):
    with Store(tmp_path) as store:
        assert "Nothing has been run." in tables.make(store, SUITE, "igd").markdown
        store.add([row(OTHER, 100)])
        text = tables.make(store, SUITE, "igd").markdown
    assert "| dtlz2 |  |  | **0.5** (0) [0.05] |" in text
    assert "2 of 3 cells are missing." in text


def test_other_budgets_are_not_compared_with_the_paper(tmp_path):
    small = Definition(problem="dtlz2", strategy="tc-saea", n_slow=20)
    with Store(tmp_path) as store:
        store.add([row(small, 100)])
        text = tables.make(store, Suite(name="s", about="", definitions=(small,)), "igd").markdown
    assert "| dtlz2 | **0.5** (0) |" in text


def test_nobody_is_best_where_all_are_equal_and_large_numbers_are_written_out(tmp_path):
    suite = Suite(name="s", about="", definitions=(BEST, WORSE))
    with Store(tmp_path) as store:
        for definition in suite.definitions:
            store.add(row(definition, 100 + i, igd=100.0 + 300.0 * i, hv=0.0) for i in (0, 1))
        assert "| dtlz2 | 0 (0) ·≈ | 0 (0) ≈· |" in tables.make(store, suite, "hv").markdown
        assert "| 250 (210) ·≈ " in tables.make(store, suite, "igd").markdown


def test_marks_are_counted_below(tmp_path):
    definitions = [
        replace(d, problem=problem) for problem in ("dtlz2", "dtlz7") for d in (BEST, WORSE)
    ]
    with Store(tmp_path) as store:
        for definition in definitions:
            low = definition.strategy == "tc-saea-released" or definition.problem == "dtlz7"
            numbers = [0.1, 0.2, 0.3, 0.4, 0.5] if low else [1.1, 1.2, 1.3, 1.4, 1.5]
            store.add(row(definition, seed, igd=x) for seed, x in enumerate(numbers, start=100))
        suite = Suite(name="s", about="", definitions=tuple(definitions))
        text = tables.make(store, suite, "igd").markdown
    assert "| + / ≈ / - against tc-saea-released | · | 1 / 1 / 0 |" in text
    assert "| + / ≈ / - against tc-saea | 0 / 1 / 1 | · |" in text


def test_taus_and_boxes_are_told_apart(tmp_path):
    definitions = [
        Definition(problem="uf1", strategy="random", tau=tau, box=box)
        for tau in (5.0, 10.0)
        for box in ("true", "unit")
    ]
    with Store(tmp_path) as store:
        store.add(row(d, 100, igd=float(i)) for i, d in enumerate(definitions))
        suite = Suite(name="s", about="", definitions=tuple(definitions))
        text = tables.make(store, suite, "igd").markdown
    for i, head in enumerate(("uf1, tau 5", "uf1 (unit box), tau 5", "uf1, tau 10")):
        assert f"| {head} | **{i}** (0) |" in text


def test_more_seeds_than_the_suite_has_are_shown_when_asked_for(tmp_path):
    suite = Suite(name="s", about="", definitions=(BEST,), n_seeds=2)
    with Store(tmp_path) as store:
        store.add(row(BEST, seed, igd=seed - 99.0) for seed in range(100, 104))
        assert "| dtlz2 | **1.5** (0.71) [0.02] |" in tables.make(store, suite, "igd").markdown
        assert "**2.5** (1.3)" in tables.make(store, suite.with_seeds(20), "igd").markdown


def test_runs_that_were_cut_say_where_and_seconds_stand_below(tmp_path):
    suite = Suite(name="s", about="", definitions=(BEST, OTHER))
    with Store(tmp_path) as store:
        store.add([row(BEST, 100, n_slow=130, seconds=1800.0), row(OTHER, 100, seconds=3.25)])
        text = tables.make(store, suite, "igd").markdown
    assert "(cut at 130)" in text
    assert "| seconds a run | 1800 | 3.2 |" in text
    assert "A limit of time cut some runs" in text


def test_ratios_to_the_paper_stand_below(tmp_path):
    definitions = [replace(BEST, problem=p) for p in ("dtlz2", "dtlz7", "dtlz1")]
    suite = Suite(name="s", about="", definitions=tuple(definitions))
    with Store(tmp_path) as store:
        # The paper's TC-SAEA: .02, .05 and 20.1.
        for definition, igd in zip(definitions, (0.03, 0.05, 10.05), strict=True):
            store.add([row(definition, 100, igd=igd)])
        assert (
            "| ours / the paper's | 1 (0.5 to 1.5) |" in tables.make(store, suite, "igd").markdown
        )
        assert "the paper's |" not in tables.make(store, suite, "hv").markdown
