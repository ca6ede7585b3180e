"""Leave-one-out in closed form, against conditioning on all rows but one."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import chi2, multivariate_normal, norm

from tcsaea_torch.models import (
    Hyperparameters,
    KrigingGP,
    LeaveOneOut,
    TrainingSet,
    leave_one_out,
)
from tcsaea_torch.models.leave_one_out import (
    log_evidence,
    log_predictive_density,
    mean_log_error,
)
from tcsaea_torch.models.surrogate import condition, scale
from tests.models.models import draw, f64, same, wavy

NUGGET = 0.02


def build(*, linear=False, noisy=False, kernel: Any = "power-exponential", nugget=None, n=13):
    """Two models, the second of which lacks rows, and their training data."""
    X = draw(2, n, 3)
    noise = 0.1 * draw(2, n, seed=1) if noisy else torch.zeros(2, n).double()
    noise[1, ::4] = math.inf
    train = TrainingSet(X=X, y=50.0 + 7.0 * wavy(X), noise_var=noise)
    hyper = Hyperparameters(
        theta=1.0 + 5.0 * draw(2, 3, seed=2),
        kernel=kernel,
        amplitudes=draw(2, 4, seed=3) + 0.1 if kernel == "additive" else None,
        variance=f64([30.0, 60.0]),
        nugget=nugget,
    )
    data, scaling = scale(train, trend=torch.full((2,), linear), input_scaling="unit")
    return train, condition(data, scaling, hyper, nugget=NUGGET)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("kernel", ["power-exponential", "matern-5/2", "additive"])
def test_equals_conditioning_without_the_row(kernel, noisy, linear):
    nugget = f64([0.1, 0.003]) if kernel == "additive" else None
    train, model = build(linear=linear, noisy=noisy, kernel=kernel, nugget=nugget)
    found = leave_one_out(model)
    for i in range(2):
        for row in range(13):
            if not train.live[i, row]:
                assert found.error[i, row] == 0
                assert found.variance[i, row] == math.inf
                continue
            noise = train.noise_var.clone()
            noise[i, row] = math.inf
            data, scaling = scale(
                replace(train, noise_var=noise),
                trend=torch.full((2,), linear),
                input_scaling="unit",
            )
            without = condition(data, scaling, model.hyperparameters, nugget=NUGGET)[i]
            mean, variance = without.predict(train.X[i, row : row + 1])
            assert model.hyperparameters.variance is not None
            relative = NUGGET if nugget is None else nugget[i].item()
            own = relative * model.hyperparameters.variance[i] + train.noise_var[i, row]
            torch.testing.assert_close(found.error[i, row], train.y[i, row] - mean[0])
            torch.testing.assert_close(found.variance[i, row], variance[0] + own)


def test_rows_without_which_there_is_no_trend_tell_nothing():
    gp = KrigingGP(f64([[0.3]]), f64([2.0]), Hyperparameters(theta=f64([1.0]), variance=f64(1.0)))
    found = leave_one_out(gp.surrogate)
    assert found.error.tolist() == [0.0]
    assert found.variance.tolist() == [math.inf]
    assert log_predictive_density(gp.surrogate).isfinite()
    assert mean_log_error(gp.surrogate) == 0
    assert found.variance_factor() == found.variance_factor(0.01) == 1


def test_the_density_is_scipys():
    train, model = build(noisy=True)
    found, density = leave_one_out(model), log_predictive_density(model)
    for i in range(2):
        live, unit = train.live[i], model.scaling.y_scale[i]
        errors, variances = found.error[i][live] / unit, found.variance[i][live] / unit**2
        expected = norm.logpdf(errors, scale=variances.sqrt()).mean()
        assert density[i].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("by_group", [False, True])
def test_the_mean_log_error_is_a_loops(by_group):
    train, model = build(noisy=True)
    is_space = draw(2, 13, seed=4) < 0.4
    found = mean_log_error(model, is_space if by_group else None)
    errors = leave_one_out(model).error
    for i in range(2):
        every = torch.ones(13, dtype=torch.bool)
        groups, expected = [is_space[i], ~is_space[i]] if by_group else [every], 0.0
        for group in groups:
            rows = (group & train.live[i]).nonzero().squeeze(-1).tolist()
            sizes = [abs(errors[i, r].item()) / model.scaling.y_scale[i].item() for r in rows]
            expected -= sum(math.log(size) for size in sizes) / len(rows)
        assert found[i].item() == pytest.approx(expected, abs=1e-12)


def test_the_mean_log_error_is_not_of_groups_that_are_empty():
    _, model = build()
    plain, nothing = mean_log_error(model), torch.zeros(2, 13, dtype=torch.bool)
    same(mean_log_error(model, nothing), plain, 1e-14)
    same(mean_log_error(model, ~nothing), plain, 1e-14)


def test_errors_that_are_tiny_are_equally_good():
    # A line is predicted exactly by a linear trend.
    X = draw(9, 1)
    hyper = Hyperparameters(theta=f64([1.0]), variance=f64(1.0))
    gp = KrigingGP(X, 3.0 + 2.0 * X[:, 0], hyper, trend="linear", nugget=0.1)
    assert mean_log_error(gp.surrogate).item() == pytest.approx(-math.log(1e-6), abs=1e-9)


def test_methods_take_any_unit():
    train, model = build(noisy=True)
    found, unit = leave_one_out(model), f64([0.3, 40.0])
    density, accuracy = found.log_density(unit), found.log_accuracy(unit)
    for i in range(2):
        live = train.live[i]
        errors, spread = found.error[i][live], found.variance[i][live].sqrt()
        expected = norm.logpdf(errors / unit[i], scale=spread / unit[i]).mean()
        assert density[i].item() == pytest.approx(expected, abs=1e-12)
        expected = -(errors.abs() / unit[i]).log().mean().item()
        assert accuracy[i].item() == pytest.approx(expected, abs=1e-12)
    # The functions mean the standardised values.
    scaled = model.scaling.y_scale
    assert torch.equal(log_predictive_density(model), found.log_density(scaled))
    assert torch.equal(mean_log_error(model), found.log_accuracy(scaled))


def factor_by_hand(squares, smallest):
    """The least factor, of at least `smallest`, with which both intervals hold enough errors."""
    factor = smallest
    for share in (0.68, 0.95):
        needed = math.ceil(round(share * len(squares), 9))
        factor = max(factor, sorted(squares)[needed - 1] / chi2.ppf(share, 1))
    return factor


@pytest.mark.parametrize("smallest", [1.0, 0.01])
@pytest.mark.parametrize("n", [1, 2, 13, 20, 25, 100])
def test_the_variance_factor_is_of_quantiles_of_the_squares(n, smallest):
    z = torch.randn(4, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    z = z * f64([[0.01], [0.3], [1.0], [7.0]])
    variance, is_known = 0.1 + draw(4, n, seed=1), draw(4, n, seed=2) < 0.7
    is_known[:, 0] = True
    found = LeaveOneOut(
        error=torch.where(is_known, z * variance.sqrt(), 0.0),
        variance=variance.masked_fill(~is_known, math.inf),
    )
    factor = found.variance_factor(smallest)
    for i in range(4):
        squares = z[i, is_known[i]].square()
        expected = factor_by_hand(squares.tolist(), smallest)
        assert factor[i].item() == pytest.approx(expected, rel=1e-5)
        # Intervals of both sizes hold as many errors as they should.
        scaled = (squares / factor[i]).tolist()
        for share in (0.68, 0.95):
            inside = [z2 <= chi2.ppf(share, 1) * (1 + 1e-5) for z2 in scaled]
            assert sum(inside) / len(inside) >= share - 1e-12
        # A model alone has the same factor as in a batch.
        assert torch.equal(found[i : i + 1].variance_factor(smallest)[0], factor[i])
    if smallest == 1:
        assert torch.equal(factor, found.variance_factor())
    assert factor[3] > factor[0]


def test_the_factor_is_near_1_where_variances_are_right():
    z = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = LeaveOneOut(error=3.0 * z, variance=torch.full_like(z, 9.0))
    assert found.variance_factor(0.01).item() == pytest.approx(1.0, abs=0.05)


def test_a_few_rows_that_no_model_foresees_do_not_widen():
    errors, variance = torch.ones(1, 100).double(), torch.full((1, 100), 4.0).double()
    expected = LeaveOneOut(error=errors, variance=variance).variance_factor(0.01)
    assert expected.item() == pytest.approx(0.25 / chi2.ppf(0.68, 1), rel=1e-5)
    errors = errors.clone()
    errors[:, :5] = 1e6
    assert LeaveOneOut(error=errors, variance=variance).variance_factor(0.01) == expected
    errors[:, :6] = 1e6
    assert LeaveOneOut(error=errors, variance=variance).variance_factor(0.01) > 1e6


def test_the_factor_of_a_model_that_is_too_sure_mends_it():
    _, model = build(noisy=True)
    for shrink in (1.0, 1e-3, 1e-9):
        narrow = replace(model, variance=model.variance * shrink)
        factor = leave_one_out(narrow).variance_factor(1e-12)
        again = leave_one_out(replace(narrow, variance=narrow.variance * factor))
        same(again.variance_factor(1e-12), torch.ones(2).double(), 1e-9)


def test_the_evidence_is_scipys():
    train, model = build(noisy=True)
    evidence = log_evidence(model)
    for i in range(2):
        live, factors = train.live[i], model.factors
        L = factors.L[i][live][:, live]
        C: Any = (model.variance[i] * L @ L.T).numpy()
        rest = model.data.y[i][live] - (model.data.F[i] @ factors.beta[i])[live]
        expected = multivariate_normal.logpdf(rest.numpy(), cov=C) / int(live.sum())
        assert evidence[i].item() == pytest.approx(expected, abs=1e-10)


def test_single_precision_is_close():
    train, model = build()
    narrow = TrainingSet(**{k: v.float() for k, v in vars(train).items()})
    data, scaling = scale(narrow, trend=torch.full((2,), False), input_scaling="unit")
    hyper = model.hyperparameters
    assert hyper.variance is not None
    hyper = replace(hyper, theta=hyper.theta.float(), variance=hyper.variance.float())
    found = leave_one_out(condition(data, scaling, hyper, nugget=NUGGET))
    expected = leave_one_out(model)
    assert found.error.dtype == torch.float32
    torch.testing.assert_close(found.error.double(), expected.error, rtol=0, atol=1e-2)
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=1e-3, atol=0)
