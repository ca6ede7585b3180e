"""WFG2, WFG4 and WFG9 [Huband2006] with two objectives; f1 is the fast one by default.

x_i lies in [0, 2 i]. k position variables say where on the front a point is, l distance
variables how far from it. The default is k = 2 and l = 4, so six variables, as usual with
few evaluations; evolutionary algorithms are often compared with k = 4 and l = 20.

Each problem is a chain of transformations of the variables into one position and one
distance in [0, 1], and a shape: f = distance + (2, 4) * shape(position).

[Huband2006] S. Huband, P. Hingston, L. Barone, L. While. A review of multiobjective test
problems and a scalable test problem toolkit. IEEE Trans. Evol. Comput. 10(5), 2006.
"""

import math
from functools import partial

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.problems.fronts import reference_point, spread
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int

_NAMES = ("wfg2", "wfg4", "wfg9")
_OPTIMUM = 0.35  # of all distance variables, after bias
_SCALES = (2.0, 4.0)
# Positions on WFG2's front, whose other positions are dominated.
_WFG2_PIECES = (
    (0.0, 0.0415885348),
    (0.1296924672222, 0.2095949656),
    (0.3549347145860, 0.4049933326),
    (0.5640500911478, 0.6033554792),
    (0.7690984706618, 0.8025237409),
    (0.9724372738742, 1.0),
)


# ---------------------------------------------------------------- transformations of variables


def _shift_linear(y: Tensor) -> Tensor:
    """s_linear: 0 at the optimum, rising to 1 on both sides."""
    return (y - _OPTIMUM).abs() / ((_OPTIMUM - y).floor() + _OPTIMUM).abs()


def _shift_multimodal(y: Tensor, n_minima: float, hill: float) -> Tensor:
    """s_multi: the same with local minima, whose hills are lower the larger `hill`."""
    t = (y - _OPTIMUM).abs() / (2.0 * ((_OPTIMUM - y).floor() + _OPTIMUM))
    wave = torch.cos((4.0 * n_minima + 2.0) * math.pi * (0.5 - t))
    return (1.0 + wave + 4.0 * hill * t.square()) / (hill + 2.0)


def _shift_deceptive(y: Tensor) -> Tensor:
    """s_decept: a narrow optimum, and two wide valleys that lead away from it."""
    a, width, valley = _OPTIMUM, 0.001, 0.05
    left = (y - a + width).floor() * (1.0 - valley + (a - width) / width) / (a - width)
    right = (a + width - y).floor() * (1.0 - valley + (1.0 - a - width) / width)
    right = right / (1.0 - a - width)
    return 1.0 + ((y - a).abs() - width) * (left + right + 1.0 / width)


def _bias_by_later(y: Tensor) -> Tensor:
    """b_param: bias each variable but the last by the mean of those behind it."""
    n = y.shape[-1]
    sums = y.flip(-1).cumsum(dim=-1).flip(-1)
    counts = torch.arange(n - 1, 0, -1, dtype=y.dtype, device=y.device)
    mean = sums[..., 1:] / counts
    a = 0.98 / 49.98
    v = a - (1.0 - 2.0 * mean) * ((0.5 - mean).floor() + a).abs()
    return torch.cat([y[..., :-1] ** (0.02 + 49.98 * v), y[..., -1:]], dim=-1)


# ---------------------------------------------------------------- reductions to one number


def _mix(y: Tensor) -> Tensor:
    """r_nonsep with as high a degree as there are variables."""
    n = y.shape[-1]
    differences = (y.unsqueeze(-1) - y.unsqueeze(-2)).abs().sum(dim=(-1, -2))
    half = math.ceil(n / 2)
    return (y.sum(dim=-1) + differences) / (half * (1.0 + 2.0 * n - 2.0 * half))


def _reduce(name: str, k: int, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return the position and the distance."""
    d = X.shape[-1]
    y = X / (2.0 * torch.arange(1, d + 1, dtype=X.dtype, device=X.device))
    if name == "wfg2":
        position, distance = y[..., :k], _shift_linear(y[..., k:])
        pairs = distance.unflatten(-1, (-1, 2))
        t = position.mean(dim=-1), _mix(pairs).mean(dim=-1)
    elif name == "wfg4":
        y = _shift_multimodal(y, 30.0, 10.0)
        t = y[..., :k].mean(dim=-1), y[..., k:].mean(dim=-1)
    else:
        y = _bias_by_later(y)
        t = _mix(_shift_deceptive(y[..., :k])), _mix(_shift_multimodal(y[..., k:], 30.0, 95.0))
    return t[0].clamp(0.0, 1.0), t[1].clamp(0.0, 1.0)  # rounding may leave the interval


def _shape(name: str, column: int, t: Tensor) -> Tensor:
    if name == "wfg2":
        if column == 0:
            return 1.0 - torch.cos(0.5 * math.pi * t)
        return 1.0 - t * torch.cos(5.0 * math.pi * t).square()
    return torch.sin(0.5 * math.pi * t) if column == 0 else torch.cos(0.5 * math.pi * t)


def _objective(column: int, name: str, k: int, X: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    position, distance = _reduce(name, k, X)
    return distance + _SCALES[column] * _shape(name, column, position)


class WFG(TestProblem):
    """A WFG problem with two objectives and k + l variables.

    The reference point is 1.1 times the nadir of the front, (2, 4).

    Args:
        name: One of wfg2, wfg4, wfg9.
        tau: Fast evaluations in the time of one slow one.
        k: Number of position variables, at least 1.
        l: Number of distance variables, at least 1; even for WFG2.

    Raises:
        InvalidInputError: If the name is unknown, tau is below 1 or a number out of range.
    """

    def __init__(self, name: str, *, tau: float = 5.0, k: int = 2, l: int = 4) -> None:  # noqa: E741
        check_choice("name", name, _NAMES)
        k, n_distance = check_int("k", k, minimum=1), check_int("l", l, minimum=1)
        if name == "wfg2" and n_distance % 2:
            raise InvalidInputError(f"l must be even for wfg2, got {n_distance}")
        object.__setattr__(self, "name", name)
        d = k + n_distance
        super().__init__(
            fast=partial(_objective, 0, name, k),
            slow=partial(_objective, 1, name, k),
            bounds=[[0.0] * d, [2.0 * i for i in range(1, d + 1)]],
            tau=tau,
            vectorized=True,
            ref_point=reference_point(torch.zeros(2).double(), torch.tensor(_SCALES).double()),
        )

    name: str
    """The problem's name."""

    def pareto_front(self, n: int) -> Float[Tensor, "n 2"]:
        """Return n points of the exact front, uniform in the position."""
        n = check_int("n", n, minimum=1)
        t = spread(_WFG2_PIECES if self.name == "wfg2" else ((0.0, 1.0),), n)
        columns = [s * _shape(self.name, i, t) for i, s in enumerate(_SCALES)]
        return torch.stack(columns, dim=-1)


for _name in _NAMES:
    register(_name, partial(WFG, _name))
