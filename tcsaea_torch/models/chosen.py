"""A batch of Kriging models of different kinds."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.leave_one_out import LeaveOneOut, leave_one_out
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.models.updating import SharedSurrogate, extend
from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The models of a batch that chose one configuration."""

    config: FitConfig
    members: Int[Tensor, " k"]
    """Which models of the batch, in order."""
    surrogate: Surrogate
    """They, as a batch of k."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """A batch of b models of different kinds, which predicts as a `Surrogate` does."""

    choice: Int[Tensor, " b"]
    """Index of the configuration of each model."""
    scores: Float[Tensor, "b c"]
    """The criterion of each model with each configuration; larger is better. NaN where the
    choice is an earlier one."""
    hyperparameters: tuple[Hyperparameters, ...]
    """All that were to choose from, b of each configuration: warm starts of the next fit."""
    groups: tuple[Group, ...]
    """The models, by configuration."""
    trend: Bool[Tensor, " b"]
    """Where a linear trend was wanted."""

    def mean(self, Xq: Float[Tensor, "#b q d"]) -> Float[Tensor, "b q"]:
        """Predict means at points of the unit cube, in the objective's units."""
        return self._gather(Xq, lambda model, X: (model.mean(X),))[0]

    def predict(
        self, Xq: Float[Tensor, "#b q d"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q"]]:
        """Predict means and variances; see `Surrogate.predict`."""
        mean, variance = self._gather(Xq, lambda model, X: model.predict(X))
        return mean, variance

    def predict_joint(
        self, Xq: Float[Tensor, "#b q d"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q q"]]:
        """Predict means and the covariance matrix over all q points."""
        mean, covariance = self._gather(Xq, lambda model, X: model.predict_joint(X))
        return mean, covariance

    def leave_one_out(self) -> LeaveOneOut:
        """Return what the models would have predicted at each of their rows without it."""
        found = [leave_one_out(group.surrogate) for group in self.groups]
        order = torch.cat([group.members for group in self.groups]).argsort()
        return LeaveOneOut(
            error=torch.cat([part.error for part in found])[order],
            variance=torch.cat([part.variance for part in found])[order],
        )

    def widened(self, factor: Float[Tensor, " b"]) -> "Chosen":
        """Return the models with sigma^2 multiplied by a factor, and so all variances."""

        def widen(group: Group) -> Surrogate:
            model, mine = group.surrogate, factor[group.members]
            hyper = model.hyperparameters
            assert hyper.variance is not None
            hyper = replace(hyper, variance=hyper.variance * mine)
            return replace(model, variance=model.variance * mine, hyperparameters=hyper)

        return self._replaced(widen)

    def condition_on(self, train: TrainingSet) -> "Chosen":
        """Return the models with these rows instead; hyper-parameters and sigma^2 stay.

        So a fit may use some of the rows, and the model all. With `input_scaling`
        "standardize", theta is in units of the new rows' spread.

        Args:
            train: Training sets without duplicates, `b x n`.
        """

        def conditioned(group: Group) -> Surrogate:
            config = group.config
            rows = train if len(self.groups) == 1 else train[group.members]
            trend = self.trend[group.members]
            data, scaling = scale(rows, trend=trend, input_scaling=config.input_scaling)
            nugget = config.nugget_for(rows.X.dtype)
            return condition(data, scaling, group.surrogate.hyperparameters, nugget=nugget)

        return self._replaced(conditioned)

    def extend(
        self,
        X: Float[Tensor, "b q d"],
        y: Float[Tensor, "b q"],
        noise_var: Float[Tensor, "b q"],
    ) -> "Chosen":
        """Return the models with q more rows, by `updating.extend`."""

        def extended(group: Group) -> Surrogate:
            k = group.members
            nugget = X.new_tensor(group.config.nugget_for(X.dtype))
            base = SharedSurrogate.of(group.surrogate)
            return extend(base, X[k], y[k], noise_var[k], nugget=nugget)

        return self._replaced(extended)

    def _replaced(self, change: Callable[[Group], Surrogate]) -> "Chosen":
        groups = tuple(replace(group, surrogate=change(group)) for group in self.groups)
        return replace(self, groups=groups)

    def _gather(
        self, Xq: Tensor, call: Callable[[Surrogate, Tensor], tuple[Tensor, ...]]
    ) -> list[Tensor]:
        """Return what the models answer, in the order of the batch."""
        if len(self.groups) == 1:
            return list(call(self.groups[0].surrogate, Xq))
        is_shared = Xq.ndim == 2 or Xq.shape[0] == 1
        answers = [
            call(group.surrogate, Xq if is_shared else Xq[group.members]) for group in self.groups
        ]
        order = torch.cat([group.members for group in self.groups]).argsort()
        return [torch.cat(parts)[order] for parts in zip(*answers, strict=True)]
