import copy
import math
import re

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.special import kv

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernels import (
    PowerExponentialKernel,
    correlations,
    matern52,
    power,
    power_exponential,
    weighted_distance,
)

POWERS = [0.3, 1.0, 1.5, 1.99, 2.0]


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def full(d, value):
    return torch.full((d,), value, dtype=torch.float64)


def naive(A, B, theta, p):
    """One pair and one dimension at a time."""
    R = np.empty((len(A), len(B)))
    for i, a in enumerate(A.tolist()):
        for j, b in enumerate(B.tolist()):
            terms = [
                t * abs(u - v) ** q
                for t, u, v, q in zip(theta.tolist(), a, b, p.tolist(), strict=True)
            ]
            R[i, j] = np.exp(-sum(terms))
    return R


def agree(actual, expected, tolerance=1e-14):
    np.testing.assert_allclose(actual.detach().cpu().numpy(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("p", POWERS)
def test_equals_a_naive_loop(p, d, device):
    A, B = draw(6, d, seed=1), draw(5, d, seed=2)
    B[2] = A[4]  # one pair without distance
    theta, powers = draw(d, seed=3) * 3 + 0.1, full(d, p)
    expected = naive(A, B, theta, powers)
    on_device = [t.to(device) for t in (A, B, theta, powers)]
    agree(power_exponential(*on_device), expected)
    agree(-power_exponential(*on_device).log(), -np.log(expected), 1e-13)
    if p == 2.0:
        agree(power_exponential(*on_device[:3]), expected)


def test_each_dimension_may_have_its_own_power(device):
    A, B, theta = draw(6, 5, seed=1), draw(4, 5, seed=2), draw(5, seed=3) * 4
    powers = torch.tensor(POWERS).double()
    expected = naive(A, B, theta, powers)
    agree(power_exponential(*(t.to(device) for t in (A, B, theta, powers))), expected)


def test_far_points_are_uncorrelated_and_nothing_overflows():
    A = torch.tensor([[0.0, 0.0], [1e200, 0.0], [0.0, 3.0]], dtype=torch.float64)
    theta = torch.tensor([1e3, 1e3]).double()
    for p in (None, torch.tensor([1.0, 1.5]).double()):
        R = power_exponential(A[[0, 2]], A[[0, 2]], theta, p)
        assert torch.equal(R, torch.eye(2).double())
    R = power_exponential(A, A, theta, torch.tensor([2.0, 2.0]).double())
    assert torch.equal(R, torch.eye(3).double())


@pytest.mark.parametrize("p", [None, 0.5, 1.5, 2.0])
def test_correlation_matrix_is_symmetric_with_ones_on_its_diagonal(p):
    X, theta = draw(30, 4, seed=4), draw(4, seed=5) * 10
    powers = None if p is None else full(4, p)
    R = power_exponential(X, X, theta, powers)
    agree(R, R.T.numpy())
    agree(R.diagonal(), np.ones(30), 0 if p else 1e-14)
    assert R.max() <= 1.0
    off_diagonal = R[~torch.eye(30, dtype=torch.bool)]
    assert 0.0 < float(off_diagonal.min()) < float(off_diagonal.max()) < 1.0


@pytest.mark.parametrize("is_squared", [True, False])
def test_batch_equals_loop_and_broadcasts(is_squared):
    A, B, theta, p = draw(3, 2, 6, 4), draw(3, 2, 5, 4, seed=1), draw(3, 2, 4, seed=2), None
    if not is_squared:
        p = 2.0 - draw(3, 2, 4, seed=3)
    R = power_exponential(A, B, theta, p)
    assert R.shape == (3, 2, 6, 5)
    for i in range(3):
        for j in range(2):
            powers = None if p is None else p[i, j]
            alone = power_exponential(A[i, j], B[i, j], theta[i, j], powers)
            agree(R[i, j], alone.numpy())
    shared = power_exponential(A[0, 0], B, theta, p)
    agree(
        shared[2, 1],
        power_exponential(A[0, 0], B[2, 1], theta[2, 1], None if p is None else p[2, 1]),
    )


@pytest.mark.parametrize("p", [*POWERS, None])
def test_gradients_are_those_of_finite_differences(p):
    A, B, theta = draw(3, 2), draw(2, 2, seed=1), draw(2, seed=2) + 0.2
    inputs = [A, B, theta] + ([] if p is None else [full(2, p)])
    for value in inputs:
        value.requires_grad_()
    assert torch.autograd.gradcheck(power_exponential, inputs)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 1.99, 2.0, None])
def test_coincident_points_have_no_gradient(p):
    X, theta = draw(1, 3), draw(3, seed=1) * 5
    parts = [X, X.clone(), theta] + ([] if p is None else [full(3, p)])
    for part in parts:
        part.requires_grad_()
    gradients = torch.autograd.grad(power_exponential(*parts).sum(), parts)
    for gradient in gradients:
        agree(gradient, np.zeros(gradient.shape), 0 if p else 1e-14)


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 1.99, 2.0, None])
def test_gradients_among_coincident_points_are_finite_and_repeatable(p):
    # Copies, and points that agree in some coordinates only.
    X = draw(6, 3)[[0, 1, 2, 0, 1, 0]]
    X[2, :2] = X[0, :2]
    weight, theta = draw(6, 6, seed=2), draw(3, seed=1) * 5
    parts = [X, theta] + ([] if p is None else [full(3, p)])
    for part in parts:
        part.requires_grad_()

    def gradients():
        R = power_exponential(parts[0], parts[0], *parts[1:])
        return torch.autograd.grad((weight * R).sum(), parts)

    first, second = gradients(), gradients()
    for a, b in zip(first, second, strict=True):
        assert a.isfinite().all()
        assert torch.equal(a, b)
    # theta's gradient is smooth at zero distance, so differences may judge it.
    for k in range(3):
        step = torch.zeros(3).double()
        step[k] = 1e-6
        with torch.no_grad():
            high, low = (
                (weight * power_exponential(X, X, theta + sign * step, *parts[2:])).sum()
                for sign in (1, -1)
            )
        assert float((high - low) / 2e-6) == pytest.approx(float(first[1][k]), rel=1e-6)


def test_power_is_zero_at_zero_even_for_tiny_exponents():
    difference = torch.tensor([[0.0, -0.0, 1e-300, -0.25]]).double()
    result = power(difference, torch.tensor(0.5).double())
    assert result.tolist() == [[0.0, 0.0, pytest.approx(1e-150), 0.5]]


def test_weighted_distance_is_minus_the_logarithm():
    A, theta, p = draw(5, 3), draw(3, seed=1) * 100, torch.tensor([1.0, 1.3, 2.0]).double()
    distance = weighted_distance(A, A, theta, p)
    assert (distance[0, 1:] > 1.0).all()
    agree((-distance).exp(), power_exponential(A, A, theta, p).numpy())
    assert torch.equal(distance.diagonal(), torch.zeros(5).double())


# --- the GPyTorch kernel ---


def kernel_with(theta, p, **kwargs):
    kernel = PowerExponentialKernel(ard_num_dims=theta.shape[-1], p=p, **kwargs).double()
    kernel.theta = theta
    return kernel


@pytest.mark.parametrize("p", [0.5, 1.0, 1.7, 2.0])
def test_kernel_is_the_function(p):
    A, B, theta = draw(6, 3), draw(4, 3, seed=1), draw(3, seed=2) + 0.1
    kernel = kernel_with(theta, p)
    agree(kernel(A, B).to_dense(), naive(A, B, theta, full(3, p)))
    agree(kernel(A).to_dense(), naive(A, A, theta, full(3, p)))


def test_kernel_equals_rbf_with_the_matching_lengthscale():
    A, B = draw(6, 3), draw(4, 3, seed=1)
    rbf = RBFKernel(ard_num_dims=3).double()
    rbf.lengthscale = torch.tensor([0.2, 0.5, 2.0]).double()
    kernel = kernel_with(0.5 / rbf.lengthscale.detach().squeeze(0) ** 2, 2.0)
    agree(kernel(A, B).to_dense(), rbf(A, B).to_dense().detach().numpy())


@pytest.mark.parametrize("p", [1.0, 2.0, "shared", "ard"])
@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
def test_diagonal_is_the_diagonal_of_the_matrix(batch, p):
    A, B = draw(*batch, 5, 3), draw(*batch, 5, 3, seed=1)
    kernel = kernel_with(draw(*batch, 1, 3, seed=2) + 0.1, p, batch_shape=torch.Size(batch))
    with torch.no_grad():
        matrix = kernel(A, B).to_dense()
        assert matrix.shape == (*batch, 5, 5)
        diagonal = torch.as_tensor(kernel(A, B, diag=True))
        agree(diagonal, matrix.diagonal(dim1=-2, dim2=-1).numpy())
        assert float(diagonal.max()) < 0.99
        agree(kernel(A, diag=True), np.ones((*batch, 5)))


@pytest.mark.parametrize("p", [1.5, "ard"])
def test_batched_kernel_equals_single_kernels(p):
    A, B, theta = draw(2, 5, 3), draw(2, 4, 3, seed=1), draw(2, 1, 3, seed=2) * 3
    kernel = kernel_with(theta, p, batch_shape=torch.Size([2]))
    powers = torch.full((2, 1, 3), 1.5).double()
    if p == "ard":
        powers = 1.0 + draw(2, 1, 3, seed=3)
        kernel.p = powers
    for i in range(2):
        expected = naive(A[i], B[i], theta[i, 0], powers[i, 0])
        agree(kernel(A, B).to_dense()[i], expected)


def test_without_ard_one_theta_serves_all_dimensions():
    A, theta = draw(5, 4), full(4, 1.25)
    for p in (1.5, 2.0, "shared", "ard"):
        kernel = PowerExponentialKernel(p=p).double()
        kernel.theta = 1.25
        assert kernel.theta.shape == kernel.p.shape == (1, 1)
        agree(kernel(A).to_dense(), naive(A, A, theta, full(4, p if p == 2.0 else 1.5)))


def test_active_dims_choose_columns():
    A = draw(5, 4)
    kernel = PowerExponentialKernel(ard_num_dims=2, p=1.5, active_dims=(3, 1)).double()
    kernel.theta = torch.tensor([2.0, 0.5]).double()
    columns = A[:, [3, 1]]
    expected = naive(columns, columns, torch.tensor([2.0, 0.5]), torch.tensor([1.5, 1.5]))
    agree(kernel(A).to_dense(), expected)


def test_theta_setter_takes_numbers_and_tensors():
    kernel = PowerExponentialKernel(ard_num_dims=3).double()
    for value in (1e-5, 0.3, 1e3):
        kernel.theta = value
        assert kernel.theta.tolist() == [[pytest.approx(value, rel=1e-6)] * 3]
    sizes = [1e-5, 1.0, 1e3]
    kernel.theta = torch.tensor(sizes, dtype=torch.float64)
    assert kernel.theta.tolist() == [pytest.approx(sizes, rel=1e-12)]
    kernel.initialize(theta=torch.tensor(4.0))
    assert kernel.theta.tolist() == [[pytest.approx(4.0)] * 3]


def test_setters_keep_the_precision_of_a_number():
    kernel = PowerExponentialKernel(ard_num_dims=2, p="shared").double()
    kernel.theta, kernel.p = 0.3, 1.9
    assert kernel.theta.tolist() == [pytest.approx([0.3, 0.3], rel=1e-12)]
    assert kernel.p.tolist() == [pytest.approx([1.9, 1.9], rel=1e-12)]


def test_p_setter():
    fixed = PowerExponentialKernel(ard_num_dims=2, p=2.0)
    assert fixed.p.tolist() == [[2.0, 2.0]]
    fixed.p = 1.5
    assert fixed.p.tolist() == [[1.5, 1.5]]
    assert "raw_p" not in dict(fixed.named_parameters())
    shared = PowerExponentialKernel(ard_num_dims=2, p="shared")
    assert shared.p.tolist() == [[1.5, 1.5]]
    shared.p = 2.0
    assert shared.p.tolist() == [[2.0, 2.0]]
    ard = PowerExponentialKernel(ard_num_dims=2, p="ard")
    ard.p = torch.tensor([1.0, 1.75])
    assert ard.p.tolist() == [[1.0, 1.75]]
    assert [tuple(k.raw_p.shape) for k in (shared, ard)] == [(1, 1), (1, 2)]


def test_p_outside_of_its_range_is_refused():
    fixed = PowerExponentialKernel(p=1.5)
    for value in (0.0, -1.0, 2.5, float("nan")):
        with pytest.raises(InvalidInputError, match=r"p must be a finite real number > 0 and <= 2"):
            fixed.p = value
    assert fixed.fixed_p == 1.5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("theta", -1.0, r"theta must be finite, > 0 and within Positive\(\), got -1"),
        ("theta", 0.0, "theta must be finite, > 0 .* got 0"),
        ("theta", float("nan"), "theta must be finite, .* got nan"),
        ("theta", float("inf"), "theta must be finite, .* got inf"),
        ("theta", [1.0, -1.0], r"theta must be finite, .* got \[1.0, -1.0\]"),
        ("theta", [1.0, 2.0, 3.0], r"theta must have shape \(1, 2\) .* got shape \(3,\)"),
        ("theta", "x", "theta must be an array of real numbers, got 'x'"),
        ("theta", None, "theta must be an array of real numbers, got None"),
        ("theta", True, "theta must be an array of real numbers, got True"),
        ("p", 3.0, "p must be from 1 to 2, got 3"),
        ("p", float("nan"), "p must be from 1 to 2, got nan"),
        ("p", "x", "p must be an array of real numbers, got 'x'"),
        ("p", torch.ones(5), r"p must have shape \(1, 2\) .* got shape \(5,\)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_setters_refuse_what_the_parameter_cannot_be(name, value, message):
    kernel = PowerExponentialKernel(ard_num_dims=2, p="ard")
    before = copy.deepcopy(kernel.state_dict())
    with pytest.raises(InvalidInputError, match="^" + message):
        setattr(kernel, name, value)
    assert all(torch.equal(v, before[k]) for k, v in kernel.state_dict().items())


def test_fitted_p_outside_of_its_range_is_refused():
    free = PowerExponentialKernel(p="shared")
    with pytest.raises(InvalidInputError):
        free.p = 2.5


def test_p_range_bounds_the_power_that_the_kernel_uses():
    kernel = PowerExponentialKernel(ard_num_dims=2, p="ard", p_range=(0.4, 0.8))
    assert kernel.p.tolist() == [[pytest.approx(0.6)] * 2]
    with torch.no_grad():
        kernel.raw_p.copy_(torch.tensor([[0.1, 5.0]]))
    assert kernel.p.tolist() == [[pytest.approx(0.4), pytest.approx(0.8)]]


def test_theta_constraint_is_used():
    kernel = PowerExponentialKernel(ard_num_dims=2, theta_constraint=Interval(0.5, 2.0)).double()
    with torch.no_grad():
        kernel.raw_theta.copy_(torch.tensor([[-1e3, 1e3]]))
    assert kernel.theta.tolist() == [[pytest.approx(0.5), pytest.approx(2.0)]]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"p": 0.0}, "p must be a finite real number > 0 and <= 2, got 0.0"),
        ({"p": -1}, "p must be"),
        ({"p": 2.5}, "p must be a finite real number > 0 and <= 2, got 2.5"),
        ({"p": float("nan")}, "p must be"),
        ({"p": "ardd"}, "p must be one of ard, shared, got 'ardd'; did you mean 'ard'?"),
        ({"ard_num_dims": 0}, "ard_num_dims must be an integer >= 1, got 0"),
        ({"ard_num_dims": -2}, "ard_num_dims must be"),
    ],
)
def test_invalid_arguments_are_refused(kwargs, message, unchecked):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        PowerExponentialKernel(**kwargs)


def test_kernel_survives_deepcopy_and_state_dict():
    kernel = kernel_with(draw(3) * 4, "ard")
    kernel.p = torch.tensor([1.1, 1.6, 2.0]).double()
    fresh = PowerExponentialKernel(ard_num_dims=3, p="ard").double()
    fresh.load_state_dict(kernel.state_dict())
    X = draw(4, 3, seed=1)
    for other in (copy.deepcopy(kernel), fresh):
        assert torch.equal(other(X).to_dense(), kernel(X).to_dense())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::botorch.exceptions.warnings.BotorchWarning")
@pytest.mark.parametrize("p", [1.5, 2.0, "shared", "ard"])
def test_works_in_botorchs_single_task_gp(p):
    X = draw(25, 2)
    y = torch.sin(6.0 * X[:, :1]) + 0.3 * X[:, 1:]
    kernel = PowerExponentialKernel(ard_num_dims=2, p=p)
    gp = SingleTaskGP(
        X, y, torch.full_like(y, 1e-6), covar_module=ScaleKernel(kernel), outcome_transform=None
    )
    mll = ExactMarginalLogLikelihood(gp.likelihood, gp)

    def log_likelihood():
        gp.train()
        with torch.no_grad():
            return torch.as_tensor(mll(gp(*gp.train_inputs), gp.train_targets)).item()

    before = log_likelihood()
    with torch.random.fork_rng():
        fit_gpytorch_mll(mll)
    assert log_likelihood() > before + 0.5
    gp.eval()
    assert bool(((kernel.p >= 1.0) & (kernel.p <= 2.0)).all())
    if isinstance(p, float):
        assert kernel.p.tolist() == [[p, p]]
    Xq = draw(50, 2, seed=9)
    with torch.no_grad():
        error = gp.posterior(Xq).mean - torch.sin(6.0 * Xq[:, :1]) - 0.3 * Xq[:, 1:]
    # The function is analytic: a free power tends to 2, and a rough one predicts worse.
    assert float(error.abs().max()) < (0.25 if p == 1.5 else 0.05)
    if p in ("shared", "ard"):
        assert kernel.p.amin().item() > 1.9


def naive_matern(A, B, theta):
    """One pair at a time, and the Bessel form of the Matern family."""
    R = np.empty((len(A), len(B)))
    for i, a in enumerate(A.numpy()):
        for j, b in enumerate(B.numpy()):
            s = math.sqrt(5.0 * (theta.numpy() * (a - b) ** 2).sum())
            bessel = 2**-1.5 / math.gamma(2.5) * s**2.5 * kv(2.5, s) if s else 1.0
            R[i, j] = bessel
    return R


@pytest.mark.parametrize("d", [1, 2, 7])
def test_matern_is_of_the_family_with_smoothness_5_2(d, device):
    A, B, theta = draw(6, d, seed=1), draw(5, d, seed=2), draw(d, seed=3) * 9 + 0.1
    B[2] = A[4]  # one pair without distance
    found = matern52(*(t.to(device) for t in (A, B, theta)))
    agree(found, naive_matern(A, B, theta), 1e-13)
    kernel = MaternKernel(nu=2.5, ard_num_dims=d).double()
    kernel.lengthscale = 1.0 / theta.sqrt()
    agree(found, kernel(A, B).to_dense().detach().numpy(), 1e-13)
    assert torch.equal(correlations(A, B, theta, kernel="matern-5/2"), matern52(A, B, theta))
    assert torch.equal(correlations(A, B, theta), power_exponential(A, B, theta))


def test_matern_broadcasts_and_keeps_types():
    A, B, theta = draw(2, 1, 6, 3), draw(4, 5, 3, seed=1), draw(4, 3, seed=2)
    R = matern52(A, B, theta)
    assert R.shape == (2, 4, 6, 5)
    agree(R[1, 2], matern52(A[1, 0], B[2], theta[2]).numpy())
    single = matern52(A.float(), B.float(), theta.float())
    assert single.dtype == torch.float32
    agree(single, R.numpy(), 1e-6)


def test_matern_is_differentiable_also_at_zero_distance():
    A, B, theta = draw(4, 3).requires_grad_(), draw(3, 3, seed=1), draw(3, seed=2) + 0.1
    assert torch.autograd.gradcheck(matern52, (A, B, theta.requires_grad_()))
    X = draw(1, 3).repeat(2, 1).requires_grad_()
    theta = (draw(3, seed=2) + 0.1).requires_grad_()
    for gradient in torch.autograd.grad(matern52(X, X, theta).sum(), (X, theta)):
        agree(gradient, np.zeros(gradient.shape), 1e-7)


def test_matern_far_points_are_uncorrelated():
    A = torch.tensor([[0.0, 0.0], [0.0, 30.0]], dtype=torch.float64)
    R = matern52(A, A, torch.tensor([1e3, 1e3]).double())
    assert torch.equal(R, torch.eye(2).double())
