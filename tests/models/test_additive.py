"""Kriging with the additive kernel, from the likelihood to BoTorch."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tcsaea_torch.kernels import additive
from tcsaea_torch.models import (
    FitConfig,
    Hyperparameters,
    KrigingGP,
    Surrogate,
    TrainingSet,
    fit_kriging,
)
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.correlation import Additive
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import log_evidence
from tcsaea_torch.models.likelihood import negative_log_likelihood
from tcsaea_torch.models.surrogate import condition, scale
from tcsaea_torch.models.updating import SharedSurrogate, extend
from tests.models.models import draw, f64, same, saved_and_loaded, wavy

ADDITIVE = FitConfig(kernel="additive")
NUGGET = 1e-4


def training(b=3, n=16, d=3, *, noisy=False):
    """A batch of training sets of which all but the first lack rows."""
    X = draw(b, n, d)
    gone = draw(b, n, seed=1) < 0.2
    gone[0] = False
    noise = draw(b, n, seed=2) * 0.1 if noisy else torch.zeros(b, n).double()
    return TrainingSet(X=X, y=wavy(X), noise_var=noise.masked_fill(gone, math.inf))


def parameters(*batch, d=3, seed=5):
    theta = 1.0 + 20.0 * draw(*batch, d, seed=seed)
    return theta, 0.1 + draw(*batch, d + 1, seed=seed + 1)


POWERS = f64([0.8, 1.5, 1.9])
ROUGH = replace(ADDITIVE, p=1.5)


def correlation(A, B, theta, amplitudes, p=2.0):
    """One pair of points and one pair of dimensions at a time, in plain Python."""
    a, w = amplitudes[:-1], amplitudes[-1]

    def total(z):
        pairs = itertools.combinations(range(len(z)), 2)
        products = sum(a[k] * a[m] * z[k] * z[m] for k, m in pairs)
        return sum(s * t for s, t in zip(a, z, strict=True)) + w * products

    at_zero = total([1.0] * len(theta))
    return np.array([[total(np.exp(-theta * np.abs(x - y) ** p)) / at_zero for y in B] for x in A])


def standardised(train, *, linear=False):
    trend = torch.full(train.y.shape[:-1], linear)
    return scale(train, trend=trend, input_scaling="unit")


@pytest.mark.parametrize("p", [None, POWERS])
def test_the_correlation_is_the_double_sum(p):
    theta, amplitudes = parameters()
    A, B = draw(7, 3), draw(5, 3, seed=1)
    power = 2.0 if p is None else p.numpy()
    expected = correlation(A.numpy(), B.numpy(), theta.numpy(), amplitudes.numpy(), power)
    found = additive(A, B, theta, amplitudes, p)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-14)
    assert torch.equal(additive(A, A, theta, amplitudes, p).diagonal(), torch.ones(7).double())


def test_powers_of_two_are_the_square():
    theta, amplitudes = parameters()
    A, twos = draw(9, 3), torch.full((3,), 2.0).double()
    same(additive(A, A, theta, amplitudes, twos), additive(A, A, theta, amplitudes), 1e-14)


def test_gradients_with_powers_are_finite_where_points_meet():
    theta, amplitudes = parameters()
    A = draw(6, 3)
    B = torch.cat([A[:2], draw(3, 3, seed=4)])
    B[2, 0] = A[3, 0]
    inputs = [v.clone().requires_grad_() for v in (A, B, theta, amplitudes, POWERS)]
    additive(*inputs).sum().backward()
    assert all(v.grad is not None and v.grad.isfinite().all() for v in inputs)
    apart = [v.clone().requires_grad_() for v in (A, B[3:], theta, amplitudes, POWERS)]
    assert torch.autograd.gradcheck(additive, apart)


def test_only_the_ratios_of_the_amplitudes_matter():
    theta, amplitudes = parameters()
    A = draw(9, 3)
    other = torch.cat([7.0 * amplitudes[:-1], amplitudes[-1:] / 7.0])
    same(additive(A, A, theta, other), additive(A, A, theta, amplitudes), 1e-14)


@pytest.mark.parametrize("p", [None, 2.0 - draw(20, 6, seed=7)])
def test_matrices_are_positive_semidefinite(p):
    theta, amplitudes = parameters(20, d=6)
    amplitudes = 10.0 ** (6.0 * amplitudes - 3.0)
    R = additive(draw(20, 40, 6), draw(20, 40, 6), theta, amplitudes, p)
    assert torch.linalg.eigvalsh(R).min() > -1e-12


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("p", [2.0, 1.3])
def test_the_likelihood_is_the_textbooks(p, linear, noisy):
    data, _ = standardised(training(noisy=noisy), linear=linear)
    theta, amplitudes = parameters(3)
    nugget = 0.01 + draw(3, seed=8)
    log_variance = draw(3, seed=4) - 0.5 if noisy else None
    found = negative_log_likelihood(
        data, theta.log(), None if p == 2.0 else torch.full_like(theta, p), log_variance, 0.0,
        kernel="additive",
        log_amplitudes=amplitudes.log(), log_nugget=nugget.log(),
    )  # fmt: skip
    for i in range(3):
        live = data.live[i].numpy()
        X, y, F, noise = (getattr(data, k)[i].numpy()[live] for k in ("X", "y", "F", "noise"))
        F, n = F[:, (F != 0).any(axis=0)], len(y)
        C = correlation(X, X, theta[i].numpy(), amplitudes[i].numpy(), p)
        C = C + np.eye(n) * nugget[i].item()
        if log_variance is not None:
            C = C + np.diag(noise) / math.exp(log_variance[i])
        beta = np.linalg.solve(F.T @ np.linalg.solve(C, F), F.T @ np.linalg.solve(C, y))
        e = y - F @ beta
        quadratic = e @ np.linalg.solve(C, e)
        s2 = quadratic / n if log_variance is None else math.exp(log_variance[i])
        expected = 0.5 * (math.log(s2) + (np.linalg.slogdet(C)[1] + quadratic / s2) / n)
        assert found.value[i].item() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("kernel", ["power-exponential", "matern-5/2", "additive"])
@pytest.mark.parametrize("with_p", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
def test_the_gradient_is_that_of_central_differences(noisy, with_p, kernel):
    if with_p and kernel == "matern-5/2":
        return
    data, _ = standardised(training(noisy=noisy))
    theta, amplitudes = parameters(3)
    at = {
        "log_theta": theta.log(),
        "p": 1.0 + draw(3, 3, seed=3) if with_p else None,
        "log_variance": draw(3, seed=4) - 0.5 if noisy else None,
        "log_amplitudes": amplitudes.log() if kernel == "additive" else None,
        "log_nugget": draw(3, seed=8) - 5.0,
    }
    found = negative_log_likelihood(data, **at, nugget=0.0, kernel=kernel)
    assert (found.d_log_amplitudes is None) == (kernel != "additive")
    assert (found.d_p is None) == (not with_p or kernel == "additive")
    for name, value in at.items():
        if value is None or (name == "p" and kernel == "additive"):
            continue
        gradient = getattr(found, f"d_{name}")
        for column in range(value.shape[-1]) if value.ndim > 1 else [...]:
            ends = []
            for sign in (1.0, -1.0):
                moved = value.clone()
                moved[..., column] += sign * 1e-5
                changed = {**at, name: moved}
                ends.append(
                    negative_log_likelihood(data, **changed, nugget=0.0, kernel=kernel).value
                )
            expected = (ends[0] - ends[1]) / 2e-5
            torch.testing.assert_close(gradient[..., column], expected, rtol=1e-6, atol=2e-9)


@pytest.mark.parametrize("p", [None, 2.0 - draw(3, 3, seed=7)])
def test_missing_rows_are_absent_exactly(p):
    data, _ = standardised(training())
    theta, amplitudes = parameters(3)
    logs = {"log_amplitudes": amplitudes.log(), "log_nugget": torch.full((3,), -5.0).double()}
    whole = negative_log_likelihood(data, theta.log(), p, None, 0.0, kernel="additive", **logs)
    for i in range(3):
        present = map_tensors(data[i], lambda t, i=i: t[data.live[i]] if t.ndim else t)
        alone = negative_log_likelihood(
            present, theta[i].log(), None if p is None else p[i], None, 0.0, kernel="additive",
            **{k: v[i] for k, v in logs.items()},
        )  # fmt: skip
        for name in ("value", "d_log_theta", "d_log_amplitudes", "d_log_nugget"):
            mine, whole_one = getattr(alone, name), getattr(whole, name)[i]
            torch.testing.assert_close(mine, whole_one, rtol=0, atol=1e-12)


def model(*, nugget=True, noisy=False, n=14, p=None):
    train = training(1, n=n, noisy=noisy)
    theta, amplitudes = parameters()
    hyper = Hyperparameters(
        theta=theta, kernel="additive", amplitudes=amplitudes, variance=f64(2.0),
        p=None if p is None else torch.full((3,), p).double(),
        nugget=f64(0.03) if nugget else None,
    )  # fmt: skip
    return train, hyper, KrigingGP(train.X[0], train.y[0], hyper, train.noise_var[0], nugget=NUGGET)


@pytest.mark.parametrize("nugget", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("p", [None, 1.5])
def test_predictions_are_those_of_a_process_in_numpy(p, noisy, nugget):
    train, hyper, gp = model(nugget=nugget, noisy=noisy, p=p)
    assert hyper.amplitudes is not None
    args = hyper.theta.numpy(), hyper.amplitudes.numpy(), p or 2.0
    X, y, Z = train.X[0].numpy(), train.y[0].numpy(), draw(6, 3, seed=9)
    C = correlation(X, X, *args) + np.diag(train.noise_var[0].numpy()) / 2.0
    C = C + np.eye(len(y)) * (0.03 if nugget else NUGGET)
    k, one = correlation(Z.numpy(), X, *args), np.ones((len(y), 1))
    Ci = np.linalg.inv(C)
    beta = (one.T @ Ci @ y) / (one.T @ Ci @ one)
    mean = beta.item() + k @ Ci @ (y - beta.item())
    u = 1.0 - k @ Ci @ one
    prior = correlation(Z.numpy(), Z.numpy(), *args)
    covariance = 2.0 * (prior - k @ Ci @ k.T + u @ u.T / (one.T @ Ci @ one))
    found = gp.surrogate.predict_joint(Z)
    np.testing.assert_allclose(found[0].numpy(), mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found[1].numpy(), covariance, rtol=0, atol=1e-10)
    posterior = gp.posterior(Z)
    same(posterior.mean.squeeze(-1), found[0], 1e-12)
    same(posterior.variance.squeeze(-1), found[1].diagonal(), 1e-10)


@pytest.mark.parametrize("p", [None, 1.5])
def test_predictions_are_differentiable_in_the_points(p):
    _, _, gp = model(p=p)
    Z = draw(3, 3, seed=9).requires_grad_()
    assert torch.autograd.gradcheck(gp.surrogate.predict, (Z,))
    at_rows = gp.surrogate.data.X[:2] + gp.surrogate.scaling.x_shift
    at_rows.requires_grad_()
    mean, covariance = gp.surrogate.predict_joint(at_rows)
    (mean.sum() + covariance.sum()).backward()
    assert at_rows.grad is not None
    assert at_rows.grad.isfinite().all()


@pytest.mark.parametrize("nugget", [False, True])
@pytest.mark.parametrize("p", [None, 1.5])
def test_appended_rows_are_as_if_they_had_been_there(p, nugget):
    train, hyper, whole = model(nugget=nugget, p=p)
    X, y = train.X[0], train.y[0]
    first = KrigingGP(X[:9], y[:9], hyper, nugget=NUGGET)
    both = first.condition_on_observations(X[9:], y[9:].unsqueeze(-1))
    Z = draw(6, 3, seed=9)
    for mine, theirs in zip(
        both.surrogate.predict_joint(Z), whole.surrogate.predict_joint(Z), strict=True
    ):
        same(mine, theirs)
    assert (both.hyperparameters.nugget is not None) == nugget


def test_a_batch_is_extended_with_nuggets_of_its_own():
    train = training(2, n=12)
    train = replace(train, noise_var=torch.zeros(2, 12).double())
    theta, amplitudes = parameters(2)
    hyper = Hyperparameters(
        theta=theta, kernel="additive", amplitudes=amplitudes, variance=f64([1.0, 2.0]),
        nugget=f64([0.5, 1e-3]),
    )  # fmt: skip
    build = lambda rows: condition(*standardised(rows), hyper, nugget=0.0)  # noqa: E731
    before = build(map_tensors(train, lambda t: t[:, :8]))
    rest = map_tensors(train, lambda t: t[:, 8:])
    after = extend(SharedSurrogate.of(before), rest.X, rest.y, rest.noise_var, nugget=f64(0.0))
    Z = draw(2, 5, 3, seed=9)
    for mine, theirs in zip(after.predict(Z), build(train).predict(Z), strict=True):
        same(mine, theirs)


def waves(X):
    """A sum of waves of each variable: far from what a joint kernel learns from few points."""
    return (20.0 * X).cos().sum(dim=-1)


def test_a_sum_of_waves_is_learned_from_few_points():
    X, Z = draw(70, 5), draw(300, 5, seed=1)
    error = {}
    for kernel in ("additive", "power-exponential"):
        gp = fit_kriging(X, waves(X), kernel=kernel)
        error[kernel] = (gp.surrogate.mean(Z) - waves(Z)).square().mean() / waves(Z).var()
    assert error["additive"] < 0.05
    assert error["power-exponential"] > 0.5


@pytest.mark.parametrize("base", [ADDITIVE, ROUGH])
def test_a_batch_is_fitted_as_its_members(base):
    train = training(3, n=25)
    trend = torch.zeros(3, dtype=torch.bool)
    config = replace(base, nugget="fit")
    together = fit(train, config, trend=trend)
    Z = draw(3, 20, 3, seed=9)
    for i in range(3):
        one = map_tensors(train, lambda t, i=i: t[i : i + 1])
        alone = fit(one, config, trend=trend[:1])
        # Optima are flat: rounding moves them further than it moves predictions.
        same(alone.mean(Z[i : i + 1])[0], together.mean(Z)[i], 1e-5)
        torch.testing.assert_close(
            log_evidence(alone)[0], log_evidence(together)[i], rtol=0, atol=1e-4
        )


def test_the_prior_decides_where_data_do_not():
    # One variable has no products, and its amplitude cancels.
    X = draw(12, 1)
    hyper = fit_kriging(X, wavy(X), kernel="additive").hyperparameters
    assert hyper.amplitudes is not None
    assert hyper.amplitudes.tolist() == pytest.approx([1.0, 1.0], abs=1e-4)


def test_a_narrow_prior_holds_the_amplitudes():
    X = draw(40, 4)
    y = X[:, 0].mul(6.0).sin()
    spread = {}
    for width in (0.05, 3.0):
        config = replace(ADDITIVE, amplitude_spread=width)
        amplitudes = fit_kriging(X, y, config=config).hyperparameters.amplitudes
        assert amplitudes is not None
        spread[width] = float((amplitudes[:-1] * 4.0).log().abs().max())
    assert spread[0.05] < 0.2
    assert spread[3.0] > 1.0


def test_the_fit_stays_in_its_boxes_and_starts_from_an_earlier_one():
    X = draw(40, 4)
    for scaling, limit in (("unit", 3e3), ("standardize", 250.0)):
        config = replace(ADDITIVE, input_scaling=scaling, nugget="fit")
        first = fit_kriging(X, waves(X), config=config).hyperparameters
        assert first.nugget is not None
        assert first.theta.max() <= limit * (1 + 1e-12)
        assert 1e-8 * (1 - 1e-12) <= first.nugget.item() <= 1.0
        again = fit_kriging(X, waves(X), config=config, init=first).hyperparameters
        same(again.theta, first.theta, 1e-3)
    assert FitConfig(kernel="additive", theta_range=(1.0, 2.0)).theta_box == (1.0, 2.0)
    assert FitConfig().theta_box == (1e-8, 1e3)


@pytest.mark.parametrize("kernel", ["power-exponential", "matern-5/2", "additive"])
def test_a_fitted_nugget_is_the_noise_of_the_values(kernel):
    X = draw(150, 2)
    noise = 0.2 * torch.randn(150, generator=torch.Generator().manual_seed(1)).double()
    clean = wavy(X)
    gp = fit_kriging(X, clean + noise, kernel=kernel, nugget="fit")
    hyper = gp.hyperparameters
    assert hyper.nugget is not None
    assert hyper.variance is not None
    assert math.sqrt(hyper.nugget * hyper.variance) == pytest.approx(0.2, rel=0.2)
    exact = fit_kriging(X, clean + noise, kernel=kernel, nugget=1e-8)
    Z = draw(200, 2, seed=5)
    errors = [(g.surrogate.mean(Z) - wavy(Z)).square().mean().sqrt() for g in (gp, exact)]
    assert errors[0] < 0.95 * errors[1]
    clean_nugget = fit_kriging(X, clean, kernel=kernel, nugget="fit").hyperparameters.nugget
    assert clean_nugget is not None
    assert clean_nugget.item() < 1e-5


@pytest.mark.parametrize("p", [2.0, 1.5])
def test_single_precision_is_close(p):
    X = draw(30, 3)
    gp = fit_kriging(X.float(), waves(X).float(), p=p, kernel="additive", nugget="fit")
    exact = fit_kriging(X, waves(X), p=p, kernel="additive", nugget="fit")
    Z = draw(50, 3, seed=1)
    mean = gp.surrogate.mean(Z.float())
    assert mean.dtype == torch.float32
    same(mean.double(), exact.surrogate.mean(Z), 0.05)


def test_the_state_of_a_model_makes_the_round_trip():
    _, hyper, gp = model()
    fresh = KrigingGP(draw(14, 3, seed=20), draw(14), hyper, nugget=NUGGET)
    fresh.load_state_dict(saved_and_loaded(gp.state_dict()))
    Z = draw(5, 3, seed=9)
    assert torch.equal(fresh.posterior(Z).mean, gp.posterior(Z).mean)
    assert isinstance(fresh.surrogate, Surrogate)


def test_a_model_with_another_power_becomes_that_of_the_state():
    (_, _, gp), (_, _, other) = model(p=1.5), model(p=1.1)
    other.load_state_dict(saved_and_loaded(gp.state_dict()))
    Z = draw(5, 3, seed=9)
    same(other.forward(Z).covariance_matrix, gp.forward(Z).covariance_matrix, 1e-12)


def steep(X):
    """As rough near one end as x^0.1."""
    return ((X - 0.2).abs() ** 0.1).sum(dim=-1)


def test_a_lower_power_is_less_overconfident_about_steep_ends():
    X, Z = draw(80, 4), draw(400, 4, seed=1)
    misfit = {}
    for p in (2.0, 1.5):
        gp = fit_kriging(X, steep(X), p=p, kernel="additive")
        mean, variance = gp.surrogate.predict(Z)
        misfit[p] = float(((mean - steep(Z)).square() / variance).mean())
    assert misfit[1.5] < 0.5 * misfit[2.0]


@pytest.mark.parametrize("scaling", ["unit", "standardize"])
@pytest.mark.parametrize("p", [None, 1.5])
def test_the_gpytorch_prior_is_the_models(p, scaling):
    train, hyper, _ = model(p=p)
    gp = KrigingGP(train.X[0], train.y[0], hyper, nugget=NUGGET, input_scaling=scaling)
    Z = draw(5, 3, seed=9)
    X = gp.surrogate.scaling.inputs(Z)
    prior = gp.forward(Z).covariance_matrix
    same(prior, 2.0 * hyper.correlate(X, X), 1e-9)


@pytest.mark.parametrize("p", [None, 2.0 - draw(2, 3, seed=7)])
def test_no_table_larger_than_memory(p):
    # A table that is not kept gives the same numbers, in blocks.
    X, live = draw(2, 12, 3), torch.ones(2, 12, dtype=torch.bool)
    theta, amplitudes = parameters(2)
    kept = Additive.of(X, live, p)
    blocks = replace(kept, table=None)
    assert kept.table is not None
    for mine, theirs in zip(
        *(
            c.correlate(theta, amplitudes)[1](torch.ones(2, 12, 12).double())
            for c in (blocks, kept)
        ),
        strict=True,
    ):
        same(mine, theirs, 1e-12)
