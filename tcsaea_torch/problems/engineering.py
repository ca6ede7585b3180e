"""RE21, a truss of four bars, and RE24, the cover of a hatch [Tanabe2020].

RE21: volume against the displacement of a joint; the areas of four bars. RE24: weight against
the sum of violated limits of stress, shear, deflection and buckling; two thicknesses. The
first objective is the fast one by default. RE21 is as in the authors' corrected code of 2020,
which the results of their paper precede.

[Tanabe2020] R. Tanabe, H. Ishibuchi. An easy-to-use real-world multi-objective optimization
problem suite. Applied Soft Computing 89, 2020.
"""

import math
from functools import partial

import torch

from tcsaea_torch.problems.base import TestProblem, register
from tcsaea_torch.problems.fronts import reference_point, stored_set, thin
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int

_ROOT = math.sqrt(2.0)
_LENGTH, _FORCE, _YOUNG = 200.0, 10.0, 2e5  # of RE21, in cm, kN and kN/cm^2
_BOUNDS = {
    "re21": [[1.0, _ROOT, _ROOT, 1.0], [3.0] * 4],
    "re24": [[0.5, 0.5], [4.0, 50.0]],
}

# Where the second objective is best: RE21's third bar stays thin; RE24's bending stress and shear
# are at their limits.
_STIFFEST = {"re21": [3.0, 3.0, _ROOT, 3.0], "re24": [4500.0 / 700.0 / 4.0, 4.0]}


def _truss(column: int, X: Tensor) -> Tensor:
    x1, x2, x3, x4 = X.unbind(dim=-1)
    if column == 0:
        return _LENGTH * (2.0 * x1 + _ROOT * x2 + x3.sqrt() + x4)
    bars = 2.0 / x1 + 2.0 * _ROOT / x2 - 2.0 * _ROOT / x3 + 2.0 / x4
    return _FORCE * _LENGTH / _YOUNG * bars


def _hatch(column: int, X: Tensor) -> Tensor:
    x1, x2 = X.unbind(dim=-1)
    if column == 0:
        return x1 + 120.0 * x2
    bending, buckling = 4500.0 / (x1 * x2), 7e5 * x1.square() / 100.0
    deflection = 56.2e4 / (7e5 * x1 * x2.square())
    shares = [bending / 700.0, 1800.0 / x2 / 450.0, deflection / 1.5, bending / buckling]
    violations = [(share - 1.0).clamp_min(0.0) for share in shares]
    return torch.stack(violations).sum(dim=0)


def _objective(column: int, name: str, X: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
    return _truss(column, X) if name == "re21" else _hatch(column, X)


class Engineering(TestProblem):
    """RE21 (four variables) or RE24 (two).

    The reference point lies a tenth of the front's range behind its nadir, as in the paper,
    where it is (1.1, 1.1) after scaling the front to [0, 1].

    Args:
        name: re21 or re24.
        tau: Fast evaluations in the time of one slow one.

    Raises:
        InvalidInputError: If the name is unknown or tau is below 1.
    """

    def __init__(self, name: str, *, tau: float = 5.0) -> None:
        check_choice("name", name, _BOUNDS)
        object.__setattr__(self, "name", name)
        bounds = torch.tensor(_BOUNDS[name], dtype=torch.float64)
        ends = torch.stack([bounds[0], bounds.new_tensor(_STIFFEST[name])])  # of the front
        Y = torch.stack([_objective(column, name, ends) for column in (0, 1)], dim=-1)
        super().__init__(
            fast=partial(_objective, 0, name),
            slow=partial(_objective, 1, name),
            bounds=bounds,
            tau=tau,
            vectorized=True,
            ref_point=reference_point(Y.amin(dim=0), Y.amax(dim=0)),
        )

    name: str
    """The problem's name."""

    def pareto_front(self, n: int) -> Float[Tensor, "k 2"]:
        """Return n points of RE21's exact front, or at most n close to RE24's, of those stored.

        RE21 is convex and separable but for x3, which is best at its least: the weighted sum
        f1 + w f2 of objectives is least where x1 : x2 : x4 = 1 : sqrt(2) : sqrt(2), as far as
        the box has it.
        """
        n = check_int("n", n, minimum=1)
        if self.name == "re24":
            return thin(self.evaluate(stored_set("re24")), n)
        s = torch.linspace(1.0 / _ROOT, 3.0, n, dtype=torch.float64)
        least, most = self.bounds
        third = torch.full_like(s, _ROOT)
        X = torch.stack([s, _ROOT * s, third, _ROOT * s], dim=-1)
        return self.evaluate(torch.minimum(torch.maximum(X, least), most))


for _name in _BOUNDS:
    register(_name, partial(Engineering, _name))
