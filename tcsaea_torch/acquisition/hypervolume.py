"""Exact expected hypervolume improvement (EHVI) of two minimised objectives.

The region between a front and the reference point falls into strips of the first
objective: strip i from edge b_i to b_(i+1), free of points below the height h_i. A value
y improves there by the area (b_(i+1) - max(b_i, y_1))^+ (h_i - y_2)^+. With independent
normal predictions its expectation is a product, and over all strips [Emmerich2011]

    EHVI = sum_i (EI_1(b_(i+1)) - EI_1(b_i)) EI_2(h_i),
    EI(b) = E (b - y)^+ = (b - m) Phi(z) + s phi(z),   z = (b - m) / s,

in O(n) for n points and any number of candidates at once. Values that cannot fall below
a known bound l are predicted as max(y, l): then EI(b) - EI(l) stands for EI(b).

[Emmerich2011] M. Emmerich, A. Deutz, J. W. Klinkenberg. Hypervolume-based expected
improvement: monotonicity properties and exact computation. CEC 2011.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.types import Bool, Float, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Strips:
    """What lies between `*batch` fronts and their reference points."""

    edges: Float[Tensor, "*batch k"]
    """b_1 to b_k in the first objective; b_0 is minus infinity."""
    heights: Float[Tensor, "*batch k"]
    """h_0 to h_(k-1) in the second objective."""

    @classmethod
    def between(
        cls,
        Y: Float[Tensor, "*batch n 2"],
        alive: Bool[Tensor, "*batch n"],
        ref_point: Float[Tensor, "*#batch 2"],
    ) -> "Strips":
        """Divide what points leave free below the reference point.

        Points may be dominated, or lie beyond the reference point; they leave strips of
        no width or of their neighbour's height.

        Args:
            Y: Points, of which those count that are `alive`.
            alive: Which are.
            ref_point: Reference points.
        """
        right, top = ref_point.expand(*Y.shape[:-2], 2).unsqueeze(-2).unbind(dim=-1)
        first = torch.where(alive, Y[..., 0], torch.inf)
        order = first.argsort(dim=-1)
        second = torch.where(alive, Y[..., 1], torch.inf).gather(-1, order)
        edges = torch.minimum(first.gather(-1, order), right)
        heights = torch.cat([top, second], dim=-1).cummin(dim=-1).values
        return cls(edges=torch.cat([edges, right], dim=-1), heights=heights)


def ehvi(
    mean: Float[Tensor, "*batch k 2"],
    sd: Float[Tensor, "*batch k 2"],
    strips: Strips,
    lower_bound: Float[Tensor, "*#batch 2"] | None = None,
) -> Float[Tensor, "*batch k"]:
    """Return the EHVI of k candidates.

    Args:
        mean: Predicted means.
        sd: Predicted standard deviations; 0 gives the improvement itself.
        strips: The free strips of each batch member.
        lower_bound: What no value falls below; None: nothing is known.
    """
    low = _bounds(mean, lower_bound)
    m1, m2 = (mean[..., j : j + 1] for j in (0, 1))
    s1, s2 = (sd[..., j : j + 1] for j in (0, 1))
    gain = _improvement(m1, s1, strips.edges.unsqueeze(-2), low[0])
    width = gain.diff(dim=-1, prepend=torch.zeros_like(gain[..., :1]))
    height = _improvement(m2, s2, strips.heights.unsqueeze(-2), low[1])
    return (width.clamp_min(0.0) * height).sum(dim=-1)


def log_ehvi(
    mean: Float[Tensor, "*batch k 2"],
    sd: Float[Tensor, "*batch k 2"],
    strips: Strips,
    lower_bound: Float[Tensor, "*#batch 2"] | None = None,
) -> Float[Tensor, "*batch k"]:
    """Return the logarithm of `ehvi`, which does not underflow; sd must be > 0."""
    low = _bounds(mean, lower_bound)
    m1, m2 = (mean[..., j : j + 1] for j in (0, 1))
    s1, s2 = (sd[..., j : j + 1] for j in (0, 1))
    gain = _log_improvement(m1, s1, strips.edges.unsqueeze(-2), low[0])
    before = torch.cat([torch.full_like(gain[..., :1], -torch.inf), gain[..., :-1]], dim=-1)
    width = _log_difference(gain, before)
    height = _log_improvement(m2, s2, strips.heights.unsqueeze(-2), low[1])
    return (width + height).logsumexp(dim=-1)


def _bounds(mean: Tensor, lower_bound: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    if lower_bound is None:
        return None, None
    low = lower_bound.unsqueeze(-2).expand(*mean.shape[:-2], 1, 2)
    return low[..., :1], low[..., 1:]


def _improvement(m: Tensor, s: Tensor, b: Tensor, low: Tensor | None) -> Tensor:
    """Return E (b - max(y, low))^+."""
    gain = _expected(m, s, b)
    return gain if low is None else (gain - _expected(m, s, low)).masked_fill(b <= low, 0.0)


def _expected(m: Tensor, s: Tensor, b: Tensor) -> Tensor:
    z = (b - m) / torch.where(s > 0, s, 1.0)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2.0 * math.pi)
    smooth = s * (density + z * torch.special.ndtr(z))
    return torch.where(s > 0, smooth, b - m).clamp_min(0.0)


def _log_improvement(m: Tensor, s: Tensor, b: Tensor, low: Tensor | None) -> Tensor:
    gain = s.log() + _log_h((b - m) / s)
    if low is None:
        return gain
    below = s.log() + _log_h((low - m) / s)
    return _log_difference(gain, torch.minimum(below, gain))


def _log_h(z: Tensor) -> Tensor:
    """Return log(phi(z) + z Phi(z)) without cancellation or underflow [Ament2023].

    [Ament2023] S. Ament et al. Unexpected improvements to expected improvement for
    Bayesian optimization. NeurIPS 2023.
    """
    near, far = z.clamp_min(-1.0), z.clamp(-1e5, -1.0)
    log_density = -0.5 * z.square() - 0.5 * math.log(2.0 * math.pi)
    direct = torch.exp(-0.5 * near.square()) / math.sqrt(2.0 * math.pi)
    direct = (direct + near * torch.special.ndtr(near)).log()
    # phi (1 - |z| Phi / phi), where Phi / phi is Mills' ratio.
    mills = math.sqrt(math.pi / 2.0) * torch.special.erfcx(-far / math.sqrt(2.0))
    tail = log_density + torch.log1p(far * mills)
    return torch.where(z > -1.0, direct, torch.where(z > -1e3, tail, log_density - 2 * (-z).log()))


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return log(exp(a) - exp(b)) for a >= b; -inf where they are equal."""
    d = (b - a).nan_to_num(nan=0.0)  # both -inf
    d = torch.where(d < 0, d, -torch.inf)
    result = a + torch.log(-torch.expm1(d))
    return torch.where(b < a, result, -torch.inf)
