"""The prior of an additive kernel's hyper-parameters."""

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import BFGSOptions, FitConfig, Hyperparameters, TrainingSet
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.fitting import _Layout, _Objective, fit
from tcsaea_torch.models.likelihood import negative_log_likelihood, prepare
from tcsaea_torch.models.prior import Prior
from tcsaea_torch.models.surrogate import scale
from tests.models.models import draw, f64, same, wavy

ADDITIVE = FitConfig(kernel="additive", nugget=1e-6)
D = 3


def training(b=2, n=16, *, noisy=False):
    """A batch of training sets of which the last lacks rows."""
    X = draw(b, n, D)
    noise = 0.01 * draw(b, n, seed=2) if noisy else torch.zeros(b, n).double()
    noise[-1, ::5] = math.inf
    return TrainingSet(X=X, y=wavy(X), noise_var=noise)


def prior_of(b=2, d=D, *, spread=1.0):
    return Prior(
        log_theta=1.0 + 2.0 * draw(b, d, seed=10),
        theta_spread=spread * (0.5 + draw(b, d, seed=11)),
        log_amplitudes=draw(b, d + 1, seed=12) - 1.0,
        amplitude_spread=spread * (0.5 + draw(b, d + 1, seed=13)),
    )


def constant(b=2):
    return torch.zeros(b, dtype=torch.bool)


def objective(config, prior, *, noisy, n_starts=2):
    train = training(noisy=noisy)
    data, _ = scale(train, trend=constant(), input_scaling="unit")
    layout = _Layout(d=D, config=config, fits_variance=noisy)
    nugget = 0.0 if config.nugget == "fit" else 1e-6
    prepared = prepare(data, nugget, p=None, kernel="additive")
    penalty = layout.penalty(data.X, prior)
    return data, _Objective(prepared, layout, penalty, n_starts=n_starts)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("nugget", [1e-6, "fit"])
@pytest.mark.parametrize("given", [True, False])
def test_the_objective_is_the_likelihood_and_the_priors_density(given, nugget, noisy):
    config, prior = replace(ADDITIVE, nugget=nugget), prior_of() if given else None
    data, f = objective(config, prior, noisy=noisy)
    n_rest = (nugget == "fit") + noisy
    v, members = draw(4, 2 * D + 1 + n_rest, seed=4), torch.arange(4)
    v[:, 2 * D + 1 :] -= 3.0
    found, gradient = f(v, members)
    flat = f64([-math.log(D)] * D)
    for k in range(4):
        i = k // 2
        likelihood = negative_log_likelihood(
            data[i : i + 1], v[k : k + 1, :D], None,
            v[k : k + 1, -1] if noisy else None, 0.0 if nugget == "fit" else 1e-6,
            kernel="additive", log_amplitudes=v[k : k + 1, D : 2 * D + 1],
            log_nugget=v[k : k + 1, 2 * D + 1] if nugget == "fit" else None,
        )  # fmt: skip
        if prior is None:
            centre, spread = torch.cat([flat, f64([0.0])]), f64([1.5] * D + [4.0])
            at = v[k, D : 2 * D + 1]
        else:
            centre = torch.cat([prior.log_theta[i], prior.log_amplitudes[i]])
            spread = torch.cat([prior.theta_spread[i], prior.amplitude_spread[i]])
            at = v[k, : 2 * D + 1]
        density = norm.logpdf(at, centre, spread) - norm.logpdf(centre, centre, spread)
        n = int(data.live[i].sum())
        expected = likelihood.value.item() - density.sum() / n
        assert found[k].item() == pytest.approx(expected, abs=1e-9)
    for column in range(v.shape[1]):
        step = torch.zeros_like(v)
        step[:, column] = 1e-5
        slope = (f(v + step, members)[0] - f(v - step, members)[0]) / 2e-5
        torch.testing.assert_close(gradient[:, column], slope, rtol=1e-5, atol=1e-7)


def test_some_members_are_evaluated_as_all(monkeypatch):
    monkeypatch.setattr("tcsaea_torch.models.fitting._PART", {"cpu": 1})
    _, f = objective(ADDITIVE, prior_of(), noisy=False)
    v = draw(4, 2 * D + 1, seed=4)
    value, gradient = f(v, torch.arange(4))
    some = torch.tensor([3, 0])
    few_values, few_gradients = f(v[some], some)
    same(few_values, value[some], 1e-12)
    same(few_gradients, gradient[some], 1e-9)


def test_the_prior_decides_where_data_do_not():
    # A variable that never changes tells nothing of its theta; one amplitude alone cancels.
    X = draw(1, 14, 2)
    X[..., 1] = 0.5
    train = TrainingSet(X=X, y=(6.0 * X[..., 0]).sin(), noise_var=torch.zeros(1, 14).double())
    prior = prior_of(1, 2)
    found = fit(train, ADDITIVE, trend=constant(1), prior=prior).hyperparameters
    assert found.theta[0, 1].log().item() == pytest.approx(prior.log_theta[0, 1].item(), abs=1e-3)
    train, prior = replace(train, X=X[..., :1]), prior_of(1, 1)
    found = fit(train, ADDITIVE, trend=constant(1), prior=prior).hyperparameters
    assert found.amplitudes is not None
    same(found.amplitudes.log(), prior.log_amplitudes, 1e-3)


def test_a_narrow_prior_holds_all_and_a_wide_one_nothing():
    wide = prior_of(spread=1e6)
    narrow = map_tensors(wide, lambda t: t)
    narrow = replace(
        narrow, theta_spread=1e-9 * wide.theta_spread, amplitude_spread=1e-9 * wide.amplitude_spread
    )
    held = fit(training(), ADDITIVE, trend=constant(), prior=narrow).hyperparameters
    assert held.amplitudes is not None
    same(held.theta.log(), narrow.log_theta, 1e-4)
    same(held.amplitudes.log(), narrow.log_amplitudes, 1e-4)
    config = replace(ADDITIVE, amplitude_spread=1e6, weight_spread=1e6)
    nothing = replace(
        wide,
        theta_spread=torch.full_like(wide.theta_spread, math.inf),
        log_amplitudes=torch.zeros_like(wide.log_amplitudes),
        amplitude_spread=torch.full_like(wide.amplitude_spread, 1e6),
    )
    Z = draw(2, 9, D, seed=9)
    expected = fit(training(), config, trend=constant()).mean(Z)
    same(fit(training(), config, trend=constant(), prior=nothing).mean(Z), expected, 1e-4)


def test_the_usual_prior_may_be_given():
    usual = Prior(
        log_theta=torch.zeros(2, D).double(),
        theta_spread=torch.full((2, D), math.inf).double(),
        log_amplitudes=f64([[-math.log(D)] * D + [0.0]] * 2),
        amplitude_spread=f64([[1.5] * D + [4.0]] * 2),
    )
    expected = fit(training(), ADDITIVE, trend=constant()).hyperparameters
    found = fit(training(), ADDITIVE, trend=constant(), prior=usual).hyperparameters
    assert torch.equal(found.theta, expected.theta)


@pytest.mark.parametrize("warm", [False, True])
def test_a_batch_is_its_members(warm):
    prior, train = prior_of(), training()
    config = replace(ADDITIVE, options=BFGSOptions(max_evaluations=40))
    init = None
    if warm:
        init = Hyperparameters(
            theta=prior.log_theta.exp(), kernel="additive", amplitudes=prior.log_amplitudes.exp()
        )
    together = fit(train, config, trend=constant(), prior=prior, init=init)
    Z = draw(2, 9, D, seed=9)
    for i in range(2):
        k = slice(i, i + 1)
        alone = fit(
            map_tensors(train, lambda t, k=k: t[k]), config, trend=constant(1), prior=prior[k],
            init=None if init is None else init[k],
        )  # fmt: skip
        same(alone.mean(Z[k])[0], together.mean(Z)[i], 1e-5)


@pytest.mark.parametrize("kernel", ["power-exponential", "matern-5/2"])
def test_other_kernels_have_no_prior(kernel):
    with pytest.raises(InvalidInputError, match=f"prior must be None with kernel '{kernel}'"):
        fit(training(), FitConfig(kernel=kernel), trend=constant(), prior=prior_of())


@pytest.mark.usefixtures("unchecked")
def test_a_prior_of_other_shapes_is_refused():
    for wrong in (prior_of(1), prior_of(2, D - 1)):
        with pytest.raises(InvalidInputError, match=r"prior.log_theta must be .* \(2, 3\), got"):
            fit(training(), ADDITIVE, trend=constant(), prior=wrong)
    wrong = replace(prior_of(), amplitude_spread=torch.ones(2, D).double())
    with pytest.raises(InvalidInputError, match=r"prior.amplitude_spread .* \(2, 4\), got"):
        fit(training(), ADDITIVE, trend=constant(), prior=wrong)
