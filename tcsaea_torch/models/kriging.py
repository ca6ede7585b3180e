"""`KrigingGP`: our Kriging as a GPyTorch `ExactGP` and a BoTorch `Model`."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.model import FantasizeMixin
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.posteriors.transformed import TransformedPosterior
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernels import AdditiveKernel
from tcsaea_torch.models.bundles import TensorStore, map_tensors
from tcsaea_torch.models.checks import (
    check_hyperparameters,
    check_new_rows,
    check_observation_noise,
    check_outputs,
    check_training_data,
)
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.parts import ExactNormal, KnownNoise, unit_cube_kernel
from tcsaea_torch.models.surrogate import (
    Hyperparameters,
    InputScaling,
    Trend,
    condition,
    scale,
)
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.models.transforms import transform_rows
from tcsaea_torch.models.updating import SharedSurrogate, append_rows, extend
from tcsaea_torch.types import Tensor
from tcsaea_torch.validation import check_bool, check_choice, check_real, describe


class KrigingGP(ExactGP, GPyTorchModel, FantasizeMixin):
    """Kriging with given hyper-parameters: exact, with the trend's uncertainty.

    The trend (constant or linear) is estimated by generalised least squares, and
    predictions include the variance of that estimate, as in DACE. Calls and
    `posterior` are differentiable in the points and joint over them.

    The state dict holds the conditioned model, its data included: a model of the same
    shapes that loads it predicts the same.

    Args:
        X: `*batch x n x d` training points in the unit cube (with `input_transform`: in
            the user's units).
        y: `*batch x n` (or `*batch x n x 1`) values.
        hyperparameters: theta and p in the units of `input_scaling`, and sigma^2
            (None: its closed form, which needs noise-free rows).
        noise_var: `*batch x n` variances of the values, in squared units of y; None
            means exact values, inf a row that does not exist.
        trend: "constant" or "linear"; the latter needs d + 2 rows, else it is constant.
        input_scaling: "unit", or "standardize" as in DACE.
        nugget: Added to the diagonal of the correlation matrix, unless the
            hyper-parameters hold one; None means 1e-10 in float64 and 1e-5 in float32.
        input_transform: From the user's inputs to those of the model, such as BoTorch's
            `Normalize`. It learns here, once.
        outcome_transform: Likewise for the values. Posteriors are in the user's units,
            hyper-parameters in the transform's.

    Attributes:
        surrogate: The bundle of tensors that predicts; its `jitter` tells what had to
            be added to the diagonal, its `is_linear` which trend was used.

    Raises:
        InvalidInputError: If shapes, values or names are wrong.
        FitError: If the correlation matrix cannot be factorised.
    """

    _num_outputs = 1
    train_inputs: tuple[Tensor]
    train_targets: Tensor  # pyright: ignore[reportIncompatibleMethodOverride]
    nugget: Tensor
    training_points: Tensor
    training_values: Tensor

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        hyperparameters: Hyperparameters,
        noise_var: Tensor | None = None,
        *,
        trend: Trend = "constant",
        input_scaling: InputScaling = "unit",
        nugget: float | None = None,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        given = check_training_data(X, y, noise_var)
        train = merge_duplicates(transform_rows(given, input_transform, outcome_transform))
        check_hyperparameters("hyperparameters", hyperparameters, train)
        check_choice("trend", trend, ("constant", "linear"))
        if nugget is not None:
            check_real("nugget", nugget, minimum=0.0)
        config = FitConfig(input_scaling=input_scaling, nugget=nugget)
        is_linear = torch.full(train.y.shape[:-1], trend == "linear", device=train.X.device)
        data, scaling = scale(train, trend=is_linear, input_scaling=input_scaling)
        hyperparameters = map_tensors(hyperparameters, lambda t: t.detach())
        used_nugget = config.nugget_for(train.X.dtype)
        surrogate = condition(data, scaling, hyperparameters, nugget=used_nugget)
        self._set_up(
            replace(train, X=given.X),
            SharedSurrogate.of(surrogate),
            nugget=train.X.new_tensor(used_nugget),
            covar_module=unit_cube_kernel(surrogate),
            input_transform=input_transform,
            outcome_transform=outcome_transform,
        )

    def _set_up(
        self,
        rows: TrainingSet,
        surrogate: SharedSurrogate,
        *,
        nugget: Tensor,
        covar_module: ScaleKernel,
        input_transform: InputTransform | None,
        outcome_transform: OutcomeTransform | None,
    ) -> None:
        """Initialise, with the points of `rows` in the user's units."""
        noise_var = rows.noise_var.detach().contiguous()
        X, y = rows.X.detach().contiguous(), rows.y.detach().contiguous()
        super().__init__(X, y, _GaussianLikelihoodBase(KnownNoise(noise_var)))
        self.register_buffer("nugget", nugget)
        self.register_buffer("training_points", X)
        self.register_buffer("training_values", y)
        self.conditioned = TensorStore(surrogate)
        self.covar_module = covar_module
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            self.outcome_transform = outcome_transform
        self.register_load_state_dict_post_hook(_follow_state)
        self.eval()

    @property
    def surrogate(self) -> SharedSurrogate:
        """The bundle of tensors that predicts."""
        return self.conditioned.read()

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Fitted theta and p in the units of `input_scaling`, and sigma^2 in squared units of y."""
        return self.surrogate.hyperparameters

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at `*batch x q x d` points, with the estimated trend as mean."""
        if self.training and hasattr(self, "input_transform"):
            X = self.input_transform.preprocess_transform(X)
        return MultivariateNormal(self.surrogate.trend(X), self.covar_module(X))

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the joint posterior of the latent values at `*batch x q x d` points.

        In training mode, the prior at the training points, as GPyTorch's likelihoods
        expect. Transforms are left to `posterior`.
        """
        if self.training:
            return super().__call__(X, **kwargs)
        surrogate = self.surrogate
        d = surrogate.data.X.shape[-1]
        if not isinstance(X, Tensor) or X.ndim < 2 or X.shape[-1] != d:
            raise InvalidInputError(f"X must have shape (*batch, q, {d}), got {describe(X)}")
        mean, covariance = surrogate.predict_joint(X)
        # Covers rounding errors. GPyTorch's own jitter, needed for samples at training
        # points, is absolute: too small for outputs of 1e6, too large for those of 1e-6.
        assert surrogate.hyperparameters.variance is not None
        rounding = 128 * torch.finfo(mean.dtype).eps * surrogate.hyperparameters.variance
        covariance.diagonal(dim1=-2, dim2=-1).add_(rounding.unsqueeze(-1))
        # As an operator: a tensor would be factorised here, which fails between near-equal points.
        return ExactNormal(mean, to_linear_operator(covariance))

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GPyTorchPosterior | TransformedPosterior:
        """Return the joint posterior at `*batch x q x d` points.

        Args:
            X: Points, in the user's units.
            output_indices: None or [0]: there is one output.
            observation_noise: Whether to add the mean noise of the rows; or the noise
                itself, `*#batch x (q or 1) x 1`, in the outcome transform's units.
            posterior_transform: Applied to the result.

        Raises:
            InvalidInputError: If a shape or an index is wrong.
        """
        check_outputs("output_indices", output_indices)
        self.eval()
        X = self.transform_inputs(X)
        normal = self(X)
        if isinstance(observation_noise, Tensor):
            noise = check_observation_noise(observation_noise, normal.mean.shape)
            normal = self.likelihood(normal, X, noise=noise)
        elif check_bool("observation_noise", observation_noise):
            normal = self.likelihood(normal, X)
        posterior: Any = GPyTorchPosterior(distribution=normal)
        if hasattr(self, "outcome_transform"):
            posterior = self.outcome_transform.untransform_posterior(posterior, X=X)
        if posterior_transform is not None:
            posterior = posterior_transform(posterior=posterior, X=X)
        return posterior

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> "KrigingGP":
        """Return a model with q more rows and the same hyper-parameters; see `extend`.

        Scaling, sigma^2 (also one in closed form) and the kind of trend stay, the trend
        is estimated anew. Exact to rounding, differentiable in X and Y, O(n^2 q). Rows
        that repeat others are kept: by the nugget, the prediction there is near their
        mean. Without one they get a jitter, recorded in `surrogate.jitter`, and the
        earlier row wins.

        Args:
            X: `*batch x q x d` points, in the user's units.
            Y: `*batch x q x 1` values. Batch shapes broadcast with the model's, which
                grows accordingly; Y may have more dimensions, such as fantasies.
            noise: `*batch x (q or 1) x 1` variances, in the outcome transform's units;
                inf where there is no row. None: the mean noise of the rows at hand, so
                0 if these are exact.
            **kwargs: None are known.

        Raises:
            InvalidInputError: If an argument is wrong.
            FitError: If the correlation matrix cannot be factorised.
        """
        if kwargs:
            raise InvalidInputError(f"condition_on_observations does not know {sorted(kwargs)}")
        for name, value in (("Y", Y), ("noise", noise)):
            is_column = isinstance(value, Tensor) and value.ndim >= 2 and value.shape[-1] == 1
            if not is_column and not (name == "noise" and value is None):
                raise InvalidInputError(
                    f"{name} must have shape (*batch, q, 1), got {describe(value)}"
                )
        self.eval()
        inputs = self.transform_inputs(X)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y=Y, X=inputs)
        return self._with_rows(X, inputs, Y.squeeze(-1), None if noise is None else noise[..., 0])

    def get_fantasy_model(
        self, inputs: Tensor | list[Tensor], targets: Tensor, noise: Tensor | None = None
    ) -> "KrigingGP":
        """Return a model with more rows, GPyTorch's way: see `condition_on_observations`.

        Args:
            inputs: `*batch x q x d` points, transformed; or a list of one such tensor.
            targets: `*batch x q` values, transformed.
            noise: `*batch x q` variances, transformed.
        """
        self.eval()
        X = inputs if isinstance(inputs, Tensor) else inputs[0]
        given = self.input_transform.untransform(X) if hasattr(self, "input_transform") else X
        return self._with_rows(given, X, targets, noise)

    def _with_rows(
        self, X: Tensor, inputs: Tensor, y: Tensor, noise_var: Tensor | None
    ) -> "KrigingGP":
        before = self.surrogate
        if noise_var is None:
            noise_var = self.known_noise.mean.unsqueeze(-1)
        inputs, y, noise_var = check_new_rows(
            inputs, y, noise_var, like=before.data.X, batch_shape=self.batch_shape
        )
        after = extend(before, inputs, y, noise_var, nugget=self.nugget)
        batch = after.variance.shape
        X = torch.where((noise_var < torch.inf).unsqueeze(-1), X, 0.0)
        rows = TrainingSet(
            X=append_rows(self.training_points, X).expand(*batch, -1, -1),
            y=append_rows(self.training_values, y, dim=-1).expand(*batch, -1),
            noise_var=append_rows(self.known_noise.noise_var, noise_var, dim=-1).expand(*batch, -1),
        )
        model = self.__new__(type(self))
        model._set_up(
            rows,
            after,
            nugget=self.nugget,
            covar_module=copy.deepcopy(self.covar_module),
            input_transform=copy.deepcopy(getattr(self, "input_transform", None)),
            outcome_transform=copy.deepcopy(getattr(self, "outcome_transform", None)),
        )
        return model

    def subset_output(self, idcs: list[int]) -> "KrigingGP":
        """Return this model: it has one output.

        Raises:
            InvalidInputError: If `idcs` is not [0].
        """
        check_outputs("idcs", idcs)
        return self

    def set_train_data(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: the model was conditioned on its data.

        Raises:
            InvalidInputError: Always.
        """
        raise InvalidInputError(
            "the data of a KrigingGP are fixed: append rows by condition_on_observations, "
            "or make another one, KrigingGP(X, y, gp.hyperparameters)"
        )

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Become the model of this state, with its data and transforms.

        Args:
            state_dict: State of a model of the same shapes, with p where this one has p.
            strict: Whether all names must fit.
            keep_transforms: Without effect: the data are part of the state.
            assign: As in `torch.nn.Module.load_state_dict`.
        """
        return torch.nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)

    def train(self, mode: bool = True) -> "KrigingGP":
        """Set training or evaluation mode. Transforms stay as they were learnt."""
        super().train(mode)
        for name in ("input_transform", "outcome_transform"):
            if hasattr(self, name):
                getattr(self, name).eval()
        return self

    @property
    def known_noise(self) -> KnownNoise:
        """The noise of the rows; its `noise_var` is inf for those that do not exist."""
        return self.likelihood.noise_covar  # type: ignore[return-value]

    def _set_transformed_inputs(self) -> None:
        if hasattr(self, "input_transform") and not self._has_transformed_inputs:
            self._original_train_inputs = self.training_points
            with torch.no_grad():
                X = self.input_transform.preprocess_transform(self.training_points)
            self.train_inputs = (X,)
            self._has_transformed_inputs = True

    def _revert_to_original_inputs(self) -> None:
        self.train_inputs = (self.training_points,)
        self._has_transformed_inputs = False

    def _take_rows_from_buffers(self) -> None:
        self.train_targets = self.training_values
        self._revert_to_original_inputs()
        if not self.training:
            self._set_transformed_inputs()

    def _apply(self, fn: Any) -> "KrigingGP":
        super()._apply(fn)
        self._take_rows_from_buffers()
        return self


def _follow_state(model: KrigingGP, _: Any) -> None:
    """After the buffers changed, follow them with what GPyTorch keeps elsewhere."""
    model._take_rows_from_buffers()
    kernel, p = model.covar_module.base_kernel, model.hyperparameters.p
    if isinstance(kernel, AdditiveKernel) and p is not None:
        kernel.p = p.flatten()[0].item()
