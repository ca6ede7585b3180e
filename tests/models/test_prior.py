"""What is known of hyper-parameters before data are seen."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm

from tcsaea_torch.models import BFGSOptions, FitConfig, Hyperparameters, TrainingSet
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.fitting import _Layout, _Objective, fit
from tcsaea_torch.models.likelihood import negative_log_likelihood, prepare
from tcsaea_torch.models.surrogate import scale
from tests.models.models import draw, f64, same, wavy

ADDITIVE = FitConfig(kernel="additive", nugget=1e-6)
PRIORS = [None, (20.0, 1.0), (0.5, 0.3)]
D = 3


def training(b=2, n=16, *, noisy=False):
    """A batch of training sets of which the last lacks rows."""
    X = draw(b, n, D)
    noise = 0.01 * draw(b, n, seed=2) if noisy else torch.zeros(b, n).double()
    noise[-1, ::5] = math.inf
    return TrainingSet(X=X, y=wavy(X), noise_var=noise)


def constant(b=2):
    return torch.zeros(b, dtype=torch.bool)


def objective(config, *, noisy, n_starts=2):
    train = training(noisy=noisy)
    data, _ = scale(train, trend=constant(), input_scaling="unit")
    layout = _Layout(d=D, config=config, fits_variance=noisy)
    nugget = 0.0 if config.nugget == "fit" else 1e-6
    p = None if config.p == 2.0 else torch.full((len(data.X), D), config.p).double()
    prepared = prepare(data, nugget, p=p, kernel="additive")
    return data, _Objective(prepared, layout, layout.penalty(data.X), n_starts=n_starts)


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("nugget", [1e-6, "fit"])
@pytest.mark.parametrize("theta_prior", PRIORS)
def test_the_objective_is_the_likelihood_and_the_priors_density(theta_prior, nugget, noisy):
    config = replace(
        ADDITIVE, nugget=nugget, theta_prior=theta_prior, amplitude_spread=0.75, weight_spread=2.5
    )
    data, f = objective(config, noisy=noisy)
    n_rest = (nugget == "fit") + noisy
    v, members = draw(4, 2 * D + 1 + n_rest, seed=4), torch.arange(4)
    v[:, 2 * D + 1 :] -= 3.0
    found, gradient = f(v, members)
    for k in range(4):
        i = k // 2
        likelihood = negative_log_likelihood(
            data[i : i + 1], v[k : k + 1, :D], None,
            v[k : k + 1, -1] if noisy else None, 0.0 if nugget == "fit" else 1e-6,
            kernel="additive", log_amplitudes=v[k : k + 1, D : 2 * D + 1],
            log_nugget=v[k : k + 1, 2 * D + 1] if nugget == "fit" else None,
        )  # fmt: skip
        parts = [
            (v[k, D : 2 * D].numpy(), -math.log(D), 0.75),
            (v[k, 2 * D : 2 * D + 1].numpy(), 0.0, 2.5),
        ]
        if theta_prior is not None:
            parts.append((v[k, :D].numpy(), math.log(theta_prior[0]), theta_prior[1]))
        # The density's constant does not matter to the optimum: it is 0 at its top.
        density = sum((norm.logpdf(x, m, s) - norm.logpdf(m, m, s)).sum() for x, m, s in parts)
        n = int(data.live[i].sum())
        expected = likelihood.value.item() - density / n
        assert found[k].item() == pytest.approx(expected, abs=1e-9)
    for column in range(v.shape[1]):
        step = torch.zeros_like(v)
        step[:, column] = 1e-5
        slope = (f(v + step, members)[0] - f(v - step, members)[0]) / 2e-5
        torch.testing.assert_close(gradient[:, column], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("theta_prior", PRIORS)
def test_some_members_are_evaluated_as_all(monkeypatch, theta_prior):
    monkeypatch.setattr("tcsaea_torch.models.fitting._PART", {"cpu": 1})
    _, f = objective(replace(ADDITIVE, theta_prior=theta_prior), noisy=False)
    v = draw(4, 2 * D + 1, seed=4)
    value, gradient = f(v, torch.arange(4))
    some = torch.tensor([3, 0])
    few_values, few_gradients = f(v[some], some)
    same(few_values, value[some], 1e-12)
    same(few_gradients, gradient[some], 1e-9)


@pytest.mark.parametrize("median", [2.0, 40.0])
@pytest.mark.parametrize("p", [2.0, 1.5])
def test_the_prior_decides_where_data_do_not(p, median):
    # A variable that never changes tells nothing of its theta.
    X = draw(1, 14, 2)
    X[..., 1] = 0.5
    train = TrainingSet(X=X, y=(6.0 * X[..., 0]).sin(), noise_var=torch.zeros(1, 14).double())
    config = replace(ADDITIVE, p=p, theta_prior=(median, 0.7))
    found = fit(train, config, trend=constant(1)).hyperparameters
    assert found.theta[0, 1].item() == pytest.approx(median, rel=1e-3)
    # Of the other the data say much.
    assert abs(math.log(found.theta[0, 0].item() / median)) > 0.1


def test_a_narrow_prior_holds_theta_and_a_wide_one_nothing():
    train, Z = training(), draw(2, 9, D, seed=9)
    narrow = fit(train, replace(ADDITIVE, theta_prior=(7.0, 1e-6)), trend=constant())
    same(narrow.hyperparameters.theta, torch.full((2, D), 7.0).double(), 1e-4)
    expected = fit(train, ADDITIVE, trend=constant())
    wide = fit(train, replace(ADDITIVE, theta_prior=(7.0, 1e6)), trend=constant())
    same(wide.mean(Z), expected.mean(Z), 1e-4)
    distance = [
        (fit(train, replace(ADDITIVE, theta_prior=(7.0, spread)), trend=constant())
         .hyperparameters.theta.log() - math.log(7.0)).abs().max().item()
        for spread in (0.03, 0.3, 3.0)
    ]  # fmt: skip
    assert distance[0] < distance[1] < distance[2]


def test_a_narrow_prior_holds_amplitudes_and_weight():
    config = replace(ADDITIVE, amplitude_spread=1e-6, weight_spread=1e-6)
    found = fit(training(), config, trend=constant()).hyperparameters
    assert found.amplitudes is not None
    same(found.amplitudes, f64([[1 / D] * D + [1.0]] * 2), 1e-4)


def test_the_more_rows_the_less_the_prior_says():
    config, distance = replace(ADDITIVE, theta_prior=(60.0, 1.0)), []
    for n in (8, 40):
        X = draw(1, n, 1)
        train = TrainingSet(X=X, y=(4.0 * X[..., 0]).sin(), noise_var=torch.zeros(1, n).double())
        thetas = [
            fit(train, c, trend=constant(1)).hyperparameters.theta for c in (config, ADDITIVE)
        ]
        distance.append((thetas[0] / thetas[1]).log().abs().item())
    assert distance[1] < distance[0]


def test_the_median_is_in_scaled_units():
    # On standardised inputs distances are in units of the rows' spread.
    X = draw(1, 14, 2)
    X[..., 1] = 0.5
    train = TrainingSet(X=X, y=(6.0 * X[..., 0]).sin(), noise_var=torch.zeros(1, 14).double())
    config = replace(ADDITIVE, theta_prior=(3.0, 1e-6), input_scaling="standardize")
    found = fit(train, config, trend=constant(1)).hyperparameters
    same(found.theta, torch.full((1, 2), 3.0).double(), 1e-4)


@pytest.mark.parametrize("warm", [False, True])
def test_a_batch_is_its_members(warm):
    train = training()
    config = replace(ADDITIVE, theta_prior=(5.0, 0.5), options=BFGSOptions(max_evaluations=40))
    init = None
    if warm:
        init = Hyperparameters(
            theta=1.0 + 9.0 * draw(2, D, seed=10), kernel="additive",
            amplitudes=0.1 + draw(2, D + 1, seed=12),
        )  # fmt: skip
    together = fit(train, config, trend=constant(), init=init)
    Z = draw(2, 9, D, seed=9)
    for i in range(2):
        k = slice(i, i + 1)
        alone = fit(
            map_tensors(train, lambda t, k=k: t[k]), config, trend=constant(1),
            init=None if init is None else init[k],
        )  # fmt: skip
        same(alone.mean(Z[k])[0], together.mean(Z)[i], 1e-5)


def test_single_precision():
    train = map_tensors(training(), lambda t: t.float())
    config = replace(ADDITIVE, theta_prior=(20.0, 1.0), nugget=None)
    theta = fit(train, config, trend=constant()).hyperparameters.theta
    assert theta.dtype == torch.float32
    assert theta.isfinite().all()


# --- any kernel, and the nugget

KINDS = [
    FitConfig(nugget=1e-6),
    FitConfig(kernel="matern-5/2", nugget=1e-6),
    FitConfig(p="ard", nugget=1e-6),
    FitConfig(p=1.5, nugget=1e-6),
    replace(ADDITIVE, amplitude_spread=0.75),
]
THETA, NUGGET = (3.0, 0.8), (0.005, 0.5)


def penalised(config, data, v):
    """The likelihood and the priors' density of one vector, written down once more."""
    n_powers = D if config.p == "ard" else 0
    n_amplitudes = D + 1 if config.kernel == "additive" else 0
    v = torch.as_tensor(v, dtype=torch.float64).unsqueeze(0)
    theta, powers, amplitudes, nugget = v.split(
        [D, n_powers, n_amplitudes, int(config.nugget == "fit")], dim=-1
    )
    if not n_powers:
        powers = None if config.p == 2.0 else torch.full((1, D), float(config.p)).double()
    value = negative_log_likelihood(
        data, theta, powers, None, 0.0 if config.nugget == "fit" else config.nugget,
        kernel=config.kernel,
        log_amplitudes=amplitudes if n_amplitudes else None,
        log_nugget=nugget[:, 0] if config.nugget == "fit" else None,
    ).value.item()  # fmt: skip
    known = []
    if config.theta_prior:
        known += [(t, *config.theta_prior) for t in theta[0].tolist()]
    if config.nugget_prior:
        known.append((nugget.item(), *config.nugget_prior))
    if n_amplitudes:
        known += [(a, 1 / D, config.amplitude_spread) for a in amplitudes[0, :D].tolist()]
        known.append((amplitudes[0, D].item(), 1.0, config.weight_spread))
    return value + sum(
        0.5 * ((x - math.log(median)) / spread) ** 2 for x, median, spread in known
    ) / int(data.live.sum())


def vector(config, hyper):
    parts = [hyper.theta.log()]
    if config.p == "ard":
        parts.append(hyper.p)
    if config.kernel == "additive":
        parts.append(hyper.amplitudes.log())
    if config.nugget == "fit":
        parts.append(hyper.nugget.log().unsqueeze(-1))
    return torch.cat(parts, dim=-1)


@pytest.mark.parametrize("nugget", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=["joint", "matern", "powers", "rough", "additive"])
def test_the_most_probable_values_are_found(kind, nugget):
    config = replace(kind, theta_prior=THETA, options=BFGSOptions(max_evaluations=300))
    if nugget:
        config = replace(config, nugget="fit", nugget_range=(1e-6, 1.0), nugget_prior=NUGGET)
    train = training(n=14)
    data, _ = scale(train, trend=constant(), input_scaling=config.input_scaling)
    hyper = fit(train, config, trend=constant()).hyperparameters
    bounds = [(math.log(t), math.log(z)) for t, z in [config.theta_box] * D]
    if config.p == "ard":
        bounds += [(1.0, 2.0)] * D
    if config.kernel == "additive":
        bounds += [(-math.log(D) - 8, -math.log(D) + 8)] * D + [(-8.0, 8.0)]
    bounds += [(math.log(1e-6), 0.0)] * nugget
    low, high = np.array(bounds).T
    generator = np.random.default_rng(5)
    for i, mine in enumerate(vector(config, hyper)):
        one = data[i : i + 1]
        starts = [np.clip(generator.normal(0.5, 1.0, len(low)), low, high) for _ in range(3)]
        best = min(
            minimize(lambda v, one=one: penalised(config, one, v), start, bounds=bounds).fun
            for start in [*starts, mine.numpy()]
        )
        assert penalised(config, one, mine) == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS[:3], ids=["joint", "matern", "powers"])
def test_priors_decide_how_far_they_say(kind):
    train, Z = training(), draw(2, 9, D, seed=9)
    fitted = replace(kind, nugget="fit", nugget_range=(1e-6, 1.0))
    narrow = replace(fitted, theta_prior=(7.0, 1e-6), nugget_prior=(0.02, 1e-6))
    found = fit(train, narrow, trend=constant()).hyperparameters
    same(found.theta, torch.full((2, D), 7.0).double(), 1e-4)
    assert found.nugget is not None
    same(found.nugget.flatten(), torch.full((2,), 0.02).double(), 1e-4)
    # A huge spread says nothing.
    for config, wide in (
        (kind, replace(kind, theta_prior=(7.0, 1e6))),
        (fitted, replace(fitted, theta_prior=(7.0, 1e6), nugget_prior=(0.02, 1e6))),
    ):
        expected = fit(train, config, trend=constant()).mean(Z)
        same(fit(train, wide, trend=constant()).mean(Z), expected, 1e-6)


def test_the_nearer_the_nuggets_prior_the_nearer_the_nugget():
    train, fitted = training(), FitConfig(nugget="fit")
    distance = []
    for spread in (0.01, 0.1, 1.0):
        config = replace(fitted, nugget_prior=(0.02, spread))
        nugget = fit(train, config, trend=constant()).hyperparameters.nugget
        assert nugget is not None
        distance.append((nugget.log() - math.log(0.02)).abs().min().item())
    assert distance[0] < distance[1] < distance[2]
