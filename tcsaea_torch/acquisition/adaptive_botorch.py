"""The adaptive acquisition function as a BoTorch `AcquisitionFunction`.

Inside `TCSAEA` the AAF is a vector for each member of a population, and RVEA's selection
chooses along all reference vectors at once. Here it is one number along one vector, for
gradient-based search with any BoTorch model. With F the AAF of [Wang2020] (see `adaptive`)
measured from the best that the population reaches, and F+, F- its positive and negative
parts,

    value(x) = -(1 + m theta angle(F+, v) / gamma) |F+| + sum_j |F-_j| - barrier(x)

The first term is RVEA's angle-penalised distance, its angle smoothed near 0. A point below
the ideal point is better than all of the population, so it is rewarded, where the plain
distance would punish it.
"""

import math
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import t_batch_mode_transform
from gpytorch.distributions import MultivariateNormal

from tcsaea_torch.acquisition.adaptive import AAFNormalizer
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.kriging import KrigingGP
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_real, check_vector, describe

S_FLOOR = 1e-6
"""Smallest standard deviation, in units of the population's largest: keeps gradients finite."""

SMOOTHING = 0.1
"""Angle, in units of gamma, below which the penalty is quadratic in it."""


class AdaptiveAcquisition(AcquisitionFunction):
    """Adaptive acquisition along one reference vector, to be maximised.

    One point at a time: for q points use `optimize_acqf_list` with q functions, each with
    a reference vector of its own, or `optimize_acqf(..., sequential=True)`.

    Args:
        model: Any BoTorch model with m outputs, which are minimised.
        ref_vector: `m` entries >= 0, not all 0: the direction in the space of the AAF
            along which the point is wanted.
        normalizer: Scales of means, standard deviations and angles, without batch
            dimensions, such as from `normalizer_from_model`.
        alpha: Weight of the uncertainty, 0 to 1, such as from `adaptive_weight`.
        theta: Weight of the angle, >= 0; in the paper (FE_s / B_s)^2.
        uncertainty_sign: -1 seeks uncertain points, as a lower confidence bound does; +1
            seeks certain ones, as published code has it.
        X_pending: `n x d` points that are being evaluated.
        exclusion_radius: Distance, in the units of X, to keep from points that were
            evaluated or are pending; 0 switches this off. Without it, certain points
            would be sought where they are surest: at the training data.

    Raises:
        InvalidInputError: If an argument is wrong.
    """

    def __init__(
        self,
        model: Model,
        ref_vector: Float[Tensor, " m"],
        normalizer: AAFNormalizer,
        alpha: float,
        theta: float,
        uncertainty_sign: float = -1,
        X_pending: Tensor | None = None,
        exclusion_radius: float = 1e-3,
    ) -> None:
        if not isinstance(model, Model):
            raise InvalidInputError(f"model must be a BoTorch model, got {describe(model)}")
        m = model.num_outputs
        ref_vector = check_vector("ref_vector", ref_vector, length=m)
        is_direction = bool((ref_vector >= 0).all()) and bool((ref_vector > 0).any())
        if not is_direction or not bool(ref_vector.isfinite().all()):
            raise InvalidInputError(
                f"ref_vector must have finite entries >= 0, not all 0, got {ref_vector.tolist()}"
            )
        _check_normalizer(normalizer, m)
        super().__init__(model)
        self.alpha = check_real("alpha", alpha, minimum=0.0, maximum=1.0)
        self.theta = check_real("theta", theta, minimum=0.0)
        self.uncertainty_sign = check_real("uncertainty_sign", uncertainty_sign)
        if abs(self.uncertainty_sign) != 1.0:
            raise InvalidInputError(f"uncertainty_sign must be -1 or 1, got {uncertainty_sign}")
        self.exclusion_radius = check_real("exclusion_radius", exclusion_radius, minimum=0.0)
        unit = (ref_vector / ref_vector.norm()).to(normalizer.ideal)
        self.register_buffer("ref_vector", unit)
        for name in ("ideal", "max_mean", "max_s"):
            self.register_buffer(name, getattr(normalizer, name))
        gamma = normalizer.gamma(unit)
        self.register_buffer("angle_weight", m * self.theta / gamma)
        self.register_buffer("smoothing", SMOOTHING * gamma)
        self.register_buffer("X_evaluated", training_points(model))
        self.set_X_pending(X_pending)

    ref_vector: Tensor
    ideal: Tensor
    max_mean: Tensor
    max_s: Tensor
    angle_weight: Tensor
    smoothing: Tensor
    X_evaluated: Tensor | None

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the `n x d` points that are being evaluated; None: none.

        Raises:
            InvalidInputError: If it is no finite tensor with d columns.
        """
        if X_pending is not None:
            d = None if self.X_evaluated is None else self.X_evaluated.shape[-1]
            is_table = isinstance(X_pending, Tensor) and X_pending.ndim >= 2
            if not is_table or d not in (None, X_pending.shape[-1]):
                raise InvalidInputError(
                    f"X_pending must be a tensor n x {d or 'd'}, got {describe(X_pending)}"
                )
            if not bool(X_pending.isfinite().all()):
                raise InvalidInputError("X_pending must be finite, got NaN or inf")
        super().set_X_pending(X_pending)

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Float[Tensor, "*batch 1 d"]) -> Float[Tensor, "*batch"]:
        """Return the value of `*batch` single points; its gradient is finite everywhere."""
        return self.value(*predict(self.model, X)) - self.barrier(X.squeeze(-2))

    def value(
        self, mean: Float[Tensor, "*batch m"], variance: Float[Tensor, "*batch m"]
    ) -> Float[Tensor, "*batch"]:
        """Return the value of predictions, without the barrier."""
        s = torch.sqrt(variance + (S_FLOOR * self.max_s).square())
        exploit = (mean - self.ideal) / self.max_mean
        explore = self.uncertainty_sign * s / self.max_s
        best = min(self.uncertainty_sign, 0.0)
        F = (1.0 - self.alpha) * exploit + self.alpha * (explore - best)
        inside, below = F.clamp_min(0.0), (-F).clamp_min(0.0)
        length = torch.linalg.vector_norm(inside, dim=-1)
        distance = (1.0 + self.angle_weight * self._angle(inside)) * length
        return below.sum(dim=-1) - distance

    def _angle(self, F: Float[Tensor, "*batch m"]) -> Float[Tensor, "*batch"]:
        """Return angles to the reference vector, smoothed; 0 for the zero vector."""
        along = F @ self.ref_vector
        across = F - along.unsqueeze(-1) * self.ref_vector
        across = torch.linalg.vector_norm(across, dim=-1)
        # Neither side of atan2 has a gradient where both are 0.
        is_ideal = along.abs() + across <= torch.finfo(F.dtype).eps ** 2
        across = torch.where(is_ideal, 0.0, across)
        angle = torch.atan2(across, torch.where(is_ideal, 1.0, along))
        # The best point tends to lie on the vector: a kink there stops line searches.
        return torch.sqrt(angle.square() + self.smoothing.square()) - self.smoothing

    def barrier(self, X: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch"]:
        """Return what is taken off near points that were evaluated or are pending.

        A smooth bump on each point, of twice the exclusion radius: the largest penalty
        that an angle can bring at its top, more than half of it inside the radius.
        """
        known = [P.to(X) for P in (self.X_evaluated, self.X_pending) if P is not None]
        if not known or self.exclusion_radius == 0.0:
            return torch.zeros_like(X[..., 0])
        points = torch.cat([P.reshape(-1, X.shape[-1]) for P in known])
        distance = torch.cdist(
            X.reshape(-1, X.shape[-1]), points, compute_mode="donot_use_mm_for_euclid_dist"
        )
        inside = (1.0 - (distance / (2.0 * self.exclusion_radius)).square()).clamp_min(0.0)
        m = self.ref_vector.shape[0]
        height = math.sqrt(m) * (1.0 + self.angle_weight * math.pi / 2).to(X)
        return height * inside.square().sum(dim=-1).reshape(X.shape[:-1])


def normalizer_from_model(
    model: Model, X: Float[Tensor, "n d"], ref_vectors: Float[Tensor, "r m"] | None = None
) -> AAFNormalizer:
    """Freeze the AAF's scales from a model's predictions of a population.

    Args:
        model: Any BoTorch model with m outputs, which are minimised.
        X: Members of the population: candidates of a search, or points spread over the box.
        ref_vectors: All reference vectors that are in use, for the angles between them.
    """
    with torch.no_grad():
        mean, variance = predict(model, X.unsqueeze(-2))
        return AAFNormalizer.from_population(mean, variance.sqrt(), ref_vectors=ref_vectors)


def predict(
    model: Model, X: Float[Tensor, "*batch 1 d"]
) -> tuple[Float[Tensor, "*batch m"], Float[Tensor, "*batch m"]]:
    """Return a model's means and variances >= 0 at single points."""
    posterior: Any = model.posterior(X)
    mean, normal = posterior.mean, getattr(posterior, "distribution", None)
    if isinstance(normal, MultivariateNormal):
        # GPyTorch lifts variances to 1e-10 whatever the outputs' scale, and warns.
        variance = normal.lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2).reshape(mean.shape)
    else:
        variance = posterior.variance
    return mean.squeeze(-2), variance.squeeze(-2).clamp_min(0.0)


def training_points(model: Model) -> Tensor | None:
    """Return the distinct points `n x d` that a model was trained with; None if unknown."""
    rows = training_rows(model)
    return None if rows is None else torch.unique(rows, dim=0)


def training_rows(model: Model) -> Tensor | None:
    """Return the rows `n x d` that a model was trained with, in order; None if unknown.

    In the user's units. Those of a list of models, or of a batch, follow one another.
    """
    models = getattr(model, "models", None)
    if models is not None:
        found = [X for X in map(training_rows, models) if X is not None]
    else:
        inputs = (getattr(model, "train_inputs", None) or (None,))[0]
        if getattr(model, "_has_transformed_inputs", False):
            inputs = model._original_train_inputs
        if isinstance(model, KrigingGP) and inputs is not None:
            inputs = inputs[model.surrogate.data.live]  # without rows that do not exist
        elif inputs is not None and model.num_outputs > 1 and inputs.ndim > 2:
            inputs = inputs[..., 0, :, :]  # the same for each output
        found = [] if inputs is None else [inputs.detach()]
    if not found:
        return None
    return torch.cat([X.reshape(-1, X.shape[-1]) for X in found])


def _check_normalizer(normalizer: Any, m: int) -> None:
    if not isinstance(normalizer, AAFNormalizer):
        raise InvalidInputError(f"normalizer must be an AAFNormalizer, got {describe(normalizer)}")
    for name in ("ideal", "max_mean", "max_s"):
        value = getattr(normalizer, name)
        if tuple(value.shape) != (m,):
            raise InvalidInputError(
                f"normalizer.{name} must have shape ({m},) to go with the model's outputs, "
                f"got {describe(value)}"
            )
        if not bool(value.isfinite().all()):
            raise InvalidInputError(f"normalizer.{name} must be finite, got {value.tolist()}")
