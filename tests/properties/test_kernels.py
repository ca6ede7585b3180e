import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tcsaea_torch.kernels import power_exponential

repeatable = settings(derandomize=True, deadline=None, max_examples=40, database=None)
unit = st.floats(0.0, 1.0, allow_subnormal=False)
sizes = st.floats(-5.0, 3.0).map(lambda exponent: 10.0**exponent)
powers = st.one_of(st.sampled_from([1.0, 1.99, 2.0]), st.floats(0.05, 2.0))


@st.composite
def points_and_parameters(draw, max_d=30):
    """Points, some of them equal or nearly so, with theta in 1e-5 .. 1e3 and p in (0, 2]."""
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, max_d))
    X = draw(arrays(np.float64, (n, d), elements=unit))
    theta = draw(arrays(np.float64, (d,), elements=sizes))
    p = draw(arrays(np.float64, (d,), elements=powers))
    return tuple(torch.from_numpy(value.copy()) for value in (X, theta, p))


@given(points_and_parameters())
@repeatable
def test_correlation_matrices_are_positive_semidefinite(case):
    X, theta, p = case
    for exponents in (p, None):
        R = power_exponential(X, X, theta, exponents)
        assert torch.linalg.eigvalsh(R).min() > -1e-9


def test_a_power_above_two_is_not_positive_semidefinite():
    # Shows that the test above can fail, and why p stops at 2.
    X = torch.linspace(0.0, 1.0, 6, dtype=torch.float64).unsqueeze(-1)
    theta = torch.tensor([1.0]).double()
    R = power_exponential(X, X, theta, torch.tensor([3.0]).double())
    assert torch.linalg.eigvalsh(R).min() < -1e-3


@given(points_and_parameters(max_d=8))
@repeatable
def test_values_lie_between_zero_and_one_and_the_matrix_is_symmetric(case):
    X, theta, p = case
    R = power_exponential(X, X, theta, p)
    assert bool(((R >= 0.0) & (R <= 1.0)).all())
    # Powers of 2 may differ in the last digit from place to place of a tensor.
    torch.testing.assert_close(R, R.T, rtol=0, atol=1e-15)
    assert torch.equal(R.diagonal(), torch.ones(len(X)).double())


@given(points_and_parameters(max_d=8), st.floats(0.01, 100.0), st.floats(-10.0, 10.0))
@repeatable
def test_units_and_origin_of_the_inputs_do_not_matter(case, factor, shift):
    X, theta, p = case
    expected = power_exponential(X, X, theta, p)
    rescaled = power_exponential(X * factor, X * factor, theta / factor**p, p)
    torch.testing.assert_close(rescaled, expected, rtol=0, atol=1e-8)
    moved = power_exponential(X + shift, X + shift, theta.clamp_max(1.0), p.clamp_min(1.0))
    still = power_exponential(X, X, theta.clamp_max(1.0), p.clamp_min(1.0))
    torch.testing.assert_close(moved, still, rtol=0, atol=1e-12)


@given(points_and_parameters(max_d=8))
@repeatable
def test_dimensions_multiply(case):
    X, theta, p = case
    product = torch.ones(len(X), len(X)).double()
    for k in range(X.shape[-1]):
        column = X[:, [k]]
        product = product * power_exponential(column, column, theta[[k]], p[[k]])
    torch.testing.assert_close(power_exponential(X, X, theta, p), product, rtol=1e-9, atol=1e-12)


@given(points_and_parameters(max_d=4))
@repeatable
def test_gradients_are_finite_wherever_points_lie(case):
    X, theta, p = case
    parts = [X.requires_grad_(), theta.requires_grad_(), p.clamp_min(1.0).requires_grad_()]
    R = power_exponential(parts[0], parts[0], *parts[1:])
    for gradient in torch.autograd.grad(R.sum(), parts):
        assert gradient.isfinite().all()


@given(points_and_parameters(max_d=4))
@repeatable
def test_correlations_fall_with_theta(case):
    X, theta, p = case
    theta.requires_grad_()
    (gradient,) = torch.autograd.grad(power_exponential(X, X, theta, p).sum(), theta)
    assert gradient.isfinite().all()
    assert gradient.max() <= 0.0
