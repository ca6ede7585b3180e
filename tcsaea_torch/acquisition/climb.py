"""Candidates that climb to the nearest maximum of what they are scored by."""

from collections.abc import Callable

import torch

from tcsaea_torch.models.optimise import BFGSOptions, minimise_in_box
from tcsaea_torch.types import Float, Int, Tensor


def climb(
    score: Callable[[Tensor], Tensor],
    X: Float[Tensor, "b k d"],
    options: BFGSOptions,
) -> Float[Tensor, "b k d"]:
    """Return candidates of higher scores, each from its own start, by projected BFGS.

    Args:
        score: From points `b x j x d` of the unit cube to scores `b x j`, differentiable. A
            candidate stays where it is if its score or slope is not finite.
        X: Where candidates start.
        options: When to stop.
    """
    b, k, d = X.shape

    def objective(v: Float[Tensor, "m d"], members: Int[Tensor, " m"]) -> tuple[Tensor, Tensor]:
        run = members // k
        # Members are in order: those of a run lie side by side.
        place = torch.arange(len(v), device=v.device) - torch.searchsorted(run, run)
        with torch.enable_grad():
            v = v.detach().requires_grad_(True)
            points = v.new_zeros(b, int(place.max()) + 1, d).index_put((run, place), v)
            value = score(points)[run, place]
            (slope,) = torch.autograd.grad(value.sum(), v)
        is_finite = value.isfinite() & slope.isfinite().all(dim=-1)
        value = torch.where(is_finite, -value.detach(), torch.inf)
        return value, torch.where(is_finite.unsqueeze(-1), -slope, 0.0)

    lower, upper = X.new_zeros(d), X.new_ones(d)
    return minimise_in_box(objective, X.reshape(b * k, d), lower, upper, options).x.view(b, k, d)
