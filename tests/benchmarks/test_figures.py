from dataclasses import replace

import pytest

from benchmarks import figures, suites
from benchmarks.__main__ import main
from benchmarks.definitions import Definition, Suite
from benchmarks.store import Store
from tests.benchmarks.rows import row

MEDIAN = "#111111"
DTLZ2 = Definition(problem="dtlz2", strategy="tc-saea")


def trace_of(definition, seed, trace, points):
    base = row(definition, seed)
    return [{**base, "trace": trace, "x": x, "y": y} for x, y in points]


def suite_of(name, *definitions):
    return Suite(name=name, about="", definitions=definitions, first_seed=0)


def test_the_median_run_is_in_the_middle():
    rows = [row(DTLZ2, seed, igd=igd) for seed, igd in enumerate((0.3, 0.1, 0.2, 0.9, 0.5))]
    assert figures.median_seed(rows) == 0
    assert figures.median_seed(rows[:4]) == 2  # of .2 and .3, the better


def test_mean_and_spread_are_those_at_the_x_that_all_curves_have():
    curves = [[(1.0, 1.0), (2.0, 2.0)], [(1.0, 3.0), (2.0, 6.0), (3.0, 9.0)]]
    assert figures.summary(curves) == [
        (1.0, 2.0, pytest.approx(2**0.5)), (2.0, 4.0, pytest.approx(8**0.5)),
    ]  # fmt: skip
    assert figures.summary(curves[:1]) == [(1.0, 1.0, 0.0), (2.0, 2.0, 0.0)]


def test_quartiles_of_steps():
    curves = [[(1.0, 5.0), (4.0, 1.0)], [(2.0, 3.0), (4.0, 2.0)], [(1.0, 9.0), (3.0, 6.0)]]
    assert figures.quartiles(curves) == [(1.0, 6.0, 7.0, 8.0), (3.0, 4.0, 5.0, 5.5)]


def test_traces_are_of_one_code_alone(tmp_path):
    with Store(tmp_path) as store:
        new = {"code": "newer", "made": "2026-02-01T00:00:00+00:00"}
        store.add(
            [row(DTLZ2, 0), {**row(DTLZ2, 0), **new}],
            trace_of(DTLZ2, 0, "front", [(0.0, 1.0)])
            + [{**p, **new} for p in trace_of(DTLZ2, 0, "front", [(0.5, 0.5)])],
        )
        found = figures.traced(store, suite_of("fronts", DTLZ2), DTLZ2, "front")
    assert found.by_seed == {0: [(0.5, 0.5)]}
    assert [r["code"] for r in found.rows] == ["newer"]


def test_newer_rows_without_a_trace_do_not_hide_an_older_one(tmp_path):
    with Store(tmp_path) as store:
        points = [(0.0, 1.0), (1.0, 0.5)]
        store.add([row(DTLZ2, 0)], trace_of(DTLZ2, 0, "front", points))
        store.add([row(DTLZ2, 1, code="newer", made="2027-02-01T00:00:00+00:00")])
        found = figures.traced(store, suite_of("fronts", DTLZ2), DTLZ2, "front")
        other = figures.traced(store, suite_of("fronts", DTLZ2), DTLZ2, "igd-history")
    assert found.by_seed == {0: points}
    assert [r["seed"] for r in found.rows] == [0]
    assert (other.by_seed, other.rows) == ({}, [])


def test_fronts_are_those_of_the_median_runs(tmp_path):
    systems = [Definition(problem="dtlz2", strategy=s) for s in ("waiting", "random", "tc-saea")]
    with Store(tmp_path) as store:
        for definition in systems:
            for seed, igd in enumerate((0.3, 0.1, 0.2)):
                points = [(seed + 0.5, 1.0), (seed + 1.0, 0.5)]
                store.add(
                    [row(definition, seed, igd=igd)], trace_of(definition, seed, "front", points)
                )
        made = figures.make(store, suite_of("fronts", *systems))
    assert sorted(made) == ["fronts-dtlz2", "fronts-tc-saea"]
    axes = made["fronts-dtlz2"].axes
    assert [ax.get_title() for ax in axes] == ["waiting", "random", "tc-saea"]
    for ax in axes:
        assert ax.get_xlabel() == "fast objective"
        assert ax.lines[1].get_xydata().tolist() == [[2.5, 1.0], [3.0, 0.5]]


def test_histories_share_a_panel(tmp_path):
    systems = [Definition(problem="dtlz1a", strategy=s) for s in ("waiting", "random")]
    with Store(tmp_path) as store:
        for k, definition in enumerate(systems):
            for seed in range(3):
                points = [(100.0, 4.0 + k + seed), (1000.0, 1.0 + k + seed)]
                trace = trace_of(definition, seed, "igd-history", points)
                store.add([row(definition, seed)], trace)
        (figure,) = figures.make(store, suite_of("dtlz1a-1000", *systems)).values()
    (ax,) = figure.axes
    assert ax.get_yscale() == "log"
    assert [line.get_ydata().tolist() for line in ax.lines] == [[5.0, 2.0], [6.0, 3.0]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["waiting", "random"]


def test_histories_have_a_panel_for_each_problem_and_the_ends_of_peers(tmp_path):
    ours = [Definition(problem=name, strategy="tc-ehvi") for name in ("dtlz2", "uf1")]
    rival = Definition(problem="uf1", strategy="peer:qlognehvi")
    with Store(tmp_path) as store:
        for definition in ours:
            for seed in range(3):
                points = [(100.0, 4.0 + seed), (200.0, 1.0 + seed)]
                trace = trace_of(definition, seed, "igd-history", points)
                store.add([row(definition, seed)], trace)
        store.add([row(rival, seed, igd=igd) for seed, igd in enumerate((0.5, 0.1, 0.2))])
        suite = replace(suite_of("own-history", *ours, rival), labels={"tc-ehvi": "TC-EHVI"})
        (figure,) = figures.make(store, suite).values()
    assert [ax.get_title() for ax in figure.axes] == ["dtlz2", "uf1"]
    first, second = figure.axes
    assert [line.get_ydata().tolist() for line in first.lines] == [[5.0, 2.0]]
    (legend,) = figure.legends  # one for all panels
    assert [text.get_text() for text in legend.get_texts()] == ["TC-EHVI", "peer:qlognehvi, end"]
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    assert second.get_legend_handles_labels()[1] == ["TC-EHVI", "peer:qlognehvi, end"]
    (bars,) = second.containers
    assert (bars[0].get_xdata().tolist(), bars[0].get_ydata().tolist()) == ([200], [0.2])
    (spread,) = bars[2]
    assert spread.get_segments()[0].tolist() == [[200.0, 0.1], [200.0, 0.5]]


def test_errors_are_means_with_a_band(tmp_path):
    with Store(tmp_path) as store:
        for seed, scale in enumerate((1.0, 3.0)):
            points = [(1.0, scale), (2.0, 2 * scale)]
            trace = trace_of(DTLZ2, seed, "co-surrogate-error", points)
            store.add([row(DTLZ2, seed)], trace)
        (figure,) = figures.make(store, suite_of("co-surrogate-error", DTLZ2)).values()
    assert figure.axes[0].lines[0].get_ydata().tolist() == [2.0, 4.0]
    assert figure.axes[0].get_title() == "dtlz2"


def test_box_plots_stand_in_the_order_of_u(tmp_path):
    settings = {1: '{"n_new": 1}', 3: None, 10: '{"n_new": 10}'}
    definitions = [
        Definition(problem="dtlz2", strategy="tc-saea", settings=s) for s in settings.values()
    ]
    with Store(tmp_path) as store:
        for u, definition in zip(settings, definitions, strict=True):
            store.add([row(definition, seed, igd=u + 0.1 * seed) for seed in range(3)])
        (figure,) = figures.make(store, suite_of("sensitivity-u", *definitions)).values()
    (ax,) = figure.axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "3", "10"]
    medians = [line.get_ydata()[0] for line in ax.lines if line.get_color() == MEDIAN]
    assert medians == pytest.approx([1.1, 3.1, 10.1])


def test_nothing_to_draw(tmp_path, capsys):
    with Store(tmp_path) as store:
        for name in ("fronts", "dtlz1a-1000", "co-surrogate-error", "sensitivity-u", "table-1"):
            assert figures.make(store, suites.get(name)) == {}
    assert main(["figures", "fronts", "--results", str(tmp_path)]) == 0
    assert "nothing to draw" in capsys.readouterr().out


def test_the_command_draws_what_was_run(tmp_path, capsys, monkeypatch):
    small = Suite(
        name="dtlz1a-1000",
        about="",
        definitions=(Definition(problem="dtlz1a", strategy="random", n_slow=14, n_init=9),),
        n_seeds=2,
        traces=("igd-history",),
    )
    monkeypatch.setitem(suites.SUITES, small.name, small)
    for action in ("run", "figures"):
        assert main([action, small.name, "--results", str(tmp_path)]) == 0
    path = tmp_path / "figures" / "dtlz1a-1000.png"
    assert str(path) in capsys.readouterr().out
    assert path.read_bytes()[:4] == b"\x89PNG"
