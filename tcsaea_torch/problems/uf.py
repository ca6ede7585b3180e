"""UF1-UF7, the unconstrained two-objective problems of CEC 2009 [Zhang2009], d = 30.

The first objective is the fast one. `box="unit"` restricts every variable to [0, 1], as
the released code of the paper does; the true Pareto set then lies partly outside.

[Zhang2009] Q. Zhang, A. Zhou, S. Zhao, P. N. Suganthan, W. Liu, S. Tiwari. Multiobjective
optimization test instances for the CEC 2009 special session and competition. University
of Essex, CES-487, 2009.
"""

import math
from functools import partial
from typing import Literal

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int

_D = 30
_NAMES = ("uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7")
_RANGES = {"uf3": (0.0, 1.0), "uf4": (-2.0, 2.0)}  # of x_2, ..., x_30; (-1, 1) for the others


def _members(column: int, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the variables of an objective and their numbers j: odd ones for f1, even for f2."""
    first = 2 if column == 0 else 1
    j = torch.arange(first + 1, _D + 1, 2, dtype=X.dtype, device=X.device)
    return X[..., first::2], j


def _deviation(column: int, name: str, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return y_j, which is 0 on the Pareto set, and j."""
    xj, j = _members(column, X)
    x1 = X[..., :1]
    if name == "uf2":
        amplitude = 0.3 * x1**2 * torch.cos(24.0 * math.pi * x1 + 4.0 * j * math.pi / _D)
        angle = 6.0 * math.pi * x1 + j * math.pi / _D
        wave = torch.cos(angle) if column == 0 else torch.sin(angle)
        return xj - (amplitude + 0.6 * x1) * wave, j
    if name == "uf3":
        return xj - x1 ** (0.5 * (1.0 + 3.0 * (j - 2.0) / (_D - 2.0))), j
    return xj - torch.sin(6.0 * math.pi * x1 + j * math.pi / _D), j


def _distance(column: int, name: str, X: Tensor) -> Tensor:
    """Return what the deviations add to an objective."""
    y, j = _deviation(column, name, X)
    if name in ("uf3", "uf6"):
        product = torch.cos(20.0 * y * math.pi / j.sqrt()).prod(dim=-1)
        return 2.0 / len(j) * (4.0 * y.square().sum(dim=-1) - 2.0 * product + 2.0)
    if name == "uf4":
        h = y.abs() / (1.0 + torch.exp(2.0 * y.abs()))
    elif name == "uf5":
        h = 2.0 * y.square() - torch.cos(4.0 * math.pi * y) + 1.0
    else:
        h = y.square()
    return 2.0 * h.mean(dim=-1)


def _objective(column: int, name: str, X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    x1 = X[..., 0]
    if name in ("uf5", "uf6"):
        wave = (
            0.15 * torch.sin(20.0 * math.pi * x1).abs()
            if name == "uf5"
            else (0.7 * torch.sin(4.0 * math.pi * x1)).clamp_min(0.0)
        )
        shape = (x1 if column == 0 else 1.0 - x1) + wave
    elif name == "uf7":
        shape = x1**0.2 if column == 0 else 1.0 - x1**0.2
    elif column == 0:
        shape = x1
    else:
        shape = 1.0 - (x1**2 if name == "uf4" else x1.sqrt())
    return shape + _distance(column, name, X)


class UF(TestProblem):
    """A UF problem with two objectives and 30 variables.

    Args:
        name: One of uf1 ... uf7.
        tau: Fast evaluations in the time of one slow one.
        box: "true" for the published bounds, "unit" for [0, 1]^30.

    Raises:
        InvalidInputError: If a name is unknown or tau is below 1.
    """

    def __init__(
        self, name: str, *, tau: float = 5.0, box: Literal["true", "unit"] = "true"
    ) -> None:
        check_choice("name", name, _NAMES)
        check_choice("box", box, ("true", "unit"))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "box", box)
        low, high = (0.0, 1.0) if box == "unit" else _RANGES.get(name, (-1.0, 1.0))
        super().__init__(
            fast=partial(_objective, 0, name),
            slow=partial(_objective, 1, name),
            bounds=[[0.0] + [low] * (_D - 1), [1.0] + [high] * (_D - 1)],
            tau=tau,
            vectorized=True,
            ref_point=1.1 * self.pareto_front(1000).amax(dim=0),
        )

    name: str
    """The problem's name."""
    box: str
    """"true" or "unit"."""

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return points of the exact front of the true box, uniform in f1.

        UF5's front has 21 points whatever n is; UF6 keeps those of n that lie on it.
        """
        n = check_int("n", n, minimum=1)
        t = torch.linspace(0.0, 1.0, 21 if self.name == "uf5" else n, dtype=torch.float64)
        if self.name == "uf6":
            t = t[(t == 0) | ((t >= 0.25) & (t <= 0.5)) | (t >= 0.75)]
        curve = {"uf1": t.sqrt(), "uf2": t.sqrt(), "uf3": t.sqrt(), "uf4": t**2}
        return torch.stack([t, 1.0 - curve.get(self.name, t)], dim=-1)


for _name in _NAMES:
    register(_name, partial(UF, _name))
