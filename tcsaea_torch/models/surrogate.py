"""Kriging on plain tensors: scale, condition on data, predict.

`condition` turns training sets and hyper-parameters into a `Surrogate`, a frozen bundle
of tensors that predicts means and variances of `*batch` models at once. This is the
fast path inside strategies; `KrigingGP` wraps it for GPyTorch and BoTorch.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from tcsaea_torch.correlations import KernelName, correlations
from tcsaea_torch.errors import FitError
from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.likelihood import (
    Factorisation,
    Standardised,
    absent_columns,
    closed_form_variance,
    count,
    factorise,
)
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Bool, Float, Tensor

Trend = Literal["constant", "linear"]
InputScaling = Literal["unit", "standardize"]

JITTERS = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
"""Tried in turn, relative to sigma^2, where C is not positive definite."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling(Indexed):
    """How inputs and outputs are brought to the scale of the fit."""

    x_shift: Float[Tensor, "*batch d"]
    x_scale: Float[Tensor, "*batch d"]
    y_shift: Float[Tensor, "*batch"]
    y_scale: Float[Tensor, "*batch"]

    def inputs(self, X: Float[Tensor, "*#batch n d"]) -> Float[Tensor, "*batch n d"]:
        """Scale points of the unit cube."""
        return (X - self.x_shift.unsqueeze(-2)) / self.x_scale.unsqueeze(-2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Hyperparameters(Indexed):
    """What a fit finds. theta is in the scaled inputs' units."""

    theta: Float[Tensor, "*batch d"]
    """Factor of |d|^p for each dimension."""
    p: Float[Tensor, "*batch d"] | None = None
    """Powers; None means 2 throughout."""
    variance: Float[Tensor, "*batch"] | None = None
    """Process variance sigma^2, squared objective units; None: its closed form."""
    kernel: KernelName = "power-exponential"
    """Which correlation; "matern-5/2" has no powers, "additive" one for all dimensions."""
    amplitudes: Float[Tensor, "*batch d1"] | None = None
    """a_1, ..., a_d and w of "additive"; None for the others."""
    nugget: Float[Tensor, "*batch"] | None = None
    """A nugget of each model, relative to sigma^2; None: the one that `condition` is given."""

    def correlate(
        self, A: Float[Tensor, "*#batch n d"], B: Float[Tensor, "*#batch m d"]
    ) -> Float[Tensor, "*batch n m"]:
        """Return the correlations between scaled points."""
        return correlations(
            A, B, self.theta, self.p, kernel=self.kernel, amplitudes=self.amplitudes
        )


def scale(
    train: TrainingSet, *, trend: Bool[Tensor, "*batch"], input_scaling: InputScaling
) -> tuple[Standardised, Scaling]:
    """Standardise outputs (and inputs) over the living rows, and build the trend basis.

    Args:
        train: Training sets without duplicates.
        trend: Where a linear trend is wanted; with fewer than d + 2 rows it is constant.
        input_scaling: "unit" leaves inputs in the unit cube (centred, for accuracy);
            "standardize" divides them by their sample standard deviation, as DACE does.
    """
    live = train.live
    X, x_shift, x_scale = _centred(train.X, live.unsqueeze(-1))
    if input_scaling == "standardize":
        X = X / x_scale.unsqueeze(-2)
    else:
        x_scale = torch.ones_like(x_scale)
    # In units of the largest value, squares neither over- nor underflow.
    y = torch.where(live, train.y, 0.0).unsqueeze(-1)
    largest = y.abs().amax(dim=-2, keepdim=True)
    unit = torch.where(largest > 0, largest, 1.0)
    y, y_shift, y_scale = _centred(y / unit, live.unsqueeze(-1))
    y = (y / y_scale.unsqueeze(-2)).squeeze(-1)
    scaling = Scaling(
        x_shift=x_shift,
        x_scale=x_scale,
        y_shift=y_shift.squeeze(-1) * unit[..., 0, 0],
        y_scale=y_scale.squeeze(-1) * unit[..., 0, 0],
    )
    is_linear = trend & (live.sum(dim=-1) >= train.X.shape[-1] + 2)
    ones = live.to(X).unsqueeze(-1)
    F = torch.cat([ones, X * is_linear[..., None, None]], dim=-1)
    noise = torch.where(live, train.noise_var, 0.0) / scaling.y_scale.unsqueeze(-1).square()
    is_exact = _is_exact(F, y)
    return Standardised(X=X, y=y, F=F, noise=noise, live=live, is_exact=is_exact), scaling


def _centred(
    values: Float[Tensor, "*batch n k"], live: Bool[Tensor, "*batch n 1"]
) -> tuple[Float[Tensor, "*batch n k"], Float[Tensor, "*batch k"], Float[Tensor, "*batch k"]]:
    """Return columns minus their means, these means, and the standard deviations.

    Only living rows count; the others become 0. Columns that vary by rounding only are
    constant: they become 0 and have deviation 1.
    """
    values = torch.where(live, values, 0.0)
    n = live.sum(dim=-2).clamp_min(1)
    mean = values.sum(dim=-2) / n
    centred = torch.where(live, values - mean.unsqueeze(-2), 0.0)
    spread = (centred.square().sum(dim=-2) / (n - 1).clamp_min(1)).sqrt()
    largest = values.abs().amax(dim=-2)
    is_constant = spread <= 8 * torch.finfo(values.dtype).eps * largest
    centred = torch.where(is_constant.unsqueeze(-2), 0.0, centred)
    return centred, mean, torch.where(is_constant, 1.0, spread)


def _is_exact(
    F: Float[Tensor, "*batch n t"], y: Float[Tensor, "*batch n"]
) -> Bool[Tensor, "*batch"]:
    """Return whether a least-squares fit of the trend leaves nothing but rounding errors."""
    FF = F.mT @ F
    FF.diagonal(dim1=-2, dim2=-1).add_(absent_columns(F))
    factor, info = torch.linalg.cholesky_ex(FF)
    residual = y.unsqueeze(-1)
    for _ in range(3):  # refined twice: normal equations lose digits
        residual = residual - F @ torch.cholesky_solve(F.mT @ residual, factor)
    limit = 1e3 * torch.finfo(y.dtype).eps
    return (residual.squeeze(-1).abs().amax(dim=-1) < limit) & (info == 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Surrogate(Indexed):
    """Kriging models conditioned on data."""

    data: Standardised
    scaling: Scaling
    hyperparameters: Hyperparameters
    factors: Factorisation
    variance: Float[Tensor, "*batch"]
    """Process variance in standardised units."""
    is_linear: Bool[Tensor, "*batch"]
    """Whether the trend is linear; False where it was asked for but rows were too few."""
    jitter: Float[Tensor, "*batch"]
    """What had to be added to the diagonal of C to factorise it, relative to sigma^2."""

    def mean(self, Xq: Float[Tensor, "*#batch q d"]) -> Float[Tensor, "*batch q"]:
        """Predict means at points of the unit cube, in the objective's units."""
        k, f = self._cross(Xq)
        return self._mean(k, f)

    def trend(self, Xq: Float[Tensor, "*#batch q d"]) -> Float[Tensor, "*batch q"]:
        """Return the estimated trend alone, in the objective's units."""
        f = self._basis(self.scaling.inputs(Xq))
        return self._unscale((f @ self.factors.beta.unsqueeze(-1)).squeeze(-1))

    def predict(
        self, Xq: Float[Tensor, "*#batch q d"]
    ) -> tuple[Float[Tensor, "*batch q"], Float[Tensor, "*batch q"]]:
        """Predict means and variances at points of the unit cube.

        The variance of the trend is included, as in DACE:
        s^2 = sigma^2 (1 - k'C^-1k + u'(F'C^-1F)^-1u) with u = F'C^-1k - f.

        Returns:
            Means, in the objective's units, and variances in squared units, >= 0.
        """
        k, f = self._cross(Xq)
        v, w = self._whiten(k, f)
        variance = 1.0 - v.square().sum(dim=-2) + w.square().sum(dim=-2)
        mean = self._mean(k, f)
        return mean, variance.clamp_min(0.0) * self._unit_variance.unsqueeze(-1)

    def predict_joint(
        self, Xq: Float[Tensor, "*#batch q d"]
    ) -> tuple[Float[Tensor, "*batch q"], Float[Tensor, "*batch q q"]]:
        """Predict means and the covariance matrix over all q points."""
        k, f = self._cross(Xq)
        v, w = self._whiten(k, f)
        X = self.scaling.inputs(Xq)
        prior = self.hyperparameters.correlate(X, X)
        covariance = (prior - v.mT @ v + w.mT @ w) * self._unit_variance[..., None, None]
        return self._mean(k, f), covariance

    @property
    def _unit_variance(self) -> Tensor:
        return self.variance * self.scaling.y_scale.square()

    def _cross(self, Xq: Tensor) -> tuple[Tensor, Tensor]:
        """Return correlations with the training rows `q x n`, and the trend basis `q x t`."""
        X = self.scaling.inputs(Xq)
        k = self.hyperparameters.correlate(X, self.data.X)
        k = k * self.data.live.to(k).unsqueeze(-2)
        return k, self._basis(X)

    def _basis(self, X: Tensor) -> Tensor:
        """Return the trend basis `q x t` at scaled points."""
        return torch.cat([torch.ones_like(X[..., :1]), X * self.is_linear[..., None, None]], dim=-1)

    def _mean(self, k: Tensor, f: Tensor) -> Tensor:
        weights = self.factors.a.unsqueeze(-1)
        return self._unscale((f @ self.factors.beta.unsqueeze(-1) + k @ weights).squeeze(-1))

    def _unscale(self, mean: Tensor) -> Tensor:
        y_scale, y_shift = self.scaling.y_scale.unsqueeze(-1), self.scaling.y_shift.unsqueeze(-1)
        return mean * y_scale + y_shift

    def _whiten(self, k: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return v = L^-1 k (`n x q`) and w = chol(F'C^-1F)^-1 u (`t x q`)."""
        v = torch.linalg.solve_triangular(self.factors.L, k.mT, upper=False)
        u = (k @ self.factors.CiF - f).mT
        w = torch.linalg.solve_triangular(self.factors.FCiF_chol, u, upper=False)
        return v, w


def condition(
    data: Standardised, scaling: Scaling, hyperparameters: Hyperparameters, *, nugget: float
) -> Surrogate:
    """Factorise once, with jitter where it must be, and bundle all that predictions need.

    Args:
        data: Training data.
        scaling: Their scale.
        hyperparameters: Of each model.
        nugget: Added to the diagonal of R, unless the hyper-parameters hold nuggets.

    Raises:
        FitError: If even the largest jitter does not make C positive definite.
    """
    surrogate = try_condition(data, scaling, hyperparameters, nugget=nugget)
    if bool(surrogate.factors.failed.any()):
        theta = hyperparameters.theta
        raise FitError(
            f"the correlation matrix is not positive definite, even with {JITTERS[-1]:g} added "
            f"to its diagonal; theta ranges from {theta.min():.3g} to {theta.max():.3g}"
        )
    return surrogate


def try_condition(
    data: Standardised, scaling: Scaling, hyperparameters: Hyperparameters, *, nugget: float
) -> Surrogate:
    """As `condition`, but mark in `factors.failed` the members that cannot be factorised."""
    n = count(data)
    given = hyperparameters.variance
    variance = None if given is None else given / scaling.y_scale.square()
    diagonal = torch.full_like(data.noise, nugget)
    if hyperparameters.nugget is not None:
        diagonal = hyperparameters.nugget.unsqueeze(-1).expand_as(data.noise)
    if variance is not None:
        diagonal = diagonal + data.noise / variance.unsqueeze(-1)

    jitter = torch.zeros_like(n)
    theta, p = hyperparameters.theta, hyperparameters.p
    kind: Any = {"kernel": hyperparameters.kernel, "amplitudes": hyperparameters.amplitudes}
    factors = factorise(data, theta, p, diagonal, **kind)
    for size in JITTERS:
        if not bool(factors.failed.any()):
            break
        jitter = torch.where(factors.failed, size, jitter)
        factors = factorise(data, theta, p, diagonal + jitter.unsqueeze(-1), **kind)
    if variance is None:
        variance = closed_form_variance(factors.quadratic, n)
    return Surrogate(
        data=data,
        scaling=scaling,
        hyperparameters=replace(hyperparameters, variance=variance * scaling.y_scale.square()),
        factors=factors,
        variance=variance,
        is_linear=(data.F[..., 1:] != 0).any(dim=-1).any(dim=-1),
        jitter=jitter,
    )
