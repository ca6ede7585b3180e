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

from dataclasses import dataclass
from typing import Any

import torch

from tcsaea_torch.correlations import KernelName, correlations
from tcsaea_torch.models.bundles import Indexed, map_tensors
from tcsaea_torch.models.correlation import (
    Additive,
    Backward,
    Correlation,
    Matern52,
    Powered,
    Squared,
)
from tcsaea_torch.types import Bool, Float, Tensor


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


def factorise(
    data: Standardised,
    theta: Float[Tensor, "*batch d"],
    p: Float[Tensor, "*batch d"] | None,
    diagonal: Float[Tensor, "*batch n"],
    *,
    kernel: KernelName = "power-exponential",
    amplitudes: Float[Tensor, "*batch d1"] | None = None,
) -> Factorisation:
    """Factorise C for given hyper-parameters.

    Args:
        data: Training data.
        theta: Factor of |d|^p for each dimension.
        p: Powers; None means 2.
        diagonal: What is added to the diagonal of R: nugget plus relative noise.
        kernel: Which correlation; "matern-5/2" has no p.
        amplitudes: Those of "additive".
    """
    live = data.live.to(data.X)
    C = correlations(data.X, data.X, theta, p, kernel=kernel, amplitudes=amplitudes)
    C = C * (live.unsqueeze(-1) * live.unsqueeze(-2))
    C.diagonal(dim1=-2, dim2=-1).copy_(1.0 + diagonal * live)
    L, info = torch.linalg.cholesky_ex(C)
    failed = info > 0
    # A failed factor may hold zeros or NaN on its diagonal: solve with 1 instead.
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    L = torch.where(failed[..., None, None], eye, L)
    rhs = torch.cat([data.F, data.y.unsqueeze(-1)], dim=-1)
    solved = torch.cholesky_solve(rhs, L)
    trend = _regress(rhs, solved, absent_columns(data.F))
    a = torch.where(data.is_exact.unsqueeze(-1), 0.0, trend.a)
    return Factorisation(
        L=L,
        failed=failed | trend.failed,
        CiF=solved[..., :-1],
        FCiF_chol=trend.FCiF_chol,
        beta=trend.beta,
        a=a,
        quadratic=(trend.e * a).sum(dim=-1),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trend:
    """Generalised least squares: `Factorisation` explains the names."""

    FCiF_chol: Float[Tensor, "*batch t t"]
    failed: Bool[Tensor, "*batch"]
    beta: Float[Tensor, "*batch t"]
    e: Float[Tensor, "*batch n"]
    a: Float[Tensor, "*batch n"]


def _regress(
    rhs: Float[Tensor, "*batch n t1"],
    solved: Float[Tensor, "*batch n t1"],
    absent: Float[Tensor, "*batch t"],
) -> _Trend:
    """Estimate the trend from [F, y] and C^-1 [F, y]."""
    moments = rhs[..., :-1].mT @ solved
    FCiF, FCiy = moments[..., :-1], moments[..., -1:]
    FCiF.diagonal(dim1=-2, dim2=-1).add_(absent)
    factor, info = torch.linalg.cholesky_ex(FCiF)
    beta = torch.cholesky_solve(FCiy, factor)
    combination = torch.cat([-beta, torch.ones_like(beta[..., :1, :])], dim=-2)
    return _Trend(
        FCiF_chol=factor,
        failed=info > 0,
        beta=beta.squeeze(-1),
        e=(rhs @ combination).squeeze(-1),
        a=(solved @ combination).squeeze(-1),
    )


def absent_columns(F: Float[Tensor, "*batch n t"]) -> Float[Tensor, "*batch t"]:
    """Return 1 for columns without a row in them: F'C^-1F gets a unit diagonal there."""
    return (F == 0).all(dim=-2).to(F)


def count(data: Standardised) -> Float[Tensor, "*batch"]:
    """Return the number of living rows, at least 1."""
    return data.live.sum(dim=-1).clamp_min(1).to(data.y)


def closed_form_variance(
    quadratic: Float[Tensor, "*batch"], n: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return sigma^2 = e'C^-1e / n, kept positive for constant outputs."""
    return (quadratic / n).clamp_min(torch.finfo(n.dtype).tiny ** 0.5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Likelihood:
    """Negative log-likelihood per living row, and its gradient."""

    value: Float[Tensor, "*batch"]
    """NLL / n without the constant ln(2 pi) / 2; inf where C is not positive definite."""
    d_log_theta: Float[Tensor, "*batch d"]
    """Derivative with respect to ln theta."""
    d_p: Float[Tensor, "*batch d"] | None
    """Derivative with respect to p, if it was given and "additive" does not hold it fixed."""
    d_log_variance: Float[Tensor, "*batch"] | None
    """Derivative with respect to ln sigma^2, if it was given."""
    d_log_amplitudes: Float[Tensor, "*batch d1"] | None = None
    """Derivative with respect to ln a_1, ..., ln a_d and ln w, if they were given."""
    d_log_nugget: Float[Tensor, "*batch"] | None = None
    """Derivative with respect to the logarithm of the nugget, if it was given."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared(Indexed):
    """What all evaluations of the likelihoods of b models share."""

    correlation: Correlation
    diagonal: Float[Tensor, "b n"]
    """1 + nugget; 1 where the row does not exist."""
    live: Float[Tensor, "b n"]
    """1 where the row exists, else 0."""
    noise: Float[Tensor, "b n"]
    """Noise variances in standardised units; 0 where the row does not exist."""
    rhs: Float[Tensor, "b n t1"]
    """Trend basis and outputs, [F, y]."""
    absent: Float[Tensor, "b t"]
    """1 for trend columns that do not exist."""
    n: Float[Tensor, " b"]
    """Number of living rows, at least 1."""
    is_exact: Bool[Tensor, " b"]


def prepare(
    data: Standardised,
    nugget: float,
    *,
    p: Float[Tensor, "b d"] | None,
    kernel: KernelName = "power-exponential",
) -> Prepared:
    """Prepare evaluations for b models.

    Args:
        data: Training data, `b x n`.
        nugget: Added to the diagonal of R; 0 where `evaluate` will be given nuggets.
        p: Powers, of which "additive" keeps the values; "power-exponential" only needs to know
            whether `evaluate` will be given some. None means 2 throughout.
        kernel: Which correlation; "matern-5/2" has no powers.
    """
    live = data.live.to(data.X)
    if kernel == "power-exponential":
        correlation = (Squared if p is None else Powered).of(data.X, data.live)
    elif kernel == "additive":
        correlation = Additive.of(data.X, data.live, p)
    else:
        correlation = Matern52.of(data.X, data.live)
    return Prepared(
        correlation=correlation,
        diagonal=1.0 + nugget * live,
        live=live,
        noise=data.noise,
        rhs=torch.cat([data.F, data.y.unsqueeze(-1)], dim=-1),
        absent=absent_columns(data.F),
        n=count(data),
        is_exact=data.is_exact,
    )


def evaluate(
    prepared: Prepared,
    log_theta: Float[Tensor, "b d"],
    p: Float[Tensor, "b d"] | None,
    log_variance: Float[Tensor, " b"] | None,
    *,
    log_amplitudes: Float[Tensor, "b d1"] | None = None,
    log_nugget: Float[Tensor, " b"] | None = None,
) -> Likelihood:
    """Evaluate the likelihoods and their gradients without autograd.

    Args:
        prepared: Of b models.
        log_theta: Natural logarithms of theta.
        p: Powers; None means 2 throughout. Those of "additive" are in `prepared`.
        log_variance: ln sigma^2 in standardised units; None concentrates it out,
            which is exact only while all noise is 0.
        log_amplitudes: Logarithms of the amplitudes of "additive".
        log_nugget: Logarithms of nuggets, added to the prepared one.
    """
    theta, n, rhs = log_theta.exp(), prepared.n, prepared.rhs
    R, backward = _correlate(prepared.correlation, theta, p, log_amplitudes)
    relative, nugget, diagonal = None, None, prepared.diagonal
    if log_nugget is not None:
        nugget = log_nugget.exp().unsqueeze(-1) * prepared.live
        diagonal = diagonal + nugget
    if log_variance is not None:
        relative = prepared.noise / log_variance.exp().unsqueeze(-1)
        diagonal = diagonal + relative
    R.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
    L, info = torch.linalg.cholesky_ex(R)
    # A failed factor may have zeros on its diagonal, which the inverse refuses.
    roots = torch.where((info > 0).unsqueeze(-1), 1.0, L.diagonal(dim1=-2, dim2=-1))
    L.diagonal(dim1=-2, dim2=-1).copy_(roots)
    Ci = torch.cholesky_inverse(L).mT  # symmetric; its rows are contiguous now, as those of R
    trend = _regress(rhs, Ci @ rhs, prepared.absent)
    quadratic = (trend.e * trend.a).sum(dim=-1)

    log_det = 2.0 * roots.log().sum(dim=-1)
    if log_variance is None:
        variance = closed_form_variance(quadratic, n)
        value = 0.5 * (variance.log() + log_det / n + 1.0)
    else:
        variance = log_variance.exp()
        value = 0.5 * (log_variance + (log_det + quadratic / variance) / n)
    failed = (info > 0) | trend.failed | value.isnan()
    bad = failed | prepared.is_exact | value.isinf()

    a = trend.a.unsqueeze(-1)
    W = Ci.addcmul_(a / variance[:, None, None], a.mT, value=-1.0)
    d_log_variance = None
    if relative is not None:
        # dC / d ln sigma^2 is -diag(noise / sigma^2); the explicit terms make up the rest.
        trace = (W.diagonal(dim1=-2, dim2=-1) * relative).sum(dim=-1)
        d_log_variance = 0.5 - 0.5 * (quadratic / variance + trace) / n
        d_log_variance = torch.where(bad, 0.0, d_log_variance)
    d_log_nugget = None
    if nugget is not None:
        trace = (W.diagonal(dim1=-2, dim2=-1) * nugget).sum(dim=-1)
        d_log_nugget = torch.where(bad, 0.0, 0.5 * trace / n)
    d_theta, d_other = backward(W)
    none, n = bad.unsqueeze(-1), n.unsqueeze(-1)
    d_other = None if d_other is None else torch.where(none, 0.0, d_other / n)
    return Likelihood(
        # An exact trend leaves rounding errors to fit: call every theta equally good instead.
        value=torch.where(failed, torch.inf, torch.where(prepared.is_exact, 0.0, value)),
        d_log_theta=torch.where(none, 0.0, d_theta * theta / n),
        d_p=d_other if log_amplitudes is None else None,
        d_log_variance=d_log_variance,
        d_log_amplitudes=None if log_amplitudes is None else d_other,
        d_log_nugget=d_log_nugget,
    )


def _correlate(
    correlation: Correlation, theta: Tensor, p: Tensor | None, log_amplitudes: Tensor | None
) -> tuple[Tensor, Backward]:
    """Return R, and what turns dL/dR into derivatives of L."""
    if isinstance(correlation, Squared):
        return correlation.correlate(theta)
    if isinstance(correlation, Additive):
        assert log_amplitudes is not None
        return correlation.correlate(theta, log_amplitudes.exp())
    assert p is not None
    return correlation.correlate(theta, p)


def negative_log_likelihood(
    data: Standardised,
    log_theta: Float[Tensor, "*batch d"],
    p: Float[Tensor, "*batch d"] | None,
    log_variance: Float[Tensor, "*batch"] | None,
    nugget: float,
    *,
    kernel: KernelName = "power-exponential",
    log_amplitudes: Float[Tensor, "*batch d1"] | None = None,
    log_nugget: Float[Tensor, "*batch"] | None = None,
) -> Likelihood:
    """Evaluate once; see `evaluate` for the arguments, `prepare` for nugget and kernel."""
    batch = data.y.shape[:-1]

    def flat(value: Any) -> Any:
        return map_tensors(value, lambda t: t.reshape(-1, *t.shape[len(batch) :]))

    prepared = prepare(flat(data), nugget, p=flat(p), kernel=kernel)
    found = evaluate(
        prepared,
        flat(log_theta),
        flat(p),
        flat(log_variance),
        log_amplitudes=flat(log_amplitudes),
        log_nugget=flat(log_nugget),
    )
    return map_tensors(found, lambda t: t.reshape(batch + t.shape[1:]))
