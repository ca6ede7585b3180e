import itertools

import pytest
import torch

from benchmarks import traces
from benchmarks.definitions import Definition, Suite
from benchmarks.run_batch import run_batch
from benchmarks.runner import missing, run
from benchmarks.store import Store
from tcsaea_torch import metrics, problems, strategies

DTLZ2 = problems.get("dtlz2", tau=3)


def traced_run(name, strategy, n_slow=24, seeds=(0, 1)):
    kept = traces.make([name], [DTLZ2] * len(seeds))
    result = run_batch(
        DTLZ2,
        strategies.get(strategy),
        seeds,
        n_slow=n_slow,
        n_init=15,
        watch=traces.watch_all(kept),
    )
    return kept[name], result


def test_igd_history_ends_with_the_final_score_and_never_rises():
    trace, result = traced_run("igd-history", "brood-interleaving", n_slow=70)
    front = DTLZ2.pareto_front(traces.N_FRONT)
    for i in range(2):
        used, values = zip(*trace.points(i), strict=True)
        assert used == (20, 40, 60, 70)
        assert all(a >= b for a, b in itertools.pairwise(values))
        Y = result.points(i)
        assert values[-1] == metrics.igd(Y[metrics.is_non_dominated(Y)], front)


def test_igd_history_keeps_about_fifty_points():
    trace, _ = traced_run("igd-history", "k-rvea", n_slow=130, seeds=(0,))
    used = [x for x, _ in trace.points(0)]
    assert used[0] == 15
    assert used[-1] == 130
    assert all(b - a >= 130 / 50 for a, b in itertools.pairwise(used[:-1]))
    assert len(used) <= 51


def test_front_is_what_is_not_dominated_at_the_end():
    trace, result = traced_run("front", "random")
    for i in range(2):
        points = torch.tensor(trace.points(i), dtype=torch.float64)
        Y = result.points(i)
        assert torch.equal(points, Y[metrics.is_non_dominated(Y)])


def test_co_surrogate_error_has_a_value_for_each_period():
    trace, _ = traced_run("co-surrogate-error", "tc-saea")
    for i in range(2):
        periods, errors = zip(*trace.points(i), strict=True)
        assert periods == (1, 2, 3)
        assert all(0 < error < 10 for error in errors)
    nothing, _ = traced_run("co-surrogate-error", "random")
    assert nothing.points(0) == []


@pytest.mark.usefixtures("unchecked")
def test_a_right_co_surrogate_has_no_error(monkeypatch):
    """With predictions from the true difference, only rounding is left."""

    class Truth:
        def mean(self, X):
            Y = DTLZ2.evaluate(X)
            return Y[..., 1] - Y[..., 0]

    monkeypatch.setattr(
        "tcsaea_torch.strategies.tc_saea.fit_quadratic", lambda *_, **__: Truth(), raising=True
    )
    trace, _ = traced_run("co-surrogate-error", "tc-saea-p")
    assert all(error < 1e-25 for i in range(2) for _, error in trace.points(i))


@pytest.fixture
def suite():
    definition = Definition(problem="dtlz2", strategy="random", n_slow=14, n_init=9)
    return Suite(
        name="some", about="", definitions=(definition,), n_seeds=2, n_together=2, traces=("front",)
    )


def quiet(store, tasks):
    return run(store, tasks, report=lambda line: None)


def test_runs_without_a_trace_that_is_wanted_are_made_again(tmp_path, suite):
    plain = Suite(name="plain", about="", definitions=suite.definitions, n_seeds=2, n_together=2)
    with Store(tmp_path) as store:
        quiet(store, missing(store, plain, "cpu"))
        rows = store.rows(suite.definitions[0])
        tasks = missing(store, suite, "cpu")
        assert [task.seeds for task in tasks] == [(100, 101)]
        quiet(store, tasks)
        assert store.rows(suite.definitions[0]) == rows  # the first rows stay
        assert missing(store, suite, "cpu") == []
        assert {r["seed"] for r in store.traces(suite.definitions[0], "front")} == {100, 101}


def test_a_fresh_clone_knows_the_traces(tmp_path, suite):
    with Store(tmp_path) as store:
        quiet(store, missing(store, suite, "cpu"))
        expected = store.traces(suite.definitions[0], "front")
    (tmp_path / "runs.sqlite").unlink()
    with Store(tmp_path) as store:
        assert store.traces(suite.definitions[0], "front") == expected
        assert missing(store, suite, "cpu") == []
