"""cm-OneMax: two objectives with an adjustable correlation [Chugh2018].

    f1(x) = sum_i x_i,   f2(x) = sum_i |x_i - map_i|,   x in [0, 1]^10, minimised

`map_i` is 0 with probability (1 + corr) / 2, else 1, drawn once from the seed. With k
ones the objectives' correlation over uniform points is (d - 2k) / d, and the front is
f1 + f2 = k, 0 <= f1 <= k. Maximising instead, as published, is the same problem with x
replaced by 1 - x.

[Chugh2018] T. Chugh, R. Allmendinger, V. Ojalehto, K. Miettinen. Surrogate-assisted
evolutionary biobjective optimization for objectives with non-uniform latencies. GECCO
2018.
"""

from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.rng import uniforms
from tcsaea_torch.types import Float, Int, Tensor
from tcsaea_torch.validation import check_int, check_real

_D = 10


def _fast(X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    return X.sum(dim=-1)


def _slow(map_: Int[Tensor, " d"], X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
    return (X - map_.to(X)).abs().sum(dim=-1)


class CMOneMax(TestProblem):
    """cm-OneMax with 10 variables.

    Args:
        corr: Wanted correlation of the objectives, -1 to 1.
        seed: Decides the map.
        tau: Fast evaluations in the time of one slow one.

    Raises:
        InvalidInputError: If corr is out of range or tau is below 1.
    """

    def __init__(self, *, corr: float = 0.0, seed: int = 0, tau: float = 5.0) -> None:
        corr = check_real("corr", corr, minimum=-1.0, maximum=1.0)
        seeds = torch.tensor([check_int("seed", seed)])
        map_ = (uniforms(seeds, "cm-onemax", 0, (_D,))[0] >= (1.0 + corr) / 2.0).long()
        object.__setattr__(self, "map", map_)
        front = self.pareto_front(2)
        super().__init__(
            fast=_fast,
            slow=partial(_slow, map_),
            bounds=[[0.0] * _D, [1.0] * _D],
            tau=tau,
            vectorized=True,
            ref_point=1.1 * front.amax(dim=0).clamp_min(1.0),
        )

    map: Int[Tensor, "10"]
    """The map, 0 or 1 for each variable."""

    def pareto_front(self, n: int) -> Float[Tensor, "n 2"]:
        """Return n points of the exact front, uniform in f1; all (0, 0) if the map is 0."""
        n = check_int("n", n, minimum=1)
        k = float(self.map.sum())
        f1 = k * torch.linspace(0.0, 1.0, n, dtype=torch.float64)
        return torch.stack([f1, k - f1], dim=-1)


register("cm-onemax", CMOneMax)
