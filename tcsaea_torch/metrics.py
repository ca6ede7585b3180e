"""Dominance, inverted generational distance and hypervolume; everything is minimised."""

import torch
from botorch.utils.multi_objective import pareto
from botorch.utils.multi_objective.hypervolume import Hypervolume

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import check_float_tensor, check_matrix


def is_non_dominated(Y: Float[Tensor, "*batch n m"]) -> Bool[Tensor, "*batch n"]:
    """Mark the non-dominated rows; of equal rows only the first.

    Args:
        Y: Minimised objective values; a row with NaN is dominated and dominates nothing.
    """
    check_float_tensor("Y", Y, "*batch x n x m", (None, None), batched=True)
    has_nan = Y.isnan().any(dim=-1)
    Y = torch.where(has_nan.unsqueeze(-1), torch.inf, Y)
    return pareto.is_non_dominated(Y, maximize=False, deduplicate=True) & ~has_nan


def igd(Y: Float[Tensor, "n m"], front: Float[Tensor, "k m"]) -> float:
    """Return the inverted generational distance, in the units of the objectives.

    The mean, over the points of `front`, of the Euclidean distance to the nearest row
    of `Y` (the paper's Section 4.2). Nothing is normalised, and dominated rows count
    like others: to score a run, pass its non-dominated rows.

    Args:
        Y: Minimised objective values; rows with NaN do not count.
        front: Points spread over the true Pareto front.

    Returns:
        The distance; inf if `Y` has no rows.

    Raises:
        InvalidInputError: If the numbers of columns differ, or `front` is empty or not finite.
    """
    _check_front(front, Y)
    Y = Y[~Y.isnan().any(dim=-1)]
    if len(Y) == 0:
        return torch.inf
    distances = torch.cdist(front.to(Y), Y, compute_mode="donot_use_mm_for_euclid_dist")
    return float(distances.amin(dim=-1).mean())


def hypervolume(Y: Float[Tensor, "n m"], ref_point: Float[Tensor, " m"]) -> float:
    """Return the hypervolume that `Y` dominates below `ref_point`.

    Args:
        Y: Minimised objective values; rows beyond the reference point do not count.
        ref_point: Upper end of the volume.

    Raises:
        InvalidInputError: If the numbers of columns differ, or `ref_point` is not finite.
    """
    check_float_tensor("ref_point", ref_point, "of shape (m,)", (None,))
    _check_columns("ref_point", ref_point.unsqueeze(0), Y)
    if not ref_point.isfinite().all():
        raise InvalidInputError(f"ref_point must be finite, got {ref_point.tolist()}")
    Y = Y[(Y < ref_point.to(Y)).all(dim=-1)]
    if len(Y) == 0:
        return 0.0
    best = Y[is_non_dominated(Y)]
    return Hypervolume(-ref_point.to(best)).compute(-best)


def normalized_hypervolume(Y: Float[Tensor, "n m"], front: Float[Tensor, "k m"]) -> float:
    """Return the hypervolume on PlatEMO's scale [Tian2017], from 0 to 1.

    Objectives are shifted by min(0, min Y) and divided by 1.1 times the range up to
    the front's maximum; the reference point is then (1, ..., 1).

    [Tian2017] Y. Tian, R. Cheng, X. Zhang, Y. Jin. PlatEMO: a MATLAB platform for
    evolutionary multi-objective optimization. IEEE Comput. Intell. Mag. 12(4), 2017.

    Args:
        Y: Minimised objective values; rows with NaN do not count.
        front: Points spread over the true Pareto front.

    Raises:
        InvalidInputError: If the numbers of columns differ, or `front` is empty or not finite.
    """
    _check_front(front, Y)
    Y = Y[~Y.isnan().any(dim=-1)]
    if len(Y) == 0:
        return 0.0
    front = front.to(Y)
    low = Y.amin(dim=0).clamp_max(0.0)
    scaled = (Y - low) / (1.1 * (front.amax(dim=0) - low))
    return hypervolume(scaled, torch.ones_like(low))


def _check_front(front: Tensor, Y: Tensor) -> None:
    """Check that `front` has finite points with as many columns as Y."""
    check_float_tensor("front", front, "n x m", (None, None))
    _check_columns("front", front, Y)
    if len(front) == 0:
        raise InvalidInputError("front must have at least one row, got none")
    check_matrix("front", front, columns=Y.shape[-1])


def _check_columns(name: str, value: Tensor, Y: Tensor) -> None:
    check_float_tensor("Y", Y, "n x m", (None, None))
    if value.shape[-1] != Y.shape[-1]:
        raise InvalidInputError(
            f"{name} must have as many columns as Y, got shapes "
            f"{tuple(value.shape)} and {tuple(Y.shape)}"
        )
