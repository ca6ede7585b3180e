"""DTLZ2 in eight variables, rotated, and shifted so that values have both signs.

With v in [0, 1]^d, a rotation R and a centre c, both drawn once from a seed,

    z = 1/2 + R (v - c),   p = min(max(z_1, 0), 1),
    g = sum_{j > 1} (z_j - 1/2)^2 + (z_1 - p)^2,
    f = (1 + g) (cos(pi p / 2), sin(pi p / 2)) - (0.6, 1.5).

R is orthogonal, so that every variable matters for both position and distance. The Pareto
set is the segment v = c + (p - 1/2) R_1, with the first row R_1 of R; c is such that it lies
in the box with room on all sides. The front is a quarter of a circle around (-0.6, -1.5).
The first objective is the fast one by default.
"""

import math
from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.problems.fronts import reference_point
from tcsaea_torch.rng import uniforms
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_int

_D = 8
_SHIFT = (0.6, 1.5)
_ROOM = 0.8  # share of what the segment leaves free that its centre may use


def _draw(seed: int) -> tuple[Float[Tensor, "d d"], Float[Tensor, " d"]]:
    """Return the rotation and the centre."""
    u = uniforms(torch.tensor([seed]), "dtlz2-rotated", 0, (_D + 1, _D))[0]
    Q, R = torch.linalg.qr(torch.special.ndtri(u[:_D]))
    rotation = Q * R.diagonal().sign()  # makes the factor unique, and Q uniform
    free = 0.5 - 0.5 * rotation[0].abs()
    return rotation, 0.5 + _ROOM * free * (2.0 * u[_D] - 1.0)


def _objective(
    column: int, rotation: Tensor, centre: Tensor, X: Float[Tensor, "n d"]
) -> Float[Tensor, " n"]:
    z = (X - centre.to(X)) @ rotation.to(X).T + 0.5
    p = z[..., 0].clamp(0.0, 1.0)
    g = (z[..., 1:] - 0.5).square().sum(dim=-1) + (z[..., 0] - p).square()
    angle = 0.5 * math.pi * p
    shape = torch.cos(angle) if column == 0 else torch.sin(angle)
    return (1.0 + g) * shape - _SHIFT[column]


class RotatedDTLZ2(TestProblem):
    """DTLZ2 with eight variables, rotated and shifted.

    The reference point lies a tenth of the front's range behind its nadir: (0.5, -0.4).

    Args:
        seed: Decides rotation and centre.
        tau: Fast evaluations in the time of one slow one.

    Raises:
        InvalidInputError: If the seed is no integer or tau is below 1.
    """

    def __init__(self, *, seed: int = 0, tau: float = 5.0) -> None:
        rotation, centre = _draw(check_int("seed", seed))
        object.__setattr__(self, "rotation", rotation)
        object.__setattr__(self, "centre", centre)
        shift = torch.tensor(_SHIFT, dtype=torch.float64)
        super().__init__(
            fast=partial(_objective, 0, rotation, centre),
            slow=partial(_objective, 1, rotation, centre),
            bounds=[[0.0] * _D, [1.0] * _D],
            tau=tau,
            vectorized=True,
            ref_point=reference_point(-shift, 1.0 - shift),
        )

    rotation: Float[Tensor, "8 8"]
    """R, orthogonal."""
    centre: Float[Tensor, "8"]
    """c, the middle of the Pareto set."""

    def pareto_front(self, n: int) -> Float[Tensor, "n 2"]:
        """Return n points of the exact front, uniform in angle."""
        n = check_int("n", n, minimum=1)
        angle = 0.5 * math.pi * torch.linspace(0.0, 1.0, n, dtype=torch.float64)
        shift = torch.tensor(_SHIFT, dtype=torch.float64)
        return torch.stack([angle.cos(), angle.sin()], dim=-1) - shift


register("dtlz2-rotated", RotatedDTLZ2)
