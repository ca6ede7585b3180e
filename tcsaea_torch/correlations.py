"""Correlations, as functions of tensors.

    power-exponential:  r(x, x') = exp(-sum_k theta_k |x_k - x'_k|^p_k),   0 < p_k <= 2
    matern-5/2:         r(x, x') = (1 + s + s^2 / 3) exp(-s),   s^2 = 5 sum_k theta_k (x_k - x'_k)^2
    additive:           r(x, x') = (sum_k a_k z_k + w sum_{k<l} a_k a_l z_k z_l) / U0,
                        z_k = exp(-theta_k |x_k - x'_k|^p),   U0: the numerator at x = x'

with theta_k > 0. theta multiplies |d|^p and is not raised to p, as in DACE [Lophaven2002]
(p = 2) and in the paper's Eq. (2). The paper's "p in (0, 1)" is a misprint: the function is
positive semi-definite for p up to 2. The additive one is of second order [Duvenaud2011]: a
sum of functions of one and of two variables. It generalises from few points where a function
is such a sum, however rough each part. a and c a with w / c are the same; sum_k a_k near 1 is
the scale in which a fit looks for them.

[Duvenaud2011] D. Duvenaud, H. Nickisch, C. E. Rasmussen. Additive Gaussian processes.
Advances in Neural Information Processing Systems 24, 2011.

[Lophaven2002] S. N. Lophaven, H. B. Nielsen, J. Sondergaard. DACE: a MATLAB Kriging
toolbox. Technical University of Denmark, 2002.
"""

import math
from typing import Any, Literal

import torch

from tcsaea_torch.types import Float, Tensor

KernelName = Literal["power-exponential", "matern-5/2", "additive"]
KERNEL_NAMES: tuple[KernelName, ...] = ("power-exponential", "matern-5/2", "additive")
LOG2_E = math.log2(math.e)
"""exp(x) is 2^(x log2 e), which a CPU finds two to three times as fast."""
_BLOCK = 2**16
"""Numbers in each of the few tables that one block of correlations needs."""


def correlations(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    theta: Float[Tensor, "*#batch d"],
    p: Float[Tensor, "*#batch d"] | None = None,
    *,
    kernel: KernelName = "power-exponential",
    amplitudes: Float[Tensor, "*#batch d1"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    """Return the correlations between the rows of A and those of B by the named kernel."""
    if kernel == "power-exponential":
        return power_exponential(A, B, theta, p)
    if kernel == "matern-5/2":
        assert p is None
        return matern52(A, B, theta)
    assert amplitudes is not None
    return additive(A, B, theta, amplitudes, p)


def matern52(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    theta: Float[Tensor, "*#batch d"],
) -> Float[Tensor, "*batch n m"]:
    """Return the Matern-5/2 correlations between the rows of A and those of B.

    Args:
        A: Points.
        B: Other points; best centred near the origin (GEMM is used).
        theta: Factor of d^2 for each dimension: 1 over the squared length scale.

    Returns:
        Correlations in [0, 1], up to rounding. Gradients are finite everywhere, and 0
        at zero distance.
    """
    squares = 5.0 * weighted_distance(A, B, theta)
    is_zero = squares == 0
    # The root has no slope at 0.
    s = torch.where(is_zero, 1.0, squares).sqrt().masked_fill(is_zero, 0.0)
    return (1.0 + s + squares / 3.0) * (s * -LOG2_E).exp2()


def power_exponential(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    theta: Float[Tensor, "*#batch d"],
    p: Float[Tensor, "*#batch d"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    """Return the correlations between the rows of A and those of B.

    Args:
        A: Points.
        B: Other points; with p None, best centred near the origin (GEMM is used).
        theta: Factor of |d|^p for each dimension.
        p: Power for each dimension; None means 2 throughout, which is much faster.

    Returns:
        Correlations in [0, 1]. Gradients are finite everywhere; at zero distance
        they are 0 in the points and in p.
    """
    return weighted_distance(A, B, theta * LOG2_E, p).neg_().exp2_()


def additive(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    theta: Float[Tensor, "*#batch d"],
    amplitudes: Float[Tensor, "*#batch d1"],
    p: Float[Tensor, "*#batch d"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    """Return the additive correlations between the rows of A and those of B.

    Args:
        A: Points.
        B: Other points.
        theta: Factor of |d|^p for each dimension.
        amplitudes: a_1, ..., a_d and w, all > 0: weights of the terms of each dimension,
            and of the products of two.
        p: Power for each dimension; None means 2 throughout.

    Returns:
        Correlations in [0, 1], up to rounding. Gradients are finite everywhere, and 0 in
        the points at zero distance.
    """
    tiny = torch.finfo(theta.dtype).tiny
    a, w = amplitudes[..., :-1].clamp_min(tiny), amplitudes[..., -1, None, None]
    log_a, theta = a.log2(), theta * LOG2_E
    if p is None:
        root = theta.clamp_min(tiny).sqrt().unsqueeze(-2)
        A, B = A * root, B * root
    # In the order in which terms are summed, so that the correlation at zero distance is 1,
    # up to the last digit: powers of 2 may differ in it from place to place of a tensor.
    a = log_a.exp2()
    total = a.cumsum(dim=-1)
    products = (a[..., 1:] * total[..., :-1]).cumsum(dim=-1)[..., -1:].sum(dim=-1)
    largest = torch.addcmul(total[..., -1, None, None], products[..., None, None], w)
    log_a, rate = log_a[..., None, None], theta[..., None, None]
    parameters = rate, log_a, w, p
    if not torch.is_grad_enabled() or not any(_has_slope(t) for t in (A, B, *parameters)):
        return _additive_blocks(A, B, rate, log_a, w, p)[0].div_(largest).clamp_max_(1.0)
    if not any(_has_slope(t) for t in (B, *parameters)):
        return _InPoints.apply(A, B, rate, log_a, w, p, largest)
    R = _differentiable(A, B, rate, log_a, w, p) / largest
    return R - (R.detach() - 1.0).clamp_min_(0.0)  # to clamp R would take its slopes away


def _has_slope(t: Tensor | None) -> bool:
    return t is not None and t.requires_grad


def _differentiable(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    rate: Float[Tensor, "*#batch d 1 1"],
    log_a: Float[Tensor, "*#batch d 1 1"],
    w: Float[Tensor, "*#batch 1 1"],
    p: Float[Tensor, "*#batch d"] | None,
) -> Float[Tensor, "*batch n m"]:
    """Return the numerators of `additive`, with any gradients."""
    single = pairs = torch.zeros_like(A[..., :, None, 0] - B[..., None, :, 0])
    # One dimension at a time: n x m x d would not fit for large n.
    for k in range(A.shape[-1]):
        difference = A[..., :, None, k] - B[..., None, :, k]
        left, right = difference, difference
        if p is not None:
            left, right = rate[..., k, :, :], power(difference, p[..., k])
        term = torch.addcmul(log_a[..., k, :, :], left, right, value=-1.0).exp2_()
        pairs = torch.addcmul(pairs, single, term)
        single = single + term
    return torch.addcmul(single, pairs, w)


class _InPoints(torch.autograd.Function):
    """`additive`, with slopes in A alone: many times as fast as by autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        A: Float[Tensor, "*#batch n d"],
        B: Float[Tensor, "*#batch m d"],
        rate: Float[Tensor, "*#batch d 1 1"],
        log_a: Float[Tensor, "*#batch d 1 1"],
        w: Float[Tensor, "*#batch 1 1"],
        p: Float[Tensor, "*#batch d"] | None,
        largest: Float[Tensor, "*#batch 1 1"],
    ) -> Float[Tensor, "*batch n m"]:
        U, S = _additive_blocks(A, B, rate, log_a, w, p)
        ctx.save_for_backward(A, B, rate, log_a, w, p, largest, S)
        return (U / largest).clamp_max_(1.0)

    @staticmethod
    def backward(ctx: Any, slope: Float[Tensor, "*batch n m"]) -> tuple[Tensor | None, ...]:
        A, B, rate, log_a, w, p, largest, S = ctx.saved_tensors
        if torch.is_grad_enabled():  # slopes of slopes are wanted
            R = _differentiable(A, B, rate, log_a, w, p) / largest
            return *torch.autograd.grad(R, A, slope, create_graph=True), *[None] * 6
        # With t_k = a_k z_k and S their sum, dU / dt_k = 1 + w (S - t_k).
        share = slope / largest
        linear, square = torch.addcmul(share, share * w, S), share * w
        slopes = []
        for k in range(A.shape[-1]):
            difference = A[..., :, None, k] - B[..., None, :, k]
            if p is None:
                # Points were scaled: the rate is 1.
                term = torch.addcmul(log_a[..., k, :, :], difference, difference, value=-1.0)
                inner = difference.mul_(-2.0 / LOG2_E)
            else:
                size, power_k = difference.abs(), p[..., k, None, None]
                powered = power(difference, p[..., k])
                term = torch.addcmul(log_a[..., k, :, :], rate[..., k, :, :], powered, value=-1.0)
                # At distance 0 the slope is 0, as `power` has it.
                size = torch.where(size == 0, torch.inf, size)
                inner = powered.div_(size).mul_(difference.sign()) * rate[..., k, :, :]
                inner = inner.mul_(-power_k / LOG2_E)
            term = term.exp2_()
            slopes.append(
                torch.addcmul(linear, square, term, value=-1.0).mul_(term).mul_(inner).sum(dim=-1)
            )
        return torch.stack(slopes, dim=-1).sum_to_size(A.shape), *[None] * 6


def _additive_blocks(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    rate: Float[Tensor, "*#batch d 1 1"],
    log_a: Float[Tensor, "*#batch d 1 1"],
    w: Float[Tensor, "*#batch 1 1"],
    p: Float[Tensor, "*#batch d"] | None,
) -> tuple[Float[Tensor, "*batch n m"], Float[Tensor, "*batch n m"]]:
    """Return the numerators of `additive`, and their terms of one variable alone.

    Nothing has a gradient, and no memory is allocated on the way. Rows of A are taken in
    blocks that stay in a CPU's cache.
    """
    (n, d), m = A.shape[-2:], B.shape[-2]
    shapes = [A.shape[:-2], B.shape[:-2], rate.shape[:-3], log_a.shape[:-3], w.shape[:-2]]
    batch = torch.broadcast_shapes(*shapes, *([] if p is None else [p.shape[:-1]]))
    # Each dimension's column lies in one piece.
    left = A.expand(*batch, n, d).movedim(-1, 0).contiguous().unsqueeze(-1)
    right = B.expand(*batch, m, d).movedim(-1, 0).contiguous().unsqueeze(-2)
    # Much faster than other powers; a GPU does not wait for the host to look.
    on_cpu = p is not None and p.device.type == "cpu"
    is_one, is_root = (on_cpu and bool((p == value).all()) for value in (1.0, 1.5))
    result, singles = left.new_empty(*batch, n, m), left.new_empty(*batch, n, m)

    def terms(rows: Tensor, k: int, out: Tensor) -> Tensor:
        torch.sub(rows[k], right[k], out=out)
        factor = out
        if p is not None:
            out.abs_()
            if not is_one:
                out = out.mul_(out.sqrt()) if is_root else out.pow_(p[..., k, None, None])
            factor = rate[..., k, :, :]
        return torch.addcmul(log_a[..., k, :, :], factor, out, value=-1.0, out=out).exp2_()

    n_rows = n if A.device.type != "cpu" else max(1, _BLOCK // max(1, batch.numel() * m))
    blocks = (t.split(n_rows, dim=-2) for t in (left, result, singles))
    for rows, target, single in zip(*blocks, strict=True):
        pairs, term = torch.zeros_like(target), torch.empty_like(target)
        terms(rows, 0, single)
        for k in range(1, d):
            terms(rows, k, term)
            pairs.addcmul_(single, term)
            single.add_(term)
        torch.addcmul(single, pairs, w, out=target)
    return result, singles


def weighted_distance(
    A: Float[Tensor, "*#batch n d"],
    B: Float[Tensor, "*#batch m d"],
    theta: Float[Tensor, "*#batch d"],
    p: Float[Tensor, "*#batch d"] | None = None,
) -> Float[Tensor, "*batch n m"]:
    """Return sum_k theta_k |a_k - b_k|^p_k for all pairs of rows of A and B."""
    if p is None:
        root = theta.sqrt().unsqueeze(-2)
        A, B = A * root, B * root
        norms_a, norms_b = ((X * X).sum(dim=-1, keepdim=True) for X in (A, B))
        # |a|^2 + |b|^2 - 2ab by one GEMM. Rounding must not make it negative.
        left = torch.cat([-2.0 * A, norms_a, torch.ones_like(norms_a)], dim=-1)
        right = torch.cat([B, torch.ones_like(norms_b), norms_b], dim=-1)
        return (left @ right.mT).clamp_min(0.0)
    # One dimension at a time: n x m x d would not fit for large n.
    terms = (
        theta[..., k, None, None] * power(A[..., :, None, k] - B[..., None, :, k], p[..., k])
        for k in range(A.shape[-1])
    )
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def power(difference: Tensor, p: Tensor) -> Tensor:
    """Return |difference|^p with gradients that are 0, never NaN, where it is 0."""
    size = difference.abs()
    is_zero = size == 0
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, size) ** p[..., None, None])
