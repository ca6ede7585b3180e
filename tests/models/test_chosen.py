"""Models of different kinds in one batch: conditioned again, judged, and widened."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tcsaea_torch.errors import FitError, InvalidInputError
from tcsaea_torch.models import (
    Candidate,
    FitConfig,
    Hyperparameters,
    TrainingSet,
    choose,
    leave_one_out,
)
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.choice import condition_chosen
from tcsaea_torch.models.leave_one_out import mean_log_error
from tcsaea_torch.models.surrogate import condition, scale
from tests.models.models import draw, f64, same, wavy

B, D, N = 5, 3, 20
CONSTANT = torch.zeros(B, dtype=torch.bool)
CHOICE = torch.tensor([2, 0, 0, 2, 1])


def training(n=N, *, noisy=False, seed=0):
    """Training sets of which some lack rows."""
    X = draw(B, n, D, seed=seed)
    noise = 0.01 * draw(B, n, seed=2) if noisy else torch.zeros(B, n).double()
    noise = noise.masked_fill(draw(B, n, seed=3) < 0.1, math.inf)
    return TrainingSet(X=X, y=wavy(X) * (1.0 + torch.arange(B)[:, None]), noise_var=noise)


def candidates(*, variance=False):
    """Kinds that differ in all that a configuration and hyper-parameters can."""
    sigma2 = 1.0 + draw(B, seed=20) if variance else None
    additive = Hyperparameters(
        theta=1.0 + 9.0 * draw(B, D, seed=21), kernel="additive", variance=sigma2,
        amplitudes=0.1 + draw(B, D + 1, seed=22), nugget=1e-3 * (1.0 + draw(B, seed=23)),
    )  # fmt: skip
    joint = Hyperparameters(theta=1.0 + 3.0 * draw(B, D, seed=24), variance=sigma2)
    rough = Hyperparameters(
        theta=draw(B, D, seed=25) + 0.1, p=torch.full((B, D), 1.5).double(), variance=sigma2
    )
    return (
        Candidate(config=FitConfig(nugget=1e-4), hyperparameters=joint),
        Candidate(config=FitConfig(kernel="additive", nugget="fit"), hyperparameters=additive),
        Candidate(
            config=FitConfig(p=1.5, nugget=1e-6, input_scaling="standardize"),
            hyperparameters=rough,
        ),
    )


def by_hand(train, kinds, choice, *, trend=CONSTANT):
    """Each model alone, as a batch of one."""
    models = []
    for i, which in enumerate(choice.tolist()):
        k, config = slice(i, i + 1), kinds[which].config
        one, hyper = train[k], kinds[which].hyperparameters[k]
        data, scaling = scale(one, trend=trend[k], input_scaling=config.input_scaling)
        if not bool((data.noise > 0).any()):
            hyper = replace(hyper, variance=None)
        nugget = config.nugget if isinstance(config.nugget, float) else 0.0
        models.append(condition(data, scaling, hyper, nugget=nugget))
    return models


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("choice", [CHOICE, torch.full((B,), 1), torch.tensor([0, 1, 2, 0, 1])])
def test_an_earlier_choice_is_conditioned_as_each_model_alone(choice, noisy):
    train, kinds, Z = training(noisy=noisy), candidates(variance=noisy), draw(B, 6, D, seed=5)
    trend = torch.arange(B) % 2 == 0
    found = condition_chosen(train, kinds, choice, trend=trend)
    mean, variance = found.predict(Z)
    loo = found.leave_one_out()
    factor = loo.variance_factor()
    for i, model in enumerate(by_hand(train, kinds, choice, trend=trend)):
        k = slice(i, i + 1)
        same(mean[k], model.predict(Z[k])[0], 1e-10)
        same(variance[k], model.predict(Z[k])[1], 1e-8)
        alone = leave_one_out(model)
        same(loo.error[k], alone.error, 1e-8)
        torch.testing.assert_close(loo.variance[k], alone.variance)
        torch.testing.assert_close(factor[k], alone.variance_factor())
    assert torch.equal(found.choice, choice)
    assert found.scores.isnan().all()
    assert sorted(int(i) for group in found.groups for i in group.members) == list(range(B))


def test_what_was_chosen_is_conditioned_again():
    train, kinds, Z = training(), candidates(), draw(B, 6, D, seed=5)
    for score in ("density", "error"):
        first = choose(train, kinds, trend=CONSTANT, score=score)
        again = condition_chosen(train, kinds, first.choice, trend=CONSTANT)
        for mine, theirs in zip(again.predict(Z), first.predict(Z), strict=True):
            same(mine, theirs, 1e-9)
        assert len(again.groups) == len(first.groups)
        for mine, theirs in zip(again.groups, first.groups, strict=True):
            assert torch.equal(mine.members, theirs.members)
            assert mine.config == theirs.config


@pytest.mark.parametrize("by_group", [False, True])
def test_the_score_of_errors_is_that_of_each_model(by_group):
    train, kinds = training(), candidates()
    is_space = draw(B, N, seed=6) < 0.5 if by_group else None
    found = choose(train, kinds, trend=CONSTANT, is_space=is_space, score="error")
    for c in range(len(kinds)):
        for i, model in enumerate(by_hand(train, kinds, torch.full((B,), c))):
            rows = None if is_space is None else is_space[i : i + 1]
            expected = mean_log_error(model, rows).item()
            assert found.scores[i, c].item() == pytest.approx(expected, abs=1e-8)
    assert torch.equal(found.choice, found.scores.argmax(dim=-1))


def test_variances_do_not_matter_to_the_score_of_errors():
    # With noisy rows sigma^2 is the candidate's. A scale of all variances leaves errors alone.
    train = training(noisy=True)
    kinds = candidates(variance=True)
    base = choose(train, kinds, trend=CONSTANT, score="error")
    wide, noise = [], 16.0 * train.noise_var
    for kind in kinds:
        variance = kind.hyperparameters.variance
        assert variance is not None
        hyper = replace(kind.hyperparameters, variance=16.0 * variance)
        wide.append(replace(kind, hyperparameters=hyper))
    other = replace(train, noise_var=noise)
    again = choose(other, wide, trend=CONSTANT, score="error")
    same(again.scores, base.scores, 1e-8)
    dense = choose(other, wide, trend=CONSTANT), choose(train, kinds, trend=CONSTANT)
    assert (dense[0].scores - dense[1].scores).abs().min() > 1e-3


@pytest.mark.parametrize("noisy", [False, True])
def test_widened_models_have_wider_variances_and_the_same_means(noisy):
    train, Z = training(noisy=noisy), draw(B, 6, D, seed=5)
    models = condition_chosen(train, candidates(variance=noisy), CHOICE, trend=CONSTANT)
    factor = 1.0 + 9.0 * draw(B, seed=7)
    wide = models.widened(factor)
    (mean, variance), (wide_mean, wide_variance) = models.predict(Z), wide.predict(Z)
    same(wide_mean, mean, 1e-12)
    same(wide_variance, factor[:, None] * variance, 1e-12)
    same(wide.predict_joint(Z)[1], factor[:, None, None] * models.predict_joint(Z)[1], 1e-12)
    loo, wide_loo = models.leave_one_out(), wide.leave_one_out()
    same(wide_loo.error, loo.error, 1e-12)
    torch.testing.assert_close(wide_loo.variance, factor[:, None] * loo.variance)
    assert wide.hyperparameters is models.hyperparameters
    # The given models stay as they were.
    assert torch.equal(models.predict(Z)[1], variance)


def test_widened_models_learn_more_rows():
    train, more, Z = training(), training(4, seed=30), draw(B, 6, D, seed=5)
    models = condition_chosen(train, candidates(), CHOICE, trend=CONSTANT)
    factor = 1.0 + 9.0 * draw(B, seed=7)
    wide = models.widened(factor)
    for change in (
        lambda m: m.extend(more.X, more.y, more.noise_var),
        lambda m: m.condition_on(training(30, seed=31)),
    ):
        (mean, variance), (wide_mean, wide_variance) = (
            change(m).predict(Z) for m in (models, wide)
        )
        same(wide_mean, mean, 1e-10)
        same(wide_variance, factor[:, None] * variance, 1e-10)


def test_calibrated_models_agree_with_their_errors():
    # Models whose sigma^2 is far too small.
    train = training()
    models = condition_chosen(train, candidates(), CHOICE, trend=CONSTANT).widened(f64([0.01] * B))
    factor = models.leave_one_out().variance_factor()
    assert (factor > 1).all()
    loo = models.widened(factor).leave_one_out()
    same(loo.variance_factor(), torch.ones(B).double(), 1e-9)
    squares = loo.error.square() / loo.variance
    for quantile, share in ((0.98896, 0.68), (3.84147, 0.95)):
        inside = (train.live & (squares <= quantile)).sum(dim=-1)
        assert (inside >= share * train.n_live).all()


def test_a_batch_is_its_members():
    train, kinds, Z = training(), candidates(), draw(B, 6, D, seed=5)
    together = condition_chosen(train, kinds, CHOICE, trend=CONSTANT)
    for i in range(B):
        k = slice(i, i + 1)
        mine = tuple(replace(c, hyperparameters=c.hyperparameters[k]) for c in kinds)
        alone = condition_chosen(train[k], mine, CHOICE[k], trend=CONSTANT[k])
        same(alone.predict(Z[k])[1][0], together.predict(Z)[1][i], 1e-10)
        same(alone.leave_one_out().error[0], together.leave_one_out().error[i], 1e-9)


@pytest.mark.parametrize(
    "choice", [[0, 1, 2, 3, 0], [0, 1, -1, 2, 0], [0, 1]], ids=["high", "negative", "few"]
)
@pytest.mark.usefixtures("unchecked")
def test_a_choice_of_what_is_not_there_is_refused(choice):
    with pytest.raises(InvalidInputError, match="choice must be 5 integers from 0 to 2, got"):
        condition_chosen(training(), candidates(), torch.tensor(choice), trend=CONSTANT)


@pytest.mark.usefixtures("unchecked")
def test_candidates_are_checked():
    wrong: Any = candidates()[0]
    wrong = replace(wrong, hyperparameters=wrong.hyperparameters[:2])
    others: Any = (FitConfig(),)
    for kinds, match in (((), "candidates"), (others, "a Candidate"), ((wrong,), "theta")):
        with pytest.raises(InvalidInputError, match=match):
            condition_chosen(training(), kinds, 0 * CHOICE, trend=CONSTANT)


def test_a_choice_that_cannot_be_factorised_is_an_error(monkeypatch):
    monkeypatch.setattr("tcsaea_torch.models.surrogate.JITTERS", (0.0,))
    train = training()
    train = replace(train, X=torch.full_like(train.X, 0.5))
    bad = replace(candidates()[0], config=FitConfig(nugget=0.0))
    with pytest.raises(FitError, match="chosen model"):
        condition_chosen(train, (bad,), 0 * CHOICE, trend=CONSTANT)


def test_single_precision():
    narrow = lambda t: t.float() if t.is_floating_point() else t  # noqa: E731
    kinds = [
        Candidate(
            config=replace(kind.config, nugget=1e-3),
            hyperparameters=map_tensors(kind.hyperparameters, narrow),
        )
        for kind in candidates()
    ]
    found = condition_chosen(map_tensors(training(), narrow), kinds, CHOICE, trend=CONSTANT)
    factor = found.leave_one_out().variance_factor()
    assert factor.dtype == found.leave_one_out().error.dtype == torch.float32
    assert found.widened(factor).predict(draw(B, 6, D).float())[1].dtype == torch.float32
