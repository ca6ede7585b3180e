"""Exact EHVI of two minimised objectives as a BoTorch `AcquisitionFunction`.

BoTorch's own analytic EHVI maximises, cuts the free space into O(n) boxes of which each
takes four products, and has neither logarithms nor pending points nor lower bounds. Here
it is the sum of `hypervolume` over n + 1 strips.
"""

from collections.abc import Iterable
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from botorch.models.model import Model, ModelList
from botorch.utils.transforms import t_batch_mode_transform

from tcsaea_torch.acquisition.adaptive_botorch import S_FLOOR, predict, training_rows
from tcsaea_torch.acquisition.hypervolume import Strips, ehvi, log_ehvi
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_bool, check_matrix, check_vector, describe


class BiObjectiveEHVI(AcquisitionFunction):
    """(Log) expected hypervolume improvement, to be maximised; exact, with exact gradients.

    One point at a time: for q points use `optimize_acqf(..., sequential=True)`, which makes
    each of them pending for the next. Pending points are believed to get their posterior
    means: the model is conditioned on these, and they count as points of the front.

    Args:
        model: Any BoTorch model with two outputs, which are minimised and taken as
            independent.
        ref_point: Two entries, in the objectives' units.
        Y: `n x 2` values that are to be improved on, n >= 1; they may be dominated. None:
            the rows that the model was trained with, those with both values measured.
        X_pending: `n x d` points that are being evaluated.
        lower_bound: Two entries that no value falls below, so that predictions below them
            promise no more than they do; None: nothing is known.
        log: Whether the value is the logarithm, whose gradient does not vanish where an
            improvement is unlikely.

    Raises:
        InvalidInputError: If an argument is wrong, or Y is None and the model's training
            data do not tell it.
    """

    def __init__(
        self,
        model: Model,
        ref_point: Float[Tensor, " 2"],
        Y: Float[Tensor, "n 2"] | None = None,
        X_pending: Tensor | None = None,
        lower_bound: Float[Tensor, " 2"] | None = None,
        log: bool = True,
    ) -> None:
        if not isinstance(model, Model):
            raise InvalidInputError(f"model must be a BoTorch model, got {describe(model)}")
        if model.num_outputs != 2:
            raise InvalidInputError(f"model must have 2 outputs, got {model.num_outputs}")
        ref_point = _finite("ref_point", ref_point)
        rows = training_rows(model)
        like = ref_point if rows is None else rows
        if Y is None:
            Y = training_values(model)
            if Y is None or len(Y) == 0:
                raise InvalidInputError(
                    "Y must be given for a model without training rows that have both values, "
                    "got None"
                )
        else:
            like = Y if isinstance(Y, Tensor) and Y.is_floating_point() else like
            Y = check_matrix("Y", Y, columns=2)
            if len(Y) == 0:
                raise InvalidInputError(f"Y must have at least one row, got {describe(Y)}")
        if lower_bound is not None:
            lower_bound = _finite("lower_bound", lower_bound)
            lowest = torch.minimum(Y.amin(dim=0).to(lower_bound), ref_point)
            if not bool((lower_bound <= lowest).all()):
                raise InvalidInputError(
                    "lower_bound must not lie above ref_point or values in Y, which reach "
                    f"{lowest.tolist()}, got {lower_bound.tolist()}"
                )
        super().__init__(model)
        self.log = check_bool("log", log)
        Y, ref_point = Y.to(like), ref_point.to(like)
        length = (ref_point - Y.amin(dim=0)).abs()
        length = torch.where(length > 0, length, ref_point.abs().clamp_min(1.0))
        self.register_buffer("ref_point", ref_point)
        self.register_buffer("lower_bound", None if lower_bound is None else lower_bound.to(like))
        self.register_buffer("Y", Y)
        self.register_buffer("s_floor", S_FLOOR * length)
        self.d = None if rows is None else rows.shape[-1]
        self._given = [model]  # in a list: its parameters are those of `model`, once
        self.set_X_pending(X_pending)

    ref_point: Tensor
    lower_bound: Tensor | None
    Y: Tensor
    s_floor: Tensor
    edges: Tensor
    heights: Tensor

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the `n x d` points that are being evaluated; None: none.

        Raises:
            InvalidInputError: If it is no finite tensor with d columns, or the model
                cannot be conditioned on more rows.
        """
        self.model, front = self._given[0], self.Y
        if X_pending is not None:
            is_table = isinstance(X_pending, Tensor) and X_pending.ndim == 2
            if not is_table or self.d not in (None, X_pending.shape[-1]):
                raise InvalidInputError(
                    f"X_pending must be a tensor n x {self.d or 'd'}, got {describe(X_pending)}"
                )
            if not bool(X_pending.isfinite().all()):
                raise InvalidInputError("X_pending must be finite, got NaN or inf")
            if len(X_pending) > 0:
                self.model, believed = _believe(self._given[0], X_pending)
                front = torch.cat([front, believed.to(front)])
        alive = torch.ones_like(front[:, 0], dtype=torch.bool)
        strips = Strips.between(front, alive, self.ref_point)
        self.register_buffer("edges", strips.edges)
        self.register_buffer("heights", strips.heights)
        super().set_X_pending(X_pending)

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Float[Tensor, "*batch 1 d"]) -> Float[Tensor, "*batch"]:
        """Return the value of `*batch` single points; its gradient is finite everywhere."""
        mean, variance = predict(self.model, X)
        # A root has no gradient at 0, and the logarithm no value at training points.
        sd = torch.sqrt(variance + self.s_floor.square())
        function = log_ehvi if self.log else ehvi
        strips = Strips(edges=self.edges, heights=self.heights)
        # All points are candidates of one front.
        value = function(mean.reshape(-1, 2), sd.reshape(-1, 2), strips, self.lower_bound)
        return value.reshape(mean.shape[:-1])


def training_values(model: Model) -> Tensor | None:
    """Return the values `n x m` of the points at which a model was trained with all outputs.

    In the user's units; None if they are unknown. Where a model says which of its rows were
    measured (`is_measured`), the others, synthetic ones, are left out.
    """
    parts = list(getattr(model, "models", None) or [model])
    tables = [_table(part) for part in parts]
    known = [table for table in tables if table is not None]
    if len(known) < len(parts):
        return None
    X, Y = known[0]
    for X_other, Y_other in known[1:]:
        same = (X.unsqueeze(1) == X_other.unsqueeze(0)).all(dim=-1)
        i, has_both = same.to(torch.int8).argmax(dim=1), same.any(dim=1)
        X, Y = X[has_both], torch.cat([Y, Y_other[i]], dim=-1)[has_both]
    return Y


def _table(model: Any) -> tuple[Tensor, Tensor] | None:
    """Return the rows `n x d` and values `n x m` of a model that is no list; None: unknown."""
    X, targets = training_rows(model), getattr(model, "train_targets", None)
    if X is None or targets is None or targets.shape[:-1] not in ((), (model.num_outputs,)):
        return None
    Y = targets.detach().reshape(model.num_outputs, -1).mT
    surrogate, is_measured = getattr(model, "surrogate", None), getattr(model, "is_measured", None)
    if surrogate is not None:
        live = surrogate.data.live
        Y = Y[live]  # as in `training_rows`
        is_measured = None if is_measured is None else is_measured[live]
    if hasattr(model, "outcome_transform"):
        Y = model.outcome_transform.untransform(Y)[0]
    if len(X) != len(Y):
        return None
    return (X, Y) if is_measured is None else (X[is_measured], Y[is_measured])


def _believe(model: Model, X: Tensor) -> tuple[Model, Tensor]:
    """Return the model conditioned on its own means at `n x d` points, and these means."""
    with torch.no_grad():
        mean = predict(model, X.unsqueeze(-2))[0]
        try:
            return _condition(model, X, mean), mean
        except (NotImplementedError, AttributeError) as error:
            raise InvalidInputError(
                "X_pending needs a model that can condition_on_observations, got "
                f"{type(model).__name__}"
            ) from error


def _condition(model: Any, X: Tensor, Y: Tensor) -> Model:
    parts: Iterable[Model] | None = getattr(model, "models", None)
    if parts is None:
        return model.condition_on_observations(X, Y)
    # One by one: those of a list have transforms of their own.
    found, first = [], 0
    for part in parts:
        last = first + part.num_outputs
        found.append(_condition(part, X, Y[..., first:last]))
        first = last
    return (ModelListGP if isinstance(model, ModelListGP) else ModelList)(*found)


def _finite(name: str, value: Any) -> Tensor:
    vector = check_vector(name, value, length=2)
    if not bool(vector.isfinite().all()):
        raise InvalidInputError(f"{name} must be finite, got {vector.tolist()}")
    return vector
