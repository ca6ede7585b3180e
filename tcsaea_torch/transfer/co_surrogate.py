"""The co-surrogate: a model of the difference between the slow and the fast objective."""

from tcsaea_torch.archive import Archive
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Float, Tensor


def co_training_set(archive: Archive) -> TrainingSet:
    """Return D_c = (X, y_s - y_f) over the points with both values, the paper's Eq. (9)."""
    difference = archive.Y[..., 1] - archive.Y[..., 0]
    return TrainingSet.from_mask(archive.X, difference, archive.complete)


def synthetic_values(
    y_fast: Float[Tensor, "*batch n"], co_mean: Float[Tensor, "*batch n"]
) -> Float[Tensor, "*batch n"]:
    """Return y'_s = y_f + mu_c, the paper's Eq. (10).

    Args:
        y_fast: Measured fast values.
        co_mean: GP_c's means at the same points.
    """
    return y_fast + co_mean
