"""Quadratic regression in place of GP_c: the paper's ablation TC-SAEAp.

The degree is not stated in the paper. Here it is a full quadratic where there are at
least 1.5 rows for each of its coefficients, else a quadratic without mixed terms.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.surrogate import scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Float, Tensor

_ROWS_PER_COEFFICIENT = 1.5
_RIDGE = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Quadratic:
    """A fitted quadratic for each batch member; predicts like a surrogate's mean."""

    coefficients: Float[Tensor, "*batch c"]
    """For 1, x_k, x_k^2 and x_k x_l (k < l), of standardised inputs; 0 where not used."""
    x_shift: Float[Tensor, "*batch d"]
    x_scale: Float[Tensor, "*batch d"]
    y_shift: Float[Tensor, "*batch"]
    y_scale: Float[Tensor, "*batch"]

    def mean(self, Xq: Float[Tensor, "*#batch q d"]) -> Float[Tensor, "*batch q"]:
        """Predict at points of the unit cube, in the objective's units."""
        X = (Xq - self.x_shift.unsqueeze(-2)) / self.x_scale.unsqueeze(-2)
        value = (_features(X) @ self.coefficients.unsqueeze(-1)).squeeze(-1)
        return value * self.y_scale.unsqueeze(-1) + self.y_shift.unsqueeze(-1)


def fit_quadratic(train: TrainingSet) -> Quadratic:
    """Fit by least squares with a tiny ridge of 1e-6 on standardised data.

    Args:
        train: Training sets without duplicates.
    """
    no_trend = torch.zeros_like(train.n_live, dtype=torch.bool)
    data, scaling = scale(train, trend=no_trend, input_scaling="standardize")
    d, n = train.X.shape[-1], train.n_live
    features = _features(data.X) * data.live.to(data.X).unsqueeze(-1)
    n_coefficients = features.shape[-1]
    is_full = n >= _ROWS_PER_COEFFICIENT * n_coefficients
    is_mixed = torch.arange(n_coefficients, device=n.device) >= 2 * d + 1
    used = is_full.unsqueeze(-1) | ~is_mixed
    features = features * used.to(features).unsqueeze(-2)
    normal = features.mT @ features
    normal.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
    factor, _ = torch.linalg.cholesky_ex(normal)
    rhs = features.mT @ data.y.unsqueeze(-1)
    return Quadratic(
        coefficients=torch.cholesky_solve(rhs, factor).squeeze(-1) * used,
        x_shift=scaling.x_shift,
        x_scale=scaling.x_scale,
        y_shift=scaling.y_shift,
        y_scale=scaling.y_scale,
    )


def _features(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n c"]:
    first, second = torch.triu_indices(X.shape[-1], X.shape[-1], 1, device=X.device)
    mixed = X[..., first] * X[..., second]
    return torch.cat([torch.ones_like(X[..., :1]), X, X.square(), mixed], dim=-1)
