"""Kernels: all of `correlations`, and two of them for GPyTorch."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel

from tcsaea_torch.correlations import (
    additive,
    correlations,
    matern52,
    power,
    power_exponential,
    weighted_distance,
)
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernel_checks import (
    check_active_dims,
    check_batch_shape,
    check_constraint,
    check_parameter,
    set_positive,
)
from tcsaea_torch.types import Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_int,
    check_pair,
    check_real,
)

__all__ = [
    "FREE_POWER_RANGE",
    "AdditiveKernel",
    "PowerExponentialKernel",
    "additive",
    "check_power_mode",
    "correlations",
    "matern52",
    "power",
    "power_exponential",
    "weighted_distance",
]

PowerMode = float | Literal["shared", "ard"]
FREE_POWER_RANGE = (1.0, 2.0)
"""Range of a power that is fitted; below 1 sample paths are rougher than any user's data."""


class PowerExponentialKernel(Kernel):
    """GPyTorch kernel exp(-sum_k theta_k |x_k - x'_k|^p_k).

    Use it like any other kernel, for example
    `SingleTaskGP(X, Y, covar_module=ScaleKernel(PowerExponentialKernel(ard_num_dims=d)))`.

    Args:
        ard_num_dims: Number of dimensions with a theta (and p) of their own; None
            shares one theta.
        p: A fixed power in (0, 2]; "shared" to fit one power in [1, 2]; "ard" to fit
            one for each dimension.
        theta_constraint: Constraint on theta; positive by default.
        p_range: Range of a fitted power, within (0, 2].
        batch_shape: Shape of a batch of kernels with hyper-parameters of their own.
        active_dims: Columns of the points that the kernel looks at; None: all.

    Raises:
        InvalidInputError: If an argument is not as described.
    """

    raw_theta: torch.nn.Parameter
    raw_theta_constraint: Interval
    raw_p: torch.nn.Parameter
    raw_p_constraint: Interval

    def __init__(
        self,
        ard_num_dims: int | None = None,
        p: PowerMode = 2.0,
        theta_constraint: Interval | None = None,
        p_range: tuple[float, float] = FREE_POWER_RANGE,
        batch_shape: torch.Size | None = None,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        if ard_num_dims is not None:
            ard_num_dims = check_int("ard_num_dims", ard_num_dims, minimum=1)
        n_powers = check_power_mode(p, d=ard_num_dims or 1)
        lowest, highest = check_pair("p_range", p_range)
        highest = check_real("p_range", highest, minimum=0.0, maximum=2.0, exclusive=True)
        lowest = check_real("p_range", lowest, minimum=0.0, maximum=highest, exclusive=True)
        p_range = lowest, highest
        theta_constraint = check_constraint("theta_constraint", theta_constraint)
        super().__init__(
            ard_num_dims=ard_num_dims,
            batch_shape=check_batch_shape(batch_shape),
            active_dims=check_active_dims(active_dims),
        )
        shape = torch.Size([*self.batch_shape, 1, ard_num_dims or 1])
        self.register_parameter("raw_theta", torch.nn.Parameter(torch.zeros(shape)))
        self.register_constraint("raw_theta", theta_constraint)
        self.fixed_p = None if n_powers else float(p)
        if n_powers:
            raw = torch.full((*self.batch_shape, 1, n_powers), sum(p_range) / 2)
            self.register_parameter("raw_p", torch.nn.Parameter(raw))
            # No sigmoid: the best power is often 2 itself, the closed end of the range.
            self.register_constraint("raw_p", Interval(*p_range, transform=None))

    @property
    def is_stationary(self) -> bool:
        """True: the correlation depends on the difference of the points only."""
        return True

    @property
    def theta(self) -> Tensor:
        """`*batch x 1 x d` factors of |d|^p."""
        return self.raw_theta_constraint.transform(self.raw_theta)

    @theta.setter
    def theta(self, value: Tensor | float) -> None:
        set_positive(self, "theta", value)

    @property
    def p(self) -> Tensor:
        """`*batch x 1 x d` powers."""
        if self.fixed_p is not None:
            return torch.full_like(self.raw_theta, self.fixed_p)
        constraint = self.raw_p_constraint
        inside = self.raw_p.clamp(constraint.lower_bound, constraint.upper_bound)
        return inside.expand_as(self.raw_theta)

    @p.setter
    def p(self, value: Tensor | float) -> None:
        if self.fixed_p is not None:
            self.fixed_p = check_real("p", value, minimum=0.0, maximum=2.0, exclusive=True)
            return
        value = check_parameter("p", value, self.raw_p)
        constraint = self.raw_p_constraint
        if not constraint.check(value):
            low, high = float(constraint.lower_bound), float(constraint.upper_bound)
            raise InvalidInputError(f"p must be from {low:g} to {high:g}, got {value.tolist()}")
        self.initialize(raw_p=value)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the correlations of all pairs of rows, or of equal rows with `diag`."""
        d = x1.shape[-1]
        theta = self.theta.squeeze(-2).expand(*self.batch_shape, d)
        p = None if self.fixed_p == 2.0 else self.p.squeeze(-2).expand(*self.batch_shape, d)
        if diag:
            # Pairs of single rows, with the rows as one more batch dimension.
            theta, p = theta.unsqueeze(-2), None if p is None else p.unsqueeze(-2)
            difference = (x1 - x2).unsqueeze(-2)
            origin = torch.zeros_like(difference)
            return power_exponential(difference, origin, theta, p).squeeze((-2, -1))
        return power_exponential(x1, x2, theta, p)


class AdditiveKernel(Kernel):
    """GPyTorch kernel (sum_k a_k z_k + w sum_{k<l} a_k a_l z_k z_l) / U0 of second order.

    z_k = exp(-theta_k |x_k - x'_k|^p), and U0 is the numerator at distance 0. Use it within
    a `ScaleKernel`, as `PowerExponentialKernel`.

    Args:
        ard_num_dims: Number of dimensions.
        p: The power, in (0, 2]; it is not fitted.
        theta_constraint: Constraint on theta; positive by default.
        amplitude_constraint: Constraint on a and w; positive by default.
        batch_shape: Shape of a batch of kernels with hyper-parameters of their own.
        active_dims: Columns of the points that the kernel looks at; None: all.

    Raises:
        InvalidInputError: If an argument is not as described.
    """

    raw_theta: torch.nn.Parameter
    raw_theta_constraint: Interval
    raw_amplitudes: torch.nn.Parameter
    raw_amplitudes_constraint: Interval

    def __init__(
        self,
        ard_num_dims: int,
        p: float = 2.0,
        theta_constraint: Interval | None = None,
        amplitude_constraint: Interval | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: Sequence[int] | None = None,
    ) -> None:
        d = check_int("ard_num_dims", ard_num_dims, minimum=1)
        p = check_real("p", p, minimum=0.0, maximum=2.0, exclusive=True)
        theta_constraint = check_constraint("theta_constraint", theta_constraint)
        amplitude_constraint = check_constraint("amplitude_constraint", amplitude_constraint)
        super().__init__(
            ard_num_dims=d,
            batch_shape=check_batch_shape(batch_shape),
            active_dims=check_active_dims(active_dims),
        )
        self.p = p
        for name, size, constraint in (
            ("raw_theta", d, theta_constraint),
            ("raw_amplitudes", d + 1, amplitude_constraint),
        ):
            raw = torch.zeros(*self.batch_shape, 1, size)
            self.register_parameter(name, torch.nn.Parameter(raw))
            self.register_constraint(name, constraint)

    @property
    def is_stationary(self) -> bool:
        """True: the correlation depends on the difference of the points only."""
        return True

    @property
    def theta(self) -> Tensor:
        """`*batch x 1 x d` factors of |d|^p."""
        return self.raw_theta_constraint.transform(self.raw_theta)

    @theta.setter
    def theta(self, value: Tensor | float) -> None:
        set_positive(self, "theta", value)

    @property
    def amplitudes(self) -> Tensor:
        """`*batch x 1 x (d + 1)` weights a_1, ..., a_d and w."""
        return self.raw_amplitudes_constraint.transform(self.raw_amplitudes)

    @amplitudes.setter
    def amplitudes(self, value: Tensor | float) -> None:
        set_positive(self, "amplitudes", value)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return the correlations of all pairs of rows, or of equal rows with `diag`."""
        theta, amplitudes = self.theta.squeeze(-2), self.amplitudes.squeeze(-2)
        p = None if self.p == 2.0 else torch.full_like(theta, self.p)
        if diag:
            # Pairs of single rows, with the rows as one more batch dimension.
            theta, amplitudes = theta.unsqueeze(-2), amplitudes.unsqueeze(-2)
            p = None if p is None else p.unsqueeze(-2)
            difference = (x1 - x2).unsqueeze(-2)
            origin = torch.zeros_like(difference)
            return additive(difference, origin, theta, amplitudes, p).squeeze((-2, -1))
        return additive(x1, x2, theta, amplitudes, p)


def check_power_mode(p: PowerMode, *, d: int) -> int:
    """Check p and return how many free powers it means: 0, 1 or d."""
    if isinstance(p, str):
        return {"shared": 1, "ard": d}[check_choice("p", p, ("shared", "ard"))]
    check_real("p", p, minimum=0.0, maximum=2.0, exclusive=True)
    return 0
