"""When TC-EHVI fits its models, where fits begin, and how it chooses among them."""

from dataclasses import replace

import pytest
import torch

from tcsaea_torch.models import BFGSOptions, TrainingSet, choose
from tcsaea_torch.models.choice import condition_chosen
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.strategies import ehvi_surrogates
from tcsaea_torch.strategies.ehvi_surrogates import KERNEL_KINDS, sources
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
def fits(monkeypatch):
    """What each fit was asked for."""
    calls = []

    def recorded(train, config, *, trend, init=None):
        calls.append((train, config, init))
        return fit(train, config, trend=trend, init=init)

    monkeypatch.setattr(ehvi_surrogates, "fit", recorded)
    return calls


def learned(some, state, n, kind, clock, fits):
    """Return the state after a fit, and how many fits were made."""
    before = len(fits)
    state = some.fit(state, training(n), kind, clock)
    return state, len(fits) - before


# --- sources ---


def test_sources_are_those_of_the_model():
    names = lambda *args: [source.name for source in sources(*args)]  # noqa: E731
    # Smooth and cautious kernels are for GP_s.
    fast = ["space-joint", "space-additive", "mixed-joint", "mixed-additive"]
    assert names("fast", KERNEL_KINDS) == names("joined", KERNEL_KINDS) == fast
    assert names("slow", KERNEL_KINDS) == [f"mixed-{kind}" for kind in KERNEL_KINDS]
    assert KERNEL_KINDS[0] == "joint"
    assert names("fast", ("smooth", "joint")) == ["space-joint", "mixed-joint"]
    assert names("fast", ("smooth", "cautious")) == [
        "space-smooth", "space-cautious", "mixed-smooth", "mixed-cautious"
    ]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNEL_KINDS)
@pytest.mark.parametrize("model", ["fast", "slow", "joined"])
def test_every_model_has_a_source_with_any_kernel(model, kernel):
    found = sources(model, (kernel,))
    assert found
    assert {source.kernel for source in found} == {kernel}


@pytest.mark.parametrize("model", ["fast", "slow", "joined"])
def test_names_of_sources_are_unlike(model):
    names = [source.name for source in sources(model, KERNEL_KINDS)]
    assert len(set(names)) == len(names)


def test_fits_begin_where_related_ones_have_ended():
    starts = {
        model: {s.name: s.starts_at for s in sources(model, KERNEL_KINDS)}
        for model in ("fast", "slow", "joined")
    }
    assert set(starts["slow"].values()) == {None}
    assert starts["fast"] == {
        "space-joint": None, "space-additive": None, "mixed-joint": "fast/space-joint",
        "mixed-additive": "fast/space-additive",
    }  # fmt: skip
    assert starts["joined"] == {
        "space-joint": "fast/space-joint", "space-additive": "fast/space-additive",
        "mixed-joint": "joined/space-joint", "mixed-additive": "joined/space-additive",
    }  # fmt: skip


# --- when fits are due ---


def test_space_is_fitted_again_when_rows_have_grown(fits):
    some, state = learner(kernels=("joint", "additive")), {}
    for n, clock, expected in ((20, 20, 2), (20, 50, 0), (26, 60, 0), (27, 61, 2), (36, 900, 0)):
        state, made = learned(some, state, n, "space", clock, fits)
        assert made == expected, n
    assert state["fast/judged"] == state["fast/fitted"] == 61


def test_all_are_fitted_again_when_values_have_become_many_more(fits):
    """However many rows they learn from: these become other ones."""
    some, state = learner(kernels=("joint", "additive")), {"fast/choice": torch.zeros(B).long()}
    for n, clock, expected in ((20, 100, 2), (90, 109, 0), (20, 135, 2), (20, 148, 0)):
        state, made = learned(some, state, n, "mixed", clock, fits)
        assert made == expected, clock
    assert state["fast/judged"] == state["fast/fitted"] == 135


def only(state, i):
    """The state of one run of the batch."""
    return {
        key: value[i : i + 1] if isinstance(value, torch.Tensor) else value
        for key, value in state.items()
    }


def test_the_chosen_ones_are_fitted_more_often_each_for_the_runs_that_have_it(fits):
    some = learner(kernels=("additive", "joint"))
    keys = [f"fast/{source.name}.theta" for source in some.sources]
    assert [source.rows for source in some.sources] == ["space", "space", "mixed", "mixed"]
    state = prepared(some, clock=100)
    for clock, choice, expected in (
        (110, [2, 3, 3], []), (111, [2, 3, 3], [1, 2]), (123, [0, 3, 1], [1]),
    ):  # fmt: skip
        before, n_fits = {**state, "fast/choice": torch.tensor(choice)}, len(fits)
        train = training(24, seed=clock)
        state = some.fit(before, train, "mixed", clock)
        assert [len(call[0].X) for call in fits[n_fits:]] == expected
        assert torch.equal(state["fast/choice"], before["fast/choice"])
        for i, chosen in enumerate(choice):
            alone = some.fit(only(before, i), train[i : i + 1], "mixed", clock)
            for which, key in enumerate(keys):
                is_due = clock >= 111 and which >= 2 and which == chosen
                assert torch.equal(state[key][i], before[key][i]) == (not is_due)
                same(state[key][i].log(), alone[key][0].log(), 1e-3)
    assert state["fast/judged"] == 100
    assert state["fast/fitted"] == 123


def test_only_sources_of_such_rows_are_fitted(fits):
    some = learner()
    state, made = learned(some, {}, 20, "space", 20, fits)
    assert made == 2
    state, made = learned(some, state, 20, "mixed", 20, fits)
    assert made == 2
    assert {key.split(".")[0] for key in state if ".theta" in key} == {
        f"fast/{source.name}" for source in some.sources
    }


def test_other_models_are_not_touched():
    state = learner(kernels=("joint",)).fit({}, training(15), "space", 15)
    before = dict(state)
    after = learner("slow", kernels=("joint",)).fit(state, training(12), "mixed", 15)
    assert state == before
    assert all(after[key] is state[key] for key in state)


# --- how fits are made ---


def test_a_fit_is_that_of_its_kernel_and_its_rows(fits):
    state = learner().fit({}, training(20), "space", 20)
    for (train, config, _), kernel in zip(fits, ("joint", "additive"), strict=True):
        assert replace(config, options=BFGSOptions()) == config_of(kernel)
        assert train.X.shape == (B, 20, D)
    expected = fit(training(20), fits[0][1], trend=CONSTANT).hyperparameters
    assert torch.equal(state["fast/space-joint.theta"], expected.theta)


def test_kernels_are_what_they_are_said_to_be():
    kinds = {kind: config_of(kind) for kind in KERNEL_KINDS}
    assert {kind for kind, config in kinds.items() if config.kernel == "additive"} == {
        "additive", "smooth", "cautious"
    }  # fmt: skip
    fitted = {kind for kind, config in kinds.items() if config.nugget == "fit"}
    assert fitted == {"joint", "additive", "smooth"}
    for kind in fitted:
        low, high = kinds[kind].nugget_range
        prior = kinds[kind].nugget_prior
        assert prior is not None
        assert low < prior[0] < high
    # The sum of a joint kernel's thetas has one prior, whatever the number of dimensions.
    assert kinds["joint"].theta_prior == (pytest.approx(12.0 / D), 3.5)


@pytest.mark.parametrize("model", ["fast", "slow", "joined"])
@pytest.mark.parametrize("d", [2, 5])
def test_thetas_of_joint_kernels_have_a_prior_in_all_models(fits, model, d):
    X = draw(B, 12, d)
    train = TrainingSet(X=X, y=X.sum(dim=-1), noise_var=torch.zeros(B, 12).double())
    some = learner(model, kernels=("joint",))
    state = {} if model == "slow" else some.fit({}, train, "space", 12)
    some.fit(state, train, "mixed", 12)
    assert len(fits) == len(some.sources)
    for _, config, _ in fits:
        centre, spread = config.theta_prior
        assert centre == pytest.approx(12.0 / d)
        assert spread == 3.5


def test_the_slow_objective_has_cautious_fits(fits):
    state = learner("slow").fit({}, training(10), "mixed", 10)
    found = [replace(config, options=BFGSOptions()) for _, config, _ in fits]
    assert found == [config_of(kernel) for kernel in KERNEL_KINDS]
    for kernel in ("joint", "additive", "smooth"):
        low, high = config_of(kernel).nugget_range
        nugget = state[f"slow/mixed-{kernel}.nugget"]
        assert ((nugget > 0.99 * low) & (nugget < 1.01 * high)).all()
    assert "slow/mixed-cautious.nugget" not in state
    # Their thetas stay near the prior's, which those of the bold fit need not.
    for kernel, centre, limit in (("smooth", 1.0, 4.0), ("cautious", 20.0, 3.0)):
        distance = {
            name: (state[f"slow/mixed-{name}.theta"] / centre).log().abs().max()
            for name in ("additive", kernel)
        }
        assert distance[kernel] < limit < distance["additive"]


def test_fits_are_warm_shorter_and_begin_where_they_should(fits):
    some, state = learner(kernels=("joint", "additive")), {}
    state = some.fit(state, training(20), "space", 20)
    state = some.fit(state, training(20), "mixed", 20)
    of = lambda call: (call[1].options.max_evaluations, call[2])  # noqa: E731
    cold, related = list(map(of, fits[:2])), list(map(of, fits[2:]))
    assert [init for _, init in cold] == [None, None]
    for kernel, (length, init) in zip(("joint", "additive"), related, strict=True):
        assert length < cold[0][0] == cold[1][0]
        assert torch.equal(init.theta, state[f"fast/space-{kernel}.theta"])
        assert init.p is init.variance is None
    again = some.fit(state, training(40), "space", 40)
    warm, init = of(fits[4])
    assert warm < related[0][0]
    assert torch.equal(init.theta, state["fast/space-joint.theta"])
    assert not torch.equal(again["fast/space-joint.theta"], state["fast/space-joint.theta"])


def test_noise_is_fitted_where_it_is_said_to_be(fits):
    noisy = learner(kernels=("joint",), noisy=True)
    state = prepared(noisy, 20, 20)
    assert fits[0][1].nugget == "fit"
    assert (state["fast/space-joint.nugget"] >= 1e-6 * (1 - 1e-12)).all()
    models, _ = noisy.choose(state, training(20), CONSTANT[:, None].expand(B, 20), 20)
    assert models.groups[0].surrogate.hyperparameters.nugget is not None
    exact = learner(kernels=("cautious",)).fit({}, training(9), "space", 9)
    assert "fast/space-cautious.nugget" not in exact


# --- choosing ---


def test_noise_is_fitted_over_all_of_its_range_by_any_kernel(fits):
    learner("slow", noisy=True).fit({}, training(20), "mixed", 20)
    assert len(fits) == len(KERNEL_KINDS)
    for _, config, _ in fits:
        assert (config.nugget, config.nugget_prior) == ("fit", None)
        assert config.nugget_range == (1e-6, 1.0)


def prepared(some, n=24, clock=24):
    state = some.fit({}, training(n), "space", clock)
    return some.fit(state, training(n, seed=5), "mixed", clock)


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
    factor = expected.leave_one_out().variance_factor(0.01).clamp_max(100.0)
    assert torch.equal(state["fast/factor"], factor)
    mean, variance = expected.predict(Z)
    same(models.predict(Z)[0], mean, 1e-12)
    same(models.predict(Z)[1], variance * (factor[:, None] if calibrated else 1.0), 1e-12)


def test_the_choice_is_kept_until_the_next_fit(monkeypatch):
    some = learner(kernels=("joint", "additive"), calibrated=True)
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
    # Where the chosen ones alone have been fitted again, the factor is a new one.
    refitted = some.fit(other, training(24), "mixed", 30)
    again, after = some.choose(refitted, more, is_space, 30)
    assert torch.equal(again.choice, other["fast/choice"])
    expected = condition_chosen(more, candidates_of(some, refitted), again.choice, trend=CONSTANT)
    factor = expected.leave_one_out().variance_factor(0.01).clamp_max(100.0)
    assert torch.equal(after["fast/factor"], factor)
    # Fits of all make the next choice a new one.
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
    some, Z = learner(kernels=("joint", "additive")), draw(B, 7, D, seed=9)
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
    some = learner("joined", kernels=("joint", "additive"), calibrated=True)
    train = training(24, noise=0.01)
    train = replace(train, noise_var=train.noise_var * (draw(B, 24, seed=8) < 0.5))
    state = learner(kernels=("joint", "additive")).fit({}, training(24), "space", 24)
    state = some.fit(state, train, "space", 24)
    state = some.fit(state, train, "mixed", 24)
    models, _ = some.choose(state, train, torch.ones(B, 24, dtype=torch.bool), 24)
    mean, variance = models.predict(draw(B, 7, D, seed=9))
    assert mean.isfinite().all()
    assert (variance > 0).all()


@pytest.mark.parametrize(("shrink", "limit"), [(1e-6, 100.0), (1e6, 0.01)])
def test_the_factor_of_leave_one_out_errors_has_limits(shrink, limit):
    # Where rows are noisy, sigma^2 is that of the fit, here a wrong one.
    some, train = learner(kernels=("cautious",), calibrated=True), training(24, noise=1e-9)
    state = some.fit({}, train, "space", 24)
    state = some.fit(state, train, "mixed", 24)
    for source in some.sources:
        key = f"fast/{source.name}.variance"
        state = {**state, key: shrink * state[key]}
    train = replace(train, noise_var=shrink * train.noise_var)
    models, state = some.choose(state, train, torch.ones(B, 24, dtype=torch.bool), 24)
    assert state["fast/factor"].tolist() == [limit] * B
    assert models.predict(draw(B, 7, D, seed=9))[1].isfinite().all()
