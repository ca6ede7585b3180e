"""`KrigingGP`: our Kriging as a GPyTorch `ExactGP` and a BoTorch `Model`."""

import logging
from typing import Any

import torch
from botorch.models.gpytorch import GPyTorchModel
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.likelihoods.noise_models import Noise
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.kernels import PowerExponentialKernel, PowerMode
from tcsaea_torch.models.fitting import FitConfig, isotropic_starts, maximise_likelihood
from tcsaea_torch.models.surrogate import (
    Hyperparameters,
    InputScaling,
    Surrogate,
    Trend,
    condition,
    scale,
)
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_choice, check_int, describe

logger = logging.getLogger(__name__)


class KnownNoise(Noise):
    """Noise variances that are known for each row, exactly as given, 0 included.

    GPyTorch's `FixedGaussianNoise` lifts them to 1e-6, too much for data without noise.
    """

    noise_var: Tensor

    def __init__(self, noise_var: Float[Tensor, "*batch n"]) -> None:
        super().__init__()
        self.register_buffer("noise_var", noise_var)

    def forward(
        self, *params: Any, shape: torch.Size, noise: Tensor | None = None, **kwargs: Any
    ) -> DiagLinearOperator:
        """Return the rows' noise in training mode, else the mean noise of the living rows."""
        if noise is not None:
            return DiagLinearOperator(noise)
        if self.training:
            return DiagLinearOperator(self.noise_var.expand(shape))
        live = self.noise_var.isfinite()
        total = torch.where(live, self.noise_var, 0.0).sum(dim=-1, keepdim=True)
        mean = total / live.sum(dim=-1, keepdim=True).clamp_min(1)
        return DiagLinearOperator(mean.expand(shape))


class ExactNormal(MultivariateNormal):
    """A normal distribution whose variances are reported as they are.

    GPyTorch lifts variances to 1e-10 whatever the outputs' scale, and warns.
    """

    @property
    def variance(self) -> Tensor:
        """Return the marginal variances, >= 0."""
        diagonal = self.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
        return diagonal.clamp_min(0.0)


class KrigingGP(ExactGP, GPyTorchModel):
    """Kriging with given hyper-parameters: exact, with the trend's uncertainty.

    The trend (constant or linear) is estimated by generalised least squares, and
    predictions include the variance of that estimate, as in DACE. Calls and
    `posterior` are differentiable in the points and joint over them.

    Args:
        X: `*batch x n x d` training points in the unit cube.
        y: `*batch x n` (or `*batch x n x 1`) values.
        hyperparameters: theta and p in the units of `input_scaling`, and sigma^2
            (None: its closed form, which needs noise-free rows).
        noise_var: `*batch x n` variances of the values, in squared units of y; None
            means exact values, inf a row that does not exist.
        trend: "constant" or "linear"; the latter needs d + 2 rows, else it is constant.
        input_scaling: "unit", or "standardize" as in DACE.
        nugget: Added to the diagonal of the correlation matrix; None means 1e-10 in
            float64 and 1e-5 in float32.

    Attributes:
        surrogate: The bundle of tensors that predicts; its `jitter` tells what had to
            be added to the diagonal, its `is_linear` which trend was used.

    Raises:
        InvalidInputError: If shapes, values or names are wrong.
        FitError: If the correlation matrix cannot be factorised.
    """

    _num_outputs = 1

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
    ) -> None:
        train = merge_duplicates(check_training_data(X, y, noise_var))
        check_hyperparameters("hyperparameters", hyperparameters, train)
        check_choice("trend", trend, ("constant", "linear"))
        config = FitConfig(input_scaling=input_scaling, nugget=nugget)
        is_linear = torch.full(train.y.shape[:-1], trend == "linear", device=train.X.device)
        data, scaling = scale(train, trend=is_linear, input_scaling=input_scaling)
        surrogate = condition(
            data, scaling, hyperparameters, nugget=config.nugget_for(train.X.dtype)
        )
        likelihood = _GaussianLikelihoodBase(KnownNoise(train.noise_var))
        super().__init__(train.X, train.y, likelihood)
        self.surrogate = surrogate
        self.covar_module = _unit_cube_kernel(surrogate)
        self.eval()

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at `*batch x q x d` points, with the estimated trend as mean."""
        return MultivariateNormal(self.surrogate.trend(X), self.covar_module(X))

    def __call__(self, X: Tensor, **kwargs: Any) -> MultivariateNormal:
        """Return the joint posterior of the latent values at `*batch x q x d` points.

        In training mode, the prior at the training points, as GPyTorch's likelihoods
        expect.
        """
        if self.training:
            return super().__call__(X, **kwargs)
        d = self.surrogate.data.X.shape[-1]
        if X.ndim < 2 or X.shape[-1] != d:
            raise InvalidInputError(f"X must have shape (*batch, q, {d}), got {describe(X)}")
        mean, covariance = self.surrogate.predict_joint(X)
        # As an operator: a tensor would be factorised here, which fails between near-equal points.
        return ExactNormal(mean, to_linear_operator(covariance))

    @property
    def hyperparameters(self) -> Hyperparameters:
        """Fitted theta and p in the units of `input_scaling`, and sigma^2 in squared units of y."""
        return self.surrogate.hyperparameters

    def _apply(self, fn: Any) -> "KrigingGP":
        self.surrogate = map_tensors(self.surrogate, fn)
        return super()._apply(fn)


def map_tensors(value: Any, fn: Any) -> Any:
    """Apply `fn` to all tensors in nested frozen dataclasses."""
    if isinstance(value, Tensor):
        return fn(value)
    if hasattr(value, "__dataclass_fields__"):
        fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
        return type(value)(**{name: map_tensors(v, fn) for name, v in fields.items()})
    return value


def _unit_cube_kernel(surrogate: Surrogate) -> ScaleKernel:
    """Return sigma^2 r as a GPyTorch kernel of points in the unit cube."""
    hyper = surrogate.hyperparameters
    d, batch_shape = hyper.theta.shape[-1], hyper.theta.shape[:-1]
    p = hyper.p
    lowest = 1.0 if p is None else min(1.0, float(p.min()) * 0.999)
    base = PowerExponentialKernel(
        ard_num_dims=d,
        p=2.0 if p is None else "ard",
        p_range=(lowest, 2.0),
        batch_shape=batch_shape,
    )
    kernel = ScaleKernel(base, batch_shape=batch_shape).to(hyper.theta)
    x_scale = surrogate.scaling.x_scale
    base.theta = (hyper.theta / x_scale ** (2.0 if p is None else p)).unsqueeze(-2)
    if p is not None:
        base.p = p.unsqueeze(-2)
    assert hyper.variance is not None
    kernel.outputscale = hyper.variance
    return kernel.requires_grad_(False)


def check_training_data(X: Any, y: Any, noise_var: Any) -> TrainingSet:
    """Check and bundle what a user passes as training data.

    Raises:
        InvalidInputError: Naming the argument, what was expected and what came.
    """
    if not isinstance(X, Tensor) or X.ndim < 2:
        raise InvalidInputError(f"X must be a tensor *batch x n x d of floats, got {describe(X)}")
    if X.dtype not in (torch.float32, torch.float64):
        raise InvalidInputError(f"X must be a tensor *batch x n x d of floats, got {describe(X)}")
    if X.shape[-2] == 0 or X.shape[-1] == 0:
        raise InvalidInputError(f"X must have at least one row and column, got {describe(X)}")
    if not isinstance(y, Tensor):
        raise InvalidInputError(f"y must be a tensor *batch x n, got {describe(y)}")
    if y.ndim == X.ndim and y.shape[-1] == 1:
        y = y.squeeze(-1)
    noise_var = torch.zeros_like(y) if noise_var is None else noise_var
    if not isinstance(noise_var, Tensor):
        raise InvalidInputError(f"noise_var must be a tensor *batch x n, got {describe(noise_var)}")
    if noise_var.ndim == X.ndim and noise_var.shape[-1] == 1:
        noise_var = noise_var.squeeze(-1)
    for name, value in (("y", y), ("noise_var", noise_var)):
        if value.shape != X.shape[:-1]:
            raise InvalidInputError(
                f"{name} must have shape {tuple(X.shape[:-1])} to go with X, got {describe(value)}"
            )
        if value.dtype != X.dtype or value.device != X.device:
            raise InvalidInputError(
                f"{name} must have X's dtype and device ({X.dtype}, {X.device}), "
                f"got {value.dtype}, {value.device}"
            )
    if noise_var.isnan().any() or (noise_var < 0).any():
        raise InvalidInputError("noise_var must be >= 0 (inf for rows that do not exist)")
    live = noise_var < torch.inf
    for name, value in (("X", X), ("y", y.unsqueeze(-1))):
        bad = (~value.isfinite() & live.unsqueeze(-1)).nonzero()
        if len(bad):
            place = tuple(int(i) for i in bad[0])
            raise InvalidInputError(
                f"{name} must be finite, got {value[place].item()} at index {place[: X.ndim]}"
            )
    keep = live.unsqueeze(-1)
    return TrainingSet(
        X=torch.where(keep, X, 0.0).detach(),
        y=torch.where(live, y, 0.0).detach(),
        noise_var=noise_var.detach(),
    )


def check_hyperparameters(
    name: str, value: Hyperparameters, train: TrainingSet, *, needs_variance: bool = True
) -> None:
    """Check hyper-parameters against the training data that they are for.

    Args:
        name: Name of the argument, for the message.
        value: What was given.
        train: The training data.
        needs_variance: Whether noisy rows need a process variance.

    Raises:
        InvalidInputError: Naming the field, what was expected and what came.
    """
    batch, d = tuple(train.y.shape[:-1]), train.X.shape[-1]
    expected = {"theta": (*batch, d), "p": (*batch, d), "variance": batch}
    highest = {"theta": torch.inf, "p": 2.0, "variance": torch.inf}
    for field, shape in expected.items():
        tensor = getattr(value, field)
        if tensor is None and field != "theta":
            continue
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
            raise InvalidInputError(
                f"{name}.{field} must be a tensor of shape {shape}, got {describe(tensor)}"
            )
        good = (tensor > 0) & (tensor <= highest[field]) & tensor.isfinite()
        if not good.all():
            limit = " and <= 2" if field == "p" else " and finite"
            raise InvalidInputError(
                f"{name}.{field} must be > 0{limit}, got {tensor[~good][0].item()}"
            )
    is_noisy = ((train.noise_var > 0) & train.live).any()
    if needs_variance and value.variance is None and bool(is_noisy):
        raise InvalidInputError(
            f"{name}.variance must be given with noisy rows: its closed form needs exact ones"
        )


def fit_kriging(
    X: Tensor,
    y: Tensor,
    noise_var: Tensor | None = None,
    *,
    p: PowerMode = 2.0,
    trend: Trend = "constant",
    input_scaling: InputScaling = "unit",
    n_starts: int = 2,
    init: Hyperparameters | None = None,
    config: FitConfig | None = None,
) -> KrigingGP:
    """Fit Kriging by maximum likelihood and condition it on the data.

    Exact duplicates are merged, infinitely noisy rows left out exactly, and a jitter
    that had to be added is recorded in `gp.surrogate.jitter` and logged.

    Args:
        X: `*batch x n x d` training points in the unit cube; batch members are
            independent models, fitted together.
        y: `*batch x n` (or `*batch x n x 1`) values.
        noise_var: `*batch x n` variances of the values in squared units of y. None
            means exact values, inf a row that does not exist.
        p: Power of the kernel: a number in (0, 2], or "shared" or "ard" to fit one in
            [1, 2] for all or for each dimension.
        trend: "constant" or "linear".
        input_scaling: "unit", or "standardize" as in DACE; theta is in these units.
        n_starts: Number of isotropic starts. One is enough for smooth functions; two find
            the optimum of rough ones as well.
        init: Warm start, such as `gp.hyperparameters` of an earlier fit with the same
            `input_scaling`.
        config: All details at once; overrides p, input_scaling and n_starts.

    Returns:
        A fitted model in evaluation mode.

    Raises:
        InvalidInputError: If an argument is wrong.
        FitError: If the correlation matrix cannot be factorised.
    """
    train = merge_duplicates(check_training_data(X, y, noise_var))
    check_choice("trend", trend, ("constant", "linear"))
    if config is None:
        starts = isotropic_starts(check_int("n_starts", n_starts, minimum=1))
        config = FitConfig(p=p, input_scaling=input_scaling, starts=starts)
    is_linear = torch.full(train.y.shape[:-1], trend == "linear", device=train.X.device)
    data, scaling = scale(train, trend=is_linear, input_scaling=config.input_scaling)
    batch = train.X.shape[:-2]
    flat = lambda value, n: map_tensors(value, lambda t: t.reshape(-1, *t.shape[n:]))  # noqa: E731
    if init is not None:
        check_hyperparameters("init", init, train, needs_variance=False)
        init = flat(init, len(batch))
    found = maximise_likelihood(
        flat(data, len(batch)), flat(scaling, len(batch)), config, init=init
    )
    hyperparameters = map_tensors(found, lambda t: t.reshape(batch + t.shape[1:]))
    gp = KrigingGP(
        X,
        y,
        hyperparameters,
        noise_var,
        trend=trend,
        input_scaling=config.input_scaling,
        nugget=config.nugget,
    )
    jitter = float(gp.surrogate.jitter.max())
    if jitter > 0.0:
        logger.warning("Kriging needed a jitter of %g to factorise %d rows", jitter, X.shape[-2])
    return gp
