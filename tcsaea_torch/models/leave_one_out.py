"""Leave-one-out predictions of Kriging in closed form, and how well they do.

With Q = C^-1 - C^-1 F (F'C^-1 F)^-1 F'C^-1, the model without row i errs there by
(Q y)_i / Q_ii = (C^-1 e)_i / Q_ii, with variance sigma^2 / Q_ii: the trend is estimated
without the row too [Dubrule1983]. Hyper-parameters and sigma^2 stay as they are.

[Dubrule1983] O. Dubrule. Cross validation of kriging in a unique neighborhood. Mathematical
Geology 15(6), 1983.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.likelihood import count
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.types import Bool, Float, Tensor

_SMALLEST_ERROR = 1e-6
"""Errors below this share of the values' spread are equally good."""
_LARGEST_FACTOR = 100.0


@dataclass(frozen=True, kw_only=True, eq=False)
class LeaveOneOut(Indexed):
    """What models would have predicted at each of their rows without this row.

    Rows that do not exist, and those without which the trend could not be estimated, have
    error 0 and variance inf.
    """

    error: Float[Tensor, "*batch n"]
    """The row's value minus its prediction, in the objective's units."""
    variance: Float[Tensor, "*batch n"]
    """Variance of the error, squared units: of the prediction, and of the row's own noise and
    nugget."""


def leave_one_out(surrogate: Surrogate) -> LeaveOneOut:
    """Return the leave-one-out errors of conditioned models; O(n^3), as conditioning."""
    factors, live = surrogate.factors, surrogate.data.live
    n = factors.L.shape[-1]
    u = torch.linalg.solve_triangular(factors.FCiF_chol, factors.CiF.mT, upper=False)
    precision = torch.cholesky_inverse(factors.L).diagonal(dim1=-2, dim2=-1)
    left = precision - u.square().sum(dim=-2)
    is_known = live & (left > 8 * n * torch.finfo(left.dtype).eps * precision)
    left = torch.where(is_known, left, 1.0)
    unit = surrogate.scaling.y_scale.unsqueeze(-1)
    variance = surrogate.variance.unsqueeze(-1) * unit.square() / left
    return LeaveOneOut(
        error=torch.where(is_known, factors.a * unit / left, 0.0),
        variance=variance.masked_fill(~is_known, torch.inf),
    )


def log_predictive_density(
    surrogate: Surrogate, is_space: Bool[Tensor, "*batch n"] | None = None
) -> Float[Tensor, "*batch"]:
    """Return the mean log density of the rows' values, each predicted without its row.

    Densities are of standardised values.

    Args:
        surrogate: Conditioned models.
        is_space: Rows that fill the space. The result is then the mean over these plus the mean
            over the others, so that many rows near an optimum do not outvote the rest.
    """
    found = leave_one_out(surrogate)
    is_known = found.variance < torch.inf
    unit = surrogate.scaling.y_scale.unsqueeze(-1)
    variance = torch.where(is_known, found.variance / unit.square(), 1.0)
    error = found.error / unit
    density = -0.5 * (variance.log() + error.square() / variance + math.log(2.0 * math.pi))
    return _mean_of_groups(density, is_known, is_space)


def mean_log_error(
    surrogate: Surrogate, is_space: Bool[Tensor, "*batch n"] | None = None
) -> Float[Tensor, "*batch"]:
    """Return minus the mean logarithm of the rows' errors, each predicted without its row.

    Unlike a density it asks nothing of the variances, which `variance_factor` can mend, and
    a few rows that no model foresees hardly count. Errors are of standardised values.

    Args:
        surrogate: Conditioned models.
        is_space: As in `log_predictive_density`.
    """
    found = leave_one_out(surrogate)
    unit = surrogate.scaling.y_scale.unsqueeze(-1)
    size = (found.error.abs() / unit).clamp_min(_SMALLEST_ERROR)
    return _mean_of_groups(-size.log(), found.variance < torch.inf, is_space)


def variance_factor(surrogate: Surrogate) -> Float[Tensor, "*batch"]:
    """Return by what variances must be multiplied to agree with leave-one-out errors.

    The mean square of the errors in units of their standard deviations; at least 1, since
    hyper-parameters have seen all rows, and at most 100.
    """
    found = leave_one_out(surrogate)
    is_known = found.variance < torch.inf
    squares = torch.where(is_known, found.error.square() / found.variance, 0.0)
    mean = squares.sum(dim=-1) / is_known.sum(dim=-1).clamp_min(1)
    return mean.clamp(1.0, _LARGEST_FACTOR)


def _mean_of_groups(values: Tensor, is_known: Tensor, is_space: Tensor | None) -> Tensor:
    """Return the mean over all known rows, or the sum of those of two groups."""
    groups = [is_known] if is_space is None else [is_known & is_space, is_known & ~is_space]
    means = ((values * rows).sum(dim=-1) / rows.sum(dim=-1).clamp_min(1) for rows in groups)
    total = next(means)
    for mean in means:
        total = total + mean
    return total


def log_evidence(surrogate: Surrogate) -> Float[Tensor, "*batch"]:
    """Return the log likelihood per row of the standardised values."""
    n, factors = count(surrogate.data), surrogate.factors
    log_det = 2.0 * factors.L.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    misfit = factors.quadratic / surrogate.variance
    total = n * (surrogate.variance.log() + math.log(2.0 * math.pi)) + log_det + misfit
    return -0.5 * total / n
