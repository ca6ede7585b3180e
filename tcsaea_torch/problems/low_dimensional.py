"""Problems of two or three variables that are smooth, or nearly so: Kursawe, Branin-Currin, GMM.

The first of the published objectives is the fast one by default. Their fronts have no closed
form; `pareto_front` returns the best points that a search of the whole box found.

[Kursawe1991] F. Kursawe. A variant of evolution strategies for vector optimization. PPSN I,
1991.
[Belakaria2019] S. Belakaria, A. Deshwal, J. R. Doppa. Max-value entropy search for
multi-objective Bayesian optimization. NeurIPS 2019. Branin and Currin.
[Daulton2022] S. Daulton, S. Cakmak, M. Balandat, M. A. Osborne, E. Zhou, E. Bakshy. Robust
multi-objective Bayesian optimization under input noise. ICML 2022. The mixtures GMM, and the
reference points of GMM and Branin-Currin as in the authors' library BoTorch.
"""

import math
from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.problems.fronts import stored_set, thin
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int

_BOUNDS = {
    "branin-currin": [[0.0] * 2, [1.0] * 2],
    "gmm": [[0.0] * 2, [1.0] * 2],
    "kursawe": [[-5.0] * 3, [5.0] * 3],
}
# Kursawe's lies a tenth of the front's range behind its nadir. f1 is best at 0, where f2 is 0;
# f2 is best where all variables are -1.15274.
_REF_POINTS = {
    "branin-currin": (18.0, 6.0),
    "gmm": (-0.2338, -0.2211),
    "kursawe": (-13.879009903963968, 1.1627286837138845),
}
# Centres, standard deviations and heights of each objective's three bells.
_BELLS = (
    (((0.2, 0.2), 0.2, 0.5), ((0.8, 0.2), 0.1, 0.7), ((0.5, 0.7), 0.1, 0.7)),
    (((0.07, 0.2), 0.2, 0.5), ((0.4, 0.8), 0.1, 0.7), ((0.85, 0.1), 0.05, 0.7)),
)


def _kursawe(column: int, X: Tensor) -> Tensor:
    if column == 0:
        radii = (X[..., :-1].square() + X[..., 1:].square()).sqrt()
        return -10.0 * torch.exp(-0.2 * radii).sum(dim=-1)
    return (X.abs() ** 0.8 + 5.0 * torch.sin(X**3)).sum(dim=-1)


def _branin_currin(column: int, X: Tensor) -> Tensor:
    x1, x2 = X[..., 0], X[..., 1]
    if column == 0:
        u, v = 15.0 * x1 - 5.0, 15.0 * x2
        valley = v - 5.1 / (4.0 * math.pi**2) * u.square() + 5.0 / math.pi * u - 6.0
        return valley.square() + 10.0 * (1.0 - 1.0 / (8.0 * math.pi)) * torch.cos(u) + 10.0
    top = 2300.0 * x1**3 + 1900.0 * x1**2 + 2092.0 * x1 + 60.0
    bottom = 100.0 * x1**3 + 500.0 * x1**2 + 4.0 * x1 + 20.0
    return (1.0 - torch.exp(-1.0 / (2.0 * x2))) * top / bottom


def _gmm(column: int, X: Tensor) -> Tensor:
    value = torch.zeros_like(X[..., 0])
    for centre, width, height in _BELLS[column]:
        squared = (X - X.new_tensor(centre)).square().sum(dim=-1)
        value = value - height * torch.exp(-squared / (2.0 * width**2))
    return value


_OBJECTIVES = {"branin-currin": _branin_currin, "gmm": _gmm, "kursawe": _kursawe}


def _objective(column: int, name: str, X: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return _OBJECTIVES[name](column, X)


class LowDimensional(TestProblem):
    """Kursawe (three variables), Branin-Currin or GMM (two).

    Reference points are those of BoTorch; for Kursawe, which it lacks, a tenth of the front's
    range behind the nadir.

    Args:
        name: One of branin-currin, gmm, kursawe.
        tau: Fast evaluations in the time of one slow one.

    Raises:
        InvalidInputError: If the name is unknown or tau is below 1.
    """

    def __init__(self, name: str, *, tau: float = 5.0) -> None:
        check_choice("name", name, _BOUNDS)
        object.__setattr__(self, "name", name)
        super().__init__(
            fast=partial(_objective, 0, name),
            slow=partial(_objective, 1, name),
            bounds=_BOUNDS[name],
            tau=tau,
            vectorized=True,
            ref_point=_REF_POINTS[name],
        )

    name: str
    """The problem's name."""

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return at most n points close to the front, by the fast objective, of those stored."""
        n = check_int("n", n, minimum=1)
        return thin(self.evaluate(stored_set(self.name)), n)


for _name in _BOUNDS:
    register(_name, partial(LowDimensional, _name))
