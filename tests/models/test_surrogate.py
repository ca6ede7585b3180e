import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch.errors import FitError
from tcsaea_torch.models import Hyperparameters, TrainingSet
from tcsaea_torch.models.surrogate import JITTERS, condition, scale

INF = math.inf


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def exact(X, y):
    return TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))


def build(
    train, hyperparameters, *, linear: Any = False, input_scaling: Any = "unit", nugget=1e-10
):
    batch = train.y.shape[:-1]
    trend = torch.as_tensor(linear, device=train.X.device).expand(batch)
    data, scaling = scale(train, trend=trend, input_scaling=input_scaling)
    return condition(data, scaling, hyperparameters, nugget=nugget)


def wavy(X):
    return (4.0 * X[..., 0]).sin() + X.square().sum(dim=-1)


def textbook(X, y, noise_var, Xq, theta, p, variance, *, linear, nugget):
    """Universal kriging with dense algebra in numpy, without any scaling."""
    X, y, noise_var, Xq, theta, p = (np.asarray(v) for v in (X, y, noise_var, Xq, theta, p))

    def r(A, B):
        return np.exp(-(theta * np.abs(A[:, None] - B[None]) ** p).sum(axis=-1))

    def basis(A):
        return np.hstack([np.ones((len(A), 1)), A]) if linear else np.ones((len(A), 1))

    n, F, f, k = len(y), basis(X), basis(Xq), r(Xq, X)
    C = r(X, X) + nugget * np.eye(n)
    if variance is not None:
        C = C + np.diag(noise_var) / variance
    Ci = np.linalg.inv(C)
    A = np.linalg.inv(F.T @ Ci @ F)
    beta = A @ F.T @ Ci @ y
    e = y - F @ beta
    sigma2 = e @ Ci @ e / n if variance is None else variance
    u = F.T @ Ci @ k.T - f.T
    mean = f @ beta + k @ Ci @ e
    return mean, sigma2 * (r(Xq, Xq) - k @ Ci @ k.T + u.T @ A @ u), sigma2


# --- scaling ---


@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_scale_standardises_the_living_rows(input_scaling, device):
    X, y = draw(3, 12, 2), 50.0 + 7.0 * draw(3, 12, seed=1)
    live = draw(3, 12, seed=2) < 0.7
    train = TrainingSet.from_mask(X.to(device), y.to(device), live.to(device))
    trend = torch.tensor([False, True, True], device=device)
    data, scaling = scale(train, trend=trend, input_scaling=input_scaling)
    for i in range(3):
        rows, values = X[i][live[i]].numpy(), y[i][live[i]].numpy()
        width = rows.std(axis=0, ddof=1) if input_scaling == "standardize" else 1.0
        expected = (rows - rows.mean(axis=0)) / width
        mine = {k: getattr(data[i], k).cpu() for k in ("X", "y", "F", "noise", "live")}
        np.testing.assert_allclose(mine["X"][live[i]], expected, rtol=0, atol=1e-13)
        standard = (values - values.mean()) / values.std(ddof=1)
        np.testing.assert_allclose(mine["y"][live[i]], standard, rtol=0, atol=1e-12)
        assert torch.equal(mine["F"][:, 0], live[i].double())
        slopes = mine["X"] if i else torch.zeros(12, 2).double()
        assert torch.equal(mine["F"][:, 1:], slopes)
        for name in ("X", "y", "F", "noise"):
            assert (mine[name][~live[i]] == 0).all()
        assert scaling.y_shift[i].item() == pytest.approx(values.mean())
        assert scaling.y_scale[i].item() == pytest.approx(values.std(ddof=1))
    back = scaling.inputs(train.X)
    torch.testing.assert_close(back[train.live], data.X[train.live], rtol=0, atol=0)


def test_noise_is_given_in_squared_units_of_the_outputs():
    train = TrainingSet(X=draw(10, 1), y=100.0 * draw(10), noise_var=25.0 * draw(10, seed=2))
    data, scaling = scale(train, trend=torch.tensor(False), input_scaling="unit")
    torch.testing.assert_close(data.noise * scaling.y_scale**2, train.noise_var)
    assert scaling.y_scale.item() == pytest.approx(train.y.std().item())


@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_garbage_in_missing_rows_changes_no_bit(input_scaling):
    X, y, live = draw(2, 12, 3), draw(2, 12, seed=1), draw(2, 12, seed=2) < 0.6
    hyper = Hyperparameters(theta=torch.full((2, 3), 2.0).double())
    expected = None
    for garbage in (0.0, -3.0, 1e6, 1e100):
        rows = TrainingSet.from_mask(X, y, live)
        train = replace(
            rows,
            X=X.masked_fill(~live.unsqueeze(-1), garbage),
            y=y.masked_fill(~live, -2.0 * garbage),
        )
        surrogate = build(train, hyper, linear=True, input_scaling=input_scaling)
        found = surrogate.predict(draw(2, 7, 3, seed=4))
        expected = found if expected is None else expected
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])


def test_huge_garbage_in_missing_rows_changes_nothing():
    X, y, live = draw(6, 1), 1e-9 * draw(6, seed=1), torch.arange(6) < 5
    train = replace(TrainingSet.from_mask(X, y, live), y=y.masked_fill(~live, 1e300))
    data, _ = scale(train, trend=torch.tensor(False), input_scaling="unit")
    assert data.y.isfinite().all()


def test_values_that_differ_by_rounding_only_are_constant():
    y = 0.1 * torch.tensor([1.0, 1.0 + 2e-16, 1.0 - 1e-16, 1.0], dtype=torch.float64)
    data, scaling = scale(exact(draw(4, 1), y), trend=torch.tensor(False), input_scaling="unit")
    assert torch.equal(data.y, torch.zeros(4).double())
    assert scaling.y_scale > 0
    data, _ = scale(
        exact(draw(4, 1), y + f64([0, 1e-12, 0, 0])),
        trend=torch.tensor(False),
        input_scaling="unit",
    )
    assert data.y.std().item() == pytest.approx(1.0, rel=1e-3)


# --- predictions ---


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("p", [None, 1.0, 1.7])
@pytest.mark.parametrize("d", [1, 3])
def test_predictions_equal_textbook_formulas(d, p, noisy, linear, device):
    X, Xq = draw(3, 15, d), draw(3, 6, d, seed=1)
    y, theta = 10.0 + wavy(X), 0.5 + 5.0 * draw(3, d, seed=2)
    noise_var = 0.05 * draw(3, 15, seed=3) if noisy else torch.zeros(3, 15).double()
    noise_var[1, 10:] = noise_var[2, ::4] = INF
    powers = None if p is None else torch.full((3, d), p).double()
    variance = f64([0.5, 1.0, 3.0]) if noisy else None
    move = lambda v: None if v is None else v.to(device)  # noqa: E731
    hyper = Hyperparameters(theta=theta.to(device), p=move(powers), variance=move(variance))
    train = TrainingSet(X=X.to(device), y=y.to(device), noise_var=noise_var.to(device))
    surrogate = build(train, hyper, linear=linear, nugget=1e-6)
    mean, var = surrogate.predict(Xq.to(device))
    joint_mean, covariance = surrogate.predict_joint(Xq.to(device))
    only_mean = surrogate.mean(Xq.to(device))
    for i in range(3):
        live = noise_var[i] < INF
        expected = textbook(
            X[i][live], y[i][live], noise_var[i][live], Xq[i], theta[i],
            torch.full((d,), p or 2.0).double(), None if variance is None else variance[i].item(),
            linear=linear, nugget=1e-6,
        )  # fmt: skip
        np.testing.assert_allclose(mean[i].cpu(), expected[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(only_mean[i].cpu(), expected[0], rtol=0, atol=1e-8)
        np.testing.assert_allclose(joint_mean[i].cpu(), expected[0], rtol=0, atol=1e-8)
        sigma2 = expected[2]
        np.testing.assert_allclose(covariance[i].cpu(), expected[1], rtol=0, atol=1e-8 * sigma2)
        np.testing.assert_allclose(var[i].cpu(), np.diag(expected[1]), rtol=0, atol=1e-8 * sigma2)
        assert surrogate.hyperparameters.variance is not None
        assert surrogate.hyperparameters.variance[i].item() == pytest.approx(sigma2, rel=1e-7)


@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
@pytest.mark.parametrize("linear", [False, True])
def test_batch_equals_loop(input_scaling, linear):
    X, y = draw(4, 12, 2), draw(4, 12, seed=1)
    live = torch.arange(12) < torch.tensor([12, 7, 3, 1]).unsqueeze(-1)
    train = TrainingSet.from_mask(X, y, live)
    hyper = Hyperparameters(theta=1.0 + 3.0 * draw(4, 2, seed=2))
    Xq = draw(4, 9, 2, seed=3)
    together = build(train, hyper, linear=linear, input_scaling=input_scaling)
    assert together.is_linear.tolist() == [linear, linear, False, False]
    mean, variance = together.predict(Xq)
    for i in range(4):
        present = exact(X[i][live[i]], y[i][live[i]])
        alone = build(present, hyper[i], linear=linear, input_scaling=input_scaling)
        m, v = alone.predict(Xq[i])
        torch.testing.assert_close(mean[i], m, rtol=0, atol=1e-9)
        torch.testing.assert_close(variance[i], v, rtol=1e-6, atol=1e-9)
        m, v = together[i].predict(Xq[i])
        torch.testing.assert_close(mean[i], m, rtol=0, atol=1e-10)
        torch.testing.assert_close(variance[i], v, rtol=0, atol=1e-10)


def test_points_may_be_shared_between_models_and_models_between_batches_of_points():
    X = draw(3, 10, 2)
    surrogate = build(exact(X, wavy(X)), Hyperparameters(theta=1.0 + draw(3, 2)))
    Xq = draw(5, 2, seed=1)
    shared = surrogate.predict(Xq)
    copied = surrogate.predict(Xq.expand(3, 5, 2))
    assert shared[0].shape == shared[1].shape == (3, 5)
    torch.testing.assert_close(shared, copied, rtol=0, atol=1e-13)
    many = draw(4, 6, 2, seed=2)
    mean, covariance = surrogate[1].predict_joint(many)
    assert covariance.shape == (4, 6, 6)
    for i in range(4):
        torch.testing.assert_close(mean[i], surrogate[1].mean(many[i]), rtol=0, atol=1e-13)


def test_joint_covariance_is_positive_semidefinite_even_between_copies():
    X = draw(20, 2)
    surrogate = build(exact(X, wavy(X)), Hyperparameters(theta=f64([2.0, 1.0])), nugget=1e-8)
    Xq = torch.cat([draw(6, 2, seed=1), X[:3], X[:3], draw(6, 2, seed=1) + 1e-9])
    _, covariance = surrogate.predict_joint(Xq)
    _, variance = surrogate.predict(Xq)
    sigma2 = surrogate.variance * surrogate.scaling.y_scale**2
    torch.testing.assert_close(covariance, covariance.mT, rtol=0, atol=float(1e-14 * sigma2))
    torch.testing.assert_close(
        covariance.diagonal().clamp_min(0.0), variance, rtol=0, atol=float(1e-12 * sigma2)
    )
    assert torch.linalg.eigvalsh(covariance).min() > -1e-10 * sigma2


@pytest.mark.parametrize("linear", [False, True])
def test_leaving_each_row_out_agrees_with_dubrules_formula(linear):
    # One batch member for each row left out, against y_i - (Qy)_i / Q_ii from the full matrix.
    n, nugget = 14, 1e-6
    X = draw(n, 2)
    y, theta = wavy(X), f64([3.0, 1.5])
    live = ~torch.eye(n, dtype=torch.bool)
    train = TrainingSet.from_mask(X.expand(n, n, 2), y.expand(n, n), live)
    hyper = Hyperparameters(theta=theta.expand(n, 2), variance=torch.ones(n).double())
    mean, variance = build(train, hyper, linear=linear, nugget=nugget).predict(X.unsqueeze(-2))
    F = np.hstack([np.ones((n, 1)), X.numpy()] if linear else [np.ones((n, 1))])
    difference = X.numpy()[:, None] - X.numpy()[None]
    C = np.exp(-(theta.numpy() * difference**2).sum(axis=-1)) + nugget * np.eye(n)
    Ci = np.linalg.inv(C)
    Q = Ci - Ci @ F @ np.linalg.solve(F.T @ Ci @ F, F.T @ Ci)
    expected = y.numpy() - Q @ y.numpy() / np.diag(Q)
    np.testing.assert_allclose(mean[:, 0], expected, rtol=0, atol=1e-7)
    # The formula's variance is that of a new value, nugget included.
    np.testing.assert_allclose(variance[:, 0] + nugget, 1.0 / np.diag(Q), rtol=1e-6, atol=1e-9)


def test_more_rows_never_make_predictions_less_certain():
    X, Xq = draw(20, 2), draw(30, 2, seed=1)
    live = torch.arange(20) < torch.arange(2, 21).unsqueeze(-1)
    train = TrainingSet.from_mask(X.expand(19, 20, 2), wavy(X).expand(19, 20), live)
    hyper = Hyperparameters(
        theta=torch.full((19, 2), 8.0).double(), variance=torch.ones(19).double()
    )
    _, variance = build(train, hyper).predict(Xq)
    assert (variance[1:] <= variance[:-1] + 1e-9).all()
    assert variance[-1].mean() < 0.05 * variance[0].mean()


def test_far_from_all_rows_the_trend_is_predicted():
    X = draw(8, 2)
    surrogate = build(exact(X, wavy(X)), Hyperparameters(theta=f64([9.0, 9.0]), variance=f64(2.0)))
    mean, variance = surrogate.predict(f64([[50.0, 50.0]]))
    shift, width = surrogate.scaling.y_shift, surrogate.scaling.y_scale
    assert mean.item() == pytest.approx(float(shift + width * surrogate.factors.beta[0]))
    spread = float(surrogate.factors.FCiF_chol[0, 0] ** -2)
    assert variance.item() == pytest.approx(2.0 * (1.0 + spread), rel=1e-9)


@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_linear_trend_recovers_linear_functions_even_far_away(d, input_scaling):
    X, slope = draw(d + 6, d), 3.0 * draw(d, seed=1) - 1.0
    hyper = Hyperparameters(theta=torch.ones(d).double())
    surrogate = build(exact(X, 2.0 + X @ slope), hyper, linear=True, input_scaling=input_scaling)
    Xq = 20.0 * draw(10, d, seed=2) - 10.0
    mean, variance = surrogate.predict(Xq)
    torch.testing.assert_close(mean, 2.0 + Xq @ slope, rtol=0, atol=1e-8)
    assert variance.max() < 1e-12
    assert surrogate.is_linear


def test_trend_is_constant_below_d_plus_two_rows():
    X = draw(2, 6, 3)
    live = torch.arange(6) < torch.tensor([[4], [5]])
    train = TrainingSet.from_mask(X, wavy(X), live)
    hyper = Hyperparameters(theta=torch.full((2, 3), 2.0).double())
    asked, constant = build(train, hyper, linear=True), build(train, hyper)
    assert asked.is_linear.tolist() == [False, True]
    assert constant.is_linear.tolist() == [False, False]
    Xq = draw(2, 5, 3, seed=1)
    mine, other = asked.predict(Xq), constant.predict(Xq)
    assert torch.equal(mine[0][0], other[0][0])
    assert torch.equal(mine[1][0], other[1][0])
    assert (mine[0][1] - other[0][1]).abs().min() > 1e-6


def test_each_member_has_its_own_trend():
    X = draw(12, 2)
    train = exact(X.expand(2, 12, 2), wavy(X).expand(2, 12))
    hyper = Hyperparameters(theta=torch.full((2, 2), 2.0).double())
    both = build(train, hyper, linear=torch.tensor([True, False])).mean(draw(5, 2, seed=1))
    for i, linear in enumerate([True, False]):
        alone = build(train, hyper, linear=linear).mean(draw(5, 2, seed=1))
        torch.testing.assert_close(both[i], alone[i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
@pytest.mark.parametrize("constant", [0.0, 0.5, 1.0])
def test_a_constant_input_column_is_as_good_as_none(constant, input_scaling, linear):
    X = draw(13, 3)
    y = wavy(X[:, [0, 2]])
    X[:, 1] = constant
    Xq = draw(6, 3, seed=1)
    Xq[:, 1] = constant
    hyper = Hyperparameters(theta=f64([2.0, 5.0, 3.0]))
    fewer = Hyperparameters(theta=f64([2.0, 3.0]))
    options = {"linear": linear, "input_scaling": input_scaling, "nugget": 1e-8}
    mean, variance = build(exact(X, y), hyper, **options).predict(Xq)
    expected = build(exact(X[:, [0, 2]], y), fewer, **options).predict(Xq[:, [0, 2]])
    torch.testing.assert_close(mean, expected[0], rtol=0, atol=1e-7)
    torch.testing.assert_close(variance, expected[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("input_scaling", "linear"), [("standardize", False), ("unit", True)])
def test_a_constant_input_column_has_no_scale_of_its_own(input_scaling, linear):
    for n in range(6, 20):
        X = draw(n, 2, seed=n)
        X[:, 1] = 0.1
        hyper = Hyperparameters(theta=f64([2.0, 2.0]))
        surrogate = build(exact(X, wavy(X)), hyper, linear=linear, input_scaling=input_scaling)
        mean = surrogate.mean(torch.stack([X[:, 0], torch.full((n,), 0.15).double()], dim=-1))
        assert (mean - wavy(X)).abs().max() < 0.05


def test_variance_is_not_negative_where_rounding_would_make_it_so():
    X = draw(25, 2)
    surrogate = build(exact(X, wavy(X)), Hyperparameters(theta=f64([20.0, 20.0])), nugget=0.0)
    assert surrogate.jitter == 0.0
    _, covariance = surrogate.predict_joint(X)
    assert covariance.diagonal().min() < 0.0
    _, variance = surrogate.predict(X)
    assert variance.min() == 0.0
    assert variance.max() < 1e-12 * surrogate.variance


# --- degenerate data ---


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_one_row_no_rows_and_constant_values(input_scaling, linear):
    X = draw(4, 5, 2)
    y = torch.stack([f64([3.0, 9, 9, 9, 9]), f64([9.0] * 5), f64([-7.3] * 5), f64([0.0] * 5)])
    live = torch.tensor([[True] + [False] * 4, [False] * 5, [True] * 5, [True] * 5])
    hyper = Hyperparameters(theta=torch.full((4, 2), 2.0).double())
    train = TrainingSet.from_mask(X, y, live)
    surrogate = build(train, hyper, linear=linear, input_scaling=input_scaling)
    mean, variance = surrogate.predict(draw(4, 20, 2, seed=1))
    expected = f64([[3.0], [0.0], [-7.3], [0.0]]).expand(4, 20)
    torch.testing.assert_close(mean, expected, rtol=1e-13, atol=1e-13)
    assert bool(((variance >= 0) & (variance < 1e-20)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-9, 1e9])
@pytest.mark.parametrize("noisy", [False, True])
def test_predictions_scale_with_the_outputs(noisy, factor, dtype):
    X, Xq = draw(20, 2).to(dtype), draw(10, 2, seed=1).to(dtype)
    y = wavy(X)
    noise_var = torch.full_like(y, 0.01 if noisy else 0.0)
    variance = torch.tensor(0.5, dtype=dtype) if noisy else None
    results = []
    for f in (1.0, factor):
        hyper = Hyperparameters(
            theta=torch.full((2,), 3.0, dtype=dtype),
            variance=None if variance is None else variance * f**2,
        )
        train = TrainingSet(X=X, y=y * f, noise_var=noise_var * f**2)
        mean, var = build(train, hyper, nugget=1e-4).predict(Xq)
        assert mean.dtype == var.dtype == dtype
        results.append((mean / f, var / f / f))
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(results[1][0], results[0][0], rtol=0, atol=tolerance)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=tolerance, atol=1e-3 * tolerance)
    assert results[0][1].min() > 0


@pytest.mark.parametrize("factor", [1e-25, 1e25])
def test_tiny_and_huge_outputs_are_predicted_in_float32(factor):
    # Their squares are beyond the range of float32.
    X = draw(20, 2).float()
    hyper = Hyperparameters(theta=torch.full((2,), 3.0))
    mean = build(exact(X, factor * wavy(X)), hyper, nugget=1e-5).mean(X)
    torch.testing.assert_close(mean / factor, wavy(X), rtol=0, atol=1e-3)


def test_an_offset_of_the_outputs_is_added():
    X, Xq = draw(20, 2), draw(10, 2, seed=1)
    hyper = Hyperparameters(theta=f64([3.0, 3.0]))
    near = build(exact(X, wavy(X)), hyper, nugget=1e-6).predict(Xq)
    far = build(exact(X, wavy(X) + 1e6), hyper, nugget=1e-6).predict(Xq)
    torch.testing.assert_close(far[0] - 1e6, near[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(far[1], near[1], rtol=1e-6, atol=1e-9)


# --- jitter ---


def test_jitter_is_added_where_it_must_be_and_nowhere_else():
    X = draw(2, 12, 1)
    X[1, 6:] = X[1, :6]  # equal rows: no Cholesky factor without jitter
    train = exact(X, (5.0 * X[..., 0]).sin())
    p = torch.full((2, 1), 1.5).double()
    hyper = Hyperparameters(theta=f64([[4.0], [4.0]]), p=p)
    surrogate = build(train, hyper, nugget=0.0)
    assert surrogate.jitter[0] == 0.0
    assert surrogate.jitter[1] in JITTERS
    good = build(exact(X[0], train.y[0]), hyper[0], nugget=0.0)
    for mine, alone in zip(surrogate[0].predict(X[0]), good.predict(X[0]), strict=True):
        torch.testing.assert_close(mine, alone, rtol=0, atol=1e-9)
    mean, variance = surrogate[1].predict(X[1])
    torch.testing.assert_close(mean, train.y[1], rtol=0, atol=1e-4)
    assert bool((variance >= 0).all() & variance.isfinite().all())


def test_a_matrix_that_no_jitter_saves_raises():
    X = draw(5, 1)
    with pytest.raises(FitError, match=r"not positive definite, even with 0.0001 added.*theta"):
        build(exact(X, wavy(X)), Hyperparameters(theta=f64([math.nan])))
