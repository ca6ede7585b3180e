import random
import sqlite3
from contextlib import suppress
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from benchmarks import fingerprint as fingerprints
from benchmarks import peers, runner, suites
from benchmarks.definitions import Definition, Suite
from benchmarks.fingerprint import fingerprint
from benchmarks.micro.peers import MissingPeerError
from benchmarks.peers import PEERS, Peer, hvkg, qlognehvi
from benchmarks.peers.base import BudgetError, Evaluations, isolated, run
from benchmarks.run_batch import run_batch
from benchmarks.store import COLUMNS, Store
from tcsaea_torch import metrics, problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import TestProblem
from tests.benchmarks.rows import row
from tests.strategies.runs import Toy

DESIGNED = ("qlognehvi", "tpe", "optuna-gp")
"""Peers that begin with n_init points."""
EVOLUTIONARY = ("nsga2", "rvea")


def peer(name):
    """Return a peer whose packages are installed."""
    for package in PEERS[name].packages:
        pytest.importorskip(package)
    return peers.get(name)


def evaluations_of(problem, n_slow=4, time_limit=None):
    return Evaluations(problem, 7, n_slow, time_limit)


def random_search(evaluations, n_init):
    """A peer of nobody; it recommends the centre."""
    evaluations.evaluate(evaluations.design(n_init))
    while evaluations.left[1] and evaluations.has_time():
        evaluations.evaluate(torch.rand(1, evaluations.d, dtype=torch.float64))
    return torch.full((1, evaluations.d), 0.5, dtype=torch.float64)


def missing_search(evaluations, n_init):
    raise MissingPeerError("nothing does not load here (No module named 'nothing')")


FAKES = {
    "fake": Peer(search=random_search, packages=("scipy",)),
    "gone": Peer(search=missing_search, packages=("nothing",)),
}
with patch.dict(PEERS, FAKES):
    FAKE = Definition(problem="dtlz2", strategy="peer:fake", n_slow=12, n_init=5)
    GONE = replace(FAKE, strategy="peer:gone")
RANDOM = replace(FAKE, strategy="random")
SUITE = Suite(
    name="rivals",
    about="Two peers and a strategy",
    definitions=(FAKE, GONE, RANDOM),
    max_seeds={"peer:fake": 3},
)


@pytest.fixture(autouse=True)
def fakes():
    with patch.dict(PEERS, FAKES):
        yield


# --- the counted problem ---


def test_evaluations_are_counted_to_the_last_one():
    evaluations = evaluations_of(Toy(d=2, tau=1.5))
    assert evaluations.left == [6, 4]
    X = torch.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=torch.float64)
    Y = evaluations.evaluate(X)
    expected = [[((x - c) ** 2).sum() for c in (0.2, 0.8)] for x in X.numpy()]
    np.testing.assert_allclose(Y, expected)
    evaluations.evaluate(X + 0.1, (True, False))
    assert evaluations.left == [2, 2]
    with pytest.raises(BudgetError, match="3 fast evaluations, but 2 are left"):
        evaluations.evaluate(X[[0, 0, 1]], (True, False))
    evaluations.evaluate(X + 0.2)
    assert evaluations.left == [0, 0]
    for which, name in (((False, True), "slow"), ((True, False), "fast")):
        with pytest.raises(BudgetError, match=f"1 {name} evaluations, but 0 are left"):
            evaluations.evaluate(X[:1], which)
    assert evaluations.is_complete.tolist() == [True, True, False, False, True, True]


def test_what_was_not_asked_for_is_not_told_and_known_points_are_completed():
    evaluations = evaluations_of(Toy(d=2))
    X = torch.tensor([[0.0, 1.0], [0.5, 0.5]], dtype=torch.float64)
    Y = evaluations.evaluate(X, (True, False))
    assert Y.isnan().tolist() == [[False, True]] * 2
    slow = evaluations.evaluate(X[1:], (False, True))
    assert slow.isnan().tolist() == [[True, False]]
    assert torch.equal(evaluations.X, X)
    assert evaluations.is_complete.tolist() == [False, True]
    assert torch.equal(evaluations.Y[1], torch.stack([Y[1, 0], slow[0, 1]]))


@pytest.mark.parametrize("x", [-1e-12, 1 + 1e-12, float("nan")])
def test_points_outside_of_the_box_are_refused(x):
    with pytest.raises(InvalidInputError, match="unit cube"):
        evaluations_of(Toy(d=1)).evaluate(torch.tensor([[x]], dtype=torch.float64))


def test_values_are_minimised():
    evaluations = evaluations_of(Toy(d=1, directions=("minimize", "maximize")))
    Y = evaluations.evaluate(torch.tensor([[0.2]], dtype=torch.float64))
    np.testing.assert_allclose(Y, [[0.0, -(0.6**2)]], atol=1e-15)


def test_problems_with_integers_are_refused():
    with pytest.raises(InvalidInputError, match="continuous"):
        evaluations_of(Toy(bounds=[[0.0, 0.0], [3.0, 1.0]], integers=[0]))


@pytest.mark.parametrize("seed", [100, 103])
def test_the_design_is_that_of_the_strategies(seed):
    problem = problems.get("uf1")
    ours = run_batch(problem, strategies.get("tc-saea"), [seed], n_slow=20, n_init=9, n_steps=1)
    assert torch.equal(Evaluations(problem, seed, 20, None).design(9), ours.archive.X[0])


# --- runs ---


def test_a_result_holds_all_that_was_measured():
    result = run(random_search, Toy(d=2, tau=3), 1, 10, 4, None)
    assert (result.n_fast, result.n_slow, result.is_cut) == (10, 10, False)
    assert result.X.shape == (10, 2)
    np.testing.assert_allclose(result.Y[:, 1], ((result.X - 0.8) ** 2).sum(dim=1))
    np.testing.assert_allclose(result.recommended, [[0.18, 0.18]])
    assert torch.equal(result.scored, torch.cat([result.Y, result.recommended]))


def draw():
    """Draw from each global generator."""
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def test_global_generators_are_seeded_and_put_back():
    with isolated(0):  # the test's own
        here = draw()
    with isolated(0):
        for seed, error in ((1, None), (2, ZeroDivisionError)):
            with suppress(ZeroDivisionError), isolated(seed):
                draws = draw()
                assert draws != here
                with isolated(seed):
                    assert draw() == draws
                if error:
                    raise error
        assert draw() == here


def test_runs_depend_on_their_seed_alone():
    one, again, other = (run(random_search, Toy(d=2), seed, 10, 4, None) for seed in (1, 1, 2))
    assert torch.equal(one.X, again.X)
    assert not torch.equal(one.X[4:], other.X[4:])


@pytest.fixture
def quick(monkeypatch):
    """Let BoTorch search less thoroughly than in a benchmark."""
    monkeypatch.setattr(qlognehvi, "N_RESTARTS", 3)
    monkeypatch.setattr(qlognehvi, "N_RAW_SAMPLES", 64)
    for name, value in (("N_FANTASIES", 2), ("N_PARETO", 4), ("N_RAW_SAMPLES", 16),
                        ("N_INNER_RESTARTS", 1), ("N_INNER_RAW_SAMPLES", 16),
                        ("POPULATION", 50), ("N_GENERATIONS", 30)):  # fmt: skip
        monkeypatch.setattr(hvkg, name, value)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [*DESIGNED, *EVOLUTIONARY])
def test_peers_spend_their_budget_exactly_and_depend_on_the_seed_alone(name):
    problem = problems.get("dtlz2", tau=5.0)
    n_slow = 50 if name in EVOLUTIONARY else 12
    one, again, other = (peer(name)(problem, seed, n_slow, 8) for seed in (1, 1, 2))
    for result in (one, other):
        assert (result.n_fast, result.n_slow, result.is_cut) == (n_slow, n_slow, False)
        assert result.X.shape == (n_slow, 11)
        assert bool(((result.X >= 0) & (result.X <= 1)).all())
        assert torch.equal(result.Y, problem.evaluate(result.X))
        assert result.recommended.shape == (0, 2)
    assert torch.equal(one.X, again.X)
    assert not torch.equal(one.X[-4:], other.X[-4:])
    n_start = 20 if name in EVOLUTIONARY else 8
    assert torch.equal(one.X[:n_start], Evaluations(problem, 1, n_slow, None).design(n_start))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", [*DESIGNED, *EVOLUTIONARY])
def test_peers_end_with_their_time(name, monkeypatch):
    limits = iter([True, False])
    original = Evaluations.has_time

    def has_time(self):  # time for one step, whatever it takes
        if not next(limits):
            self._time_limit = 0.0
        return original(self)

    monkeypatch.setattr(Evaluations, "has_time", has_time)
    result = peer(name)(problems.get("dtlz2"), 1, 60, 8, 1e6)
    assert result.is_cut
    assert result.n_slow == len(result.Y) < 60


@pytest.mark.usefixtures("quick")
def test_the_search_of_botorch_beats_random_search():
    whole = problems.get("dtlz2")
    problem = TestProblem(  # DTLZ2 in four dimensions
        fast=whole.fast, slow=whole.slow, bounds=[[0.0] * 4, [1.0] * 4], tau=5.0, vectorized=True,
        ref_point=whole.ref_point,
    )  # fmt: skip
    front = whole.pareto_front(1000)
    ours = run_batch(problem, strategies.get("random"), [1, 2, 3], n_slow=32, n_init=20)
    chance = [metrics.igd(ours.points(i), front) for i in range(3)]
    found = peer("qlognehvi")(problem, 1, 32, 20)
    assert torch.equal(found.X[:20], ours.archive.X[0, :20])
    assert metrics.igd(found.Y, front) < 0.7 * min(chance)


def test_nsga2_beats_random_search():
    problem = problems.get("dtlz2")
    front = problem.pareto_front(1000)
    ours = run_batch(problem, strategies.get("random"), [1, 2, 3], n_slow=200, n_init=100)
    for name in EVOLUTIONARY:
        igds = [metrics.igd(peer(name)(problem, seed, 200, 100).Y, front) for seed in (1, 2, 3)]
        assert max(igds) < min(metrics.igd(ours.points(i), front) for i in range(3))


@pytest.mark.usefixtures("quick")
def test_the_decoupled_peer_spends_both_budgets():
    problem = Toy(d=1, tau=1.25, ref_point=[1.0, 1.0])
    one, again = (peer("hvkg")(problem, 1, 4, 3) for _ in range(2))
    assert (one.n_fast, one.n_slow, one.is_cut) == (5, 4, False)
    assert torch.equal(one.scored, again.scored)
    # The front is where 0.2 <= x <= 0.8: there the distances to its ends add up to 0.6.
    distances = one.recommended.sqrt().sum(dim=1)
    assert len(distances) > 20
    assert float((distances < 0.6 + 1e-9).double().mean()) > 0.7


@pytest.mark.usefixtures("quick")
def test_the_decoupled_peer_ends_with_its_time_and_recommends():
    problem = problems.get("dtlz2", tau=5.0)
    result = peer("hvkg")(problem, 1, 14, 9, 0.5)
    assert result.is_cut
    assert result.seconds < 60
    assert result.n_slow <= 14
    assert result.n_fast <= 70
    assert len(result.scored) > len(result.Y) >= 9


def test_a_missing_package_is_told_with_the_extra_that_has_it():
    message = r"nothing does not load here .*: pip install 'tcsaea-torch\[bench\]'"
    with pytest.raises(MissingPeerError, match=message):
        peers.get("gone")(Toy(d=1), 1, 4, 2)


# --- definitions, fingerprints and rows ---


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strategy": "peer:nsga3"}, "peer must be one of .*did you mean 'nsga2'"),
        ({"strategy": "peer:fake", "settings": "{}"}, "settings must be None for a peer"),
        ({"strategy": "random", "time_limit": 5.0}, "time_limit must be None but for peers"),
    ],
)
def test_wrong_definitions_are_refused(values, message):
    with pytest.raises(InvalidInputError, match=message):
        Definition(problem="dtlz2", **values)


def test_peers_are_no_strategies():
    assert not any(name.startswith(peers.PREFIX) for name in strategies.names())
    assert FAKE.peer is PEERS["fake"]
    assert RANDOM.peer is None


def test_runs_of_peers_are_rows_like_others(tmp_path):
    lines = []
    with Store(tmp_path) as store:
        tasks = runner.missing(store, SUITE, "cpu")
        assert [(t.definition, len(t.seeds)) for t in tasks] == [
            *[(FAKE, 1)] * 3, *[(GONE, 1)] * 5, (RANDOM, 5),
        ]  # fmt: skip
        assert runner.run(store, tasks, report=lines.append) == 5
        rows = store.rows(FAKE)
        assert [r["seed"] for r in rows] == [100, 101, 102]
        assert {(r["n_slow"], r["n_fast"], r["n_together"]) for r in rows} == {(12, 12, 1)}
        assert all("; scipy " in r["versions"] for r in rows)
        assert len(store.rows(RANDOM)) == 5
        assert {t.definition for t in runner.missing(store, SUITE, "cpu")} == {GONE}
        # They leave no trace that could be missing.
        traced = replace(SUITE, traces=("front",))
        assert {t.definition for t in runner.missing(store, traced, "cpu")} == {GONE, RANDOM}
        # What is recommended counts: the centre lies on the front.
        problem, result = FAKE.problem_for(100), PEERS["fake"](FAKE.problem_for(100), 100, 12, 5)
        front = problem.pareto_front(10_000)
        assert rows[0]["igd"] == pytest.approx(metrics.igd(result.scored, front))
        assert rows[0]["igd"] < metrics.igd(result.Y, front)
    left_out = [line for line in lines if "left out, nothing does not load here" in line]
    assert len(left_out) == 5
    assert all("tcsaea-torch[bench]" in line and "Traceback" not in line for line in left_out)


def test_a_run_that_was_cut_can_be_told(tmp_path):
    cut = replace(FAKE, time_limit=1e-9)
    suite = replace(SUITE, definitions=(cut,))
    with Store(tmp_path) as store:
        runner.run(store, runner.missing(store, suite.with_seeds(1), "cpu"), report=[].append)
        (found,) = store.rows(cut)
        assert (found["n_slow"], found["budget"], found["time_limit"]) == (5, 12, 1e-9)
        assert store.rows(FAKE) == []
    with Store(tmp_path) as store:  # also when it was read from the CSV file
        assert store.rows(cut) == [found]


def test_peers_run_on_the_cpu_alone():
    task = runner.Task(suite="rivals", definition=FAKE, seeds=(100,), device="meta")
    with pytest.raises(InvalidInputError, match="device must be 'cpu' for a peer"):
        runner.make(task)


def test_the_code_of_a_peer_is_its_own_with_the_versions_of_its_packages(monkeypatch):
    def of(name, problem="dtlz2"):
        return fingerprint(Definition(problem=problem, strategy=f"peer:{name}"))

    real = of("fake")
    assert of("nsga2") == of("rvea") == of("nsga2", "dtlz7")
    assert len({of("nsga2"), of("nsga2", "uf1"), of("tpe"), of("hvkg"), of("qlognehvi")}) == 5
    monkeypatch.setattr(fingerprints, "version", lambda name: "9.9")
    assert of("fake") != real
    roots = (PEERS["qlognehvi"].search.__module__, "benchmarks.peers.base")
    used = {module for module, _ in fingerprints.used_code(roots)}
    assert {"benchmarks.peers.botorch_models", "tcsaea_torch.rng"} <= used
    others = {"benchmarks.peers.hvkg", "benchmarks.run_batch", "tcsaea_torch.strategies.steps"}
    assert not others & used


def test_what_depends_on_the_time_limit_is_another_run(tmp_path):
    other = replace(FAKE, time_limit=60.0)
    with Store(tmp_path) as store:
        store.add([row(FAKE, 0, igd=1.0), row(other, 0, igd=2.0)])
        assert [r["igd"] for r in store.rows(FAKE)] == [1.0]
        assert [r["igd"] for r in store.rows(other)] == [2.0]


def test_a_file_of_another_version_is_made_anew_from_the_csv_files(tmp_path):
    with Store(tmp_path) as store:
        store.add([row(FAKE, 0)])
        store.export()
    with sqlite3.connect(tmp_path / "runs.sqlite") as sql:
        sql.execute("DROP TABLE runs")
        names = ", ".join(f'"{name}"' for name in COLUMNS if name != "time_limit")
        sql.execute(f"CREATE TABLE runs ({names})")
    sql.close()
    with Store(tmp_path) as store:
        assert store.rows(FAKE) == [row(FAKE, 0)]


def test_the_suite_of_peers_has_fewer_seeds_of_slow_ones():
    suite = suites.get("peers")
    count = {d: sum(suite.takes(d, seed) for seed in suite.seeds) for d in suite.definitions}
    assert {n for d, n in count.items() if d.strategy == "peer:hvkg"} == {1}
    assert {n for d, n in count.items() if d.strategy == "peer:qlognehvi"} == {2}
    assert {n for d, n in count.items() if d.strategy in ("peer:tpe", "random")} == {5}
    assert all((d.time_limit == 1800) == (d.strategy == "peer:hvkg") for d in suite.definitions)


def test_a_smoke_suite_has_each_peer_once():
    smoke = suites.get("peers-smoke")
    names = [d.strategy for d in smoke.definitions if d.peer]
    assert sorted(names) == sorted({d.strategy for d in suites.get("peers").definitions if d.peer})
    assert {d.time_limit for d in smoke.definitions} == {None, 5.0}
