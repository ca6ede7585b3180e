"""When TC-EHVI fits its models, where fits begin, and how it chooses among them."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tcsaea_torch.models import Candidate, FitConfig, Hyperparameters, TrainingSet, choose
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.strategies import ehvi_surrogates
from tcsaea_torch.strategies.ehvi_surrogates import (
    KERNEL_KINDS,
    Learner,
    expected_structure,
    sources,
)
from tests.models.models import draw, same, wavy

B, D = 3, 3
CONSTANT = torch.zeros(B, dtype=torch.bool)


def training(n, *, seed=0, noise=0.0):
    X = draw(B, n, D, seed=seed)
    y = wavy(X) + torch.arange(B)[:, None] * (12.0 * X[..., 1]).cos()
    return TrainingSet(X=X, y=y, noise_var=torch.full((B, n), noise).double())


def learner(model: Any = "fast", kernels=KERNEL_KINDS, **options) -> Any:
    options = {"shares_structure": False, "refit_after": 30.0, "noisy": False,
               "calibrated": False, **options}  # fmt: skip
    shares = options.pop("shares_structure")
    return Learner(model=model, sources=sources(model, kernels, shares_structure=shares), **options)


@pytest.fixture
def fits(monkeypatch):
    """What each fit was asked for."""
    calls = []

    def recorded(train, config, *, trend, init=None, prior=None):
        calls.append((train, config, init, prior))
        return fit(train, config, trend=trend, init=init, prior=prior)

    monkeypatch.setattr(ehvi_surrogates, "fit", recorded)
    return calls


def learned(some, state, n, kind, clock, fits):
    """Return the state after a fit, and how many fits were made."""
    before = len(fits)
    state = some.fit(state, training(n), kind, clock)
    return state, len(fits) - before


# --- sources ---


def test_sources_are_those_of_the_model():
    names = lambda *args, **options: [s.name for s in sources(*args, **options)]  # noqa: E731
    fast = names("fast", KERNEL_KINDS, shares_structure=True)
    assert fast == ["space-ard", "space-additive", "space-rough", "mixed-additive", "mixed-rough"]
    assert names("joined", KERNEL_KINDS, shares_structure=True) == fast
    expected = ["mixed-ard", "mixed-additive", "mixed-additive-expected"]
    assert names("slow", KERNEL_KINDS, shares_structure=True) == expected
    assert names("slow", KERNEL_KINDS, shares_structure=False) == expected[:2]
    assert names("slow", ("ard",), shares_structure=True) == ["mixed-ard"]
    assert names("fast", ("ard",), shares_structure=True) == ["space-ard"]


@pytest.mark.parametrize("kernel", KERNEL_KINDS)
@pytest.mark.parametrize("model", ["fast", "slow", "joined"])
@pytest.mark.parametrize("shares", [False, True])
def test_every_model_has_a_source_with_any_kernel(shares, model, kernel):
    found = sources(model, (kernel,), shares_structure=shares)
    assert found
    assert {source.kernel for source in found} == {kernel}


def test_fits_begin_where_related_ones_have_ended():
    starts = {
        model: {s.name: s.starts_at for s in sources(model, KERNEL_KINDS, shares_structure=True)}
        for model in ("fast", "slow", "joined")
    }
    assert set(starts["slow"].values()) == {None}
    assert starts["fast"] == {
        "space-ard": None, "space-additive": None, "space-rough": "fast/space-additive",
        "mixed-additive": "fast/space-additive", "mixed-rough": "fast/space-rough",
    }  # fmt: skip
    assert starts["joined"] == {
        "space-ard": "fast/space-ard", "space-additive": "fast/space-additive",
        "space-rough": "fast/space-rough", "mixed-additive": "joined/space-additive",
        "mixed-rough": "joined/space-rough",
    }  # fmt: skip
    alone = sources("fast", ("rough",), shares_structure=False)
    assert [s.starts_at for s in alone] == [None, "fast/space-rough"]


# --- when fits are due ---


def test_space_is_fitted_again_when_rows_have_grown(fits):
    some, state = learner(kernels=("ard", "additive")), {}
    for n, clock, expected in ((20, 20, 2), (20, 50, 0), (27, 60, 0), (28, 61, 2), (39, 900, 0)):
        state, made = learned(some, state, n, "space", clock, fits)
        assert made == expected, n
    assert state["fast/space-ard/n"] == 28
    assert state["fast/clock"] == 61


def test_mixed_rows_are_fitted_again_after_evaluations(fits):
    some, state = learner("slow", kernels=("ard", "additive")), {}
    for n, clock, expected in ((20, 20, 2), (90, 49, 0), (20, 50, 2), (20, 79, 0), (20, 80, 2)):
        state, made = learned(some, state, n, "mixed", clock, fits)
        assert made == expected, clock


def test_only_sources_of_such_rows_are_fitted(fits):
    some = learner()
    state, made = learned(some, {}, 20, "space", 20, fits)
    assert made == 3
    state, made = learned(some, state, 20, "mixed", 20, fits)
    assert made == 2
    assert {key.split(".")[0] for key in state if ".theta" in key} == {
        f"fast/{source.name}" for source in some.sources
    }


def test_other_models_are_not_touched():
    state = learner(kernels=("ard",)).fit({}, training(15), "space", 15)
    before = dict(state)
    after = learner("slow", kernels=("ard",)).fit(state, training(12), "mixed", 15)
    assert state == before
    assert all(after[key] is state[key] for key in state)


# --- how fits are made ---


def test_a_fit_is_that_of_its_kernel_and_its_rows(fits):
    state = learner().fit({}, training(20), "space", 20)
    for (train, config, _, prior), (kernel, p) in zip(
        fits, (("power-exponential", 2.0), ("additive", 2.0), ("additive", 1.5)), strict=True
    ):
        assert (config.kernel, config.p, config.nugget) == (kernel, p, 1e-8)
        assert prior is None
        assert train.X.shape == (B, 20, D)
    expected = fit(training(20), fits[0][1], trend=CONSTANT).hyperparameters
    assert torch.equal(state["fast/space-ard.theta"], expected.theta)


def test_fits_are_warm_shorter_and_begin_where_they_should(fits):
    some, state = learner(), {}
    state = some.fit(state, training(20), "space", 20)
    of = lambda call: (call[1].options.max_evaluations, call[2])  # noqa: E731
    (ard, init_ard), (_, init_additive), (rough, init_rough) = map(of, fits)
    assert init_ard is init_additive is None
    assert rough < ard
    assert torch.equal(init_rough.theta, state["fast/space-additive.theta"])
    assert init_rough.p is init_rough.variance is None
    again = some.fit(state, training(40), "space", 40)
    warm, init = of(fits[3])
    assert warm < rough
    assert torch.equal(init.theta, state["fast/space-ard.theta"])
    assert not torch.equal(again["fast/space-ard.theta"], state["fast/space-ard.theta"])


def test_the_other_objectives_structure_is_expected(fits):
    state = learner().fit({}, training(30), "space", 30)
    made = len(fits)
    state = learner("slow", shares_structure=True).fit(state, training(10), "mixed", 30)
    priors = [prior for _, _, _, prior in fits[made:]]
    assert [prior is not None for prior in priors] == [False, False, True]
    hyper = Hyperparameters(
        theta=state["fast/space-additive.theta"],
        kernel="additive",
        amplitudes=state["fast/space-additive.amplitudes"],
    )
    expected, init = expected_structure(hyper), fits[-1][2]
    assert torch.equal(priors[-1].log_theta, expected.log_theta)
    same(init.theta.log(), expected.log_theta, 1e-12)
    same(init.amplitudes.log(), expected.log_amplitudes, 1e-12)
    # The next fit is warm, and still expects it.
    state = learner("slow", shares_structure=True).fit(state, training(12), "mixed", 90)
    _, _, init, prior = fits[-1]
    assert prior is not None
    assert init.variance is not None


def test_noise_is_fitted_where_it_is_said_to_be(fits):
    noisy = learner(kernels=("ard",), noisy=True)
    state = noisy.fit({}, training(20), "space", 20)
    assert fits[0][1].nugget == "fit"
    assert (state["fast/space-ard.nugget"] >= 1e-6 * (1 - 1e-12)).all()
    models, _ = noisy.choose(state, training(20), CONSTANT[:, None].expand(B, 20), 20)
    assert models.groups[0].surrogate.hyperparameters.nugget is not None
    assert "fast/space-ard.nugget" not in learner(kernels=("ard",)).fit({}, training(9), "space", 9)


# --- choosing ---


def prepared(some, n=24, clock=24):
    state = some.fit({}, training(n), "space", clock)
    return some.fit(state, training(n, seed=5), "mixed", clock)


def candidates_of(some, state):
    configs = {
        "ard": FitConfig(theta_range=(1e-6, 1e3), nugget=1e-8),
        "additive": FitConfig(kernel="additive", nugget=1e-8),
        "rough": FitConfig(kernel="additive", p=1.5, nugget=1e-8),
    }
    found = []
    for source in some.sources:
        prefix = f"{some.model}/{source.name}."
        values = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        hyper = Hyperparameters(**values)
        found.append(Candidate(config=configs[source.kernel], hyperparameters=hyper))
    return found


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_source_of_least_error_is_taken(calibrated):
    some, Z = learner(calibrated=calibrated), draw(B, 7, D, seed=9)
    state, train, is_space = prepared(some), training(30, seed=6), draw(B, 30, seed=7) < 0.5
    models, state = some.choose(state, train, is_space, 24)
    expected = choose(
        train, candidates_of(some, state), trend=CONSTANT, is_space=is_space, score="error"
    )
    assert torch.equal(models.choice, expected.choice)
    assert torch.equal(state["fast/choice"], models.choice)
    factor = expected.variance_factor()
    assert torch.equal(state["fast/factor"], factor)
    mean, variance = expected.predict(Z)
    same(models.predict(Z)[0], mean, 1e-12)
    same(models.predict(Z)[1], variance * (factor[:, None] if calibrated else 1.0), 1e-12)


def test_the_choice_is_kept_until_the_next_fit(monkeypatch):
    some = learner(kernels=("ard", "additive"), calibrated=True)
    state, train = prepared(some), training(30, seed=6)
    is_space = torch.ones(B, 30, dtype=torch.bool)
    first, state = some.choose(state, train, is_space, 24)
    # As if another choice had been made: it is respected, with its factor.
    other = {**state, "fast/choice": (first.choice + 1) % 3, "fast/factor": 2.0 + draw(B)}
    more, Z = training(36, seed=6), draw(B, 7, D, seed=9)
    is_space = torch.ones(B, 36, dtype=torch.bool)
    kept, after = some.choose(other, more, is_space, 25)
    assert after == other
    assert torch.equal(kept.choice, other["fast/choice"])
    kinds, variance = candidates_of(some, state), kept.predict(Z)[1]
    for i, which in enumerate(kept.choice.tolist()):
        alone = choose(more, [kinds[which]], trend=CONSTANT)
        same(kept.mean(Z)[i], alone.mean(Z)[i], 1e-9)
        same(variance[i], other["fast/factor"][i] * alone.predict(Z)[1][i], 1e-8)
    # A fit makes the next choice a new one.
    refitted = some.fit(other, training(40), "space", 60)
    again, after = some.choose(refitted, more, is_space, 60)
    assert torch.equal(after["fast/choice"], again.choice)
    assert not torch.equal(after["fast/factor"], other["fast/factor"])


def test_the_state_is_flat_and_can_be_kept():
    some = learner()
    state, train = prepared(some), training(30, seed=6)
    is_space = torch.ones(B, 30, dtype=torch.bool)
    models, state = some.choose(state, train, is_space, 24)
    assert all(isinstance(value, torch.Tensor | int | float | str) for value in state.values())
    kept = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    again, _ = some.choose(kept, train, is_space, 25)
    Z = draw(B, 7, D, seed=9)
    for mine, theirs in zip(again.predict(Z), models.predict(Z), strict=True):
        same(mine, theirs, 1e-9)
    mine, theirs = (some.fit(s, training(60), "space", 80) for s in (state, kept))
    assert mine.keys() == theirs.keys()
    for key, value in mine.items():
        other = theirs[key]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


def test_a_batch_is_its_members():
    some, Z = learner(kernels=("ard", "additive")), draw(B, 7, D, seed=9)
    train, is_space = training(30, seed=6), draw(B, 30, seed=7) < 0.5
    models, _ = some.choose(prepared(some), train, is_space, 24)
    for i in range(B):
        k = slice(i, i + 1)
        state = some.fit({}, training(24)[k], "space", 24)
        state = some.fit(state, training(24, seed=5)[k], "mixed", 24)
        alone, _ = some.choose(state, train[k], is_space[k], 24)
        assert alone.choice.tolist() == [models.choice[i].item()]
        same(alone.mean(Z[k])[0], models.mean(Z)[i], 1e-4)


def test_uncertain_values_are_learned_from():
    some = learner("joined", kernels=("ard", "additive"), calibrated=True)
    train = training(24, noise=0.01)
    train = replace(train, noise_var=train.noise_var * (draw(B, 24, seed=8) < 0.5))
    state = learner(kernels=("ard", "additive")).fit({}, training(24), "space", 24)
    state = some.fit(state, train, "space", 24)
    state = some.fit(state, train, "mixed", 24)
    models, _ = some.choose(state, train, torch.ones(B, 24, dtype=torch.bool), 24)
    mean, variance = models.predict(draw(B, 7, D, seed=9))
    assert mean.isfinite().all()
    assert (variance > 0).all()


# --- what one objective tells of the other ---


def structure(a, theta, w=0.5):
    """Additive hyper-parameters with d a_k and theta as given."""
    a, theta = (torch.tensor(v, dtype=torch.float64) for v in (a, theta))
    amplitudes = torch.cat([a / a.shape[-1], torch.full_like(a[..., :1], w)], dim=-1)
    return Hyperparameters(theta=theta, kernel="additive", amplitudes=amplitudes)


def test_what_matters_there_is_expected_here():
    prior = expected_structure(structure([[3.0, 1.0]], [[7.0, 40.0]]))
    same(prior.log_theta.exp(), torch.tensor([[7.0, 40.0]]).double(), 1e-12)
    same(prior.log_amplitudes.exp(), torch.tensor([[1.5, 0.5, 0.5]]).double(), 1e-12)


def test_of_what_does_not_matter_there_little_is_expected():
    prior = expected_structure(structure([[1.0, 1e-12, 1.0]], [[4.0, 1e-3, 16.0]]))
    # In the middle of those that matter, with the usual amplitude.
    same(prior.log_theta.exp(), torch.tensor([[4.0, 8.0, 16.0]]).double(), 1e-9)
    same(prior.log_amplitudes[:, :3].exp(), torch.ones(1, 3).double() / 3.0, 1e-9)


def test_half_a_part_is_half_expected():
    prior = expected_structure(structure([[1.0, 0.5]], [[4.0, 0.25]]))
    middle = (math.log(4.0) + 0.5 * math.log(0.25)) / 1.5
    expected = 0.5 * middle + 0.5 * math.log(0.25)
    assert prior.log_theta[0, 1].item() == pytest.approx(expected, abs=1e-12)
    expected = 0.5 * math.log(0.25) + 0.5 * math.log(0.5)
    assert prior.log_amplitudes[0, 1].item() == pytest.approx(expected, abs=1e-12)
    assert prior.theta_spread.shape == (1, 2)
    assert prior.amplitude_spread.shape == (1, 3)
    assert (prior.amplitude_spread > 0).all()


def test_expectations_of_a_batch_are_those_of_its_members():
    hyper = Hyperparameters(theta=draw(B, D), kernel="additive", amplitudes=draw(B, D + 1, seed=1))
    together = expected_structure(hyper)
    for i in range(B):
        k = slice(i, i + 1)
        alone, mine = expected_structure(hyper[k]), map_tensors(together, lambda t, k=k: t[k])
        for name in vars(alone):
            same(getattr(alone, name), getattr(mine, name), 1e-14)
