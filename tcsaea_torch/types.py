"""Names that every room of the library shares."""

from enum import StrEnum

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Objective", "Tensor"]


class Objective(StrEnum):
    """One of the two objectives. Columns of `Y` are always ordered (fast, slow)."""

    FAST = "fast"
    SLOW = "slow"

    @property
    def column(self) -> int:
        """Column of this objective in `Y` and in every mask: 0 for fast, 1 for slow."""
        return 0 if self is Objective.FAST else 1
