"""Angle-penalised distance and the selection of RVEA [Cheng2016].

[Cheng2016] R. Cheng, Y. Jin, M. Olhofer, B. Sendhoff. A reference vector guided
evolutionary algorithm for many-objective optimization. IEEE Trans. Evol. Comput.
20(5), 2016.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Niches:
    """Reference vectors, and what a selection needs to know of them until they adapt."""

    vectors: Float[Tensor, "*batch r m"]
    """The reference vectors, of any length."""
    axes: Float[Tensor, "*batch m r"]
    """Their directions, as columns."""
    sharpness: Float[Tensor, "*batch r"]
    """1 / gamma, with gamma the smallest angle from a vector to another one."""

    @classmethod
    def of(cls, vectors: Float[Tensor, "*batch r m"]) -> "Niches":
        """Derive them from the vectors."""  # fmt: skip
        tiny = torch.finfo(vectors.dtype).tiny
        unit = torch.nn.functional.normalize(vectors, dim=-1, eps=tiny)
        sharpness = smallest_angles(unit).reciprocal()
        return cls(vectors=vectors, axes=unit.mT.contiguous(), sharpness=sharpness)


def apd_select(
    F: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    vectors: Float[Tensor, "*#batch r m"],
    penalty: Float[Tensor, "*#batch"] | float,
) -> tuple[Int[Tensor, "*batch r"], Bool[Tensor, "*batch r"]]:
    """Choose the best individual of each niche, Eqs. (5) to (9) of [Cheng2016].

    Each individual belongs to the vector with the smallest angle to F' = F - min F.
    In each niche the smallest angle-penalised distance wins:

        APD = (1 + m * penalty * angle / gamma) * |F'|

    with gamma the smallest angle from the vector to another one. An individual at the
    ideal point has angle 0 to every vector and joins the first. Of equal distances the first wins.

    Args:
        F: Objective values.
        alive: Individuals that take part.
        vectors: Reference vectors, of any length.
        penalty: (t / t_max)^alpha.

    Returns:
        The index of the winner of each niche (any valid index where there is none),
        and which niches have one.
    """
    niches = Niches.of(vectors.expand(*F.shape[:-2], *vectors.shape[-2:]))
    return select_winners(F, alive, niches, penalty)


def select_winners(
    F: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    niches: Niches,
    penalty: Float[Tensor, "*#batch"] | float,
) -> tuple[Int[Tensor, "*batch r"], Bool[Tensor, "*batch r"]]:
    """Do what `apd_select` does, for vectors that many selections have in common."""
    distance, niche = penalised_distances(F, alive, niches, penalty)
    return first_minima(distance, niche, niches.axes.shape[-1])


def penalised_distances(
    F: Float[Tensor, "*batch n m"],
    alive: Bool[Tensor, "*batch n"],
    niches: Niches,
    penalty: Float[Tensor, "*#batch"] | float,
) -> tuple[Float[Tensor, "*batch n"], Int[Tensor, "*batch n"]]:
    """Return each individual's APD, inf for the dead, and its niche, see `apd_select`."""
    m = F.shape[-1]
    living = torch.where(alive.unsqueeze(-1), F, torch.inf)
    translated = living - living.amin(dim=-2, keepdim=True)
    length = torch.linalg.vector_norm(translated, dim=-1)
    # The length of an individual does not change which vector is the nearest one.
    projection, niche = (translated @ niches.axes).max(dim=-1)
    tiny = torch.finfo(F.dtype).tiny
    angle = (projection / length.clamp_min(tiny)).clamp_(max=1.0).acos_()
    if isinstance(penalty, Tensor):
        penalty = penalty.unsqueeze(-1)
    factor = (m * penalty * niches.sharpness).gather(-1, niche)
    # The dead have NaN, from inf / inf, and take no part.
    distance = torch.addcmul(length, angle.mul_(length), factor).nan_to_num_(nan=torch.inf)
    return distance, niche


def first_minima(
    values: Float[Tensor, "*batch n"], group: Int[Tensor, "*batch n"], n_groups: int
) -> tuple[Int[Tensor, "*batch q"], Bool[Tensor, "*batch q"]]:
    """Find the first of the smallest finite values of each group.

    Args:
        values: Numbers, inf for those that take no part; no NaN.
        group: The group of each.
        n_groups: q.

    Returns:
        Their indices (any valid one for a group without finite values), and which
        groups have one.
    """
    n, shape = values.shape[-1], (*values.shape[:-1], n_groups)
    # Minima by scattering: a table of groups and values would be q times as large.
    largest = torch.finfo(values.dtype).max
    smallest = values.new_full(shape, largest).scatter_reduce_(-1, group, values, "amin")
    index = torch.arange(n, device=values.device)
    candidate = torch.where(values == smallest.gather(-1, group), index, n)
    first = group.new_full(shape, n).scatter_reduce_(-1, group, candidate, "amin")
    return first.clamp_max(n - 1), first < n


def smallest_angles(unit: Float[Tensor, "*batch r m"]) -> Float[Tensor, "*batch r"]:
    """Return the smallest angle from each unit vector to another; pi/2 for a lone one."""
    if unit.shape[-2] == 1:
        return torch.full_like(unit[..., 0], math.pi / 2)
    cosines = unit @ unit.mT
    cosines.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
    # Equal vectors have angle 0; a tiny one keeps the distance finite.
    return cosines.amax(dim=-1).clamp(-1.0, 1.0).acos().clamp_min(1e-9)


def smallest_angle_to(
    vector: Float[Tensor, " m"], others: Float[Tensor, "r m"]
) -> Float[Tensor, ""]:
    """Return the smallest angle from a vector to a different one; pi/2 if there is none.

    Vectors may have any length; those in the same direction (within 1e-6 rad) are no
    different ones.
    """
    a, b = (torch.nn.functional.normalize(v, dim=-1) for v in (vector, others))
    # Half the angle from the chord: acos cannot tell small angles from 0.
    angles = 2.0 * ((b - a).norm(dim=-1) / 2.0).clamp(max=1.0).asin()
    candidates = torch.where(angles > 1e-6, angles, math.pi / 2)
    return torch.cat([candidates, candidates.new_full((1,), math.pi / 2)]).amin()
