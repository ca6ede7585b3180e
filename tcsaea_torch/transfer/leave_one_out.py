"""What Kriging predicts of each training row from all others, in closed form.

With B = C^-1 - C^-1 F (F'C^-1F)^-1 F'C^-1, the error at row i is (B y)_i / B_ii and the
variance sigma^2 / B_ii, hyper-parameters kept and the trend estimated anew [Dubrule1983].

[Dubrule1983] O. Dubrule. Cross validation of Kriging in a unique neighborhood.
Mathematical Geology 15(6), 1983.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.types import Float, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class LeaveOneOut(Indexed):
    """Predictions of training rows, each without its own value."""

    mean: Float[Tensor, "*batch n"]
    """In the objective's units."""
    variance: Float[Tensor, "*batch n"]
    """Of the value, its nugget included; in squared units."""


def leave_one_out(surrogate: Surrogate) -> LeaveOneOut:
    """Predict all training rows of conditioned models; rows that do not exist hold no meaning."""
    factors, scaling = surrogate.factors, surrogate.scaling
    eye = torch.eye(factors.L.shape[-1], dtype=factors.L.dtype, device=factors.L.device)
    inverse = torch.linalg.solve_triangular(factors.L, eye, upper=False)
    trend = torch.linalg.solve_triangular(factors.FCiF_chol, factors.CiF.mT, upper=False)
    diagonal = inverse.square().sum(dim=-2) - trend.square().sum(dim=-2)
    diagonal = diagonal.clamp_min(torch.finfo(diagonal.dtype).eps)
    y_scale, y_shift = scaling.y_scale.unsqueeze(-1), scaling.y_shift.unsqueeze(-1)
    variance = (surrogate.variance * scaling.y_scale.square()).unsqueeze(-1) / diagonal
    mean = (surrogate.data.y - factors.a / diagonal) * y_scale + y_shift
    return LeaveOneOut(mean=mean, variance=variance)
