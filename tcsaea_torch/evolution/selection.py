"""Angle-penalised distance and the selection of RVEA [Cheng2016].

[Cheng2016] R. Cheng, Y. Jin, M. Olhofer, B. Sendhoff. A reference vector guided
evolutionary algorithm for many-objective optimization. IEEE Trans. Evol. Comput.
20(5), 2016.
"""

import math

import torch

from tcsaea_torch.types import Bool, Float, Int, Tensor


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
    ideal point has angle 0 to every vector and joins the first.

    Args:
        F: Objective values.
        alive: Individuals that take part.
        vectors: Reference vectors, of any length.
        penalty: (t / t_max)^alpha.

    Returns:
        The index of the winner of each niche (any valid index where there is none),
        and which niches have one.
    """
    m = F.shape[-1]
    ideal = torch.where(alive.unsqueeze(-1), F, torch.inf).amin(dim=-2, keepdim=True)
    translated = torch.where(alive.unsqueeze(-1), F - ideal, 0.0)
    length = translated.norm(dim=-1)
    unit = torch.nn.functional.normalize(vectors, dim=-1, eps=torch.finfo(vectors.dtype).tiny)
    direction = translated / torch.where(length > 0, length, 1.0).unsqueeze(-1)
    cosine, niche = (unit @ direction.mT).clamp(max=1.0).max(dim=-2)
    angle = torch.where(length > 0, cosine.acos(), 0.0)

    gamma = smallest_angles(unit).expand(*niche.shape[:-1], -1).gather(-1, niche)
    # A fill, not a copy from the host: that would wait for the device.
    factor = penalty if isinstance(penalty, Tensor) else F.new_full((), penalty)
    penalty = factor.unsqueeze(-1)
    distance = (1.0 + m * penalty * angle / gamma) * length

    member = niche.unsqueeze(-2) == torch.arange(unit.shape[-2], device=F.device).unsqueeze(-1)
    member = member & alive.unsqueeze(-2)
    table = torch.where(member, distance.unsqueeze(-2), torch.inf)
    winner = table.argmin(dim=-1)
    return winner, member.any(dim=-1)


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
