"""ZDT1, 2, 3, 4 and 6 [Zitzler2000]; f1 is the fast objective unless `slow=0` is asked for.

d is 30 for ZDT1 to 3 and 10 for ZDT4 and ZDT6, as published, unless an option says otherwise.
ZDT5 is left out: its variables are bits.

[Zitzler2000] E. Zitzler, K. Deb, L. Thiele. Comparison of multiobjective evolutionary
algorithms: empirical results. Evolutionary Computation 8(2), 2000.
"""

import math
from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.problems.fronts import reference_point, spread
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int

_D = {"zdt1": 30, "zdt2": 30, "zdt3": 30, "zdt4": 10, "zdt6": 10}
# ZDT3's front: the intervals of f1 that are not dominated; where each but the first begins,
# f2 is that at the end of the one before.
_ZDT3_PIECES = (
    (0.0, 0.0830015349),
    (0.1822287280294, 0.2577623634),
    (0.4093136748087, 0.4538821041),
    (0.6183967944393, 0.6525117038),
    (0.8233317983266, 0.8518328654),
)
_ZDT6_LOWEST = 0.2807753188153701  # of f1


def _first(name: str, x1: Tensor) -> Tensor:
    if name == "zdt6":
        return 1.0 - torch.exp(-4.0 * x1) * torch.sin(6.0 * math.pi * x1) ** 6
    return x1


def _distance(name: str, Xm: Tensor) -> Tensor:
    """Return g, which is 1 on the Pareto set."""
    if name == "zdt4":
        waves = Xm.square() - 10.0 * torch.cos(4.0 * math.pi * Xm)
        return 1.0 + 10.0 * Xm.shape[-1] + waves.sum(dim=-1)
    mean = Xm.mean(dim=-1)
    return 1.0 + 9.0 * (mean**0.25 if name == "zdt6" else mean)


def _second(name: str, f1: Tensor, g: Tensor) -> Tensor:
    ratio = f1 / g
    if name in ("zdt2", "zdt6"):
        return g * (1.0 - ratio.square())
    wave = ratio * torch.sin(10.0 * math.pi * f1) if name == "zdt3" else 0.0
    return g * (1.0 - ratio.sqrt() - wave)


def _objective(column: int, name: str, X: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    f1 = _first(name, X[..., 0])
    return f1 if column == 0 else _second(name, f1, _distance(name, X[..., 1:]))


class ZDT(TestProblem):
    """A ZDT problem. Its variables lie in [0, 1], those of ZDT4 but the first in [-5, 5].

    The reference point lies a tenth of the front's range behind its nadir: at (1.1, 1.1) for
    ZDT1, 2 and 4.

    Args:
        name: One of zdt1, zdt2, zdt3, zdt4, zdt6.
        tau: Fast evaluations in the time of one slow one.
        d: Number of variables, at least 2; None: as published.

    Raises:
        InvalidInputError: If the name is unknown, tau is below 1 or d below 2.
    """

    def __init__(self, name: str, *, tau: float = 5.0, d: int | None = None) -> None:
        check_choice("name", name, _D)
        d = _D[name] if d is None else check_int("d", d, minimum=2)
        object.__setattr__(self, "name", name)
        low, high = (-5.0, 5.0) if name == "zdt4" else (0.0, 1.0)
        front = self.pareto_front(10_000)
        super().__init__(
            fast=partial(_objective, 0, name),
            slow=partial(_objective, 1, name),
            bounds=[[0.0] + [low] * (d - 1), [1.0] + [high] * (d - 1)],
            tau=tau,
            vectorized=True,
            ref_point=reference_point(front.amin(dim=0), front.amax(dim=0)),
        )

    name: str
    """The problem's name."""

    def pareto_front(self, n: int) -> Float[Tensor, "n 2"]:
        """Return n points of the exact front, uniform in f1."""
        n = check_int("n", n, minimum=1)
        pieces = {"zdt3": _ZDT3_PIECES, "zdt6": ((_ZDT6_LOWEST, 1.0),)}
        f1 = spread(pieces.get(self.name, ((0.0, 1.0),)), n)
        return torch.stack([f1, _second(self.name, f1, torch.ones_like(f1))], dim=-1)


for _name in _D:
    register(_name, partial(ZDT, _name))
