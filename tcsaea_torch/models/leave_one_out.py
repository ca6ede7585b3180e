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
_CHI_SQUARE = {0.68: 0.98895, 0.95: 3.84146}
"""Quantiles of the square of a standard normal variable."""


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

    def log_density(
        self,
        unit: Float[Tensor, "*batch"],
        is_space: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """Return the mean log density of the rows' values, each predicted without its row.

        Args:
            unit: In which densities are meant.
            is_space: Rows that fill the space. The result is then the mean over these plus the
                mean over the others, so that many rows near an optimum do not outvote the rest.
        """
        is_known, unit = self.variance < torch.inf, unit.unsqueeze(-1)
        variance = torch.where(is_known, self.variance / unit.square(), 1.0)
        misfit = (self.error / unit).square() / variance
        density = -0.5 * (variance.log() + misfit + math.log(2.0 * math.pi))
        return _mean_of_groups(density, is_known, is_space)

    def log_accuracy(
        self,
        unit: Float[Tensor, "*batch"],
        is_space: Bool[Tensor, "*batch n"] | None = None,
    ) -> Float[Tensor, "*batch"]:
        """Return minus the mean logarithm of the errors.

        Unlike a density it asks nothing of the variances, which `variance_factor` can mend,
        and a few rows that no model foresees hardly count.

        Args:
            unit: In which errors are meant.
            is_space: As in `log_density`.
        """
        size = (self.error.abs() / unit.unsqueeze(-1)).clamp_min(_SMALLEST_ERROR)
        return _mean_of_groups(-size.log(), self.variance < torch.inf, is_space)

    def calibrated_density(self) -> Float[Tensor, "*batch"]:
        """Return the log density of the values, but for a constant, were variances mended.

        They are multiplied by `variance_factor`, so that a model that predicts well and knows
        where it does is not refused for variances that are all too small.
        """
        is_known, n = self.variance < torch.inf, (self.variance < torch.inf).sum(dim=-1)
        tiny = torch.finfo(self.variance.dtype).tiny
        logarithm = torch.where(is_known, self.variance, 1.0).clamp_min(tiny).log()
        mean = logarithm.sum(dim=-1) / n.clamp_min(1)
        return -0.5 * (mean + self.variance_factor(tiny).log())

    def variance_factor(self, smallest: float = 1.0) -> Float[Tensor, "*batch"]:
        """Return by what variances must be multiplied to agree with the errors.

        So that intervals of 68 % and of 95 % hold that many of them; a few rows that no model
        foresees do not count.

        Args:
            smallest: What it is at least.
        """
        is_known = self.variance < torch.inf
        squares = torch.where(is_known, self.error.square() / self.variance, torch.inf)
        ordered, n = squares.sort(dim=-1).values, is_known.sum(dim=-1, keepdim=True)
        factor = torch.zeros_like(squares[..., :1])
        for share, quantile in _CHI_SQUARE.items():
            place = (share * n).ceil().long().clamp_min(1) - 1
            factor = torch.maximum(factor, ordered.gather(-1, place) / quantile)
        factor = torch.where(n > 0, factor, 1.0).squeeze(-1)
        return factor.clamp_min(smallest)


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
    """Return `LeaveOneOut.log_density` of standardised values."""
    return leave_one_out(surrogate).log_density(surrogate.scaling.y_scale, is_space)


def mean_log_error(
    surrogate: Surrogate, is_space: Bool[Tensor, "*batch n"] | None = None
) -> Float[Tensor, "*batch"]:
    """Return `LeaveOneOut.log_accuracy` of standardised values."""
    return leave_one_out(surrogate).log_accuracy(surrogate.scaling.y_scale, is_space)


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
