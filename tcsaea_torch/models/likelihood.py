"""The concentrated likelihood of Kriging, with its gradient in closed form.

Notation, for one batch member:

    X: n x d    inputs, scaled           theta, p: d   of the correlation r
    y: n        outputs, standardised    F: n x t      trend basis (1, or 1 and X)
    C = R + diag(nugget + noise / sigma^2),  R_ij = r(x_i, x_j)
    beta = (F'C^-1F)^-1 F'C^-1y,  e = y - F beta,  a = C^-1 e

    NLL = (n ln sigma^2 + ln det C + e'a / sigma^2) / 2,   sigma^2 = e'a / n if free

With W = C^-1 - aa' / sigma^2, dNLL = sum_ij W_ij dC_ij / 2 [Lophaven2002; Rasmussen2006].
Rows and trend columns that do not exist have a unit diagonal in C and F'C^-1F, zeros
elsewhere, and no share in n: they are absent exactly.

[Rasmussen2006] C. E. Rasmussen, C. K. I. Williams. Gaussian processes for machine
learning. MIT Press, 2006.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import torch

from tcsaea_torch.kernels import power, power_exponential
from tcsaea_torch.types import Bool, Float, Tensor

_T = TypeVar("_T", bound="Indexed")


class Indexed:
    """Gives a dataclass of tensors indexing along their common leading dimension."""

    def __getitem__(self: _T, index: Tensor | int | slice) -> _T:
        """Return the selected batch members."""
        bundle: Any = self
        values = {f.name: getattr(self, f.name) for f in fields(bundle)}
        return type(self)(**{k: v if v is None else v[index] for k, v in values.items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class Standardised(Indexed):
    """Training data in the scale in which a surrogate is fitted."""

    X: Float[Tensor, "*batch n d"]
    """Scaled inputs; 0 where the row does not exist."""
    y: Float[Tensor, "*batch n"]
    """Standardised outputs; 0 where the row does not exist."""
    F: Float[Tensor, "*batch n t"]
    """Trend basis; 0 where the row or the column does not exist."""
    noise: Float[Tensor, "*batch n"]
    """Noise variances in standardised units; 0 where the row does not exist."""
    live: Bool[Tensor, "*batch n"]
    """Rows that exist."""
    is_exact: Bool[Tensor, "*batch"]
    """Whether the trend alone explains the outputs, up to rounding: nothing is left to fit."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Factorisation(Indexed):
    """C and all that follows from it."""

    R: Float[Tensor, "*batch n n"] | None
    """Correlations of the living rows (diagonal 1); None once it is not needed."""
    L: Float[Tensor, "*batch n n"]
    """Lower Cholesky factor of C."""
    failed: Bool[Tensor, "*batch"]
    """Whether C was not positive definite."""
    CiF: Float[Tensor, "*batch n t"]
    """C^-1 F."""
    FCiF_chol: Float[Tensor, "*batch t t"]
    """Lower Cholesky factor of F'C^-1F."""
    beta: Float[Tensor, "*batch t"]
    """Trend coefficients, by generalised least squares."""
    a: Float[Tensor, "*batch n"]
    """C^-1 (y - F beta)."""
    quadratic: Float[Tensor, "*batch"]
    """(y - F beta)' C^-1 (y - F beta)."""
    Ci: Float[Tensor, "*batch n n"] | None
    """C^-1, if asked for."""


def factorise(
    data: Standardised,
    theta: Float[Tensor, "*batch d"],
    p: Float[Tensor, "*batch d"] | None,
    diagonal: Float[Tensor, "*batch n"],
    *,
    inverse: bool = False,
) -> Factorisation:
    """Factorise C for given hyper-parameters.

    Args:
        data: Training data.
        theta: Factor of |d|^p for each dimension.
        p: Powers; None means 2.
        diagonal: What is added to the diagonal of R: nugget plus relative noise.
        inverse: Whether to form C^-1 too. The gradient needs it.
    """
    live = data.live.to(data.X)
    R = power_exponential(data.X, data.X, theta, p) * (live.unsqueeze(-1) * live.unsqueeze(-2))
    R.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    C = R.clone() if inverse else R
    C.diagonal(dim1=-2, dim2=-1).add_(diagonal * live)
    L, info = torch.linalg.cholesky_ex(C)
    failed = info > 0
    # A failed factor may hold zeros or NaN on its diagonal: solve with 1 instead.
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    L = torch.where(failed[..., None, None], eye, L)
    rhs = torch.cat([data.F, data.y.unsqueeze(-1)], dim=-1)
    Ci = torch.cholesky_inverse(L) if inverse else None
    solved = torch.cholesky_solve(rhs, L) if Ci is None else Ci @ rhs
    CiF, Ciy = solved[..., :-1], solved[..., -1]
    FCiF = data.F.mT @ CiF
    # A column without a row in it is absent: unit diagonal.
    FCiF.diagonal(dim1=-2, dim2=-1).add_((data.F == 0).all(dim=-2).to(FCiF))
    FCiF_chol, trend_info = torch.linalg.cholesky_ex(FCiF)
    beta = torch.cholesky_solve(data.F.mT @ Ciy.unsqueeze(-1), FCiF_chol).squeeze(-1)
    a = Ciy - (CiF @ beta.unsqueeze(-1)).squeeze(-1)
    a = torch.where(data.is_exact.unsqueeze(-1), 0.0, a)
    e = data.y - (data.F @ beta.unsqueeze(-1)).squeeze(-1)
    return Factorisation(
        R=R if inverse else None,
        L=L,
        failed=failed | (trend_info > 0),
        CiF=CiF,
        FCiF_chol=FCiF_chol,
        beta=beta,
        a=a,
        quadratic=(e * a).sum(dim=-1),
        Ci=Ci,
    )


def count(data: Standardised) -> Float[Tensor, "*batch"]:
    """Return the number of living rows, at least 1."""
    return data.live.sum(dim=-1).clamp_min(1).to(data.y)


def closed_form_variance(
    factors: Factorisation, n: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return sigma^2 = e'C^-1e / n, kept positive for constant outputs."""
    return (factors.quadratic / n).clamp_min(torch.finfo(n.dtype).tiny ** 0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Likelihood:
    """Negative log-likelihood per living row, and its gradient."""

    value: Float[Tensor, "*batch"]
    """NLL / n without the constant ln(2 pi) / 2; inf where C is not positive definite."""
    d_log_theta: Float[Tensor, "*batch d"]
    """Derivative with respect to ln theta."""
    d_p: Float[Tensor, "*batch d"] | None
    """Derivative with respect to p, if it was given."""
    d_log_variance: Float[Tensor, "*batch"] | None
    """Derivative with respect to ln sigma^2, if it was given."""


def negative_log_likelihood(
    data: Standardised,
    log_theta: Float[Tensor, "*batch d"],
    p: Float[Tensor, "*batch d"] | None,
    log_variance: Float[Tensor, "*batch"] | None,
    nugget: float,
) -> Likelihood:
    """Evaluate the likelihood and its gradient without autograd.

    Args:
        data: Training data.
        log_theta: Natural logarithms of theta.
        p: Powers; None means 2 throughout.
        log_variance: ln sigma^2 in standardised units; None concentrates it out,
            which is exact only while all noise is 0.
        nugget: Added to the diagonal of R.
    """
    theta = log_theta.exp()
    n = count(data)
    diagonal = torch.full_like(data.noise, nugget)
    if log_variance is not None:
        diagonal = diagonal + data.noise / log_variance.exp().unsqueeze(-1)
    factors = factorise(data, theta, p, diagonal, inverse=True)
    assert factors.Ci is not None
    assert factors.R is not None
    log_det = 2.0 * factors.L.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    if log_variance is None:
        variance = closed_form_variance(factors, n)
        value = 0.5 * (variance.log() + log_det / n + 1.0)
    else:
        variance = log_variance.exp()
        value = 0.5 * (log_variance + (log_det + factors.quadratic / variance) / n)

    scaled = factors.a / variance.sqrt().unsqueeze(-1)
    W = factors.Ci - scaled.unsqueeze(-1) * scaled.unsqueeze(-2)
    G = W * factors.R
    G.diagonal(dim1=-2, dim2=-1).zero_()  # zero distances: no share, and no rounding error
    d_log_variance = None
    if log_variance is not None:
        # dC / d ln sigma^2 is -diag(noise / sigma^2); the explicit terms make up the rest.
        relative = diagonal - nugget
        d_log_variance = 0.5 - 0.5 * factors.quadratic / (variance * n)
        W_diagonal = W.diagonal(dim1=-2, dim2=-1)
        d_log_variance = d_log_variance - 0.5 * (W_diagonal * relative).sum(dim=-1) / n
    if p is None:
        d_theta, d_p = _gradient_squared(data.X, G), None
    else:
        d_theta, d_p = _gradient_power(data.X, G, theta, p)

    def finite(gradient: Tensor, like: Tensor) -> Tensor:
        bad = factors.failed | data.is_exact | ~value.isfinite()
        return torch.where(bad.reshape(bad.shape + (1,) * (like.ndim - bad.ndim)), 0.0, gradient)

    # An exact trend leaves rounding errors to fit: call every theta equally good instead.
    value = torch.where(data.is_exact & ~factors.failed, 0.0, value)
    value_or_inf = torch.where(factors.failed | value.isnan(), torch.inf, value)
    return Likelihood(
        value=value_or_inf,
        d_log_theta=finite(d_theta * theta / n.unsqueeze(-1), theta),
        d_p=None if d_p is None else finite(d_p / n.unsqueeze(-1), theta),
        d_log_variance=None if d_log_variance is None else finite(d_log_variance, value),
    )


def _gradient_squared(X: Tensor, G: Tensor) -> Tensor:
    """Return -sum_ij G_ij (x_ik - x_jk)^2 / 2 for each k, by one GEMM.

    As G is symmetric the sum is 2 (sum_i g_i x_ik^2 - sum_i x_ik (GX)_ik), g = G1.
    """
    g = G.sum(dim=-1, keepdim=True)
    return (X * (G @ X - g * X)).sum(dim=-2)


def _gradient_power(X: Tensor, G: Tensor, theta: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives with respect to theta and p, one dimension at a time."""
    d_theta, d_p = torch.empty_like(theta), torch.empty_like(p)
    for k in range(X.shape[-1]):
        difference = (X[..., :, None, k] - X[..., None, :, k]).abs()
        GP = G * power(difference, p[..., k])
        logarithm = torch.where(difference == 0, 1.0, difference).log()
        d_theta[..., k] = -0.5 * GP.sum(dim=(-2, -1))
        d_p[..., k] = -0.5 * theta[..., k] * (GP * logarithm).sum(dim=(-2, -1))
    return d_theta, d_p
