"""The single-objective genetic algorithm that runs ahead on the fast objective."""

import torch

from tcsaea_torch.types import Float, Int, Tensor


def tournament_survivors(y: Float[Tensor, "b n"], u: Float[Tensor, "b n"]) -> Int[Tensor, "b h"]:
    """Pair parents and offspring at random and return the better one of each pair.

    Args:
        y: Values to minimise; inf for individuals that must lose.
        u: Uniform numbers that shuffle them.

    Returns:
        Indices of the h = floor(n / 2) winners.
    """
    order = u.argsort(dim=-1)
    h = y.shape[-1] // 2
    first, second = order[..., :h], order[..., h : 2 * h]
    return torch.where(y.gather(-1, first) <= y.gather(-1, second), first, second)
