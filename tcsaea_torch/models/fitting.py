"""Hyper-parameters of many Kriging models at once: of maximum likelihood, or nearly so.

The additive kernel has so many that its amplitudes get a prior: those found are then the most
probable ones. Runs, objectives and starts are all members of one batch; see `optimise` for the
optimiser and `likelihood` for the function that it minimises.
"""

import math
from dataclasses import dataclass

import torch

from tcsaea_torch.kernels import FREE_POWER_RANGE, check_power_mode
from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.likelihood import Likelihood, Prepared, Standardised, evaluate, prepare
from tcsaea_torch.models.optimise import minimise_in_box
from tcsaea_torch.models.surrogate import (
    Hyperparameters,
    Scaling,
    Surrogate,
    condition,
    scale,
)
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Bool, Float, Int, Tensor

_PART = {"cpu": 2**18, "cuda": 2**28}
"""Numbers in one matrix, or table of pairs, of all members that are evaluated together."""

_VARIANCE_RANGE = (1e-4, 1e4)
"""Range of a fitted sigma^2 in units of the outputs' sample variance."""

_LOG_AMPLITUDES, _LOG_WEIGHTS = (-6.0, 5.0), (-12.0, 12.0)
"""Ranges of ln(d a_k) and of ln w of the additive kernel."""

_NUGGET_START = 1e-4


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

    Raises:
        FitError: If a correlation matrix cannot be factorised.
    """
    data, scaling = scale(train, trend=trend, input_scaling=config.input_scaling)
    hyperparameters = maximise_likelihood(data, scaling, config, init=init)
    return condition(data, scaling, hyperparameters, nugget=config.nugget_for(train.X.dtype))


@torch.no_grad()
def maximise_likelihood(
    data: Standardised,
    scaling: Scaling,
    config: FitConfig,
    *,
    init: Hyperparameters | None,
) -> Hyperparameters:
    """Find the hyper-parameters of `b` models; see `fit`."""
    b, _, d = data.X.shape
    layout = _Layout(d=d, config=config, fits_variance=bool((data.noise > 0).any()))
    starts = layout.starts(data, scaling, init)
    nugget = 0.0 if layout.fits_nugget else config.nugget_for(data.X.dtype)
    prepared = prepare(data, nugget, p=layout.powers(starts[:, 0]), kernel=config.kernel)
    penalty = layout.penalty(data.X)
    objective = _Objective(prepared, layout, penalty, n_starts=starts.shape[1])
    lower, upper = layout.box(data.X)
    found = minimise_in_box(
        objective, starts.flatten(0, 1), lower, upper, config.options, n_rivals=starts.shape[1]
    )
    best = found.value.reshape(b, -1).argmin(dim=-1)
    v = found.x.reshape(starts.shape)[torch.arange(b, device=best.device), best]
    log_variance = layout.log_variance(v)
    log_amplitudes, log_nugget = layout.log_amplitudes(v), layout.log_nugget(v)
    return Hyperparameters(
        theta=v[:, :d].exp(),
        p=layout.powers(v),
        variance=None if log_variance is None else log_variance.exp() * scaling.y_scale.square(),
        kernel=config.kernel,
        amplitudes=None if log_amplitudes is None else log_amplitudes.exp(),
        nugget=None if log_nugget is None else log_nugget.exp(),
    )


class _Objective:
    """The likelihoods of all starts of all models, for `minimise_in_box`.

    A member is one start of one model. Members are evaluated in parts whose matrices stay
    in the cache of a CPU, or fit the memory of a GPU.
    """

    def __init__(
        self,
        prepared: Prepared,
        layout: "_Layout",
        penalty: "_Penalty | None",
        *,
        n_starts: int,
    ) -> None:
        self._prepared, self._layout, self._n_starts = prepared, layout, n_starts
        self._penalty = penalty
        limit = _PART["cpu" if prepared.noise.device.type == "cpu" else "cuda"]
        self._size = max(1, limit // prepared.correlation.numbers)
        self._members: Tensor | None = None
        self._parts: list[Prepared] = []
        self._penalties: list[_Penalty | None] = []

    def __call__(
        self, v: Float[Tensor, "k v"], members: Int[Tensor, " k"]
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, "k v"]]:
        """Return values and gradients."""
        if members is not self._members:
            self._select(members)
        layout = self._layout
        values, gradients = [], []
        parts = zip(self._parts, self._penalties, v.split(self._size), strict=True)
        for part, penalty, w in parts:
            found = evaluate(
                part,
                w[:, : layout.d],
                layout.powers(w),
                layout.log_variance(w),
                log_amplitudes=layout.log_amplitudes(w),
                log_nugget=layout.log_nugget(w),
            )
            value, gradient = found.value, layout.gradient(found)
            if penalty is not None:
                cost, slope = penalty(w)
                value, gradient = value + cost / part.n, gradient + slope / part.n.unsqueeze(-1)
            values.append(value)
            gradients.append(gradient)
        if len(values) == 1:
            return values[0], gradients[0]
        return torch.cat(values), torch.cat(gradients)

    def _select(self, members: Tensor) -> None:
        models = members // self._n_starts
        if self._size == 1:  # views, where a copy would take as much memory as the original
            self._parts = [self._prepared[k : k + 1] for k in models.tolist()]
        else:
            self._parts = [self._prepared[k] for k in models.split(self._size)]
        penalty = self._penalty
        self._penalties = [
            None if penalty is None else penalty[k] for k in models.split(self._size)
        ]
        self._members = members


@dataclass(frozen=True, kw_only=True, eq=False)
class _Penalty(Indexed):
    """Minus the logarithm of a normal prior of the optimiser's vector."""

    centre: Float[Tensor, "b v"]
    precision: Float[Tensor, "b v"]
    """0 where nothing is known."""

    def __call__(self, v: Float[Tensor, "b v"]) -> tuple[Float[Tensor, " b"], Float[Tensor, "b v"]]:
        """Return it and its slope."""
        difference = v - self.centre
        slope = difference * self.precision
        return 0.5 * (difference * slope).sum(dim=-1), slope


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Which entries of the optimiser's vector mean what.

    ln theta, then, where the configuration asks for them, p, ln a and ln w, the logarithm of
    the nugget, and ln sigma^2.
    """

    d: int
    config: FitConfig
    fits_variance: bool

    @property
    def n_powers(self) -> int:
        return check_power_mode(self.config.p, d=self.d)

    @property
    def n_amplitudes(self) -> int:
        return self.d + 1 if self.config.kernel == "additive" else 0

    @property
    def fits_nugget(self) -> bool:
        return self.config.nugget == "fit"

    def powers(self, v: Tensor) -> Tensor | None:
        if self.n_powers:
            return v[:, self.d : self.d + self.n_powers].expand(len(v), self.d)
        mode = self.config.p
        return None if mode == 2.0 else v.new_full((len(v), self.d), float(mode))

    def log_amplitudes(self, v: Tensor) -> Tensor | None:
        first = self.d + self.n_powers
        return v[:, first : first + self.n_amplitudes] if self.n_amplitudes else None

    def log_nugget(self, v: Tensor) -> Tensor | None:
        return v[:, self.d + self.n_powers + self.n_amplitudes] if self.fits_nugget else None

    def log_variance(self, v: Tensor) -> Tensor | None:
        return v[:, -1] if self.fits_variance else None

    def gradient(self, found: Likelihood) -> Float[Tensor, "k v"]:
        """Return the derivatives with respect to the optimiser's vector."""
        parts = [found.d_log_theta]
        if found.d_p is not None and self.n_powers:
            is_shared = self.n_powers < self.d
            parts.append(found.d_p.sum(dim=-1, keepdim=True) if is_shared else found.d_p)
        if found.d_log_amplitudes is not None:
            parts.append(found.d_log_amplitudes)
        if found.d_log_nugget is not None:
            parts.append(found.d_log_nugget.unsqueeze(-1))
        if found.d_log_variance is not None:
            parts.append(found.d_log_variance.unsqueeze(-1))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def penalty(self, X: Float[Tensor, "b n d"]) -> _Penalty | None:
        """Return the priors of the vector's entries; None where nothing is known of any."""
        config, d = self.config, self.d
        nothing = (1.0, math.inf)
        theta, nugget = config.theta_prior or nothing, config.nugget_prior or nothing
        parts = [(math.log(theta[0]), theta[1])] * d + [(0.0, math.inf)] * self.n_powers
        if self.n_amplitudes:
            spreads = [config.amplitude_spread] * d + [config.weight_spread]
            parts += list(zip(self._neutral, spreads, strict=True))
        parts += [(math.log(nugget[0]), nugget[1])] * self.fits_nugget
        parts += [(0.0, math.inf)] * self.fits_variance
        centre, spread = X.new_tensor(parts).unbind(dim=-1)
        if bool(spread.isinf().all()):
            return None
        return _Penalty(
            centre=centre.expand(len(X), -1),
            precision=spread.square().reciprocal().expand(len(X), -1),
        )

    @property
    def _neutral(self) -> list[float]:
        """Amplitudes ln a_k = ln(1 / d), with which they sum to 1, and ln w = 0."""
        return [-math.log(self.d)] * self.d + [0.0]

    def box(self, like: Tensor) -> tuple[Tensor, Tensor]:
        neutral, is_additive = -math.log(self.d), self.n_amplitudes > 0
        rows = [
            [math.log(self.config.theta_box[i])] * self.d
            + [FREE_POWER_RANGE[i]] * self.n_powers
            + ([neutral + _LOG_AMPLITUDES[i]] * self.d + [_LOG_WEIGHTS[i]]) * is_additive
            + [math.log(self.config.nugget_range[i])] * self.fits_nugget
            + [math.log(_VARIANCE_RANGE[i])] * self.fits_variance
            for i in (0, 1)
        ]
        lower, upper = like.new_tensor(rows)
        return lower, upper

    def starts(self, data: Standardised, scaling: Scaling, init: Hyperparameters | None) -> Tensor:
        """Return `b x s x v` starting points."""
        b, _, d = data.X.shape
        parts = []
        if init is not None:
            parts.append(init.theta.log().unsqueeze(1))
        else:
            thetas = [[math.log(theta)] for theta in self.config.start_thetas(d)]
            parts.append(data.X.new_tensor(thetas).expand(b, -1, d))
        s = parts[0].shape[1]
        if self.n_powers:
            if init is not None and init.p is not None:
                parts.append(init.p[:, : self.n_powers].unsqueeze(1))
            else:
                parts.append(data.X.new_full((b, s, self.n_powers), 1.9))
        if self.n_amplitudes:
            if init is not None and init.amplitudes is not None:
                parts.append(init.amplitudes.log().unsqueeze(1))
            else:
                parts.append(data.X.new_tensor(self._neutral).expand(b, s, -1))
        if self.fits_nugget:
            if init is not None and init.nugget is not None:
                parts.append(init.nugget.log().reshape(b, 1, 1))
            else:
                parts.append(data.X.new_full((b, s, 1), math.log(_NUGGET_START)))
        if self.fits_variance:
            log_variance = data.X.new_zeros(b, s, 1)
            if init is not None and init.variance is not None:
                relative = init.variance / scaling.y_scale.square()
                log_variance = relative.log().reshape(b, 1, 1)
            parts.append(log_variance)
        return torch.cat(parts, dim=-1)
