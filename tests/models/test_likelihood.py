import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from tcsaea_torch.models import TrainingSet
from tcsaea_torch.models.likelihood import (
    Standardised,
    closed_form_variance,
    count,
    factorise,
    negative_log_likelihood,
)
from tcsaea_torch.models.surrogate import scale
from tests.conftest import load_reference

SMT = load_reference("kriging_smt")
NUGGET = 1e-4  # large enough for differences to be accurate


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def full(d, value):
    return torch.full((d,), value, dtype=torch.float64)


def convert(data, change):
    return Standardised(**{f.name: change(getattr(data, f.name)) for f in fields(data)})


def make_data(b=3, n=14, d=2, *, trend="constant", noisy=False, missing=True, seed=0):
    """A batch of training sets, in scaled units, of which all but the first lack rows."""
    X, y = draw(b, n, d, seed=seed), draw(b, n, seed=seed + 1)
    y = y + 3.0 * X.sum(dim=-1).sin()
    noise_var = draw(b, n, seed=seed + 2) * 0.1 if noisy else torch.zeros(b, n).double()
    if missing:
        gone = draw(b, n, seed=seed + 3) < 0.3
        gone[0] = False
        noise_var = noise_var.masked_fill(gone, math.inf)
    train = TrainingSet(X=X, y=y, noise_var=noise_var)
    is_linear = torch.full((b,), trend == "linear")
    return scale(train, trend=is_linear, input_scaling="unit")[0]


def dense(data, theta, p, variance, nugget):
    """Textbook formulas on the rows and columns of one member that exist, in numpy."""
    live = data.live.numpy()
    X, y, F, noise = (getattr(data, k).numpy()[live] for k in ("X", "y", "F", "noise"))
    F = F[:, (F != 0).any(axis=0)]
    n = len(y)
    theta, p = theta.numpy(), np.full(X.shape[1], 2.0) if p is None else p.numpy()
    R = np.exp(-(theta * np.abs(X[:, None] - X[None]) ** p).sum(axis=-1))
    C = R + np.diag(nugget + (np.zeros(n) if variance is None else noise / variance))
    beta = np.linalg.solve(F.T @ np.linalg.solve(C, F), F.T @ np.linalg.solve(C, y))
    e = y - F @ beta
    quadratic = e @ np.linalg.solve(C, e)
    sigma2 = quadratic / n if variance is None else variance
    nll = 0.5 * (n * np.log(sigma2) + np.linalg.slogdet(C)[1] + quadratic / sigma2)
    return {
        "nll": nll / n,
        "beta": beta,
        "sigma2": sigma2,
        "C": C,
        "mean": F @ beta,
        "y": y,
        "n": n,
    }


def parameters(b, d, *, with_p, noisy, seed=10):
    log_theta = draw(b, d, seed=seed) * 3.0 - 0.5
    p = 1.0 + draw(b, d, seed=seed + 1) if with_p else None
    log_variance = draw(b, seed=seed + 2) - 0.5 if noisy else None
    return log_theta, p, log_variance


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("with_p", [False, True])
@pytest.mark.parametrize("d", [1, 3, 6])
def test_value_equals_textbook_formulas(d, with_p, noisy, trend):
    data = make_data(d=d, trend=trend, noisy=noisy)
    log_theta, p, log_variance = parameters(3, d, with_p=with_p, noisy=noisy)
    found = negative_log_likelihood(data, log_theta, p, log_variance, NUGGET)
    for i in range(3):
        variance = None if log_variance is None else math.exp(log_variance[i])
        powers = None if p is None else p[i]
        expected = dense(data[i], log_theta[i].exp(), powers, variance, NUGGET)
        assert found.value[i].item() == pytest.approx(expected["nll"], abs=1e-10)


@pytest.mark.parametrize("noisy", [False, True])
def test_value_is_scipys_normal_density(noisy):
    data = make_data(b=2, trend="linear", noisy=noisy)
    log_theta, p, log_variance = parameters(2, 2, with_p=True, noisy=noisy)
    value = negative_log_likelihood(data, log_theta, p, log_variance, NUGGET).value
    for i in range(2):
        variance = None if log_variance is None else math.exp(log_variance[i])
        assert p is not None
        parts = dense(data[i], log_theta[i].exp(), p[i], variance, NUGGET)
        density = multivariate_normal(parts["mean"], parts["sigma2"] * parts["C"])
        expected = -density.logpdf(parts["y"]) / parts["n"] - math.log(2 * math.pi) / 2
        assert value[i].item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("trend", ["constant", "linear"])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("with_p", [False, True])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_gradient_equals_central_differences(d, with_p, noisy, trend):
    data = make_data(d=d, trend=trend, noisy=noisy)
    log_theta, p, log_variance = parameters(3, d, with_p=with_p, noisy=noisy)
    found = negative_log_likelihood(data, log_theta, p, log_variance, NUGGET)
    gradients = [found.d_log_theta, found.d_p, found.d_log_variance]
    at = [log_theta, p, log_variance]

    def slope(which, column):
        ends = []
        for sign in (1.0, -1.0):
            moved: list[Any] = [None if v is None else v.clone() for v in at]
            moved[which][..., column] += sign * 1e-5  # column ... moves all of a vector
            ends.append(
                negative_log_likelihood(data, moved[0], moved[1], moved[2], nugget=NUGGET).value
            )
        return (ends[0] - ends[1]) / 2e-5

    for which, gradient in enumerate(gradients):
        assert (gradient is None) == (at[which] is None)
        if gradient is None:
            continue
        columns = range(d) if which < 2 else [...]
        for column in columns:
            expected = slope(which, column)
            assert expected.abs().max() > 1e-4  # the check would notice a missing term
            torch.testing.assert_close(gradient[..., column], expected, rtol=1e-6, atol=1e-8)


def test_power_two_given_as_a_tensor_changes_nothing():
    data = make_data(d=3)
    log_theta, _, _ = parameters(3, 3, with_p=False, noisy=False)
    short = negative_log_likelihood(data, log_theta, None, None, NUGGET)
    long = negative_log_likelihood(data, log_theta, torch.full_like(log_theta, 2.0), None, NUGGET)
    torch.testing.assert_close(long.value, short.value, rtol=0, atol=1e-11)
    torch.testing.assert_close(long.d_log_theta, short.d_log_theta, rtol=0, atol=1e-9)
    assert short.d_p is None
    assert long.d_p is not None


def test_gradient_by_matrix_products_is_accurate_with_a_tiny_nugget():
    # Against the sum over differences, where C^-1 reaches 1e9.
    data = make_data(b=2, n=40, d=2, missing=False)
    log_theta = full(2, -1.0).expand(2, 2)
    short = negative_log_likelihood(data, log_theta, None, None, 1e-10)
    long = negative_log_likelihood(data, log_theta, torch.full_like(log_theta, 2.0), None, 1e-10)
    torch.testing.assert_close(short.d_log_theta, long.d_log_theta, rtol=0, atol=2e-6)


@pytest.mark.parametrize("case", SMT["cases"], ids=lambda c: f"{c['data_set']}-{c['power']}")
def test_value_and_gradient_are_those_of_smt(case, device):
    rows = SMT["data_sets"][case["data_set"]]
    X, y, theta = (
        torch.tensor(v, dtype=torch.float64, device=device)
        for v in (rows["X"], rows["y"], case["theta_used"])
    )
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    is_linear = torch.tensor(False, device=device)
    data, _ = scale(train, trend=is_linear, input_scaling="standardize")
    powers = None if case["power"] == 2.0 else torch.full_like(theta, case["power"])
    found = negative_log_likelihood(data, theta.log(), powers, None, case["nugget"])
    # smt's is -n log10(sigma^2) - log10 det R.
    n = len(y)
    reduced = (1.0 - 2.0 * found.value.item()) * n / math.log(10.0)
    assert reduced == pytest.approx(case["reduced_likelihood"], abs=1e-9 * n)
    gradient = -2.0 * n / math.log(10.0) * (found.d_log_theta / theta).cpu().numpy()
    expected = np.array(case["reduced_likelihood_gradient_dtheta"])
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("trend", ["constant", "linear"])
def test_missing_rows_are_absent_exactly(trend, noisy):
    b, n, d = 3, 14, 2
    data = make_data(b, n, d, trend=trend, noisy=noisy)
    log_theta, p, log_variance = parameters(b, d, with_p=True, noisy=noisy)
    assert p is not None
    found = negative_log_likelihood(data, log_theta, p, log_variance, NUGGET)
    for i in range(b):
        keep = data.live[i]
        assert (keep.sum() < n) == (i > 0)
        present = convert(data[i], lambda v, keep=keep: v[keep] if v.ndim else v)
        variance = None if log_variance is None else log_variance[i]
        alone = negative_log_likelihood(present, log_theta[i], p[i], variance, NUGGET)
        for name in ("value", "d_log_theta", "d_p", "d_log_variance"):
            mine, whole = getattr(alone, name), getattr(found, name)
            assert (mine is None) == (whole is None)
            if mine is not None:
                torch.testing.assert_close(whole[i], mine, rtol=1e-9, atol=1e-11)


def test_closed_form_variance_is_the_best_variance():
    data = make_data(trend="linear")
    log_theta, p, _ = parameters(3, 2, with_p=True, noisy=False)
    concentrated = negative_log_likelihood(data, log_theta, p, None, NUGGET)
    diagonal = torch.full_like(data.noise, NUGGET)
    quadratic = factorise(data, log_theta.exp(), p, diagonal).quadratic
    best = closed_form_variance(quadratic, count(data)).log()
    free = negative_log_likelihood(data, log_theta, p, best, NUGGET)
    torch.testing.assert_close(free.value, concentrated.value, rtol=0, atol=1e-12)
    torch.testing.assert_close(free.d_log_theta, concentrated.d_log_theta, rtol=0, atol=1e-10)
    assert free.d_log_variance is not None
    torch.testing.assert_close(free.d_log_variance, torch.zeros(3).double(), rtol=0, atol=1e-12)
    for shift in (-0.1, 0.1):
        worse = negative_log_likelihood(data, log_theta, p, best + shift, NUGGET).value
        assert (worse > concentrated.value + 1e-3).all()


def test_factors_are_those_of_dense_algebra(device):
    data = make_data(b=2, trend="linear", noisy=True)
    theta, p = draw(2, 2, seed=5) * 3 + 0.5, 1.0 + draw(2, 2, seed=6)
    diagonal = NUGGET + data.noise / 0.7
    moved = convert(data, lambda v: v.to(device))
    on_device = [v.to(device) for v in (theta, p, diagonal)]
    factors = factorise(moved, *on_device)
    assert not factors.failed.any()
    for i in range(2):
        expected = dense(data[i], theta[i], p[i], 0.7, NUGGET)
        live = data.live[i]
        C = (factors.L @ factors.L.mT)[i].cpu()
        np.testing.assert_allclose(C[live][:, live], expected["C"], rtol=0, atol=1e-13)
        CiF = np.linalg.solve(expected["C"], data.F[i][live])
        np.testing.assert_allclose(factors.CiF[i].cpu()[live], CiF, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(factors.beta[i].cpu(), expected["beta"], rtol=1e-9, atol=1e-10)
        dead = ~live
        assert torch.equal(C[dead][:, dead], torch.eye(int(dead.sum())).double())
        assert (C[dead][:, live] == 0).all()
        assert (factors.a[i].cpu()[dead] == 0).all()


def test_singular_correlations_have_infinite_value_and_no_gradient():
    data = make_data(b=3, n=8, missing=False)
    data.X[1, 1] = data.X[1, 0]  # without a nugget this member's matrix has two equal rows
    log_theta, p, _ = parameters(3, 2, with_p=True, noisy=False)
    assert p is not None
    found = negative_log_likelihood(data, log_theta, p, None, 0.0)
    assert found.value.isinf().tolist() == [False, True, False]
    assert found.d_p is not None
    for gradient in (found.d_log_theta, found.d_p):
        assert gradient.isfinite().all()
        assert (gradient[1] == 0).all()
        assert (gradient[[0, 2]] != 0).all()
    for i in (0, 2):
        expected = dense(data[i], log_theta[i].exp(), p[i], None, 0.0)["nll"]
        assert found.value[i].item() == pytest.approx(expected, abs=1e-9)


def explained(log_theta, *, trend):
    """The likelihood of data that the trend explains entirely."""
    X = draw(1, 12, 2)
    y = (
        torch.full((1, 12), 0.1).double()
        if trend == "constant"
        else 2.0 - X[..., 0] + 3.0 * X[..., 1]
    )
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    data, _ = scale(train, trend=torch.tensor([trend == "linear"]), input_scaling="unit")
    return negative_log_likelihood(data, full(2, log_theta).unsqueeze(0), None, None, NUGGET)


@pytest.mark.parametrize(
    ("trend", "log_theta"),
    [("constant", -2.0), ("constant", 1.0), ("constant", 4.0), ("linear", 3.0), ("linear", 4.0)],
)
def test_no_theta_is_preferred_where_the_trend_explains_everything(trend, log_theta):
    found = explained(log_theta, trend=trend)
    assert found.value.tolist() == [0.0]
    assert found.d_log_theta.tolist() == [[0.0, 0.0]]


def test_no_small_theta_is_preferred_where_a_linear_trend_explains_everything():
    for log_theta in (-5.0, -4.0, -3.0, -2.0, -1.0):
        found = explained(log_theta, trend="linear")
        assert found.value.item() > -1.0
        assert found.d_log_theta.abs().max() < 1.0


def test_members_can_be_selected():
    data = make_data()
    index = torch.tensor([2, 0, 2])
    log_theta, _, _ = parameters(3, 2, with_p=False, noisy=False)
    whole = negative_log_likelihood(data, log_theta, None, None, NUGGET)
    part = negative_log_likelihood(data[index], log_theta[index], None, None, NUGGET)
    torch.testing.assert_close(part.value, whole.value[index], rtol=0, atol=1e-12)
    torch.testing.assert_close(part.d_log_theta, whole.d_log_theta[index], rtol=0, atol=1e-12)
    assert data[1].X.shape == (14, 2)
    assert data[torch.tensor([True, False, True])].y.shape == (2, 14)


def test_float32_is_close_to_float64():
    data = make_data(d=3, noisy=True)
    log_theta, p, log_variance = parameters(3, 3, with_p=True, noisy=True)
    exact = negative_log_likelihood(data, log_theta, p, log_variance, 1e-3)
    data = convert(data, lambda v: v.float() if v.is_floating_point() else v)
    assert p is not None
    assert log_variance is not None
    rough = negative_log_likelihood(
        data, log_theta.float(), p.float(), log_variance.float(), nugget=1e-3
    )
    assert rough.value.dtype == torch.float32
    torch.testing.assert_close(rough.value.double(), exact.value, rtol=0, atol=1e-4)
    torch.testing.assert_close(rough.d_log_theta.double(), exact.d_log_theta, rtol=0, atol=1e-3)
