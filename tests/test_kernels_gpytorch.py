"""`PowerExponentialKernel` in GPyTorch's own test cases and BoTorch's models."""

from unittest import TestCase

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from tcsaea_torch.kernels import PowerExponentialKernel


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture(autouse=True)
def _their_random_numbers():
    """Their test cases, and BoTorch's restarts, draw from the global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class OurKernel(BaseKernelTestCase):
    p = 2.0

    def create_kernel_no_ard(self, **kwargs):
        return PowerExponentialKernel(p=self.p, **kwargs)

    def create_kernel_ard(self, num_dims, **kwargs):
        return PowerExponentialKernel(ard_num_dims=num_dims, p=self.p, **kwargs)


@pytest.mark.usefixtures("unchecked")  # they pass lists, as users may
class TestSquaredKernel(OurKernel, TestCase):
    pass


@pytest.mark.usefixtures("unchecked")  # they pass lists, as users may
class TestRoughKernel(OurKernel, TestCase):
    p = 1.5


@pytest.mark.usefixtures("unchecked")  # they pass lists, as users may
class TestKernelWithOneFreePower(OurKernel, TestCase):
    p = "shared"


@pytest.mark.usefixtures("unchecked")  # they pass lists, as users may
class TestKernelWithFreePowers(OurKernel, TestCase):
    p = "ard"


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.warnings.BotorchWarning"
)
@pytest.mark.parametrize("p", [1.5, "shared", "ard"])
def test_batched_models_are_fitted_as_each_alone(p):
    X = draw(2, 20, 2)
    y = (torch.sin(6.0 * X[..., :1]) + 0.3 * X[..., 1:]) * torch.tensor([1.0, 2.0])[:, None, None]

    def fitted(X, y):
        batch = X.shape[:-2]
        base = PowerExponentialKernel(ard_num_dims=2, p=p, batch_shape=batch)
        gp = SingleTaskGP(
            X,
            y,
            torch.full_like(y, 1e-4),
            covar_module=ScaleKernel(base, batch_shape=batch),
            outcome_transform=None,
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
        return gp, base

    gp, base = fitted(X, y)
    assert base.theta.shape == base.p.shape == (2, 1, 2)
    assert bool(((base.p >= 1.0) & (base.p <= 2.0)).all())
    Xq = draw(2, 30, 2, seed=9)
    posterior = gp.posterior(Xq)
    for i in range(2):
        alone, _ = fitted(X[i], y[i])
        torch.testing.assert_close(
            posterior.mean[i], alone.posterior(Xq[i]).mean, rtol=0, atol=0.05
        )


@pytest.mark.parametrize("p", [1.0, 1.5, 1.99, 2.0, "shared", "ard"])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("n", [1, 6])
def test_gradients_at_zero_distance_are_finite_and_repeatable(p, batch, n):
    base = PowerExponentialKernel(ard_num_dims=3, p=p, batch_shape=torch.Size(batch)).double()
    kernel = ScaleKernel(base, batch_shape=torch.Size(batch)).double()
    X = draw(*batch, n, 3)
    if n > 1:  # one copy, and one row that agrees in two coordinates
        X[..., 1, :] = X[..., 0, :]
        X[..., 3, :2] = X[..., 2, :2]
    weight, inputs = draw(*batch, n, n, seed=1), [X.requires_grad_(), *kernel.parameters()]

    def gradients():
        return torch.autograd.grad((weight * kernel(X).to_dense()).sum(), inputs)

    first = gradients()
    assert all(g.isfinite().all() for g in first)
    if n == 1:  # all but the scale's are zero
        names = ["X", *(name for name, _ in kernel.named_parameters())]
        for name, gradient in zip(names, first, strict=True):
            assert (float(gradient.abs().max()) > 1e-14) == (name == "raw_outputscale")
    for _ in range(9):
        assert all(torch.equal(a, b) for a, b in zip(first, gradients(), strict=True))
