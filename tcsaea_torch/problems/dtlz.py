"""DTLZ1-7 [Deb2005dtlz] with two objectives, and the paper's DTLZ1a and DTLZ3a.

The first objective is the fast one. DTLZ1a and DTLZ3a replace the factor 20 in the
cosine of DTLZ1 and DTLZ3 by 2, which leaves far fewer local optima. With two
objectives DTLZ5 is identical to DTLZ2.

[Deb2005dtlz] K. Deb, L. Thiele, M. Laumanns, E. Zitzler. Scalable test problems for
evolutionary multiobjective optimization. Evolutionary Multiobjective Optimization,
Springer, 2005.
"""

import math
from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_float_tensor, check_int

_N_DISTANCE_VARIABLES = {"dtlz1": 5, "dtlz1a": 5, "dtlz7": 20}
_NAMES = ("dtlz1", "dtlz1a", "dtlz2", "dtlz3", "dtlz3a", "dtlz4", "dtlz5", "dtlz6", "dtlz7")
# DTLZ7's front for two objectives: the two intervals of f1 that are not dominated.
_DTLZ7_INTERVALS = ((0.0, 0.251412), (0.631627, 0.859401))


def _multimodal(Xm: Tensor, waves: float) -> Tensor:
    centred = Xm - 0.5
    terms = centred**2 - torch.cos(waves * math.pi * centred)
    return 100.0 * (Xm.shape[-1] + terms.sum(dim=-1))


def _distance(name: str, Xm: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Return g, which is 0 on the Pareto set (1 for DTLZ7)."""
    if name in ("dtlz1", "dtlz3"):
        return _multimodal(Xm, 20.0)
    if name in ("dtlz1a", "dtlz3a"):
        return _multimodal(Xm, 2.0)
    if name == "dtlz6":
        return (Xm**0.1).sum(dim=-1)
    if name == "dtlz7":
        return 1.0 + 9.0 * Xm.mean(dim=-1)
    return (Xm - 0.5).square().sum(dim=-1)


def _objective(column: int, name: str, X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    return _value(column, name, X[..., 0], _distance(name, X[..., 1:]))


def _value(
    column: int, name: str, x1: Float[Tensor, "*batch"], g: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    if name in ("dtlz1", "dtlz1a"):
        return 0.5 * (x1 if column == 0 else 1.0 - x1) * (1.0 + g)
    if name == "dtlz7":
        if column == 0:
            return x1
        return (1.0 + g) * (2.0 - x1 / (1.0 + g) * (1.0 + torch.sin(3.0 * math.pi * x1)))
    angle = (x1**100 if name == "dtlz4" else x1) * (math.pi / 2)
    return (1.0 + g) * (torch.cos(angle) if column == 0 else torch.sin(angle))


class DTLZ(TestProblem):
    """A DTLZ problem with two objectives in [0, 1]^d.

    d is 6 for DTLZ1 and DTLZ1a, 21 for DTLZ7, and 11 for the others.

    Args:
        name: One of dtlz1 ... dtlz7, dtlz1a, dtlz3a.
        tau: Fast evaluations in the time of one slow one.

    Raises:
        InvalidInputError: If the name is unknown or tau is below 1.
    """

    def __init__(self, name: str, *, tau: float = 5.0) -> None:
        check_choice("name", name, _NAMES)
        d = 1 + _N_DISTANCE_VARIABLES.get(name, 10)
        object.__setattr__(self, "name", name)
        front = self.pareto_front(1000)
        super().__init__(
            fast=partial(_objective, 0, name),
            slow=partial(_objective, 1, name),
            bounds=torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64),
            tau=tau,
            vectorized=True,
            ref_point=1.1 * front.amax(dim=0),
        )

    name: str
    """The problem's name."""

    def evaluate(self, X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n 2"]:
        """Return both objectives (fast, slow) at points of the unit cube."""
        shape = f"of shape (*batch, n, {self.d})"
        check_float_tensor("X", X, shape, (None, self.d), batched=True)
        x1, g = X[..., 0], _distance(self.name, X[..., 1:])
        return torch.stack([_value(column, self.name, x1, g) for column in (0, 1)], dim=-1)

    def pareto_front(self, n: int) -> Float[Tensor, "n 2"]:
        """Return n points of the exact front.

        They are uniform on the segment (DTLZ1), uniform simplex points projected onto
        the quarter circle (DTLZ2-6), or uniform in f1 over both pieces (DTLZ7).
        """
        n = check_int("n", n, minimum=1)
        t = torch.linspace(0.0, 1.0, n, dtype=torch.float64)
        if self.name in ("dtlz1", "dtlz1a"):
            return 0.5 * torch.stack([t, 1.0 - t], dim=-1)
        if self.name == "dtlz7":
            (a, b), (c, d) = _DTLZ7_INTERVALS
            length = t * ((b - a) + (d - c))
            f1 = torch.where(length <= b - a, a + length, c + length - (b - a))
            return torch.stack([f1, 4.0 - f1 * (1.0 + torch.sin(3.0 * math.pi * f1))], dim=-1)
        simplex = torch.stack([t, 1.0 - t], dim=-1)
        return simplex / simplex.norm(dim=-1, keepdim=True)


for _name in _NAMES:
    register(_name, partial(DTLZ, _name))
