"""Reference vectors of RVEA [Cheng2016]."""

import math
from itertools import combinations

import torch

from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import check_device, check_dtype, check_int

_TINY = 1e-6


def simplex_lattice(
    n: int, m: int = 2, *, dtype: torch.dtype = torch.float64, device: torch.device | None = None
) -> Float[Tensor, "r m"]:
    """Return about n points spread over the unit simplex, zeros lifted to 1e-6.

    The lattice of Das and Dennis with the largest number of divisions that gives at
    most n points (at least m), ordered by the first coordinate; for m = 2 exactly n.

    Args:
        n: Wanted number of points, >= 2.
        m: Number of objectives, >= 2.
        dtype: Type of the result.
        device: Device of the result.
    """
    n, m = check_int("n", n, minimum=2), check_int("m", m, minimum=2)
    check_dtype(dtype)
    device = check_device(device, allows_meta=True)
    divisions = 1
    while math.comb(divisions + m, m - 1) <= n:
        divisions += 1
    # Stars and bars: the gaps between m - 1 bars are the numerators of a point.
    bars = torch.tensor(list(combinations(range(1, divisions + m), m - 1)), dtype=torch.float64)
    ends = bars.new_zeros(len(bars), 1), bars.new_full((len(bars), 1), divisions + m)
    gaps = torch.cat([ends[0], bars, ends[1]], dim=-1).diff(dim=-1) - 1.0
    return (gaps / divisions).clamp_min(_TINY).to(dtype=dtype, device=device)


def adapt(
    vectors: Float[Tensor, "*#batch r m"], span: Float[Tensor, "*#batch m"]
) -> Float[Tensor, "*batch r m"]:
    """Stretch the initial vectors by the ranges of the objectives, Eq. (10) of [Cheng2016].

    An objective without range takes the largest range of the others, so that vectors
    stay apart.

    Args:
        vectors: The initial vectors.
        span: Range of each objective over the population.
    """
    largest = span.amax(dim=-1, keepdim=True)
    fallback = torch.where(largest > 0, largest, 1.0)
    return vectors * torch.where(span > 0, span, fallback).unsqueeze(-2)


def span(
    F: Float[Tensor, "*batch n m"], alive: Bool[Tensor, "*batch n"]
) -> Float[Tensor, "*batch m"]:
    """Return the range of each objective over the living; -inf without any."""
    mask = alive.unsqueeze(-1)
    high = torch.where(mask, F, -torch.inf).amax(dim=-2)
    return high - torch.where(mask, F, torch.inf).amin(dim=-2)
