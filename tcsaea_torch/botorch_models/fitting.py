"""How a `CoSurrogateModel` comes from data: kernels, the link, and synthetic slow values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.transforms.input import Normalize

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.choice import cross_validate, fit_best
from tcsaea_torch.models.chosen import Chosen, Group
from tcsaea_torch.models.fit_config import FitConfig, joint_theta_prior
from tcsaea_torch.models.kriging import KrigingGP
from tcsaea_torch.models.leave_one_out import LeaveOneOut
from tcsaea_torch.models.training_set import TrainingSet, first_equal_row
from tcsaea_torch.transfer.links import LinkConfig, lower_bounds
from tcsaea_torch.transfer.slow_from_fast import SlowFromFast, believe, fit_links
from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import check_bool, check_bounds, check_optional_pair, describe

_LARGEST_FACTOR = 100.0
"""By which variances grow, at most, to cover the errors."""


class MeasuredGP(KrigingGP):
    """Kriging whose new values are measured, whatever the noise of those it learned from.

    Synthetic values are uncertain; what will be observed, or is fantasised, is not.

    Args:
        *args: See `KrigingGP`.
        **kwargs: Likewise.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._n_fitted = self.training_values.shape[-1]

    @property
    def is_measured(self) -> Bool[Tensor, "*batch n"]:
        """Which rows were measured: all but uncertain ones among those that it was fitted to."""
        noise_var = self.known_noise.noise_var
        is_new = torch.arange(noise_var.shape[-1], device=noise_var.device) >= self._n_fitted
        return (noise_var == 0) | is_new

    def posterior(
        self,
        X: Tensor,
        output_indices: Sequence[Any] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Any:
        """Return the joint posterior; `observation_noise=True` adds none. See `KrigingGP`."""
        return super().posterior(
            X,
            None,  # lists of models pass on indices that count outputs of the whole list
            observation_noise if isinstance(observation_noise, Tensor) else False,
            posterior_transform,
        )

    def _with_rows(
        self, X: Tensor, inputs: Tensor, y: Tensor, noise_var: Tensor | None
    ) -> KrigingGP:
        if noise_var is None:
            noise_var = torch.zeros_like(y)
        model = super()._with_rows(X, inputs, y, noise_var)
        assert isinstance(model, MeasuredGP)
        model._n_fitted = self._n_fitted
        return model


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """What is known: distinct points, each with at least one value."""

    X: Float[Tensor, "k d"]
    """Points, in the user's units."""
    U: Float[Tensor, "k d"]
    """The same in the unit cube."""
    Y: Float[Tensor, "k 2"]
    """Minimised values; 0 where there is none."""
    observed: Bool[Tensor, "k 2"]
    box: Float[Tensor, "2 d"]
    sign: float
    """Turns minimised values into the user's."""

    @classmethod
    def of(cls, X: Any, Y: Any, bounds: Any, *, maximize: bool) -> "Data":
        """Check what a user gave, and merge rows at the same point."""
        X, Y = _check_data(X, Y)
        d = X.shape[-1]
        if bounds is None:
            box = torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])
        else:
            box = check_bounds(bounds).to(X)
            if box.shape[-1] != d:
                raise InvalidInputError(
                    f"bounds must have shape (2, {d}) to go with train_X, got {tuple(box.shape)}"
                )
        low, high = box
        # Fixed parameters become 0.
        box = torch.stack([low, torch.where(high > low, high, low + 1.0)])
        sign = -1.0 if check_bool("maximize", maximize) else 1.0
        observed = ~Y.isnan()
        live = observed.any(dim=-1)
        first = first_equal_row(X, live)
        zero, index = torch.zeros_like(Y), first.unsqueeze(-1).expand(-1, 2)
        count = zero.scatter_add(0, index, observed.to(Y))
        mean = zero.scatter_add(0, index, sign * Y.nan_to_num(0.0)) / count.clamp_min(1.0)
        kept = live & (first == torch.arange(len(X), device=X.device))
        for i, name in enumerate(("fast", "slow")):
            if not bool(observed[:, i].any()):
                raise InvalidInputError(f"train_Y must hold at least one {name} value, got none")
        return cls(
            X=X[kept],
            U=((X - box[0]) / (box[1] - box[0]))[kept],
            Y=mean[kept],
            observed=count[kept] > 0,
            box=box,
            sign=sign,
        )

    def lower_bound(self, given: Any) -> Float[Tensor, "1 2"]:
        """Return below what no minimised value lies; -inf where that is not known."""
        bounds = check_optional_pair("objective_lower_bounds", given)
        return lower_bounds(self.Y[None], self.observed[None], bounds)

    def link(
        self, own: "Fitted", config: LinkConfig, low: Float[Tensor, "1 2"]
    ) -> SlowFromFast | None:
        """Fit the links; return the one that has proved itself, if any."""
        slow, both = self.observed[:, 1], self.observed.all(dim=-1)
        if int(both.sum()) < config.min_rows:
            return None
        errors = own.chosen.leave_one_out()
        error, variance = torch.zeros_like(self.Y[:, 1]), torch.full_like(self.Y[:, 1], torch.inf)
        error[slow], variance[slow] = errors.error[0], errors.variance[0]
        found = fit_links(
            self.U[None],
            self.Y[None, :, 0],
            self.Y[None, :, 1],
            (both & (variance < torch.inf))[None],
            LeaveOneOut(error=error[None], variance=variance[None]),
            config,
            lower_bound=low,
        )
        return found if int(found.choice) >= 0 else None

    def joined(
        self, own: "Fitted", link: SlowFromFast, belief: float
    ) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
        """Return measured and synthetic slow values, and how uncertain they are.

        None is believed that the measured ones contradict.
        """
        fast, slow = self.observed.unbind(dim=-1)
        mean, variance = own.chosen.widened(own.factor).predict(self.U[None])
        y, noise_var = link.predict(self.U[None], self.Y[None, :, 0])
        square = link.learned.slow_square
        noise_var = believe(mean, variance, y, noise_var, belief=belief, slow_square=square)
        noise_var = noise_var[0].masked_fill(~fast, torch.inf).masked_fill(slow, 0.0)
        return torch.where(slow, self.Y[:, 1], y[0]), noise_var

    def model(
        self,
        fitted: "Fitted",
        y: Float[Tensor, " k"],
        noise_var: Float[Tensor, " k"],
        rows: Bool[Tensor, " k"],
    ) -> KrigingGP:
        """Return a model in the user's units and sign, with hyper-parameters that were found."""
        group = fitted.group
        hyperparameters = group.surrogate.hyperparameters[0]
        assert hyperparameters.variance is not None
        # All variances grow alike, so that predicted means stay.
        widened = replace(hyperparameters, variance=hyperparameters.variance * fitted.factor[0])
        return MeasuredGP(
            self.X[rows],
            self.sign * y[rows],
            widened,
            noise_var[rows] * fitted.factor,
            input_scaling=group.config.input_scaling,
            nugget=group.config.nugget_for(y.dtype),
            input_transform=Normalize(self.box.shape[-1], bounds=self.box),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Fitted:
    """A model, and by how much its variances must grow to cover its errors."""

    chosen: Chosen
    factor: Float[Tensor, "1"]

    @property
    def group(self) -> Group:
        """The one model that there is."""
        (group,) = self.chosen.groups
        return group


def _check_data(X: Any, Y: Any) -> tuple[Tensor, Tensor]:
    for name, value, columns in (("train_X", X, "d"), ("train_Y", Y, "2")):
        is_float = isinstance(value, Tensor) and value.dtype in (torch.float32, torch.float64)
        if not is_float or value.ndim != 2 or 0 in value.shape:
            raise InvalidInputError(
                f"{name} must be a tensor n x {columns} of float32 or float64, "
                f"got {describe(value)}"
            )
    if Y.shape != (len(X), 2):
        raise InvalidInputError(
            f"train_Y must have shape ({len(X)}, 2), (fast, slow) of each row of train_X, "
            f"got {describe(Y)}"
        )
    if Y.dtype != X.dtype or Y.device != X.device:
        raise InvalidInputError(
            f"train_Y must have train_X's dtype and device ({X.dtype}, {X.device}), "
            f"got {Y.dtype}, {Y.device}"
        )
    for name, value, bad, expected in (
        ("train_X", X, ~X.isfinite(), "finite"),
        ("train_Y", Y, Y.isinf(), "finite, or NaN where not measured"),
    ):
        places = bad.nonzero()
        if len(places):
            place = tuple(int(i) for i in places[0])
            raise InvalidInputError(
                f"{name} must be {expected}, got {value[place].item()} at index {place}"
            )
    return X.detach(), Y.detach()


def default_kriging(d: int) -> tuple[FitConfig, ...]:
    """Return a joint and an additive kernel, each with a nugget for what is too rough for it."""
    return (
        FitConfig(
            theta_range=(1e-6, 1e3),
            theta_prior=joint_theta_prior(d),
            nugget="fit",
            nugget_range=(1e-8, 0.1),
            nugget_prior=(1e-4, 2.0),
        ),
        FitConfig(
            kernel="additive", nugget="fit", nugget_range=(1e-8, 0.3), nugget_prior=(1e-3, 2.0)
        ),
    )


def fit(
    U: Float[Tensor, "k d"],
    y: Float[Tensor, " k"],
    noise_var: Float[Tensor, " k"],
    rows: Bool[Tensor, " k"],
    configs: Sequence[FitConfig],
    *,
    cross_validates: bool = False,
) -> Fitted:
    """Fit one model with each configuration, and keep the best.

    Args:
        U: Points in the unit cube.
        y: Their values.
        noise_var: The variances of these.
        rows: Which of them are used.
        configs: What to choose from.
        cross_validates: Whether errors are those of fits to other rows; else leave-one-out.
    """
    train = TrainingSet(X=U[rows][None], y=y[rows][None], noise_var=noise_var[rows][None])
    trend = torch.zeros(1, dtype=torch.bool, device=U.device)
    criterion = "cross-validation" if cross_validates and len(configs) > 1 else "leave-one-out"
    chosen = fit_best(train, configs, trend=trend, criterion=criterion)
    if cross_validates:
        errors = cross_validate(train, configs[int(chosen.choice)], trend=trend)
    else:
        errors = chosen.leave_one_out()
    factor = errors.variance_factor().clamp_max(_LARGEST_FACTOR)
    return Fitted(chosen=chosen, factor=factor)
