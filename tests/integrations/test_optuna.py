"""The sampler in studies of the real Optuna."""
# pyright: reportMissingImports=false

import multiprocessing
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.metrics import hypervolume

optuna = pytest.importorskip("optuna")

from optuna.distributions import (  # noqa: E402
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial  # noqa: E402

from tcsaea_torch.integrations.optuna import TCSampler  # noqa: E402

WAYS = ["minimize", "minimize"]
CHEAP = tc.TCEHVI(asynchronous=True, kernels=("joint",), link=None, n_ref_vectors=10, climbs=False)
BOX = {"x": FloatDistribution(0, 1), "y": FloatDistribution(-2, 3)}


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def objective(trial):
    x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", -2, 3)
    return x, (1 - x) ** 2 + y**2


def run(sampler, n=8, function=objective, directions=WAYS, **options):
    study = optuna.create_study(directions=directions, sampler=sampler, **options)
    study.optimize(function, n_trials=n)
    return study


def points(study):
    return [tuple(trial.params.values()) for trial in study.trials]


def known(sampler, study):
    """Return the optimizer behind a study."""
    return sampler._runs[study]._optimizer


# ---------------------------------------------------------------- parameters


KINDS = {
    "float": FloatDistribution(-3, 5),
    "log": FloatDistribution(1e-4, 10, log=True),
    "step": FloatDistribution(0.1, 0.9, step=0.2),
    "whole": IntDistribution(-4, 7),
    "by_three": IntDistribution(1, 10, step=3),
    "whole_log": IntDistribution(1, 500, log=True),
    "two": CategoricalDistribution(("a", None)),
    "many": CategoricalDistribution(("a", "b", "c")),
    "single": FloatDistribution(2, 2),
}


def test_values_are_what_the_distributions_say():
    def all_kinds(trial):
        for name, kind in KINDS.items():
            trial._suggest(name, kind)
        return trial.params["float"], -trial.params["whole"]

    study = run(TCSampler("random", n_trials=40, seed=0, search_space=KINDS), 40, all_kinds)
    columns = {name: [trial.params[name] for trial in study.trials] for name in KINDS}
    for name, kind in KINDS.items():
        assert all(kind._contains(kind.to_internal_repr(value)) for value in columns[name]), name
    assert set(columns["two"]) == {"a", None}
    assert set(columns["many"]) == {"a", "b", "c"}
    for name in ("whole", "by_three", "whole_log"):
        assert all(type(value) is int for value in columns[name])
    assert set(columns["step"]) == {0.1, 0.1 + 0.2, 0.5, 0.1 + 3 * 0.2, 0.9}
    # A Latin hypercube of 13 points in the logarithms: one in each thirteenth.
    u = (np.log(columns["log"][:13]) - np.log(1e-4)) / (np.log(10) - np.log(1e-4))
    assert sorted(np.floor(13 * u)) == list(range(13))
    assert len(set(points(study))) == 40


def test_the_search_space_is_that_of_completed_trials_by_default():
    def growing(trial):
        values = objective(trial)
        return values if trial.number < 3 else (values[0] + trial.suggest_int("n", 0, 9), values[1])

    sampler = TCSampler("random", n_trials=6, seed=0)
    study = run(sampler, 6, growing)
    assert [v.name for v in sampler._runs[study].space.variables] == ["x", "y"]
    assert known(sampler, study).n_total == (5, 5)  # the first trial was drawn by the other one


def test_unordered_categories_are_said_to_be_left_out_once(monkeypatch):
    said = []
    monkeypatch.setattr("tcsaea_torch.integrations.optuna._logger.warning", said.append)
    run(TCSampler("random", seed=0), 3, lambda t: (t.suggest_categorical("c", "abc") < "b", 1.0))
    assert len(said) == 1
    assert "'c'" in said[0]


def test_points_of_a_finite_space_are_repeated_only_when_there_are_no_others():
    space = {"n": IntDistribution(1, 7, log=True)}
    study = run(
        TCSampler("random", n_trials=6, seed=1, search_space=space),
        9,
        lambda t: (n := t.suggest_int("n", 1, 7, log=True), -n),
    )
    assert {n for (n,) in points(study)[:7]} == set(range(1, 8))


# ---------------------------------------------------------------- objectives


def test_maximising_is_minimising_with_the_other_sign():
    def mirrored(trial):
        x, y = objective(trial)
        return -x, y

    # Where no value is negative, 0 is taken for a bound: only one of the two has such values.
    strategy = replace(CHEAP, guesses_bounds=False)
    one, other = (
        run(TCSampler(strategy, n_init=5, seed=2, search_space=BOX), 7, function, directions)
        for function, directions in ((objective, WAYS), (mirrored, ["maximize", "minimize"]))
    )
    assert points(one) == points(other)


@pytest.mark.parametrize("directions", [["minimize"], ["minimize"] * 3])
def test_studies_need_two_objectives(directions):
    study = optuna.create_study(directions=directions, sampler=TCSampler())
    with pytest.raises(InvalidInputError, match=f"two objectives, got {len(directions)}"):
        study.ask(BOX)


@pytest.mark.slow
def test_it_beats_random_search_clearly():
    def zdt1(trial):
        x = [trial.suggest_float(f"x{k}", 0, 1) for k in range(3)]
        g = 1 + 9 * sum(x[1:]) / 2
        return x[0], g * (1 - (x[0] / g) ** 0.5)

    def score(sampler):
        Y = [trial.values for trial in run(sampler, 25, zdt1).trials]
        reference = torch.tensor([1.1, 2.0], dtype=torch.float64)
        return float(hypervolume(torch.tensor(Y, dtype=torch.float64), reference))

    ours = score(TCSampler(n_trials=25, seed=0))
    assert ours > 1.7  # of 2.2 - 1 / 3
    assert ours > 2 * score(optuna.samplers.RandomSampler(seed=0))


# ---------------------------------------------------------------- seeds and failures


def test_seeds_reproduce():
    first, again, other = (
        points(run(TCSampler("tc-saea", n_trials=8, n_init=6, seed=s, search_space=BOX), 8))
        for s in (3, 3, 4)
    )
    assert first == again
    assert not set(first) & set(other)
    unseeded = [points(run(TCSampler("random", search_space=BOX), 2)) for _ in range(2)]
    assert unseeded[0] != unseeded[1]


def test_failures_are_tolerated_and_known():
    def fragile(trial):
        values = objective(trial)
        match trial.number:
            case 1:
                raise ValueError("diverged")
            case 2:
                raise optuna.TrialPruned
            case 3:
                return float("nan"), 1.0
            case 4:
                return float("inf"), 1.0
        return values

    sampler = TCSampler("random", n_trials=12, n_init=6, seed=0, search_space=BOX)
    study = optuna.create_study(directions=WAYS, sampler=sampler)
    study.optimize(fragile, n_trials=8, catch=ValueError)
    states = [trial.state for trial in study.trials]
    assert states[1:4] == [TrialState.FAIL, TrialState.PRUNED, TrialState.FAIL]
    assert states[4] is TrialState.COMPLETE
    optimizer = known(sampler, study)
    records = [r for r in optimizer._state.records if r.status is tc.Status.FAILED]
    assert len(records) == 7  # the slow value of the last one was finite
    assert len(set(points(study))) == 8


def test_a_study_may_have_more_trials_than_were_planned():
    sampler = TCSampler("random", n_trials=4, n_init=3, seed=0, search_space=BOX)
    study = run(sampler, 11)
    assert len(set(points(study))) == 11
    assert len(known(sampler, study).archive.Y[0]) >= 11
    assert len(set(points(run(TCSampler(CHEAP, n_trials=3, search_space=BOX), 5)))) == 5


# ---------------------------------------------------------------- trials of others


def test_trials_of_others_are_data():
    study = optuna.create_study(directions=WAYS)
    for k in range(6):
        params = {"x": k / 6, "y": k / 2 - 1}
        study.add_trial(create_trial(params=params, distributions=BOX, values=[k, -k]))
    study.sampler = sampler = TCSampler(CHEAP, n_trials=20, n_init=4, seed=0)
    trial = study.ask()
    objective(trial)
    optimizer = known(sampler, study)
    assert optimizer.archive.observed.all(dim=-1).sum() == 6
    assert optimizer.archive.Y[0, :6].tolist() == [[k, -k] for k in range(6)]
    assert optimizer.n_used == (1, 1)  # no design: it is there already
    assert len(optimizer.archive) == 7


def test_enqueued_trials_count_and_are_evaluated_as_they_are():
    sampler = TCSampler("random", n_trials=9, n_init=5, seed=0, search_space=BOX)
    study = optuna.create_study(directions=WAYS, sampler=sampler)
    study.enqueue_trial({"x": 0.25, "y": 1.0})
    study.enqueue_trial({"y": 0.5})
    study.optimize(objective, n_trials=5)
    assert points(study)[0] == (0.25, 1.0)
    assert points(study)[1][1] == 0.5
    study.ask(BOX)
    optimizer = known(sampler, study)
    done = optimizer.archive.observed.all(dim=-1)[0]
    assert int(done.sum()) == 5
    # Nothing waits for what was proposed in place of the second one.
    replaced = study.trials[1].system_attrs["tcsaea_torch:params"]
    assert replaced["y"] != 0.5
    assert tuple(replaced.values()) not in {tuple(e.x) for e in optimizer.pending}
    X = optimizer._state.X_user[done].tolist()
    assert sorted(map(tuple, X)) == sorted(points(study)[:5])


def test_parallel_trials_keep_apart_and_may_end_in_any_order():
    sampler = TCSampler(
        replace(CHEAP, clearance=0.05), n_trials=16, n_init=4, seed=0, search_space=BOX
    )
    study = run(sampler, 4)
    trials = [study.ask(BOX) for _ in range(3)]
    X = np.array([[t.params["x"], (t.params["y"] + 2) / 5] for t in trials])
    distance = np.abs(X[:, None] - X).max(axis=-1) + np.eye(3)
    assert distance.min() >= 0.05
    optimizer = known(sampler, study)
    assert len(optimizer.pending) == 6
    for trial in (trials[2], trials[0]):
        study.tell(trial, objective(trial))
    study.ask(BOX)
    assert known(sampler, study) is optimizer
    assert len(optimizer.pending) == 4
    assert optimizer.archive.observed.all(dim=-1).sum() == 6


def test_a_synchronous_strategy_gives_random_points_while_it_waits():
    sampler = TCSampler("tc-saea", n_trials=12, n_init=4, seed=0, search_space=BOX)
    study = optuna.create_study(directions=WAYS, sampler=sampler)
    trials = [study.ask(BOX) for _ in range(7)]
    assert len(set(points(study))) == 7
    for trial in trials:
        study.tell(trial, objective(trial))
    study.ask(BOX)
    assert known(sampler, study).archive.observed.all(dim=-1).sum() == 7


def test_threads():
    sampler = TCSampler("random", n_trials=16, n_init=5, seed=0, search_space=BOX)
    study = optuna.create_study(directions=WAYS, sampler=sampler)
    study.optimize(objective, n_trials=16, n_jobs=3)
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 16
    assert len(set(points(study))) == 16


def test_two_samplers_on_one_study_see_each_other():
    storage = optuna.storages.InMemoryStorage()
    one = optuna.create_study(
        directions=WAYS, storage=storage, study_name="s",
        sampler=TCSampler("random", n_trials=9, n_init=6, seed=0, search_space=BOX),
    )  # fmt: skip
    two = optuna.load_study(
        storage=storage, study_name="s",
        sampler=TCSampler("random", n_trials=9, n_init=6, seed=0, search_space=BOX),
    )  # fmt: skip
    pairs = [(one.ask(), two.ask()) for _ in range(3)]  # nothing is suggested yet
    for pair in pairs:
        for study, trial in zip((one, two), pair, strict=True):
            study.tell(trial, objective(trial))
    assert len(set(points(one))) == 6  # with one seed
    for study in (one, two):
        study.ask(BOX)
        # Both have drawn a design of six; what the other one did counts.
        assert known(study.sampler, study).archive.observed.all(dim=-1).sum() == 6


# ---------------------------------------------------------------- storage


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_a_study_goes_on_from_its_storage(kind, tmp_path):
    def storage():
        if kind == "sqlite":
            return f"sqlite:///{tmp_path}/study.db"
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
        return optuna.storages.JournalStorage(backend)

    def sampler():
        return TCSampler("random", n_trials=20, n_init=5, seed=0)

    first = run(sampler(), 5, storage=storage(), study_name="s")
    first.ask(BOX)  # by a process that dies
    second = optuna.load_study(study_name="s", storage=storage(), sampler=sampler())
    second.optimize(objective, n_trials=3)
    assert len(set(points(second))) == 9
    optimizer = known(second.sampler, second)
    assert optimizer.archive.observed.all(dim=-1).sum() == 7
    assert any(tuple(e.x) == points(second)[5] for e in optimizer.pending)


def work(path):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    backend = optuna.storages.journal.JournalFileBackend(path)
    study = optuna.load_study(
        study_name="s",
        storage=optuna.storages.JournalStorage(backend),
        sampler=TCSampler("random", n_trials=10, n_init=4, search_space=BOX),
    )
    study.optimize(objective, n_trials=5)


@pytest.mark.slow
def test_processes(tmp_path):
    path = str(tmp_path / "study.log")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(path))
    study = optuna.create_study(directions=WAYS, storage=storage, study_name="s")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=work, args=(path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(set(points(study))) == 10
    assert all(trial.state is TrialState.COMPLETE for trial in study.trials)


def test_a_pickled_sampler_goes_on():
    sampler = TCSampler("random", n_trials=12, n_init=4, seed=0, search_space=BOX)
    study = run(sampler, 5)
    study.sampler = pickle.loads(pickle.dumps(sampler))
    study.optimize(objective, n_trials=3)
    assert len(set(points(study))) == 8


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "tc-ehvj"}, "did you mean 'tc-ehvi'"),
        ({"strategy": 3}, "strategy must be a name or a configured strategy"),
        ({"n_trials": 8, "n_init": 9}, "n_init must be at most n_trials = 8, got 9"),
        ({"n_trials": 0}, "n_trials must be an integer >= 1, got 0"),
        ({"n_trials": 2.5}, "n_trials must be an integer >= 1, got 2.5"),
        ({"n_init": 0}, "n_init must be an integer >= 1, got 0"),
        ({"seed": "1"}, "seed must be an integer, got '1'"),
        (
            {"search_space": {"x": (0, 1)}},
            r"search_space must be a dict of distributions.*\(0, 1\)",
        ),
        ({"independent_sampler": "tpe"}, "independent_sampler must be a BaseSampler, got 'tpe'"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        TCSampler(**options)
