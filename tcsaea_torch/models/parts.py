"""What a Kriging model consists of in GPyTorch's terms: noise, distribution, kernel."""

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods.noise_models import Noise
from linear_operator.operators import DiagLinearOperator

from tcsaea_torch.kernels import AdditiveKernel, PowerExponentialKernel
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.types import Float, Tensor


class KnownNoise(Noise):
    """Noise variances that are known for each row, exactly as given, 0 included.

    GPyTorch's `FixedGaussianNoise` lifts them to 1e-6, too much for data without noise.
    """

    noise_var: Tensor

    def __init__(self, noise_var: Float[Tensor, "*batch n"]) -> None:
        super().__init__()
        self.register_buffer("noise_var", noise_var)

    def forward(
        self, *params: Any, shape: torch.Size, noise: Tensor | None = None, **kwargs: Any
    ) -> DiagLinearOperator:
        """Return the rows' noise in training mode, else the mean noise of the living rows."""
        if noise is None:
            noise = self.noise_var if self.training else self.mean.unsqueeze(-1)
        return DiagLinearOperator(noise.expand(shape))

    @property
    def mean(self) -> Float[Tensor, "*batch"]:
        """Mean noise of the living rows."""
        live = self.noise_var.isfinite()
        total = torch.where(live, self.noise_var, 0.0).sum(dim=-1)
        return total / live.sum(dim=-1).clamp_min(1)


class ExactNormal(MultivariateNormal):
    """A normal distribution whose variances are reported as they are.

    GPyTorch lifts variances to 1e-10 whatever the outputs' scale, and warns.
    """

    @property
    def variance(self) -> Tensor:
        """Return the marginal variances, >= 0."""
        diagonal = self.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
        return diagonal.clamp_min(0.0)


def unit_cube_kernel(surrogate: Surrogate) -> ScaleKernel:
    """Return sigma^2 r as a GPyTorch kernel of points in the unit cube."""
    hyper = surrogate.hyperparameters
    d, batch_shape = hyper.theta.shape[-1], hyper.theta.shape[:-1]
    assert hyper.variance is not None
    x_scale = surrogate.scaling.x_scale
    if hyper.kernel == "matern-5/2":
        matern = MaternKernel(nu=2.5, ard_num_dims=d, batch_shape=batch_shape)
        kernel = ScaleKernel(matern, batch_shape=batch_shape).to(hyper.theta)
        matern.lengthscale = (x_scale / hyper.theta.sqrt()).unsqueeze(-2)
        kernel.outputscale = hyper.variance
        return kernel.requires_grad_(False)
    if hyper.kernel == "additive":
        assert hyper.amplitudes is not None
        p = 2.0 if hyper.p is None else float(hyper.p.flatten()[0])
        additive = AdditiveKernel(ard_num_dims=d, p=p, batch_shape=batch_shape)
        kernel = ScaleKernel(additive, batch_shape=batch_shape).to(hyper.theta)
        additive.theta = (hyper.theta / x_scale**p).unsqueeze(-2)
        additive.amplitudes = hyper.amplitudes.unsqueeze(-2)
        kernel.outputscale = hyper.variance
        return kernel.requires_grad_(False)
    p = hyper.p
    lowest = 1.0 if p is None else min(1.0, float(p.min()) * 0.999)
    base = PowerExponentialKernel(
        ard_num_dims=d,
        p=2.0 if p is None else "ard",
        p_range=(lowest, 2.0),
        batch_shape=batch_shape,
    )
    kernel = ScaleKernel(base, batch_shape=batch_shape).to(hyper.theta)
    base.theta = (hyper.theta / x_scale ** (2.0 if p is None else p)).unsqueeze(-2)
    if p is not None:
        base.p = p.unsqueeze(-2)
    kernel.outputscale = hyper.variance
    return kernel.requires_grad_(False)
