"""Kriging with the Matern-5/2 correlation, from the likelihood to BoTorch."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import (
    FitConfig,
    Hyperparameters,
    KrigingGP,
    Surrogate,
    TrainingSet,
    fit_kriging,
)
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.fit_config import isotropic_starts
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.likelihood import negative_log_likelihood
from tcsaea_torch.models.surrogate import condition, scale
from tests.models.models import draw, f64, same, saved_and_loaded, wavy

NUGGET = 1e-4
MATERN = FitConfig(kernel="matern-5/2", nugget=NUGGET, starts=isotropic_starts(2))


def training(b=3, n=16, d=3, *, noisy=False):
    """A batch of training sets of which all but the first lack rows."""
    X = draw(b, n, d)
    gone = draw(b, n, seed=1) < 0.2
    gone[0] = False
    noise = draw(b, n, seed=2) * 0.1 if noisy else torch.zeros(b, n).double()
    return TrainingSet(X=X, y=wavy(X), noise_var=noise.masked_fill(gone, math.inf))


def member(train, i):
    return map_tensors(train, lambda t: t[i : i + 1])


def matern(A, B, theta):
    """Correlations in numpy."""
    s = np.sqrt(5.0 * (theta * (A[:, None] - B[None]) ** 2).sum(axis=-1))
    return (1.0 + s + s**2 / 3.0) * np.exp(-s)


def standardised(train, *, linear=False):
    trend = torch.full(train.y.shape[:-1], linear)
    return scale(train, trend=trend, input_scaling="unit")


@pytest.mark.parametrize("noisy", [False, True])
def test_the_likelihood_is_the_textbooks(noisy):
    data, _ = standardised(training(noisy=noisy))
    log_theta = draw(3, 3, seed=3) * 2.0
    log_variance = draw(3, seed=4) - 0.5 if noisy else None
    found = negative_log_likelihood(
        data, log_theta, None, log_variance, NUGGET, kernel="matern-5/2"
    )
    for i in range(3):
        live = data.live[i].numpy()
        X, y, noise = (getattr(data, k)[i].numpy()[live] for k in ("X", "y", "noise"))
        n, one = len(y), np.ones(len(y))
        sigma2 = None if log_variance is None else math.exp(log_variance[i])
        C = matern(X, X, log_theta[i].exp().numpy())
        C += np.diag(NUGGET + (0 * one if sigma2 is None else noise / sigma2))
        beta = one @ np.linalg.solve(C, y) / (one @ np.linalg.solve(C, one))
        quadratic = (y - beta) @ np.linalg.solve(C, y - beta)
        sigma2 = quadratic / n if sigma2 is None else sigma2
        nll = n * math.log(sigma2) + np.linalg.slogdet(C)[1] + quadratic / sigma2
        assert found.value[i].item() == pytest.approx(nll / n / 2, abs=1e-10)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_the_gradient_is_that_of_central_differences(d, linear, noisy):
    data, _ = standardised(training(d=d, noisy=noisy), linear=linear)
    log_theta = draw(3, d, seed=3) * 2.0
    log_variance = draw(3, seed=4) - 0.5 if noisy else None

    def value(log_theta):
        return negative_log_likelihood(
            data, log_theta, None, log_variance, NUGGET, kernel="matern-5/2"
        )

    found = value(log_theta)
    assert found.d_p is None
    for k in range(d):
        step = torch.zeros_like(log_theta)
        step[:, k] = 1e-5
        slope = (value(log_theta + step).value - value(log_theta - step).value) / 2e-5
        torch.testing.assert_close(found.d_log_theta[:, k], slope, rtol=1e-5, atol=1e-8)


def test_a_fit_finds_the_optimum_and_a_batch_is_its_members():
    train = training(n=25)
    trend = torch.zeros(3, dtype=torch.bool)
    together = fit(train, MATERN, trend=trend)
    assert together.hyperparameters.kernel == "matern-5/2"
    data, _ = standardised(train)
    best = together.hyperparameters.theta.log()
    nll = negative_log_likelihood(data, best, None, None, NUGGET, kernel="matern-5/2").value
    for seed in range(30):
        other = (best + draw(3, 3, seed=seed) - 0.5).clamp(math.log(1e-8), math.log(1e3))
        found = negative_log_likelihood(data, other, None, None, NUGGET, kernel="matern-5/2")
        assert (found.value >= nll - 1e-7).all()
    for i in range(3):
        alone = fit(member(train, i), MATERN, trend=trend[:1])
        torch.testing.assert_close(
            alone.mean(train.X[i : i + 1]), together.mean(train.X)[i : i + 1], rtol=0, atol=1e-6
        )


def test_predictions_are_the_textbooks():
    train, theta = training(), 2.0 + draw(3, 3, seed=3)
    data, scaling = standardised(train)
    hyper = Hyperparameters(theta=theta, kernel="matern-5/2")
    surrogate = condition(data, scaling, hyper, nugget=NUGGET)
    Xq = draw(3, 5, 3, seed=5)
    mean, variance = surrogate.predict(Xq)
    joint_mean, covariance = surrogate.predict_joint(Xq)
    same(joint_mean, mean, 1e-12)
    same(covariance.diagonal(dim1=-2, dim2=-1), variance, 1e-10)
    for i in range(3):
        live = train.live[i].numpy()
        X, y, Q = train.X[i].numpy()[live], train.y[i].numpy()[live], Xq[i].numpy()
        n, one = len(y), np.ones(len(y))
        C = matern(X, X, theta[i].numpy()) + NUGGET * np.eye(n)
        k = matern(Q, X, theta[i].numpy())
        Ci1, Cik = np.linalg.solve(C, one), np.linalg.solve(C, k.T)
        beta = Ci1 @ y / (Ci1 @ one)
        a = np.linalg.solve(C, y - beta)
        u = 1.0 - one @ Cik
        expected = matern(Q, Q, theta[i].numpy()) - k @ Cik + np.outer(u, u) / (Ci1 @ one)
        np.testing.assert_allclose(mean[i], beta + k @ a, rtol=0, atol=1e-10)
        sigma2 = (y - beta) @ a / n
        np.testing.assert_allclose(covariance[i], sigma2 * expected, rtol=0, atol=1e-10)


def test_a_selected_surrogate_is_still_a_matern():
    surrogate = fit(training(), MATERN, trend=torch.zeros(3, dtype=torch.bool))
    Xq = draw(3, 5, 3, seed=5)
    for index in (slice(1, 2), torch.tensor([2, 0])):
        part = surrogate[index]
        assert isinstance(part, Surrogate)
        assert part.hyperparameters.kernel == "matern-5/2"
        same(part.mean(Xq[index]), surrogate.mean(Xq)[index], 1e-12)


@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_as_a_botorch_model(input_scaling):
    X = draw(12, 2)
    hyper = Hyperparameters(theta=f64([3.0, 2.0]), kernel="matern-5/2")
    gp = KrigingGP(X, wavy(X), hyper, input_scaling=input_scaling, nugget=1e-6)
    assert isinstance(gp.covar_module.base_kernel, MaternKernel)
    Xq = draw(4, 2, seed=5)
    # GPyTorch's kernel is the surrogate's prior, in the unit cube.
    inputs, found = gp.surrogate.scaling.inputs(Xq), gp.hyperparameters
    assert found.variance is not None
    same(gp.covar_module(Xq).to_dense(), found.variance * found.correlate(inputs, inputs), 1e-12)
    rows = draw(2, 2, seed=6)
    more = gp.condition_on_observations(rows, wavy(rows).unsqueeze(-1))
    assert more.hyperparameters.kernel == "matern-5/2"
    whole = KrigingGP(torch.cat([X, rows]), wavy(torch.cat([X, rows])), hyper, nugget=1e-6)
    if input_scaling == "unit":  # else the scaling is that of the first rows
        same(more.posterior(Xq).mean, whole.posterior(Xq).mean, 1e-8)
    again = KrigingGP(
        draw(12, 2, seed=8), draw(12, seed=9), hyper, input_scaling=input_scaling, nugget=1e-6
    )
    again.load_state_dict(saved_and_loaded(gp.state_dict()))
    assert torch.equal(again.posterior(Xq).mean, gp.posterior(Xq).mean)


def test_the_state_of_another_kernel_is_refused():
    X, theta = draw(12, 2), f64([3.0, 2.0])
    smooth = KrigingGP(X, wavy(X), Hyperparameters(theta=theta))
    rougher = KrigingGP(X, wavy(X), Hyperparameters(theta=theta, kernel="matern-5/2"))
    with pytest.raises(RuntimeError, match="raw_lengthscale"):
        rougher.load_state_dict(smooth.state_dict())


def test_fit_kriging_takes_it_from_the_configuration():
    X = draw(20, 2)
    gp = fit_kriging(X, wavy(X), config=MATERN)
    assert gp.hyperparameters.kernel == "matern-5/2"
    same(gp.posterior(X).mean.squeeze(-1), wavy(X), 1e-2)
    warm = fit_kriging(X, wavy(X), init=gp.hyperparameters, config=MATERN)
    torch.testing.assert_close(
        warm.hyperparameters.theta, gp.hyperparameters.theta, rtol=1e-2, atol=1e-6
    )


def test_powers_are_refused(unchecked):
    with pytest.raises(InvalidInputError, match="p must be 2 with kernel 'matern-5/2', got 'ard'"):
        FitConfig(kernel="matern-5/2", p="ard")


def test_float32():
    train = training()
    single = TrainingSet(X=train.X.float(), y=train.y.float(), noise_var=train.noise_var.float())
    trend = torch.zeros(3, dtype=torch.bool)
    config = FitConfig(kernel="matern-5/2", nugget=1e-3)
    found, expected = fit(single, config, trend=trend), fit(train, config, trend=trend)
    Xq = draw(3, 5, 3, seed=5)
    assert found.mean(Xq.float()).dtype == torch.float32
    torch.testing.assert_close(
        found.mean(Xq.float()).double(), expected.mean(Xq), rtol=0, atol=0.02
    )
