"""An optimizer that follows the trials of another tool."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcsaea_torch as tc
from tcsaea_torch.integrations.space import Continuous, Space, Stepped
from tcsaea_torch.integrations.trials import Outcome, Trial, TrialRun

SPACE = Space((Continuous(name="x", low=0, high=1), Continuous(name="y", low=0, high=1)))


def made(strategy: Any = "random", space=SPACE, *, n_trials=8, n_init=4, seed=0):
    return TrialRun(
        space, directions=("minimize", "minimize"), strategy=strategy,
        n_trials=n_trials, n_init=n_init, seed=seed,
    )  # fmt: skip


def done(trial, fast=None, slow=None):
    fast = sum(trial.params.values()) if fast is None else fast
    slow = -fast if slow is None else slow
    return replace(trial, outcome=Outcome.DONE, values=(float(fast), float(slow)))


def follow(run, n, trials=None, *, late=0):
    """Make n trials, whose values come after `late` others have begun."""
    trials = {} if trials is None else trials
    for k in range(len(trials), len(trials) + n):
        run.sync(trials)
        trials[k] = Trial(params=run.next(k))
        if k - late in trials:
            trials[k - late] = done(trials[k - late])
    return trials


def known(run):
    archive = run._optimizer.archive
    return int(archive.observed.all(dim=-1).sum())


# These two take longer, and others are like them.
@pytest.mark.parametrize("late", [0, 4])
@pytest.mark.parametrize("name", sorted({*tc.strategies.names()} - {"tc-ehvi", "tr-saea"}))
def test_every_strategy_makes_new_trials_and_learns_of_all(name, late):
    run = made(name, n_trials=12, n_init=4)
    trials = follow(run, 14, late=late)
    assert len({SPACE.key(trial.params) for trial in trials.values()}) == 14
    trials = {k: done(trial) for k, trial in trials.items()}
    run.sync(trials)
    Y = run._optimizer.archive.Y[0][run._optimizer.archive.observed.all(dim=-1)[0]]
    values = {trial.values for trial in trials.values()}
    assert values <= {tuple(y) for y in Y.tolist()}


def test_the_design_is_a_latin_hypercube():
    trials = follow(made(n_init=5), 5)
    for k in range(2):
        assert sorted(int(5 * SPACE.key(t.params)[k]) for t in trials.values()) == list(range(5))


def test_a_new_run_goes_on_where_another_one_was():
    trials = follow(made(), 5)
    run = made()
    run.sync(trials)
    assert known(run) == 5
    assert run._optimizer.n_total == (3, 3)
    trials = follow(run, 3, trials)
    assert len({SPACE.key(trial.params) for trial in trials.values()}) == 8


def test_trials_of_others_take_the_place_of_the_design():
    run = made(tc.TCSAEA(), n_trials=20, n_init=6)
    trials = follow(run, 2)
    for k in range(3):
        trials[f"other {k}"] = Trial(params={"x": k / 4, "y": 1 - k / 4})
    run.sync(trials)
    trials["own"] = Trial(params=run.next("own"))
    before = run._optimizer
    run.sync(trials)
    run.next("more")  # six there are: the rest of the design is given up
    assert run._optimizer is not before
    assert run._optimizer.n_init == 2  # there are two values, and four to come


def test_trials_that_are_not_what_they_were_begin_anew():
    run = made()
    trials = follow(run, 4)
    run.sync(trials)
    before = run._optimizer
    run.sync(trials)
    assert run._optimizer is before
    changed = {**trials, 0: done(trials[0], 7, 8)}
    gone = {k: trial for k, trial in trials.items() if k != 1}
    for others in (changed, gone):
        run.sync(others)
        assert run._optimizer is not before
        before = run._optimizer
        assert known(run) == len(others)
    run.sync(trials)
    trials[4] = Trial(params=run.next(4))
    trials[4] = Trial(params={"x": 0.125, "y": 0.5})  # not as it was proposed
    run.sync(trials)
    assert [tuple(e.x) for e in run._optimizer.pending] == [(0.125, 0.5)] * 2


def test_failures_and_missing_values():
    run = made(n_trials=9)
    trials = follow(run, 4)
    trials[0] = replace(trials[0], outcome=Outcome.FAILED, values=(None, None))
    trials[1] = replace(trials[1], outcome=Outcome.DONE, values=(None, 2.0))
    trials["other"] = Trial(params={"x": 0.5, "y": 0.5}, outcome=Outcome.FAILED)
    run.sync(trials)
    failed = [
        (r.objective, r.reason) for r in run._optimizer._state.records if r.status == "failed"
    ]
    assert sorted(failed) == [("fast", "the trial failed")] * 3 + [("slow", "the trial failed")] * 2
    assert run._optimizer.archive.observed.sum().item() == 2 * 2 + 1


def test_points_outside_of_the_box_count_when_they_are_done():
    run = made()
    trials = follow(run, 2)
    trials["far"] = Trial(params={"x": 1.5, "y": 0.5})
    run.sync(trials)
    assert not any(e.x[0] > 1 for e in run._optimizer.pending)
    trials["far"] = done(trials["far"])
    with pytest.warns(UserWarning, match="outside the bounds"):
        run.sync(trials)
    assert known(run) == 3


def test_points_that_rounding_makes_one_are_evaluated_once():
    space = Space((Continuous(name="n", low=1, high=6, log=True, whole=True),))
    run = made("random", space, n_trials=30, n_init=12)
    trials = follow(run, 6, late=2)
    assert {trial.params["n"] for trial in trials.values()} == set(range(1, 7))
    run.sync({k: done(trial) for k, trial in trials.items()})
    optimizer = run._optimizer
    X = optimizer._state.X_user[optimizer.archive.observed.all(dim=-1)[0], 0]
    Y = optimizer.archive.Y[0, optimizer.archive.observed.all(dim=-1)[0], 0]
    assert len(X) > 6  # all of the design that rounds to the six
    assert np.exp(X.numpy()).round().clip(1, 6).tolist() == Y.tolist()


def test_a_finite_space_is_used_up_before_points_come_again():
    space = Space(
        (Stepped(name="a", low=0, high=2, step=1), Stepped(name="b", low=0, high=1, step=1))
    )
    run = made("tc-saea", space, n_trials=12, n_init=4)
    trials = follow(run, 8)
    keys = [space.key(trial.params) for trial in trials.values()]
    assert len(set(keys[:6])) == 6
    assert set(keys[6:]) <= set(keys[:6])


def test_trials_without_a_key_are_known_by_their_parameters():
    run = made()
    run.sync({})
    params = [run.next() for _ in range(3)]
    assert len({SPACE.key(p) for p in params}) == 3
    trials: dict[Any, Trial] = {"a": Trial(params=params[2]), "b": done(Trial(params=params[0]))}
    run.sync(trials)
    assert known(run) == 1
    assert run.next() == params[1]  # it has become no trial
    # A budget that ends in between loses nothing.
    more = [run.next() for _ in range(12)]
    assert len({SPACE.key(p) for p in (*params, *more)}) == 15
    trials |= {k: Trial(params=p) for k, p in enumerate((params[1], *more))}
    run.sync({"new": done(Trial(params={"x": 0.1, "y": 0.2})), **trials})
    waiting = [tuple(e.x) for e in run._optimizer.pending]
    for trial in trials.values():
        if trial.outcome is Outcome.RUNNING:
            assert waiting.count(SPACE.key(trial.params)) == 2  # fast and slow, once each
