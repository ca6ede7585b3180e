import copy
import io
import itertools
import logging
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator import to_linear_operator

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import FitConfig, Hyperparameters, KrigingGP, fit_kriging
from tcsaea_torch.models.parts import ExactNormal
from tcsaea_torch.models.surrogate import JITTERS
from tests.conftest import load_reference
from tests.models.models import draw, f64, wavy

DACE, SMT = load_reference("kriging_dace"), load_reference("kriging_smt")
ignore_their_warnings = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.warnings.BotorchWarning"
)


def training_data(n=20, d=2, seed=0):
    X = draw(n, d, seed=seed)
    return X, wavy(X)


def gp_of(X, y, *, theta=3.0, **options):
    """Kriging with isotropic theta, well conditioned unless told otherwise."""
    hyper = Hyperparameters(theta=torch.full_like(X[..., 0, :], theta))
    return KrigingGP(X, y, hyper, **{"nugget": 1e-6, **options})


def sigma2_of(gp):
    variance = gp.hyperparameters.variance
    assert variance is not None
    return variance.max().item()


def same(a, b, tolerance):
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


# --- values that other programs computed ---


def reference(file, case, device, *, trend, nugget, theta, p=None):
    rows = file["data_sets"][case["data_set"]]
    X, y, Xq, theta = (
        torch.tensor(v, dtype=torch.float64, device=device)
        for v in (rows["X"], rows["y"], rows["Xq"], theta)
    )
    powers = None if p is None else torch.full_like(theta, p)
    gp = KrigingGP(
        X,
        y,
        Hyperparameters(theta=theta, p=powers),
        trend=trend,
        input_scaling="standardize",
        nugget=nugget(len(y)),
    )
    assert gp.surrogate.jitter == 0.0
    return gp, Xq, y


def dace_id(case):
    return f"{case['data_set']}-{case['regpoly']}-cond{case['cond_R']:.0e}"


@pytest.mark.parametrize("case", DACE["cases"], ids=dace_id)
def test_agrees_with_dace(case, device):
    gp, Xq, y = reference(
        DACE,
        case,
        device,
        trend=("constant", "linear")[case["regpoly"]],
        nugget=lambda n: (10 + n) * 2.0**-52,
        theta=case["theta"],
    )
    surrogate, n = gp.surrogate, len(y)
    mean, variance = (v.cpu().numpy() for v in surrogate.predict(Xq))
    sigma2 = sigma2_of(gp)
    log_det = 2.0 * surrogate.factors.L.diagonal().log().sum().item()
    psi = surrogate.variance.item() * math.exp(log_det / n)
    std = y.std().item()
    for kind in ("", "_50_digits"):
        if f"mean{kind}" not in case:
            continue
        np.testing.assert_allclose(mean, case[f"mean{kind}"], rtol=0, atol=1e-9 * std)
        np.testing.assert_allclose(variance, case[f"mse{kind}"], rtol=0, atol=1e-10 * sigma2)
        assert psi == pytest.approx(case[f"psi{kind}"], rel=1e-9)
        assert sigma2 == pytest.approx(case[f"sigma2{kind}"], rel=1e-9)
    beta = np.array(case["beta"]).reshape(-1)
    np.testing.assert_allclose(surrogate.factors.beta[: len(beta)].cpu(), beta, rtol=0, atol=1e-9)
    assert surrogate.is_linear.item() == (case["regpoly"] == 1)


@pytest.mark.parametrize("through", ["predict", "posterior"])
@pytest.mark.parametrize("case", DACE["cases"], ids=dace_id)
def test_gradients_agree_with_dace(case, through):
    gp, Xq, _ = reference(
        DACE,
        case,
        "cpu",
        trend=("constant", "linear")[case["regpoly"]],
        nugget=lambda n: (10 + n) * 2.0**-52,
        theta=case["theta"],
    )
    Xq = Xq[5:10].requires_grad_()
    if through == "predict":
        mean, variance = gp.surrogate.predict(Xq)
    else:
        posterior = gp.posterior(Xq)
        mean, variance = posterior.mean, posterior.variance
    for value, name in ((mean, "grad_mean_q5_to_q9"), (variance, "grad_mse_q5_to_q9")):
        (gradient,) = torch.autograd.grad(value.sum(), Xq, retain_graph=True)
        expected = np.array(case[name])
        atol = 1e-8 * np.abs(expected).max()
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=atol)


@pytest.mark.parametrize("case", SMT["cases"], ids=lambda c: f"{c['data_set']}-{c['power']}")
def test_agrees_with_smt(case, device):
    gp, Xq, y = reference(
        SMT,
        case,
        device,
        trend="constant",
        nugget=lambda n: case["nugget"],
        theta=case["theta_used"],
        p=None if case["power"] == 2.0 else case["power"],
    )
    mean, variance = (v.cpu().numpy() for v in gp.surrogate.predict(Xq))
    sigma2 = sigma2_of(gp)
    np.testing.assert_allclose(mean, case["mean"], rtol=0, atol=1e-9 * y.std().item())
    np.testing.assert_allclose(variance, case["variance"], rtol=0, atol=1e-10 * case["sigma2"])
    assert sigma2 == pytest.approx(case["sigma2"], rel=1e-9)
    assert gp.surrogate.factors.beta[0].item() == pytest.approx(case["beta"], abs=1e-9)


# --- the posterior ---


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_calls_posteriors_and_predictions_are_one(batch, trend):
    X = draw(*batch, 15, 2)
    gp = gp_of(X, wavy(X), trend=trend)
    Xq = draw(*batch, 7, 2, seed=1)
    Xq[..., 3, :] = Xq[..., 2, :]
    Xq[..., 4, :] = X[..., 0, :]
    mean, variance = gp.surrogate.predict(Xq)
    called, posterior = gp(Xq), gp.posterior(Xq)
    assert posterior.mean.shape == posterior.variance.shape == (*batch, 7, 1)
    same(called.mean, mean, 1e-12)
    same(posterior.mean.squeeze(-1), mean, 1e-12)
    sigma2 = sigma2_of(gp)
    same(called.variance, variance, 1e-12 * sigma2)
    same(posterior.variance.squeeze(-1), variance, 1e-12 * sigma2)
    covariance = called.covariance_matrix
    assert covariance.shape == (*batch, 7, 7)
    same(covariance, covariance.mT, 1e-13 * sigma2)
    assert torch.linalg.eigvalsh(covariance).min() > -1e-12 * sigma2
    same(covariance[..., 3, :], covariance[..., 2, :], 1e-13 * sigma2)


def test_samples_have_the_posteriors_moments():
    X, y = training_data(8)
    gp, Xq = gp_of(X, y), draw(3, 2, seed=1)
    posterior = gp.posterior(Xq)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        samples = posterior.rsample(torch.Size([20_000]))
    assert samples.shape == (20_000, 3, 1)
    samples = samples.squeeze(-1)
    deviation = posterior.variance.sqrt().squeeze(-1)
    same(
        (samples.mean(dim=0) - posterior.mean.squeeze(-1)) / deviation,
        torch.zeros(3).double(),
        0.04,
    )
    expected = gp(Xq).covariance_matrix / deviation / deviation.unsqueeze(-1)
    same((samples.T.cov()) / deviation / deviation.unsqueeze(-1), expected, 0.05)


@pytest.mark.filterwarnings("ignore:A not p.d., added jitter")
def test_samples_at_equal_points_are_equal():
    X, y = training_data(12)
    gp = gp_of(X, y)
    Xq = torch.cat([draw(3, 2, seed=1)] * 2 + [X[:2]])
    with torch.random.fork_rng():
        torch.manual_seed(1)
        samples = gp.posterior(Xq).rsample(torch.Size([4, 5]))
    assert samples.shape == (4, 5, 8, 1)
    same(samples[..., :3, :], samples[..., 3:6, :], 1e-2)
    same(samples[..., 6:, 0], y[:2].expand(4, 5, 2), 1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("q", [1, 5000])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_variance_is_never_negative_and_vanishes_at_training_points(dtype, q, p, device):
    X, y = (v.to(device, dtype) for v in training_data(40))
    gp = fit_kriging(X, y, p=p, n_starts=2)
    Xq = torch.cat([X[:1], draw(q - 1, 2, seed=1).to(X), X])[: max(q, 41)]
    batches = Xq.unsqueeze(1) if q == 1 else Xq
    mean, variance = gp.surrogate.predict(batches)
    assert variance.dtype == dtype
    assert bool(((variance >= 0) & variance.isfinite()).all())
    assert mean.isfinite().all()
    _, at_rows = gp.surrogate.predict(X)
    tolerance = 1e-6 if dtype == torch.float64 else 1e-2
    assert at_rows.max() < tolerance * sigma2_of(gp)
    if q == 1:
        called = gp.posterior(batches).variance
        assert bool((called >= 0).all())


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, "shared"])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_exact_data_are_interpolated(p, input_scaling):
    X, y = training_data(30)
    gp = fit_kriging(X, y, p=p, n_starts=2, input_scaling=input_scaling)
    mean, variance = gp.surrogate.predict(X)
    same(mean, y, 1e-4)
    assert variance.max() < 1e-8 * sigma2_of(gp)
    assert (gp.surrogate.mean(draw(50, 2, seed=1)) - wavy(draw(50, 2, seed=1))).abs().max() < 0.3


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("trend", ["constant", "linear"])
def test_posterior_is_differentiable_even_at_training_points(p, trend):
    X, y = training_data(12)
    hyper = Hyperparameters(theta=f64([3.0, 2.0]), p=None if p == 2.0 else f64([p, p]))
    gp = KrigingGP(X, y, hyper, trend=trend, nugget=1e-6)
    Xq = torch.cat([X, draw(5, 2, seed=1)]).requires_grad_()
    posterior = gp.posterior(Xq)
    for value in (posterior.mean, posterior.variance):
        (gradient,) = torch.autograd.grad(value.sum(), Xq, retain_graph=True)
        assert gradient.isfinite().all()
        assert gradient[12:].abs().min() > 0
    for name in ("mean", "variance"):
        assert torch.autograd.gradcheck(
            lambda x, name=name: getattr(gp.posterior(x), name),
            [draw(4, 2, seed=2).requires_grad_()],
        )


def test_points_of_several_batches_are_predicted_at_once():
    X, y = training_data()
    gp = gp_of(X, y)
    Xq = draw(4, 3, 5, 2, seed=1)
    posterior = gp.posterior(Xq)
    assert posterior.mean.shape == (4, 3, 5, 1)
    for i, j in itertools.product(range(4), range(3)):
        same(posterior.mean[i, j, :, 0], gp.surrogate.mean(Xq[i, j]), 1e-12)
    assert gp.batch_shape == torch.Size([])
    assert gp.num_outputs == 1


def test_batched_models_equal_single_models():
    X = draw(3, 15, 2)
    gp = gp_of(X, wavy(X), trend="linear")
    assert gp.batch_shape == torch.Size([3])
    Xq = draw(3, 6, 2, seed=1)
    posterior = gp.posterior(Xq)
    for i in range(3):
        alone = gp_of(X[i], wavy(X[i]), trend="linear").posterior(Xq[i])
        same(posterior.mean[i], alone.mean, 1e-9)
        same(posterior.variance[i], alone.variance, 1e-10)


@pytest.mark.parametrize("noisy", [False, True])
def test_observations_are_as_uncertain_as_the_rows_on_average(noisy):
    X, y = training_data()
    noise_var = 0.1 * draw(20, seed=4) if noisy else torch.zeros(20).double()
    noise_var[5] = math.inf
    hyper = Hyperparameters(theta=f64([3.0, 3.0]), variance=f64(2.0))
    gp = KrigingGP(X, y, hyper, noise_var)
    Xq = draw(7, 2, seed=1)
    latent, observed = gp.posterior(Xq), gp.posterior(Xq, observation_noise=True)
    same(observed.mean, latent.mean, 1e-12)
    mean_noise = noise_var[noise_var < math.inf].mean()
    same(observed.variance - latent.variance, mean_noise.expand(7, 1), 1e-12)
    noisy_call: Any = gp.likelihood(gp(Xq))
    added = noisy_call.covariance_matrix - gp(Xq).covariance_matrix
    same(added, mean_noise * torch.eye(7).double(), 1e-12)


def test_as_many_points_as_rows_are_no_rows():
    X, y = training_data()
    noise_var = torch.full((20,), 0.1).double()
    noise_var[5] = math.inf
    hyper = Hyperparameters(theta=f64([3.0, 3.0]), variance=f64(2.0))
    gp = KrigingGP(X, y, hyper, noise_var)
    assert gp.posterior(draw(20, 2, seed=1), observation_noise=True).variance.isfinite().all()


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
@pytest.mark.parametrize("p", [None, 1.0, 0.7])
def test_prior_is_the_model_that_the_data_are_scored_by(p, input_scaling, trend):
    # GPyTorch's own marginal likelihood of the prior, at the closed form of sigma^2.
    X, y = training_data(10)
    theta = f64([4.0, 9.0])
    hyper = Hyperparameters(theta=theta, p=None if p is None else torch.full_like(theta, p))
    gp = KrigingGP(X, y, hyper, trend=trend, input_scaling=input_scaling, nugget=0.0)
    gp.train()
    with torch.no_grad():
        found = torch.as_tensor(ExactMarginalLogLikelihood(gp.likelihood, gp)(gp(X), y)).item()
    surrogate = gp.surrogate
    log_det = 2.0 * surrogate.factors.L.diagonal().log().sum()
    scaled = 0.5 * (surrogate.variance.log() + log_det / 10 + 1.0 + math.log(2 * math.pi))
    assert found == pytest.approx(-float(scaled + surrogate.scaling.y_scale.log()), abs=1e-6)
    sigma2 = sigma2_of(gp)
    difference = surrogate.scaling.inputs(X).unsqueeze(1) - surrogate.scaling.inputs(X)
    expected = (-(theta * difference.abs() ** (p or 2.0)).sum(dim=-1)).exp() * sigma2
    same(gp.covar_module(X).to_dense(), expected, 1e-10 * sigma2)


@ignore_their_warnings
def test_acquisition_functions_of_botorch_use_it():
    X, y = training_data(12)
    gp = fit_kriging(X, y)
    improvement = LogExpectedImprovement(gp, best_f=y.min(), maximize=False)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        best, value = optimize_acqf(
            improvement, bounds=f64([[0, 0], [1, 1]]), q=1, num_restarts=4, raw_samples=32
        )
    assert value is not None
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 40).double()] * 2).unsqueeze(1)
    with torch.no_grad():
        assert value.item() >= improvement(grid).max().item() - 1e-6
    assert wavy(best).item() < y.min().item()


# --- data that are hard to fit ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("differ", [False, True])
@pytest.mark.parametrize(
    ("p", "trend", "input_scaling"),
    [
        (2.0, "constant", "unit"),
        (2.0, "linear", "standardize"),
        (1.5, "linear", "unit"),
        ("shared", "constant", "standardize"),
    ],
)
def test_near_duplicates_do_no_harm(dtype, differ, p, trend, input_scaling):
    base = draw(10, 2)
    X = torch.cat([base, base + 1e-9, base + 1e-12]).to(dtype)
    y = wavy(X)
    if differ:
        y = y + 0.1 * draw(30, seed=1).to(dtype)
    gp = fit_kriging(X, y, p=p, trend=trend, input_scaling=input_scaling)
    Xq = torch.cat([X, draw(30, 2, seed=2).to(dtype)])
    mean, variance = gp.surrogate.predict(Xq)
    assert bool((mean.isfinite() & variance.isfinite() & (variance >= 0)).all())
    assert gp.hyperparameters.theta.isfinite().all()
    covariance = gp(Xq[-5:]).covariance_matrix
    assert covariance.isfinite().all()
    if not differ:
        assert (mean[:30] - y).abs().max() < 0.05
        assert (mean[30:] - wavy(Xq[30:])).abs().max() < 1.0


def test_exact_duplicates_are_merged_to_their_mean():
    X, y = training_data(10)
    X, y = torch.cat([X, X[:3]]), torch.cat([y, y[:3] + f64([0.2, -0.4, 1.0])])
    gp = gp_of(X, y, nugget=1e-10)
    expected = y[:10] + f64([0.1, -0.2, 0.5] + [0.0] * 7)
    same(gp.surrogate.mean(X[:10]), expected, 1e-5)
    assert gp.surrogate.data.live.sum() == 10
    assert gp.surrogate.jitter == 0.0
    once = gp_of(X[:10], expected, nugget=1e-10)
    for mine, theirs in zip(
        gp.surrogate.predict(draw(5, 2, seed=1)),
        once.surrogate.predict(draw(5, 2, seed=1)),
        strict=True,
    ):
        same(mine, theirs, 1e-7)


def test_noisy_duplicates_are_merged_by_precision():
    X, y, v = f64([[0.2], [0.7], [0.7]]), f64([0.0, 1.0, 3.0]), f64([0.1, 0.3, 0.1])
    hyper = Hyperparameters(theta=f64([2.0]), variance=f64(1.0))
    merged = KrigingGP(X, y, hyper, v).surrogate.predict(draw(5, 1))
    by_hand = KrigingGP(X[:2], f64([0.0, 2.5]), hyper, f64([0.1, 0.075])).surrogate.predict(
        draw(5, 1)
    )
    for mine, theirs in zip(merged, by_hand, strict=True):
        same(mine, theirs, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [2.0, "ard"])
def test_a_few_penalty_values_do_no_harm(p, dtype):
    X, y = (v.to(dtype) for v in training_data())
    y[3:8] = 5e6
    gp = fit_kriging(X, y, p=p, n_starts=2)
    mean, variance = gp.surrogate.predict(torch.cat([X, draw(20, 2, seed=1).to(dtype)]))
    assert bool((mean.isfinite() & variance.isfinite() & (variance >= 0)).all())
    same(mean[:20] / 5e6, y / 5e6, 1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, -3.7, 0.1, 5e6])
@pytest.mark.parametrize("trend", ["constant", "linear"])
def test_constant_outputs_are_predicted_everywhere(value, dtype, trend):
    X = draw(12, 2).to(dtype)
    gp = fit_kriging(X, torch.full((12,), value, dtype=dtype), trend=trend, p="shared")
    mean, variance = gp.surrogate.predict(draw(30, 2, seed=1).to(dtype))
    torch.testing.assert_close(mean, torch.full((30,), value, dtype=dtype), rtol=1e-6, atol=1e-12)
    assert bool(((variance >= 0) & variance.isfinite()).all())
    assert variance.max() < 1e-6 * max(1.0, value**2)


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_one_row_is_enough(trend, input_scaling):
    gp = fit_kriging(f64([[0.3, 0.4]]), f64([2.5]), trend=trend, input_scaling=input_scaling)
    mean, variance = gp.surrogate.predict(draw(9, 2))
    assert mean.tolist() == pytest.approx([2.5] * 9)
    assert bool(((variance >= 0) & variance.isfinite()).all())
    assert not gp.surrogate.is_linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("factor", "offset"), [(1e9, 0.0), (1e-9, 0.0), (-2.0, 0.0), (1.0, 100.0)])
def test_predictions_follow_the_outputs_units(factor, offset, dtype):
    X, y = (v.to(dtype) for v in training_data())
    Xq = draw(20, 2, seed=1).to(dtype)
    config = FitConfig(nugget=1e-3)
    expected = fit_kriging(X, y, config=config).surrogate.predict(Xq)
    mean, variance = fit_kriging(X, factor * y + offset, config=config).surrogate.predict(Xq)
    tolerance = 1e-5 if dtype == torch.float64 else 1e-2
    same((mean - offset) / factor, expected[0], tolerance)
    torch.testing.assert_close(variance / factor**2, expected[1], rtol=0.1, atol=tolerance)


@pytest.mark.parametrize("d", [1, 3])
def test_linear_trend_recovers_linear_functions_exactly(d):
    X, slope = draw(d + 8, d), draw(d, seed=1) - 0.5
    gp = fit_kriging(X, 1.0 + X @ slope, trend="linear")
    Xq = 4.0 * draw(20, d, seed=2) - 1.5
    assert gp.surrogate.is_linear
    same(gp.surrogate.mean(Xq), 1.0 + Xq @ slope, 1e-9)


@pytest.mark.parametrize(("n", "is_linear"), [(1, False), (4, False), (5, True)])
def test_linear_trend_needs_d_plus_two_rows(n, is_linear):
    X, y = training_data(n, d=3)
    gp, constant = gp_of(X, y, trend="linear"), gp_of(X, y)
    assert gp.surrogate.is_linear.item() == is_linear
    difference = (
        gp.surrogate.mean(draw(9, 3, seed=1)) - constant.surrogate.mean(draw(9, 3, seed=1))
    ).abs()
    assert (difference.max() > 1e-3) == is_linear
    padded = torch.cat([X, draw(9, 3, seed=2)])
    noise_var = torch.zeros(n + 9).double()
    noise_var[n:] = math.inf
    with_padding = gp_of(
        padded, torch.cat([y, y.new_zeros(9)]), noise_var=noise_var, trend="linear"
    )
    assert with_padding.surrogate.is_linear.item() == is_linear


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_a_constant_input_column_does_no_harm(input_scaling, trend):
    X = draw(16, 3)
    y = wavy(X[:, [0, 2]])
    X[:, 1] = 0.5
    gp = fit_kriging(X, y, input_scaling=input_scaling, trend=trend)
    mean, variance = gp.surrogate.predict(X)
    same(mean, y, 1e-4)
    assert variance.max() < 1e-6
    Xq = draw(20, 3, seed=1)
    mean, variance = gp.surrogate.predict(Xq)
    assert bool((mean.isfinite() & variance.isfinite()).all())


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -1e300])
def test_missing_rows_may_hold_anything(garbage):
    X, y = training_data(12)
    expected = gp_of(X, y, trend="linear")
    noise_var = torch.zeros(15).double()
    noise_var[[0, 7, 14]] = math.inf
    live = noise_var == 0
    padded = X.new_full((15, 2), garbage), X.new_full((15,), garbage)
    for to, values in zip(padded, (X, y), strict=True):
        to[live] = values
    gp = KrigingGP(
        *padded, Hyperparameters(theta=f64([3.0, 3.0])), noise_var, trend="linear", nugget=1e-6
    )
    Xq = draw(9, 2, seed=1)
    same(gp.posterior(Xq).mean, expected.posterior(Xq).mean, 1e-10)
    same(gp(Xq).covariance_matrix, expected(Xq).covariance_matrix, 1e-10)


def test_variances_are_reported_as_they_are_however_small():
    # GPyTorch would lift them to 1e-10, and warn.
    X, y = training_data(12)
    gp = gp_of(X, 1e-9 * y)
    Xq = torch.cat([draw(6, 2, seed=1), X[:2]])
    _, variance = gp.surrogate.predict(Xq)
    assert variance.max() < 1e-17
    for found in (gp(Xq).variance, gp.posterior(Xq).variance.squeeze(-1)):
        torch.testing.assert_close(found, variance, rtol=1e-6, atol=1e-12 * sigma2_of(gp))
    X, y = training_data(25)
    gp = gp_of(X, y, theta=20.0, nugget=0.0)  # variances of 0, but for rounding
    variance = gp(X).covariance_matrix.diagonal()
    assert 0.0 < variance.min() <= variance.max() < 1e-13 * sigma2_of(gp)
    covariance = to_linear_operator(torch.diag(f64([-1e-20, 1e-20])))
    below = ExactNormal(torch.zeros(2).double(), covariance)
    assert below.variance.tolist() == [0.0, 1e-20]


# --- jitter ---


def near_copies():
    base = draw(8, 1)
    return torch.cat([base, base + 1e-14]), torch.cat([wavy(base)] * 2)


def test_a_jitter_that_was_needed_is_recorded_and_logged(caplog):
    X, y = near_copies()
    with caplog.at_level(logging.WARNING, logger="tcsaea_torch"):
        gp = fit_kriging(X, y, config=FitConfig(p=1.5, nugget=0.0))
    assert gp.surrogate.jitter.item() in JITTERS
    (record,) = caplog.records
    assert record.name == "tcsaea_torch.models.kriging_fit"
    assert record.getMessage() == (
        f"Kriging needed a jitter of {gp.surrogate.jitter.item():g} to factorise 16 rows"
    )
    same(gp.surrogate.mean(X), y, 1e-3)


def test_no_jitter_no_message(caplog):
    X, y = training_data()
    with caplog.at_level(logging.DEBUG, logger="tcsaea_torch"):
        gp = fit_kriging(X, y)
    assert gp.surrogate.jitter == 0.0
    assert not caplog.records


# --- life as a module ---


def test_changes_of_precision_carry_the_whole_model():
    X, y = training_data()
    gp = gp_of(X, y, trend="linear", nugget=1e-3)
    Xq = draw(9, 2, seed=1)
    expected = gp.posterior(Xq)
    single = copy.deepcopy(gp).float()
    assert single.posterior(Xq.float()).mean.dtype == torch.float32
    assert torch.as_tensor(single.train_targets).dtype == torch.float32
    assert single.covar_module(X.float()).to_dense().dtype == torch.float32
    assert single.surrogate.is_linear.dtype == torch.bool
    same(single.posterior(Xq.float()).mean.double(), expected.mean, 1e-4)
    same(single.posterior(Xq.float()).variance.double(), expected.variance, 1e-4)
    back = single.double()
    same(back.posterior(Xq).mean, expected.mean, 1e-4)
    assert back.posterior(Xq).mean.dtype == torch.float64
    same(gp.to(dtype=torch.float64).posterior(Xq).mean, expected.mean, 0.0)


def test_to_moves_the_model(device):
    X, y = training_data()
    gp = gp_of(X, y)
    Xq = draw(9, 2, seed=1)
    expected = gp.posterior(Xq).mean
    moved = gp.to(device)
    assert moved.surrogate.factors.L.device.type == device.type
    found = moved.posterior(Xq.to(device)).mean
    assert found.device.type == device.type
    same(found.cpu(), expected, 1e-9)


def test_copies_after_a_prediction_predict_the_same():
    X, y = training_data()
    gp = fit_kriging(X, y)
    Xq = draw(9, 2, seed=1).requires_grad_()
    expected = gp.posterior(Xq)
    expected.mean.sum().backward()
    saved = io.BytesIO()
    torch.save(gp, saved)
    saved.seek(0)
    for other in (copy.deepcopy(gp), torch.load(saved, weights_only=False)):
        found = other.posterior(Xq)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.variance, expected.variance)


def test_training_data_are_not_changed_nor_followed():
    X, y = training_data()
    X[5] = X[4]
    noise_var = torch.zeros(20).double()
    before = X.clone(), y.clone(), noise_var.clone()
    gp = fit_kriging(X, y, noise_var)
    for now, then in zip((X, y, noise_var), before, strict=True):
        assert torch.equal(now, then)
    expected = gp.surrogate.mean(before[0])
    X.zero_()
    y.zero_()
    assert torch.equal(gp.surrogate.mean(before[0]), expected)


def test_y_may_be_a_column():
    X, y = training_data()
    noise_var = 0.1 * draw(20, seed=1)
    hyper = Hyperparameters(theta=f64([3.0, 3.0]), variance=f64(1.0))
    flat = KrigingGP(X, y, hyper, noise_var)
    column = KrigingGP(X, y.unsqueeze(-1), hyper, noise_var.unsqueeze(-1))
    Xq = draw(9, 2, seed=1)
    assert torch.equal(flat.posterior(Xq).mean, column.posterior(Xq).mean)
    assert torch.equal(flat.posterior(Xq).variance, column.posterior(Xq).variance)
    one_row = fit_kriging(X[:1], y[:1].unsqueeze(-1))
    assert one_row.surrogate.mean(X[:1]).item() == pytest.approx(y[0].item())


# --- what is refused ---

X0, Y0 = training_data(6)
NAN_X, NAN_Y = X0.clone(), Y0.clone()
NAN_X[4, 1], NAN_Y[2] = math.nan, -math.inf
THREE = Hyperparameters(theta=torch.ones(3).double())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"X": X0.tolist()}, "X must be a tensor *batch x n x d of floats, got [["),
        ({"X": X0.numpy()}, "X must be a tensor *batch x n x d of floats, got ndarray"),
        ({"X": X0[:, 0]}, "X must be a tensor *batch x n x d of floats, got a tensor"),
        ({"X": (10 * X0).long()}, "X must be a tensor *batch x n x d of floats"),
        ({"X": X0[:0], "y": Y0[:0]}, "X must have at least one row and column"),
        ({"X": X0[:, :0]}, "X must have at least one row and column"),
        ({"X": NAN_X}, "X must be finite, got nan at index (4, 1)"),
        ({"y": NAN_Y}, "y must be finite, got -inf at index (2,)"),
        ({"y": Y0.tolist()}, "y must be a tensor *batch x n, got ["),
        ({"y": Y0[:5]}, "y must have shape (6,) to go with X, got a tensor of shape (5,)"),
        ({"y": Y0.expand(2, 6)}, "y must have shape (6,) to go with X, got a tensor"),
        ({"y": Y0.float()}, "y must have X's dtype and device (torch.float64, cpu)"),
        ({"X": X0.float()}, "y must have X's dtype and device (torch.float32, cpu)"),
        ({"noise_var": 0.1}, "noise_var must be a tensor *batch x n, got 0.1 (float)"),
        ({"noise_var": Y0[:5].abs()}, "noise_var must have shape (6,) to go with X"),
        ({"noise_var": Y0.abs().float()}, "noise_var must have X's dtype and device"),
        ({"noise_var": Y0.abs() - 1e9}, "noise_var must be >= 0 (inf for rows that do not exist)"),
        ({"noise_var": NAN_X[:, 1]}, "noise_var must be >= 0"),
        ({"trend": "lineer"}, "one of constant, linear, got 'lineer'; did you mean 'linear'?"),
        ({"trend": None}, "trend must be one of constant, linear, got None"),
        ({"input_scaling": "standardise"}, "input_scaling must be one of standardize, unit"),
        ({"input_scaling": "standardise"}, "did you mean 'standardize'?"),
        ({"p": 0}, "p must be a finite real number > 0 and <= 2, got 0"),
        ({"p": 2.5}, "p must be a finite real number > 0 and <= 2, got 2.5"),
        ({"p": "ardd"}, "p must be one of ard, shared, got 'ardd'; did you mean 'ard'?"),
        ({"n_starts": 0}, "n_starts must be an integer >= 1, got 0"),
        ({"n_starts": 1.5}, "n_starts must be an integer >= 1, got 1.5"),
        ({"init": THREE}, "init.theta must"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(changes, message, unchecked):
    arguments: dict[str, Any] = {"X": X0, "y": Y0, **changes}
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        fit_kriging(**arguments)
    if not {"p", "n_starts", "init"} & set(changes):
        hyper = Hyperparameters(theta=f64([1.0, 1.0]), variance=f64(1.0))
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            KrigingGP(hyperparameters=hyper, **arguments)


def test_the_index_of_a_bad_value_counts_batches(unchecked):
    X, y = draw(2, 3, 4, 2), draw(2, 3, 4)
    X[1, 2, 0, 1] = math.inf
    with pytest.raises(InvalidInputError, match=re.escape("got inf at index (1, 2, 0, 1)")):
        fit_kriging(X, y)


def test_a_negative_nugget_is_refused(unchecked):
    with pytest.raises(InvalidInputError, match="nugget must be a finite real number >= 0"):
        gp_of(X0, Y0, nugget=-1e-6)


ONES = torch.ones(2).double()


@pytest.mark.parametrize(
    "hyper",
    [
        {"theta": torch.ones(3).double()},
        {"theta": torch.ones(2, 2).double()},
        {"theta": -ONES},
        {"theta": ONES * math.nan},
        {"theta": ONES, "p": torch.ones(3).double()},
        {"theta": ONES, "p": 3.0 * ONES},
        {"theta": ONES, "variance": -ONES[0]},
        {"theta": ONES, "variance": ONES},
    ],
    ids=["columns", "batch", "negative", "nan", "p-columns", "p-3", "variance", "variances"],
)
def test_wrong_hyperparameters_are_refused(hyper, unchecked):
    with pytest.raises(InvalidInputError):
        KrigingGP(X0, Y0, Hyperparameters(**hyper))


def test_noise_needs_a_variance():
    with pytest.raises(InvalidInputError):
        KrigingGP(X0, Y0, Hyperparameters(theta=ONES), torch.full_like(Y0, 0.1))


@pytest.mark.parametrize(
    "theta",
    [ONES, -torch.ones(2, 2).double(), torch.ones(3, 2).double()],
    ids=["batch-none", "negative", "batch-3"],
)
def test_wrong_warm_starts_are_refused(theta, unchecked):
    with pytest.raises(InvalidInputError):
        fit_kriging(X0.expand(2, -1, -1), Y0.expand(2, -1), init=Hyperparameters(theta=theta))


def test_half_precision_is_refused(unchecked):
    with pytest.raises(InvalidInputError):
        fit_kriging(X0.half(), Y0.half())
