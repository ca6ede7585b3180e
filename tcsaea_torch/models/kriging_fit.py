"""`fit_kriging`: a `KrigingGP` by maximum likelihood."""

import logging
from typing import Literal

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform

from tcsaea_torch.correlations import KernelName
from tcsaea_torch.kernels import PowerMode
from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.checks import check_hyperparameters, check_training_data
from tcsaea_torch.models.fit_config import FitConfig, isotropic_starts
from tcsaea_torch.models.fitting import maximise_likelihood
from tcsaea_torch.models.kriging import KrigingGP
from tcsaea_torch.models.surrogate import Hyperparameters, InputScaling, Trend, scale
from tcsaea_torch.models.training_set import merge_duplicates
from tcsaea_torch.models.transforms import transform_rows
from tcsaea_torch.types import Tensor
from tcsaea_torch.validation import check_choice, check_instance, check_int

logger = logging.getLogger(__name__)


def fit_kriging(
    X: Tensor,
    y: Tensor,
    noise_var: Tensor | None = None,
    *,
    p: PowerMode = 2.0,
    kernel: KernelName = "power-exponential",
    nugget: float | Literal["fit"] | None = None,
    trend: Trend = "constant",
    input_scaling: InputScaling = "unit",
    n_starts: int = 2,
    init: Hyperparameters | None = None,
    config: FitConfig | None = None,
    input_transform: InputTransform | None = None,
    outcome_transform: OutcomeTransform | None = None,
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
            [1, 2] for all or for each dimension ("power-exponential" only).
        kernel: "power-exponential", "matern-5/2", or "additive", which is strong where a
            function is a sum of functions of one or two variables.
        nugget: Added to the diagonal of the correlation matrix; None means 1e-10 in float64
            and 1e-5 in float32, "fit" one of maximum likelihood for values that are noisy.
        trend: "constant" or "linear".
        input_scaling: "unit", or "standardize" as in DACE; theta is in these units.
        n_starts: Number of isotropic starts. One is enough for smooth functions; two find
            the optimum of rough ones as well. "additive" has starts of its own.
        init: Warm start, such as `gp.hyperparameters` of an earlier fit with the same
            `input_scaling`.
        config: All details at once; overrides p, kernel, nugget, input_scaling and
            n_starts.
        input_transform: From the user's inputs to those of the model; see `KrigingGP`.
        outcome_transform: Likewise for the values. `init` is in its units.

    Returns:
        A fitted model in evaluation mode.

    Raises:
        InvalidInputError: If an argument is wrong.
        FitError: If the correlation matrix cannot be factorised.
    """
    given = check_training_data(X, y, noise_var)
    train = merge_duplicates(transform_rows(given, input_transform, outcome_transform))
    check_choice("trend", trend, ("constant", "linear"))
    if config is None:
        starts = isotropic_starts(check_int("n_starts", n_starts, minimum=1))
        config = FitConfig(
            p=p,
            kernel=kernel,
            nugget=nugget,
            input_scaling=input_scaling,
            starts=None if kernel == "additive" else starts,
        )
    check_instance("config", config, FitConfig)
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
        nugget=config.nugget_for(train.X.dtype),
        input_transform=input_transform,
        outcome_transform=outcome_transform,
    )
    jitter = float(gp.surrogate.jitter.max())
    if jitter > 0.0:
        logger.warning("Kriging needed a jitter of %g to factorise %d rows", jitter, X.shape[-2])
    return gp
