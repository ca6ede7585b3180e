"""Maximum-likelihood hyper-parameters of many Kriging models at once.

Runs, objectives and starts are all members of one batch; see `optimise` for the
optimiser and `likelihood` for the function that it minimises.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernels import (
    FREE_POWER_RANGE,
    KERNEL_NAMES,
    KernelName,
    PowerMode,
    check_power_mode,
)
from tcsaea_torch.models.likelihood import Likelihood, Prepared, Standardised, evaluate, prepare
from tcsaea_torch.models.optimise import BFGSOptions, minimise_in_box
from tcsaea_torch.models.surrogate import (
    Hyperparameters,
    InputScaling,
    Scaling,
    Surrogate,
    condition,
    scale,
)
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_pair,
    check_real,
    check_sequence,
)

_MEAN_SQUARE_DISTANCE = {"unit": 1 / 6, "standardize": 2.0}
"""Mean of (x_k - x'_k)^2 for uniform inputs, in scaled units."""

_PART = {"cpu": 2**18, "cuda": 2**28}
"""Numbers in one matrix, or table of pairs, of all members that are evaluated together."""

_VARIANCE_RANGE = (1e-4, 1e4)
"""Range of a fitted sigma^2 in units of the outputs' sample variance."""


@dataclass(frozen=True, kw_only=True)
class FitConfig:
    """How hyper-parameters are sought.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    p: PowerMode = 2.0
    """Power of the kernel: fixed in (0, 2], or fitted in [1, 2]: "shared" or "ard"."""
    kernel: KernelName = "power-exponential"
    """"power-exponential", or "matern-5/2", which has no power: p must be 2."""
    input_scaling: InputScaling = "unit"
    """"unit", or "standardize" as in DACE; theta is in these units."""
    theta_range: tuple[float, float] = (1e-8, 1e3)
    """Box for every theta. DACE's is (1e-5, 100) on standardised inputs; a variable that
    hardly matters wants a smaller one."""
    starts: tuple[float, ...] = (0.4, 4.0)
    """Isotropic starts, as the typical sum of theta d^2 between two points: far above 10
    nothing is correlated, and the likelihood has no slope."""
    nugget: float | None = None
    """Added to the diagonal of R; None means 1e-10 in float64 and 1e-5 in float32."""
    options: BFGSOptions = BFGSOptions()
    """When the optimiser stops."""

    def __post_init__(self) -> None:
        check_power_mode(self.p, d=1)
        check_choice("kernel", self.kernel, KERNEL_NAMES)
        if self.kernel != "power-exponential" and self.p != 2.0:
            raise InvalidInputError(f"p must be 2 with kernel {self.kernel!r}, got {self.p!r}")
        check_choice("input_scaling", self.input_scaling, ("unit", "standardize"))
        low, high = check_pair("theta_range", self.theta_range)
        low = check_real("theta_range", low, minimum=0.0, exclusive=True)
        check_real("theta_range", high, minimum=low)
        check_sequence("starts", self.starts)
        for start in self.starts:
            check_real("starts", start, minimum=0.0, exclusive=True)
        check_instance("options", self.options, BFGSOptions)
        if self.nugget is not None:
            check_real("nugget", self.nugget, minimum=0.0)

    def nugget_for(self, dtype: torch.dtype) -> float:
        """Return the nugget used with this dtype."""
        if self.nugget is not None:
            return self.nugget
        return 1e-10 if dtype == torch.float64 else 1e-5


def fit(
    train: TrainingSet,
    config: FitConfig,
    *,
    trend: Bool[Tensor, "*batch"],
    init: Hyperparameters | None = None,
) -> Surrogate:
    """Fit and condition one model for each member of a flat batch `b`.

    Args:
        train: Training sets without duplicates, `b x n`.
        config: How to fit.
        trend: `b`, where a linear trend is wanted.
        init: Warm start. It replaces the isotropic starts.
    """
    data, scaling = scale(train, trend=trend, input_scaling=config.input_scaling)
    hyperparameters = maximise_likelihood(data, scaling, config, init=init)
    return condition(data, scaling, hyperparameters, nugget=config.nugget_for(train.X.dtype))


@torch.no_grad()
def maximise_likelihood(
    data: Standardised, scaling: Scaling, config: FitConfig, *, init: Hyperparameters | None
) -> Hyperparameters:
    """Find the hyper-parameters of `b` models; see `fit`."""
    b, _, d = data.X.shape
    layout = _Layout(d=d, mode=config.p, fits_variance=bool((data.noise > 0).any()))
    starts = layout.starts(data, scaling, config, init)
    nugget = config.nugget_for(data.X.dtype)
    prepared = prepare(data, nugget, powers=config.p != 2.0, kernel=config.kernel)
    objective = _Objective(prepared, layout, n_starts=starts.shape[1])
    lower, upper = layout.box(config.theta_range, data.X)
    found = minimise_in_box(
        objective, starts.flatten(0, 1), lower, upper, config.options, n_rivals=starts.shape[1]
    )
    best = found.value.reshape(b, -1).argmin(dim=-1)
    v = found.x.reshape(starts.shape)[torch.arange(b, device=best.device), best]
    log_variance = layout.log_variance(v)
    return Hyperparameters(
        theta=v[:, :d].exp(),
        p=layout.powers(v),
        variance=None if log_variance is None else log_variance.exp() * scaling.y_scale.square(),
        kernel=config.kernel,
    )


class _Objective:
    """The likelihoods of all starts of all models, for `minimise_in_box`.

    A member is one start of one model. Members are evaluated in parts whose matrices stay
    in the cache of a CPU, or fit the memory of a GPU.
    """

    def __init__(self, prepared: Prepared, layout: "_Layout", *, n_starts: int) -> None:
        self._prepared, self._layout, self._n_starts = prepared, layout, n_starts
        limit = _PART["cpu" if prepared.noise.device.type == "cpu" else "cuda"]
        self._size = max(1, limit // prepared.correlation.numbers)
        self._members: Tensor | None = None
        self._parts: list[Prepared] = []

    def __call__(
        self, v: Float[Tensor, "k v"], members: Int[Tensor, " k"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k v"]]:
        """Return values and gradients."""
        if members is not self._members:
            self._select(members)
        layout = self._layout
        values, gradients = [], []
        for part, w in zip(self._parts, v.split(self._size), strict=True):
            found = evaluate(part, w[:, : layout.d], layout.powers(w), layout.log_variance(w))
            values.append(found.value)
            gradients.append(layout.gradient(found))
        if len(values) == 1:
            return values[0], gradients[0]
        return torch.cat(values), torch.cat(gradients)

    def _select(self, members: Tensor) -> None:
        models = members // self._n_starts
        if self._size == 1:  # views, where a copy would take as much memory as the original
            self._parts = [self._prepared[k : k + 1] for k in models.tolist()]
        else:
            self._parts = [self._prepared[k] for k in models.split(self._size)]
        self._members = members


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Which entries of the optimiser's vector mean what: ln theta, p, ln sigma^2."""

    d: int
    mode: PowerMode
    fits_variance: bool

    @property
    def n_powers(self) -> int:
        return check_power_mode(self.mode, d=self.d)

    def powers(self, v: Tensor) -> Tensor | None:
        if self.n_powers:
            return v[:, self.d : self.d + self.n_powers].expand(len(v), self.d)
        return None if self.mode == 2.0 else v.new_full((len(v), self.d), float(self.mode))

    def log_variance(self, v: Tensor) -> Tensor | None:
        return v[:, -1] if self.fits_variance else None

    def gradient(self, found: Likelihood) -> Tensor:
        """Return the derivatives with respect to the optimiser's vector."""
        parts = [found.d_log_theta]
        if found.d_p is not None and self.n_powers:
            is_shared = self.n_powers < self.d
            parts.append(found.d_p.sum(dim=-1, keepdim=True) if is_shared else found.d_p)
        if found.d_log_variance is not None:
            parts.append(found.d_log_variance.unsqueeze(-1))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def box(self, theta_range: tuple[float, float], like: Tensor) -> tuple[Tensor, Tensor]:
        rows = [
            [math.log(theta_range[i])] * self.d
            + [FREE_POWER_RANGE[i]] * self.n_powers
            + [math.log(_VARIANCE_RANGE[i])] * self.fits_variance
            for i in (0, 1)
        ]
        lower, upper = like.new_tensor(rows)
        return lower, upper

    def starts(
        self,
        data: Standardised,
        scaling: Scaling,
        config: FitConfig,
        init: Hyperparameters | None,
    ) -> Tensor:
        """Return `b x s x v` starting points."""
        b, _, d = data.X.shape
        parts = []
        if init is not None:
            parts.append(init.theta.log().unsqueeze(1))
        else:
            mean_square = _MEAN_SQUARE_DISTANCE[config.input_scaling]
            thetas = [[math.log(typical / (d * mean_square))] for typical in config.starts]
            parts.append(data.X.new_tensor(thetas).expand(b, -1, d))
        s = parts[0].shape[1]
        if self.n_powers:
            if init is not None and init.p is not None:
                parts.append(init.p[:, : self.n_powers].unsqueeze(1))
            else:
                parts.append(data.X.new_full((b, s, self.n_powers), 1.9))
        if self.fits_variance:
            log_variance = data.X.new_zeros(b, s, 1)
            if init is not None and init.variance is not None:
                relative = init.variance / scaling.y_scale.square()
                log_variance = relative.log().reshape(b, 1, 1)
            parts.append(log_variance)
        return torch.cat(parts, dim=-1)


def isotropic_starts(n: int) -> tuple[float, ...]:
    """Return n isotropic starts for `FitConfig.starts`, spread over its useful range."""
    check_int("n_starts", n, minimum=1)
    first = (0.4, 4.0, 1.2, 0.1, 12.0, 0.03)
    return first[:n] + tuple(0.05 * 1.3**k for k in range(n - len(first)))
