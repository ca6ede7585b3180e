"""What every kernel must do. A kernel that is not in this suite fails the last test."""

import copy
import inspect
import io
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch

from tcsaea_torch import kernels
from tcsaea_torch.kernels import AdditiveKernel, PowerExponentialKernel

D = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kernel over D dimensions, its hyper-parameters, and its twin in numpy."""

    kind: type[gpytorch.kernels.Kernel]
    options: dict[str, Any]
    twin: Callable[[np.ndarray, np.ndarray, dict[str, np.ndarray]], float]
    """Correlation of two points, given hyper-parameters by name."""
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    """Hyper-parameters to set, by attribute; in a batch, each member has its own multiple."""

    def make(self, batch_shape=(), dtype=torch.float64, device="cpu", **options):
        kernel: Any = self.kind(
            **{**self.options, **options}, batch_shape=torch.Size(batch_shape)
        ).to(device, dtype)
        for name, value in self.values.items():
            setattr(kernel, name, (value * self.factors(batch_shape)).to(device, dtype))
        return kernel

    def factors(self, batch_shape):
        """Return a number for each batch member, by which its hyper-parameters differ."""
        n = math.prod(batch_shape)
        return (1.0 - 0.1 * torch.arange(n).double()).reshape(*batch_shape, 1, 1)

    def naive(self, A, B):
        """Return the matrix, one pair of points at a time."""
        values = {name: value.flatten().numpy() for name, value in self.values.items()}
        table = [[self.twin(a, b, values) for b in B.numpy()] for a in A.numpy()]
        return torch.tensor(table, dtype=torch.float64)


def power_exponential(p):
    def twin(a, b, values):
        powers = values.get("p", np.array(p))
        return float(np.exp(-(values["theta"] * np.abs(a - b) ** powers).sum()))

    return twin


THETA = torch.tensor([[0.3, 2.0, 7.0, 0.05]]).double()
POWERS = torch.tensor([[1.0, 1.4, 1.8, 2.0]]).double()


def power_case(p, /, **values):
    options: dict[str, Any] = {"p": p, "p_range": (0.5, 2.0)}
    options["ard_num_dims"] = D if values["theta"].numel() > 1 else None
    return Case(
        kind=PowerExponentialKernel, options=options, values=values, twin=power_exponential(p)
    )


def additive(a, b, values, p=2.0):
    weights, w = values["amplitudes"][:-1], values["amplitudes"][-1]

    def total(z):
        pairs = itertools.combinations(weights * z, 2)
        return (weights * z).sum() + w * sum(s * t for s, t in pairs)

    return float(total(np.exp(-values["theta"] * np.abs(a - b) ** p)) / total(np.ones(len(a))))


def additive_case(amplitudes, p=2.0):
    values = {"theta": THETA, "amplitudes": torch.tensor([amplitudes]).double()}
    options = {"ard_num_dims": D, "p": p}
    return Case(kind=AdditiveKernel, options=options, values=values, twin=partial(additive, p=p))


CASES = {
    "additive": additive_case([0.2, 0.4, 0.1, 0.3, 1.5]),
    "additive-p=1.5": additive_case([0.2, 0.4, 0.1, 0.3, 1.5], 1.5),
    "additive-unequal": additive_case([1e-3, 5.0, 1e-2, 0.3, 1e3]),
    "p=2": power_case(2.0, theta=THETA),
    "p=1": power_case(1.0, theta=THETA),
    "p=1.5": power_case(1.5, theta=THETA),
    "p=1.99": power_case(1.99, theta=THETA),
    "p=0.4": power_case(0.4, theta=THETA),
    "p-shared": power_case("shared", theta=THETA, p=torch.tensor([[1.7]]).double()),
    "p-ard": power_case("ard", theta=THETA, p=POWERS),
    "one-theta": power_case(2.0, theta=torch.tensor([[1.3]]).double()),
    "one-theta-p-shared": power_case(
        "shared", theta=torch.tensor([[1.3]]).double(), p=torch.tensor([[1.2]]).double()
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def draw(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def clustered(n=30):
    """Return points most of which lie close together, some exactly in one place."""
    centres = draw(3, D, seed=1)
    X = centres.repeat(n // 3, 1) + 10.0 ** -(12.0 * draw(n, 1, seed=2)) * draw(n, D, seed=3)
    X[-4:] = X[0]
    return X


POINTS = {"random": draw(30, D), "clustered": clustered(), "one-place": draw(1, D).repeat(6, 1)}


def matrix(kernel, *points, **options):
    return kernel(*points, **options).to_dense().detach()


@pytest.mark.parametrize("points", POINTS)
def test_matrices_are_symmetric_positive_semidefinite_with_unit_diagonal(case, points):
    X = POINTS[points]
    K = matrix(case.make(), X)
    # Up to the last digits, where GEMM is used.
    torch.testing.assert_close(K, K.T, rtol=0, atol=1e-14)
    torch.testing.assert_close(K.diagonal(), torch.ones(len(X)).double(), rtol=0, atol=1e-14)
    assert bool(((K >= 0) & (K <= 1)).all())
    assert torch.linalg.eigvalsh(K).min() >= -1e-10


def test_agrees_with_one_pair_at_a_time(case, device):
    A, B = draw(7, D, seed=4), draw(5, D, seed=5)
    B[3] = A[2]
    K = matrix(case.make(device=device), A.to(device), B.to(device))
    assert K.device == A.to(device).device
    torch.testing.assert_close(K.cpu(), case.naive(A, B), rtol=0, atol=1e-13)


def test_the_diagonal_is_that_of_the_matrix(case):
    A, B = draw(2, 6, D, seed=6), draw(2, 6, D, seed=7)
    for kernel in (case.make(), case.make((2,))):
        full = matrix(kernel, A, B).diagonal(dim1=-2, dim2=-1)
        diagonal = kernel(A, B, diag=True).detach()
        torch.testing.assert_close(diagonal, full, rtol=0, atol=1e-13)
        assert torch.equal(kernel(A, diag=True).detach(), torch.ones(2, 6).double())


def test_a_batch_is_its_members(case):
    A, B = draw(3, 5, D, seed=8), draw(3, 4, D, seed=9)
    together = matrix(case.make((3,)), A, B)
    assert together.shape == (3, 5, 4)
    for i in range(3):
        alone = case.make()
        for name, value in case.values.items():
            setattr(alone, name, value * case.factors((3,))[i])
        torch.testing.assert_close(together[i], matrix(alone, A[i], B[i]), rtol=0, atol=1e-13)
        # Members of a batch of kernels, and one kernel for a batch of points.
        member = matrix(case.make((3,))[i], A[i], B[i])
        torch.testing.assert_close(member, together[i], rtol=0, atol=1e-13)
        torch.testing.assert_close(
            matrix(case.make(), A, B)[i], matrix(case.make(), A[i], B[i]), rtol=0, atol=1e-13
        )


def test_more_batch_dimensions_broadcast(case):
    A, B = draw(2, 1, 5, D, seed=8), draw(3, 4, D, seed=9)
    K = matrix(case.make((3,)), A, B)
    assert K.shape == (2, 3, 5, 4)
    torch.testing.assert_close(K[1], matrix(case.make((3,)), A[1], B), rtol=0, atol=1e-13)


@pytest.mark.parametrize("points", [*POINTS, "one-row"])
def test_gradients_are_finite_and_repeatable_at_zero_distance(case, points):
    X = draw(1, D) if points == "one-row" else POINTS[points]

    def gradients():
        kernel, Z = case.make(), X.clone().requires_grad_()
        kernel(Z).to_dense().sum().backward()
        return [Z.grad, *(p.grad for p in kernel.parameters())]

    first = gradients()
    assert len(first) == 1 + len(case.values)
    for gradient in first:
        assert gradient is not None
        assert gradient.isfinite().all()
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(), strict=True))


def test_gradients_are_those_of_finite_differences(case):
    A, B = draw(4, D, seed=10).requires_grad_(), draw(3, D, seed=11)
    kernel = case.make()
    names = [name for name, _ in kernel.named_parameters()]

    def value(A, *parameters):
        return torch.func.functional_call(
            _Dense(kernel),
            {f"kernel.{n}": p for n, p in zip(names, parameters, strict=True)},
            (A, B),
        )

    inputs = (A, *(p.detach().clone().requires_grad_() for p in kernel.parameters()))
    # Powers may lie at the end of their range, beyond which nothing changes.
    inside = [name != "raw_p" or case.options["p"] == "shared" for name in names]
    for keep, x in zip(inside, inputs[1:], strict=True):
        x.requires_grad_(keep)
    assert torch.autograd.gradcheck(value, inputs, atol=1e-6)


class _Dense(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, A, B):
        return self.kernel(A, B).to_dense()


def test_active_dims_choose_columns(case):
    dims = (4, 0, 3, 1)
    X, Z = draw(6, 5, seed=12), draw(4, 5, seed=13)
    chosen = case.make(active_dims=dims)
    expected = matrix(case.make(), X[:, dims], Z[:, dims])
    assert torch.equal(matrix(chosen, X, Z), expected)
    X[:, 2] += 1.0  # the column that is left out
    assert torch.equal(matrix(chosen, X, Z), expected)


def test_a_deep_copy_is_equal_and_independent(case):
    kernel, X = case.make((2,)), draw(2, 5, D)
    expected = matrix(kernel, X)
    copied = copy.deepcopy(kernel)
    assert torch.equal(matrix(copied, X), expected)
    for parameter in copied.parameters():
        parameter.data.mul_(0.5)
    assert torch.equal(matrix(kernel, X), expected)
    assert not torch.equal(matrix(copied, X), expected)
    # After a pass with gradients too.
    kernel(X.requires_grad_()).to_dense().sum().backward()
    assert torch.equal(matrix(copy.deepcopy(kernel), X.detach()), expected)


def test_the_state_makes_the_round_trip(case):
    kernel, X = case.make((2,)), draw(2, 5, D)
    file = io.BytesIO()
    torch.save(kernel.state_dict(), file)
    file.seek(0)
    fresh = case.kind(**case.options, batch_shape=torch.Size((2,))).double()
    assert not torch.equal(matrix(fresh, X), matrix(kernel, X))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(matrix(fresh, X), matrix(kernel, X))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_are_kept(case, dtype, device):
    X = clustered().to(device, dtype)
    K = matrix(case.make(dtype=dtype, device=device), X)
    assert K.dtype == dtype
    assert K.device == X.device
    exact = matrix(case.make(), X.double().cpu())
    # In float32 GEMM cancels among near points, and rough kernels magnify what is left.
    tolerance = 1e-13 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(K.double().cpu(), exact, rtol=0, atol=tolerance)


def test_no_rows(case):
    assert matrix(case.make(), draw(0, D), draw(3, D)).shape == (0, 3)


def test_works_in_a_gaussian_process(case):
    """With noise-free data, GPyTorch's exact posterior passes through the data."""
    X, kernel = draw(12, D, seed=14), case.make()
    y = X.sum(dim=-1)
    K, k = matrix(kernel, X), matrix(kernel, draw(3, D, seed=15), X)
    weights = torch.linalg.solve(K, y)
    assert torch.allclose(K @ weights, y, atol=1e-6)
    assert (k @ weights).isfinite().all()
    assert case.make().is_stationary


def test_every_kernel_of_the_module_is_in_this_suite():
    here = {
        kind
        for _, kind in inspect.getmembers(kernels, inspect.isclass)
        if issubclass(kind, gpytorch.kernels.Kernel) and kind.__module__ == kernels.__name__
    }
    assert here == {case.kind for case in CASES.values()}
