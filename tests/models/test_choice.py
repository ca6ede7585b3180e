"""The choice of a kernel for each model of a batch."""

import math
from dataclasses import replace

import pytest
import torch

from tcsaea_torch.errors import FitError
from tcsaea_torch.models import (
    BFGSOptions,
    Candidate,
    FitConfig,
    Hyperparameters,
    KrigingGP,
    TrainingSet,
    choose,
    fit_best,
)
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.choice import cross_validate
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import log_evidence, log_predictive_density
from tests.models.models import draw, f64, same

CONFIGS = (FitConfig(), FitConfig(kernel="additive", nugget="fit"))
CRITERIA = {"leave-one-out": log_predictive_density, "evidence": log_evidence}


def functions(X):
    """Sums of waves (members 1 and 2), and a joint bump: what one of two kernels learns."""
    waves = (15.0 * X).cos().sum(dim=-1)
    bump = (-4.0 * (X - 0.4).square().sum(dim=-1)).exp()
    which = torch.tensor([[0.0], [1.0], [1.0], [0.0]]).double()
    return which * waves + (1.0 - which) * bump


def training(n=45, *, seed=0):
    X = draw(4, n, 4, seed=seed)
    return TrainingSet(X=X, y=functions(X), noise_var=torch.zeros(4, n).double())


def constant():
    return torch.zeros(4, dtype=torch.bool)


@pytest.fixture(scope="module")
def chosen():
    return fit_best(training(), CONFIGS, trend=constant())


@pytest.mark.parametrize("criterion", [*CRITERIA, "cross-validation"])
def test_each_model_takes_the_kind_that_its_data_speak_for(criterion):
    found = fit_best(training(), CONFIGS, trend=constant(), criterion=criterion)
    assert found.choice.tolist() == [0, 1, 1, 0]
    assert [group.members.tolist() for group in found.groups] == [[0, 3], [1, 2]]
    for i, config in enumerate(CONFIGS):
        model = fit(training(), config, trend=constant())
        if criterion in CRITERIA:
            assert torch.equal(found.scores[:, i], CRITERIA[criterion](model))
        assert torch.equal(found.hyperparameters[i].theta, model.hyperparameters.theta)


def test_predictions_are_those_of_the_chosen_models(chosen):
    models = [fit(training(), config, trend=constant()) for config in CONFIGS]
    for Z in (draw(4, 6, 4, seed=5), draw(1, 6, 4, seed=6)):
        mean, variance = chosen.predict(Z)
        joint_mean, covariance = chosen.predict_joint(Z)
        for i, which in enumerate(chosen.choice.tolist()):
            theirs = models[which].predict(Z)
            same(mean[i], theirs[0][i], 1e-12)
            same(variance[i], theirs[1][i], 1e-9)
            same(covariance[i], models[which].predict_joint(Z)[1][i], 1e-9)
        same(chosen.mean(Z), mean, 1e-12)
        same(joint_mean, mean, 1e-12)


def test_predictions_are_differentiable(chosen):
    Z = draw(4, 2, 4, seed=5).requires_grad_()
    assert torch.autograd.gradcheck(chosen.predict, (Z,))


@pytest.mark.parametrize("members", [[0], [1], [1, 2]])
def test_models_of_one_kind_are_handed_on_as_they_are(members):
    train = map_tensors(training(), lambda t: t[members])
    found = fit_best(train, CONFIGS, trend=constant()[members])
    assert len(found.groups) == 1
    assert found.groups[0].surrogate.factors.L.shape == (len(members), 45, 45)
    Z = draw(len(members), 3, 4, seed=5)
    expected = found.groups[0].surrogate.mean(Z)
    assert torch.equal(found.mean(Z), expected)
    again = found.condition_on(train)
    same(again.mean(Z), expected, 1e-9)


def test_a_batch_chooses_as_its_members(chosen):
    Z = draw(4, 6, 4, seed=5)
    for i in range(4):
        alone = fit_best(
            map_tensors(training(), lambda t, i=i: t[i : i + 1]), CONFIGS, trend=constant()[:1]
        )
        assert alone.choice.tolist() == [chosen.choice[i].item()]
        same(alone.mean(Z[i : i + 1])[0], chosen.mean(Z)[i], 1e-4)


def test_other_rows_get_the_same_hyperparameters(chosen):
    more = training(n=60, seed=8)
    more = replace(more, noise_var=more.noise_var.clone())
    more.noise_var[2, 5:20] = math.inf
    found = chosen.condition_on(more)
    assert torch.equal(found.choice, chosen.choice)
    for mine, theirs in zip(found.groups, chosen.groups, strict=True):
        assert torch.equal(mine.surrogate.hyperparameters.theta,
                           theirs.surrogate.hyperparameters.theta)  # fmt: skip
        assert mine.surrogate.hyperparameters.variance is not None
        torch.testing.assert_close(
            mine.surrogate.hyperparameters.variance, theirs.surrogate.hyperparameters.variance
        )
        assert mine.surrogate.data.X.shape == (2, 60, 4)
    at_rows = found.mean(more.X)
    error = (at_rows - more.y).masked_fill(~more.live, 0.0).abs().amax(dim=-1)
    assert (error < 1e-3).all()


def test_appended_rows_are_as_if_conditioned_on(chosen):
    before, more = training(), training(n=5, seed=8)
    both = map_tensors(before, lambda t: t)
    both = TrainingSet(
        **{k: torch.cat([getattr(before, k), getattr(more, k)], dim=1) for k in vars(both)}
    )
    found, expected = chosen.extend(more.X, more.y, more.noise_var), chosen.condition_on(both)
    Z = draw(4, 6, 4, seed=5)
    same(found.mean(Z), expected.mean(Z), 1e-6)


def test_warm_starts_are_those_of_each_kind(chosen):
    again = fit_best(training(), CONFIGS, trend=constant(), init=chosen.hyperparameters)
    assert torch.equal(again.choice, chosen.choice)
    Z = draw(4, 6, 4, seed=5)
    same(again.mean(Z), chosen.mean(Z), 1e-2)
    partly = fit_best(training(), CONFIGS, trend=constant(), init=[None, chosen.hyperparameters[1]])
    assert torch.equal(partly.hyperparameters[0].theta, chosen.hyperparameters[0].theta)


def test_cross_validation_is_a_loop_over_fifths():
    train = map_tensors(training(n=23), lambda t: t[1:3])
    gone = torch.zeros(2, 23, dtype=torch.bool)
    gone[1, 3:9] = True
    train = replace(train, noise_var=train.noise_var.masked_fill(gone, math.inf) + 1e-3)
    unit, trend = draw(2) + 0.5, torch.zeros(2, dtype=torch.bool)
    for config in (replace(CONFIGS[0], nugget=1e-3), CONFIGS[1]):
        config = replace(config, options=BFGSOptions(max_evaluations=12))
        errors = cross_validate(train, config, trend=trend)
        found = errors.log_density(unit)
        assert (errors.error[~train.live] == 0).all()
        assert (errors.variance[~train.live] == math.inf).all()
        for i in range(2):
            total, rows = 0.0, train.live[i].nonzero().squeeze(-1)
            for fold in range(5):
                out = rows[fold::5]
                one = map_tensors(train, lambda t, i=i: t[i : i + 1])
                noise = one.noise_var.clone()
                noise[0, out] = math.inf
                model = fit(replace(one, noise_var=noise), config, trend=trend[:1])
                mean, variance = model.predict(one.X[:, out])
                hyper = model.hyperparameters
                assert hyper.variance is not None
                nugget = 1e-3 if hyper.nugget is None else hyper.nugget
                variance = variance + one.noise_var[0, out] + nugget * hyper.variance
                scale = train.y[i].abs().max()
                same(
                    errors.error[i, out] / scale + 1.0,
                    (one.y[0, out] - mean[0]) / scale + 1.0,
                    1e-3,
                )
                torch.testing.assert_close(errors.variance[i, out], variance[0], rtol=1e-2, atol=0)
                normal = torch.distributions.Normal(mean / unit[i], variance.sqrt() / unit[i])
                total += normal.log_prob(one.y[:, out] / unit[i]).sum().item()
            assert found[i].item() == pytest.approx(total / len(rows), abs=1e-3)


def known(theta, *, b=4, d=4, variance=None, **options):
    """A candidate with the same theta in all dimensions."""
    hyper = Hyperparameters(theta=torch.full((b, d), theta).double(), variance=variance)
    return Candidate(config=FitConfig(**options), hyperparameters=hyper)


CANDIDATES = (known(0.5, nugget=1e-6), known(8.0, nugget=1e-6), known(300.0, nugget=1e-6))


def by_brute_force(train, candidate, i, rows):
    """The mean log density of some rows of one model, each predicted by a model without it."""
    live = train.live[i]
    X, y, noise = train.X[i][live], train.y[i][live], train.noise_var[i][live]
    hyper, nugget = candidate.hyperparameters[i], candidate.config.nugget
    if not bool((noise > 0).any()):
        hyper = KrigingGP(X, y, replace(hyper, variance=None), nugget=nugget).hyperparameters
    assert hyper.variance is not None
    total = []
    for row in (live.cumsum(dim=0) - 1)[rows & live].tolist():
        rest = torch.arange(len(y)) != row
        gp = KrigingGP(X[rest], y[rest], hyper, noise[rest], nugget=nugget)
        mean, variance = gp.surrogate.predict(X[row : row + 1])
        spread = (variance + noise[row] + nugget * hyper.variance).sqrt()
        total.append(torch.distributions.Normal(mean, spread).log_prob(y[row : row + 1]))
    return torch.cat(total).mean() + y.std().log()


def gappy(n=14, *, noisy=()):
    train = training(n)
    noise = train.noise_var.clone()
    for i in noisy:
        noise[i] = 1e-3 * (1.0 + draw(n, seed=i))
    noise[1, 2:5] = math.inf
    return replace(train, noise_var=noise)


def test_the_score_is_that_of_models_without_each_row():
    # The members 0 and 3 are noisy: there, sigma^2 is the candidate's own.
    train, variance = gappy(noisy=(0, 3)), f64([0.4, 9.0, 9.0, 0.8])
    candidates = [known(t, nugget=1e-3, variance=variance) for t in (2.0, 8.0)]
    is_space = torch.arange(14).expand(4, 14) < 6
    every = torch.ones(14, dtype=torch.bool)
    plain = choose(train, candidates, trend=constant())
    halves = choose(train, candidates, trend=constant(), is_space=is_space)
    for i in range(4):
        for k, candidate in enumerate(candidates):
            expected = by_brute_force(train, candidate, i, every)
            assert plain.scores[i, k].item() == pytest.approx(expected.item(), abs=1e-8)
            parts = (by_brute_force(train, candidate, i, m) for m in (is_space[i], ~is_space[i]))
            assert halves.scores[i, k].item() == pytest.approx(float(sum(parts)), abs=1e-8)
    for chosen in (plain, halves):
        assert torch.equal(chosen.choice, chosen.scores.argmax(dim=-1))
        assert chosen.hyperparameters == tuple(c.hyperparameters for c in candidates)


def test_many_rows_near_an_optimum_do_not_outvote_the_rest():
    # In the cluster the function is rough, elsewhere smooth.
    spread, cluster = torch.linspace(0.0, 1.0, 12).double(), 0.5 + 0.02 * draw(60)
    X = torch.cat([spread, cluster]).view(1, -1, 1)
    y = (5.0 * X[..., 0]).sin()
    y[:, 12:] += 0.03 * (300.0 * cluster).sin()
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    candidates = [known(t, b=1, d=1, nugget=1e-4) for t in (20.0, 3e3)]
    trend, is_space = torch.tensor([False]), torch.arange(72)[None] < 12
    assert choose(train, candidates, trend=trend).choice.tolist() == [1]
    assert choose(train, candidates, trend=trend, is_space=is_space).choice.tolist() == [0]


def test_choosing_for_a_batch_is_a_loop():
    train, Z = gappy(n=30), draw(4, 6, 4, seed=5)
    is_space = draw(4, 30, seed=3) < 0.4
    together = choose(train, CANDIDATES, trend=constant(), is_space=is_space)
    assert len(together.groups) > 1
    for i in range(4):
        one = slice(i, i + 1)
        alone = choose(
            map_tensors(train, lambda t, one=one: t[one]),
            [replace(c, hyperparameters=c.hyperparameters[:1]) for c in CANDIDATES],
            trend=constant()[:1],
            is_space=is_space[one],
        )
        assert alone.choice.tolist() == [together.choice[i].item()]
        same(alone.scores[0], together.scores[i], 1e-12)
        same(alone.mean(Z[one])[0], together.mean(Z)[i], 1e-10)


def test_what_was_fitted_is_chosen_again(chosen):
    kinds = zip(CONFIGS, chosen.hyperparameters, strict=True)
    candidates = [Candidate(config=c, hyperparameters=h) for c, h in kinds]
    again = choose(training(), candidates, trend=constant())
    assert torch.equal(again.choice, chosen.choice)
    same(again.scores, chosen.scores, 1e-9)
    Z = draw(4, 6, 4, seed=5)
    for mine, theirs in zip(again.predict(Z), chosen.predict(Z), strict=True):
        same(mine, theirs, 1e-9)
    more = training(n=5, seed=8)
    same(
        again.extend(more.X, more.y, more.noise_var).mean(Z),
        chosen.extend(more.X, more.y, more.noise_var).mean(Z),
        1e-6,
    )


def test_a_candidate_that_cannot_be_factorised_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr("tcsaea_torch.models.surrogate.JITTERS", (0.0,))
    train = training()
    X = train.X.clone()
    X[1:] = 0.5
    train = replace(train, X=X)
    bad = replace(CANDIDATES[0], config=FitConfig(nugget=0.0))
    found = choose(train, (bad, known(8.0, nugget=1e-3)), trend=constant())
    assert found.scores[1:, 0].tolist() == [-math.inf] * 3
    assert found.scores[0, 0].isfinite()
    assert found.choice[1:].tolist() == [1, 1, 1]
    assert found.mean(draw(4, 3, 4)).isfinite().all()
    with pytest.raises(FitError, match="none of the 1 candidates"):
        choose(train, (bad,), trend=constant())
