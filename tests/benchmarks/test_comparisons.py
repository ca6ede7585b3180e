import csv
import io
import math
from dataclasses import replace

import pytest

from benchmarks import comparisons, suites
from benchmarks.__main__ import main
from benchmarks.definitions import Definition, Suite
from benchmarks.store import Store
from tcsaea_torch import problems
from tests.benchmarks.rows import row

OURS = Definition(problem="zdt1", strategy="tc-saea", n_slow=60, n_init=20)
RIVAL = replace(OURS, strategy="peer:qlognehvi")


def suite_of(*definitions, **options):
    return Suite(name="some", about="Some", definitions=definitions, **options)


def ratios(store, *definitions):
    table = comparisons.ratios(store, suite_of(*definitions), "peer:qlognehvi")
    return table.markdown, list(csv.DictReader(io.StringIO(table.csv)))


def test_hypervolumes_are_compared_seed_by_seed(tmp_path):
    other = [replace(d, problem="zdt2") for d in (RIVAL, OURS)]
    with Store(tmp_path) as store:
        for seed, (ours, theirs) in enumerate([(0.4, 0.8), (0.9, 0.6)], start=100):
            store.add([row(OURS, seed, volume=ours), row(RIVAL, seed, volume=theirs)])
            store.add([row(other[0], seed, volume=0.5), row(other[1], seed, volume=2.0)])
        store.add([row(OURS, 102, volume=99.0)])  # the rival has not run with this seed
        text, lines = ratios(store, RIVAL, OURS, *other)
    assert [float(x["ratio"]) for x in lines] == [1.0, 4.0]
    assert [x["n_pairs"] for x in lines] == ["2", "2"]
    assert (lines[0]["n_better"], lines[0]["n_worse"]) == ("1", "1")
    # ZDT1's front bounds 1.21 - 1/3 of the square up to (1.1, 1.1).
    assert float(lines[0]["share"]) == pytest.approx(0.65 / (1.21 - 1 / 3), rel=1e-2)
    assert float(lines[0]["rival_share"]) == pytest.approx(0.7 / (1.21 - 1 / 3), rel=1e-2)
    assert "| zdt1 | tc-saea | 79.9 | 74.2 | 1 | 0.5 | 1.5 | 1 / 1 | 2 |" in text
    assert "| mean of problems | tc-saea |  |  | 2.5 |" in text
    assert "| median of problems | tc-saea |  |  | 2.5 |" in text


def test_a_rival_without_hypervolume_gives_no_ratio(tmp_path):
    with Store(tmp_path) as store:
        for seed, (ours, theirs) in enumerate([(0.4, 0.0), (0.0, 0.0), (0.6, 0.3)], start=100):
            store.add([row(OURS, seed, volume=ours), row(RIVAL, seed, volume=theirs)])
        _, (line,) = ratios(store, RIVAL, OURS)
    assert (float(line["ratio"]), line["n_without_ratio"]) == (2.0, "2")
    assert (line["n_better"], line["n_worse"]) == ("2", "0")
    with Store(tmp_path / "none") as store:
        store.add([row(OURS, 100, volume=0.1), row(RIVAL, 100, volume=0.0)])
        text, (line,) = ratios(store, RIVAL, OURS)
    assert line["ratio"] == ""
    assert "of problems" not in text


def test_either_objective_is_a_problem_of_its_own(tmp_path):
    other = [replace(d, slow=0) for d in (RIVAL, OURS)]
    with Store(tmp_path) as store:
        store.add([row(RIVAL, 100, volume=1.0), row(OURS, 100, volume=1.0)])
        store.add([row(other[0], 100, volume=0.5), row(other[1], 100, volume=1.0)])
        _, lines = ratios(store, RIVAL, OURS, *other)
    assert [(x["problem"], x["ratio"]) for x in lines] == [
        ("zdt1", "1.0"), ("zdt1 (f1 slow)", "2.0"),
    ]  # fmt: skip


def test_rows_of_earlier_versions_are_compared_on_their_scale(tmp_path):
    ours = Definition(problem="dtlz2", strategy="tc-saea")
    rival = replace(ours, strategy="peer:qlognehvi")
    with Store(tmp_path) as store:
        store.add([row(rival, 100, hv=0.2), row(ours, 100, hv=0.3, volume=5.0)])
        _, (line,) = ratios(store, rival, ours)
    assert float(line["ratio"]) == pytest.approx(1.5)
    # The quarter circle bounds 1.21 - pi/4 of a square of 1.21.
    assert float(line["rival_share"]) == pytest.approx(0.2 / (1 - 0.785398 / 1.21), rel=1e-2)


def test_targets_are_the_best_of_the_paper(tmp_path):
    dtlz1a = Definition(problem="dtlz1a", strategy="tc-saea")
    onemax = Definition(problem="cm-onemax", strategy="tc-saea", corr=1.0)
    short = replace(dtlz1a, n_slow=60)
    other = replace(dtlz1a, strategy="k-rvea")
    assert comparisons.best_of_paper(dtlz1a) == ("Tr-SAEA", 0.21)
    assert comparisons.best_of_paper(short) is None
    assert comparisons.best_of_paper(replace(dtlz1a, slow=0)) is None
    assert comparisons.best_of_paper(OURS) is None
    with Store(tmp_path) as store:
        store.add([row(dtlz1a, 100, igd=0.41), row(dtlz1a, 101, igd=0.43)])
        store.add([row(onemax, 100, igd=0.0), row(short, 100, igd=0.0), row(other, 100, igd=0.1)])
        suite = suite_of(dtlz1a, onemax, short, other, labels={"k-rvea": "K-RVEA"})
        table = comparisons.targets(store, suite)
    lines = list(csv.DictReader(io.StringIO(table.csv)))
    assert [(x["problem"], x["target"]) for x in lines] == [
        ("dtlz1a", "0.21"), ("cm-onemax +1", "0.0"), ("dtlz1a", "0.21"),
    ]  # fmt: skip
    assert float(lines[0]["ratio"]) == pytest.approx(2.0)
    assert lines[1]["ratio"] == ""
    assert table.markdown.splitlines()[4:10] == [
        "| problem | tau | target | tc-saea | K-RVEA |",
        "| --- | --- | --- | --- | --- |",
        "| dtlz1a | 5 | 0.21 (Tr-SAEA) | 0.42 (2) | 0.1 (0.476) |",
        "| cm-onemax +1 | 5 | 0 (K-RVEA) | 0 |  |",
        "| targets met |  |  | 1 of 2 | 1 of 1 |",
        "| median ratio |  |  | 2 | 0.476 |",
    ]


WHOLE = {
    name: Definition(problem=name, strategy="tc-ehvi", settings='{"uses_ref_point": false}')
    for name in ("dtlz1", "dtlz2", "uf1")
}


def without(part, name):
    settings = {"link": '{"link": null}', "climbing": '{"climbs": false}'}[part]
    return replace(WHOLE[name], settings=settings)


def parts(store, *definitions):
    names = {str(without(part, "uf1").settings): part for part in ("link", "climbing")}
    table = comparisons.parts(store, suite_of(*definitions, parts=names))
    return table, list(csv.DictReader(io.StringIO(table.csv)))


def runs(definition, *igds):
    return [row(definition, seed, igd=igd) for seed, igd in enumerate(igds, start=100)]


def test_each_part_is_worth_what_is_lost_without_it(tmp_path):
    definitions = (
        *WHOLE.values(), *(without(part, name) for part in ("link", "climbing") for name in WHOLE),
    )  # fmt: skip
    with Store(tmp_path) as store:
        # Means 0.3, 2 and 10; of five runs each, ranges that are apart differ significantly.
        store.add(runs(WHOLE["dtlz1"], 0.1, 0.2, 0.3, 0.4, 0.5))
        store.add(runs(WHOLE["dtlz2"], 1.8, 1.9, 2.0, 2.1, 2.2))
        store.add(runs(WHOLE["uf1"], 8.0, 9.0, 10.0, 11.0, 12.0))
        # Ratios of means: 1.2 / 0.3 = 4, 2 / 2 = 1, and 5 / 10 = 0.5.
        store.add(runs(without("link", "dtlz1"), 1.0, 1.1, 1.2, 1.3, 1.4))
        store.add(runs(without("link", "dtlz2"), 1.85, 1.95, 2.0, 2.05, 2.15))
        store.add(runs(without("link", "uf1"), 3.0, 4.0, 5.0, 6.0, 7.0))
        # One problem alone: 40 / 10, all runs worse.
        store.add(runs(without("climbing", "uf1"), 20.0, 30.0, 40.0, 50.0, 60.0))
        table, (link, climbing) = parts(store, *definitions)
    assert (link["part"], climbing["part"]) == ("link", "climbing")
    # Geometric means: sqrt(4 * 1) of DTLZ, and the third root of 4 * 1 * 0.5.
    assert float(link["dtlz"]) == pytest.approx(2.0)
    assert float(link["uf"]) == pytest.approx(0.5)
    assert float(link["all"]) == pytest.approx(2.0 ** (1 / 3))
    assert float(link["largest"]) == pytest.approx(4.0)
    assert float(link["smallest"]) == pytest.approx(0.5)
    assert (link["largest_on"], link["smallest_on"]) == ("dtlz1", "uf1")
    assert [link["n_worse"], link["n_better"], link["n_problems"]] == ["1", "1", "3"]
    assert climbing["dtlz"] == ""
    assert float(climbing["uf"]) == float(climbing["all"]) == pytest.approx(4.0)
    assert [climbing["n_worse"], climbing["n_better"], climbing["n_problems"]] == ["1", "0", "1"]
    assert "| link | 2 | 0.5 | 1.26 | 4 (dtlz1) | 0.5 (uf1) | 1 / 1 | 3 |" in table.markdown
    assert "| climbing |  | 4 | 4 | 4 (uf1) | 4 (uf1) | 1 / 0 | 1 |" in table.markdown


def test_a_part_is_compared_with_all_parts_of_the_same_code(tmp_path):
    whole, part = WHOLE["dtlz1"], without("link", "dtlz1")
    newer = {"code": "newer", "made": "2027-01-01T00:00:00+00:00"}
    with Store(tmp_path) as store:
        store.add(runs(whole, 0.1, 0.2) + runs(part, 0.3, 0.6))
        store.add([{**r, **newer} for r in runs(whole, 0.01, 0.02)])
        table, (link,) = parts(store, whole, part)
    assert float(link["all"]) == pytest.approx(3.0)
    assert "commits abc;" in table.markdown


def test_families_without_problems_have_no_column(tmp_path):
    whole = replace(WHOLE["dtlz2"], problem="zdt1")
    with Store(tmp_path) as store:
        store.add(runs(whole, 0.1, 0.2))
        store.add(runs(replace(without("link", "dtlz2"), problem="zdt1"), 0.2, 0.4))
        table, _ = parts(store, whole, replace(without("link", "dtlz2"), problem="zdt1"))
    assert "| without | all | largest |" in table.markdown
    assert "| link | 2 | 2 (zdt1) | 2 (zdt1) | 0 / 0 | 1 |" in table.markdown


def test_parts_without_runs_to_compare_are_left_out(tmp_path):
    definitions = (WHOLE["dtlz1"], without("link", "dtlz1"), without("climbing", "uf1"))
    with Store(tmp_path) as store:
        store.add(runs(WHOLE["dtlz1"], 0.1, 0.2))
        store.add(runs(without("climbing", "uf1"), 0.1, 0.2))  # there is no whole of it
        table, lines = parts(store, *definitions)
    assert lines == []
    assert "| link" not in table.markdown
    assert "| climbing" not in table.markdown


def test_suites_say_which_comparisons_they_want(tmp_path):
    with Store(tmp_path) as store:
        for name, expected in (
            ("breadth", ["breadth-ratio"]),
            ("own-dtlz", ["own-dtlz-targets"]),
            ("own-ablation", ["own-ablation-parts"]),
            ("table-1", []),
        ):
            made = comparisons.make(store, suites.get(name))
            assert [table.name for table in made] == expected
            assert all("Nothing has been run." in table.markdown for table in made)


@pytest.mark.parametrize(
    ("suite", "table", "title"),
    [
        ("own-uf", "own-uf-targets", "own-uf: IGD and the paper's best"),
        ("own-ablation", "own-ablation-parts", "own-ablation: what each part is worth"),
    ],
)
def test_the_command_writes_them(tmp_path, capsys, suite, table, title):
    assert main(["tables", suite, "--results", str(tmp_path)]) == 0
    assert (tmp_path / "tables" / f"{table}.md").exists()
    assert title in capsys.readouterr().out


def test_every_problem_of_the_breadth_suites_has_a_front_and_a_reference_point():
    for name in (*suites.BREADTH, *suites.SEALED):
        problem = problems.get(name)
        assert len(problem.pareto_front(comparisons.N_FRONT)) >= 400
        assert problem.ref_point is not None


def test_the_cost_grows_with_the_budget(tmp_path):
    budgets = [replace(OURS, n_slow=n) for n in (400, 100, 200)]
    other = replace(OURS, problem="zdt2")
    with Store(tmp_path) as store:
        for definition, seconds in zip(budgets, (144.0, 8.0, 16.0), strict=True):
            found = [row(definition, 100 + i, seconds=seconds + i, igd=0.25) for i in (-1, 1)]
            store.add(found)
        store.add([row(other, 100, seconds=9.0)])
        some = suite_of(*budgets, other, first_seed=99, shows_cost=True)
        (table,) = comparisons.make(store, some)
    assert table.name == "some-cost"
    lines = list(csv.DictReader(io.StringIO(table.csv)))
    assert [x["n_slow"] for x in lines] == ["100", "200", "400", "60"]
    assert [float(x["seconds"]) for x in lines] == [8.0, 16.0, 144.0, 9.0]
    exponents = [float(x["exponent"]) for x in lines[1:3]]
    assert exponents == pytest.approx([1.0, math.log2(9.0)])
    assert lines[0]["exponent"] == lines[3]["exponent"] == ""
    assert "| zdt1 | tc-saea | 200 | 16 | 0.08 | 1 | 0.25 |" in table.markdown
