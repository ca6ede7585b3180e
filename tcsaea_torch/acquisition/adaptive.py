"""The adaptive acquisition function (AAF) of Wang, Jin, Schmitt and Olhofer [Wang2020].

Over a surrogate population, one value for each objective j, minimised:

    a        = 1/2 - 1/2 cos(pi FE_s / B_s)
    AAF_j(x) = (1 - a) mu_j(x) / max mu_j + a s_j(x) / max s_j

As published code has it, a positive sign prefers *certain* points; -1 gives the lower
confidence bound that the paper's text speaks of.

[Wang2020] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. An adaptive Bayesian approach to
surrogate-assisted evolutionary multi-objective optimization. Information Sciences 519,
2020.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.evolution.selection import smallest_angle_to
from tcsaea_torch.types import Bool, Float, Tensor


def adaptive_weight(
    n_slow_used: Float[Tensor, "*batch"], n_slow_total: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return a, which grows from 0 to 1 as the slow budget is used up."""
    return 0.5 - 0.5 * torch.cos(math.pi * n_slow_used / n_slow_total)


@dataclass(frozen=True, kw_only=True, eq=False)
class AAFNormalizer:
    """Scales of means, uncertainties and angles, frozen from a population."""

    ideal: Float[Tensor, "*batch m"]
    """Smallest mean of each objective."""
    shift: Float[Tensor, "*batch m"]
    """Subtracted from means first; 0 unless means are mostly negative."""
    max_mean: Float[Tensor, "*batch m"]
    """Largest shifted mean, > 0."""
    max_s: Float[Tensor, "*batch m"]
    """Largest uncertainty, > 0."""
    ref_vectors: Float[Tensor, "r m"] | None = None
    """Reference vectors of the search, for `gamma`."""

    @classmethod
    def from_population(
        cls,
        mean: Float[Tensor, "*batch n m"],
        s: Float[Tensor, "*batch n m"],
        alive: Bool[Tensor, "*batch n"] | None = None,
        ref_vectors: Float[Tensor, "r m"] | None = None,
    ) -> "AAFNormalizer":
        """Take the scales from the living members.

        Dividing by the largest mean needs it to be positive. Where it is not, or is
        outweighed by a negative smallest one, means are shifted to begin at 0.

        Args:
            mean: Predicted means of the population.
            s: Predicted uncertainties, as they will be passed to the AAF.
            alive: Members that count; None: all.
            ref_vectors: Reference vectors, of any length; None: each vector is alone.
        """
        mask = torch.ones_like(mean, dtype=torch.bool) if alive is None else alive.unsqueeze(-1)
        high = torch.where(mask, mean, -torch.inf).amax(dim=-2)
        low = torch.where(mask, mean, torch.inf).amin(dim=-2)
        shift = torch.where(high < -low, low, 0.0)
        max_mean = high - shift
        max_s = torch.where(mask, s, 0.0).amax(dim=-2)
        return cls(
            ideal=low,
            shift=shift,
            max_mean=torch.where(max_mean > 0, max_mean, 1.0),
            max_s=torch.where(max_s > 0, max_s, 1.0),
            ref_vectors=ref_vectors,
        )

    def gamma(self, ref_vector: Float[Tensor, " m"]) -> Float[Tensor, ""]:
        """Return the smallest angle from a vector to another of the reference vectors."""
        nothing = ref_vector.new_empty(0, len(ref_vector))
        others = nothing if self.ref_vectors is None else self.ref_vectors
        return smallest_angle_to(ref_vector, others.to(ref_vector))


def adaptive_acquisition(
    mean: Float[Tensor, "*batch n m"],
    s: Float[Tensor, "*batch n m"],
    normalizer: AAFNormalizer,
    weight: Float[Tensor, "*#batch"],
    *,
    sign: float = 1.0,
) -> Float[Tensor, "*batch n m"]:
    """Return the AAF of each point and objective, to be minimised.

    Args:
        mean: Predicted means.
        s: Predicted uncertainties: variances (released code) or standard deviations.
        normalizer: Scales of both.
        weight: a, see `adaptive_weight`.
        sign: +1 prefers certain points, -1 uncertain ones.
    """
    a = weight[..., None, None]
    exploit = (mean - normalizer.shift.unsqueeze(-2)) / normalizer.max_mean.unsqueeze(-2)
    return (1.0 - a) * exploit + sign * a * s / normalizer.max_s.unsqueeze(-2)
