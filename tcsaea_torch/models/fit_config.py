"""How hyper-parameters are sought: what a user may say of it."""

from dataclasses import dataclass
from typing import Literal

import torch

from tcsaea_torch.correlations import KERNEL_NAMES, KernelName
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernels import PowerMode, check_power_mode
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import InputScaling
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_pair,
    check_real,
    check_sequence,
    keep_checked,
)

_MEAN_SQUARE_DISTANCE = {"unit": 1 / 6, "standardize": 2.0}
"""Mean of (x_k - x'_k)^2 for uniform inputs, in scaled units."""


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How hyper-parameters are sought.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    p: PowerMode = 2.0
    """Power of the kernel: fixed in (0, 2], or fitted in [1, 2]: "shared" or "ard". Where a
    function is steep and rough somewhere, such as x^0.1 near 0, less than 2 is less overconfident
    there: 1.5, say."""
    kernel: KernelName = "power-exponential"
    """"power-exponential"; "additive", whose p is a number; or "matern-5/2", whose p must be 2."""
    input_scaling: InputScaling = "unit"
    """"unit", or "standardize" as in DACE; theta is in these units."""
    theta_range: tuple[float, float] | None = None
    """Box for every theta. DACE's is (1e-5, 100) on standardised inputs; a variable that
    hardly matters wants a smaller one. None: (1e-8, 1e3), and for "additive" (1e-3, 3e3) on
    unscaled inputs, with the like of it on standardised ones."""
    starts: tuple[float, ...] | None = None
    """Isotropic starts, as the typical sum of theta d^2 between two points: far above 10
    nothing is correlated, and the likelihood has no slope. For "additive" as the typical
    theta_k |d_k|^p in one dimension, where 100 is a wave of ten periods. None: (0.4, 4), and
    (0.3, 5, 70) for "additive"."""
    nugget: float | Literal["fit"] | None = None
    """Added to the diagonal of R; None means 1e-10 in float64 and 1e-5 in float32. "fit": one
    for each model, of maximum likelihood."""
    nugget_range: tuple[float, float] = (1e-8, 1.0)
    """Range of a fitted nugget, relative to sigma^2."""
    nugget_prior: tuple[float, float] | None = None
    """Median of a fitted nugget, and standard deviation of its logarithm, before data are seen;
    None: nothing is known."""
    theta_prior: tuple[float, float] | None = None
    """Median of theta, in scaled units, and standard deviation of ln theta before data are
    seen; None: nothing is known. With few rows in many dimensions, a fit without it explains
    values by waves that are not there."""
    amplitude_spread: float = 1.5
    """Standard deviation of ln a_k around ln(1 / d) before data are seen ("additive")."""
    weight_spread: float = 4.0
    """Standard deviation of ln w around 0 before data are seen ("additive")."""
    options: BFGSOptions = BFGSOptions()
    """When the optimiser stops."""

    def __post_init__(self) -> None:
        check_power_mode(self.p, d=1)
        check_choice("kernel", self.kernel, KERNEL_NAMES)
        if self.kernel == "matern-5/2" and self.p != 2.0:
            raise InvalidInputError(f"p must be 2 with kernel {self.kernel!r}, got {self.p!r}")
        if self.kernel == "additive" and isinstance(self.p, str):
            raise InvalidInputError(f"p must be a number with kernel 'additive', got {self.p!r}")
        check_choice("input_scaling", self.input_scaling, ("unit", "standardize"))
        if self.theta_range is not None:
            _check_range("theta_range", self.theta_range)
        if self.starts is not None:
            keep_checked(self, check_sequence, "starts")
            for start in self.starts:
                check_real("starts", start, minimum=0.0, exclusive=True)
        check_instance("options", self.options, BFGSOptions)
        if isinstance(self.nugget, str):
            check_choice("nugget", self.nugget, ("fit",))
        elif self.nugget is not None:
            check_real("nugget", self.nugget, minimum=0.0)
        _check_range("nugget_range", self.nugget_range)
        for name in ("theta_prior", "nugget_prior"):
            if getattr(self, name) is not None:
                for value in check_pair(name, getattr(self, name)):
                    check_real(name, value, minimum=0.0, exclusive=True)
        if self.nugget_prior is not None and self.nugget != "fit":
            raise InvalidInputError(
                f"nugget_prior must be None unless nugget is 'fit', got {self.nugget_prior}"
            )
        check_real("amplitude_spread", self.amplitude_spread, minimum=0.0, exclusive=True)
        check_real("weight_spread", self.weight_spread, minimum=0.0, exclusive=True)

    def nugget_for(self, dtype: torch.dtype) -> float:
        """Return the nugget used with this dtype where hyper-parameters hold none."""
        if isinstance(self.nugget, int | float):
            return self.nugget
        return 1e-10 if dtype == torch.float64 else 1e-5

    @property
    def theta_box(self) -> tuple[float, float]:
        """The range of theta, in scaled units."""
        if self.theta_range is not None:
            return self.theta_range
        if self.kernel != "additive":
            return 1e-8, 1e3
        unit = self._typical("unit") / self._typical(self.input_scaling)
        return 1e-3 * unit, 3e3 * unit

    def start_thetas(self, d: int) -> list[float]:
        """Return the isotropic starts of theta, in scaled units."""
        is_additive = self.kernel == "additive"
        typical = self.starts or ((0.3, 5.0, 70.0) if is_additive else (0.4, 4.0))
        n_summed = 1 if is_additive else d
        return [t / (n_summed * self._typical(self.input_scaling)) for t in typical]

    def _typical(self, scaling: InputScaling) -> float:
        """Return what theta multiplies, for the typical distance in one dimension."""
        power = self.p / 2 if self.kernel == "additive" and not isinstance(self.p, str) else 1.0
        return _MEAN_SQUARE_DISTANCE[scaling] ** power


def joint_theta_prior(d: int) -> tuple[float, float]:
    """Return a `FitConfig.theta_prior` of a joint kernel in d dimensions of the unit cube.

    Length scales grow with the root of d, or nothing would be correlated [Hvarfner2024].

    [Hvarfner2024] C. Hvarfner, E. O. Hellsten, L. Nardi. Vanilla Bayesian optimization performs
    great in high dimensions. ICML 2024.
    """
    return 12.0 / d, 3.5


def isotropic_starts(n: int) -> tuple[float, ...]:
    """Return n isotropic starts for `FitConfig.starts`, spread over its useful range."""
    check_int("n_starts", n, minimum=1)
    first = (0.4, 4.0, 1.2, 0.1, 12.0, 0.03)
    return first[:n] + tuple(0.05 * 1.3**k for k in range(n - len(first)))


def _check_range(name: str, value: tuple[float, float]) -> None:
    low, high = check_pair(name, value)
    low = check_real(name, low, minimum=0.0, exclusive=True)
    check_real(name, high, minimum=low)
