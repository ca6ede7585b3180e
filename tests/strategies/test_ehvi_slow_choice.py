"""How TC-EHVI chooses among hyper-parameters of the slow objective's own model."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tcsaea_torch.models.choice import condition_chosen, cross_validate
from tcsaea_torch.strategies import ehvi_surrogates
from tcsaea_torch.strategies.ehvi_surrogates import (
    _GROWTH,
    _JUDGED,
    _MARGIN,
    _SLOW_GROWTH,
)
from tests.models.models import draw, same
from tests.strategies.learners import (
    CONSTANT,
    B,
    D,
    candidates_of,
    config_of,
    learner,
    training,
)


@pytest.fixture
def judged(monkeypatch):
    """What each cross-validation was asked for."""
    calls = []

    def recorded(train, config, *, trend):
        calls.append((train, config))
        return cross_validate(train, config, trend=trend)

    monkeypatch.setattr(ehvi_surrogates, "cross_validate", recorded)
    return calls


def slow_rows(n, *, gone=0):
    """Rows of which the last `gone` do not exist."""
    train = training(n + gone, seed=6)
    noise = train.noise_var.clone()
    noise[:, n:] = math.inf
    return replace(train, noise_var=noise)


def every_row(train):
    return torch.ones_like(train.live)


def held_out(some, train):
    """The errors of each source's fits without a fifth of the rows, from scratch."""
    return [
        cross_validate(train, replace(config_of(s.kernel), options=_JUDGED), trend=CONSTANT)
        for s in some.sources
    ]


def cross_validated(monkeypatch, densities):
    """Let cross-validation find such scores, for each run, of each kernel in turn."""
    found = iter(densities)

    def scored(train, config, *, trend):
        errors = cross_validate(train, config, trend=trend)
        scores = torch.tensor(next(found)).double()
        return SimpleNamespace(
            calibrated_density=lambda: scores, variance_factor=errors.variance_factor
        )

    monkeypatch.setattr(ehvi_surrogates, "cross_validate", scored)


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_slow_source_is_chosen_by_cross_validation(calibrated):
    some, train, Z = learner("slow", calibrated=calibrated), slow_rows(18), draw(B, 7, D, seed=9)
    state = some.fit({}, train, "mixed", 18)
    models, state = some.choose(state, train, every_row(train), 18)
    found = held_out(some, train)
    scores = torch.stack([errors.calibrated_density() for errors in found], dim=-1)
    others = scores[:, 1:].max(dim=-1)
    is_better = others.values > scores[:, 0] + _MARGIN / 18**0.5
    assert torch.equal(models.choice, torch.where(is_better, 1 + others.indices, 0))
    assert torch.equal(state["slow/choice"], models.choice)
    assert state["slow/mixed/all"] == 18
    expected = condition_chosen(train, candidates_of(some, state), models.choice, trend=CONSTANT)
    mean, variance = expected.predict(Z)
    for i, which in enumerate(models.choice.tolist()):
        factor = found[which].variance_factor()[i]
        assert factor >= 1
        assert state["slow/factor"][i] == factor
        same(models.predict(Z)[0][i], mean[i], 1e-12)
        same(models.predict(Z)[1][i], variance[i] * (factor if calibrated else 1.0), 1e-12)


@pytest.mark.parametrize("n", [9, 16, 100])
def test_other_kernels_must_be_clearly_better_than_the_first(monkeypatch, n):
    """By less with more rows, whose scores are more certain; rows that are gone do not count."""
    margin = _MARGIN / n**0.5
    near, far = 0.9 * margin, 1.1 * margin
    cross_validated(monkeypatch, [[0.0, 0.0, 5.0], [near, far, 5.0 + near], [near, 0.1, 5.0 + far]])
    some = learner("slow", kernels=("joint", "additive", "smooth"))
    state = some.fit({}, slow_rows(n, gone=7), "mixed", n)
    assert state["slow/choice"].tolist() == [0, 1, 2]


def test_the_slow_source_is_judged_again_when_rows_have_grown(judged):
    some = learner("slow", kernels=("joint", "additive"))
    state, sizes = {}, []
    first = 10
    later = math.ceil(_GROWTH * first)
    last = math.ceil(_GROWTH * later)
    # The clock does not matter, nor what predictions rest on.
    for n, clock, is_judged in (
        (first, 10, True), (first, 11, False), (later - 1, 900, False), (later, 901, True),
        (last - 1, 902, False), (last, 903, True),
    ):  # fmt: skip
        before = len(judged)
        state = some.fit(state, slow_rows(n), "mixed", clock)
        assert len(judged) - before == 2 * is_judged, n
        sizes += [n, n] * is_judged
        assert state["slow/mixed/all"] == sizes[-1]
        made = len(judged)
        more = slow_rows(3 * n)
        models, after = some.choose(state, more, every_row(more), clock)
        assert len(judged) == made
        assert after == state
        assert torch.equal(models.choice, state["slow/choice"])
    assert [train.X.shape[1] for train, _ in judged] == sizes
    assert {config.options for _, config in judged} == {_JUDGED}


def test_all_kinds_are_fitted_when_they_are_judged_and_later_the_chosen_ones_alone():
    some, n = learner("slow", kernels=("joint", "additive", "smooth")), 40
    state = some.fit({}, slow_rows(n), "mixed", n)
    keys = [f"slow/{source.name}.theta" for source in some.sources]
    # Fits wait for rows, not for the clock.
    early = some.fit(state, slow_rows(math.ceil(_SLOW_GROWTH * n) - 1), "mixed", n + 900)
    assert early is state
    for choice in ([1, 1, 1], [2, 1, 2], [1, 2, 1]):
        before, n = {**state, "slow/choice": torch.tensor(choice)}, math.ceil(_SLOW_GROWTH * n)
        state = some.fit(before, slow_rows(n), "mixed", n)
        for i, key in enumerate(keys):
            is_new = (state[key] != before[key]).any(dim=1).tolist()
            assert is_new == [chosen == i for chosen in choice]
        assert torch.equal(state["slow/choice"], torch.tensor(choice))
        assert state["slow/mixed/all"] == 40
    # When kernels are judged again all are, however lately one was.
    n, before = math.ceil(_GROWTH * 40), state
    state = some.fit(state, slow_rows(n), "mixed", n)
    assert all((state[key] != before[key]).any(dim=1).all() for key in keys)


def test_fits_alone_do_not_change_the_slow_choice(judged):
    some, train = learner("slow", kernels=("joint", "additive"), calibrated=True), slow_rows(18)
    state = some.fit({}, train, "mixed", 18)
    first, state = some.choose(state, train, every_row(train), 18)
    # As if another choice had been made: it is respected, with its factor.
    other = {**state, "slow/choice": 1 - first.choice, "slow/factor": 2.0 + draw(B)}
    refitted = some.fit(other, training(20, seed=11), "mixed", 60)
    thetas = [f"slow/{some.sources[i].name}.theta" for i in set(other["slow/choice"].tolist())]
    assert not any(torch.equal(refitted[key], state[key]) for key in thetas)
    made, Z = len(judged), draw(B, 7, D, seed=9)
    kept, after = some.choose(refitted, train, every_row(train), 60)
    assert len(judged) == made
    assert after == refitted
    assert torch.equal(kept.choice, 1 - first.choice)
    expected = condition_chosen(
        train, candidates_of(some, refitted), 1 - first.choice, trend=CONSTANT
    )
    same(kept.predict(Z)[1], expected.predict(Z)[1] * other["slow/factor"][:, None], 1e-12)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_do_not_matter_to_the_slow_choice(unit):
    some, train = learner("slow", kernels=("joint", "additive")), slow_rows(16)
    states = []
    for rows in (train, replace(train, y=unit * train.y)):
        state = some.fit({}, rows, "mixed", 16)
        states.append(some.choose(state, rows, every_row(rows), 16)[1])
    assert torch.equal(states[1]["slow/choice"], states[0]["slow/choice"])
    torch.testing.assert_close(
        states[1]["slow/factor"], states[0]["slow/factor"], rtol=1e-2, atol=0
    )


def test_rows_that_do_not_exist_do_not_matter_to_the_slow_choice():
    some, Z = learner("slow", calibrated=True), draw(B, 7, D, seed=9)
    state = some.fit({}, slow_rows(16), "mixed", 16)
    found = []
    for gone in (0, 5):
        train = slow_rows(16, gone=gone)
        # Their values are anything.
        train = replace(train, X=torch.cat([slow_rows(16).X, train.X[:, 16:]], dim=1),
                        y=torch.cat([slow_rows(16).y, 1e9 + train.y[:, 16:]], dim=1))  # fmt: skip
        found.append(some.choose(state, train, every_row(train), 16))
    (models, state), (padded, padded_state) = found
    assert torch.equal(padded.choice, models.choice)
    torch.testing.assert_close(padded_state["slow/factor"], state["slow/factor"], rtol=1e-2, atol=0)
    same(padded.mean(Z), models.mean(Z), 1e-9)


def test_a_slow_choice_of_a_batch_is_that_of_its_members():
    some, Z = learner("slow", kernels=("joint", "additive")), draw(B, 7, D, seed=9)
    train = slow_rows(18)
    state = some.fit({}, train, "mixed", 18)
    models, state = some.choose(state, train, every_row(train), 18)
    for i in range(B):
        k = slice(i, i + 1)
        own = some.fit({}, train[k], "mixed", 18)
        alone, own = some.choose(own, train[k], every_row(train)[k], 18)
        assert alone.choice.tolist() == [models.choice[i].item()]
        same(own["slow/factor"][0], state["slow/factor"][i], 1e-2)
        same(alone.mean(Z[k])[0], models.mean(Z)[i], 1e-4)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_slow_values_that_are_constant_can_be_learned_from(n):
    some, train = learner("slow", calibrated=True), slow_rows(n)
    train = replace(train, y=torch.full_like(train.y, 3.0))
    state = some.fit({}, train, "mixed", n)
    models, state = some.choose(state, train, every_row(train), n)
    mean, variance = models.predict(draw(B, 7, D, seed=9))
    same(mean, torch.full_like(mean, 3.0), 1e-9)
    assert (variance < 1e-9).all()
    assert state["slow/factor"].isfinite().all()


@pytest.mark.parametrize("n", [5, 9, 19])
def test_one_slow_value_unlike_all_others_does_not_widen_without_limit(n):
    # The fits without it see a constant, and are sure of it.
    some, train = learner("slow", calibrated=True), slow_rows(n)
    y = torch.full_like(train.y, 3.0)
    y[:, 2] = 4.0
    train = replace(train, y=y)
    state = some.fit({}, train, "mixed", n)
    models, state = some.choose(state, train, every_row(train), n)
    assert (state["slow/factor"] <= 100).all()
    assert (models.predict(draw(B, 7, D, seed=9))[1] < 100).all()
