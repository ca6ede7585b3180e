"""What was measured so far, as tensors."""

from dataclasses import dataclass

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Bool, Float, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Archive:
    """All rows of a batch of runs, in the unit cube and minimised.

    A row exists for every point that was proposed or attached; `observed` says which
    of its values are known. Rows without any value (pending, failed, or padding of a
    ragged batch) hold zeros in `Y`, never NaN.

    Raises:
        InvalidInputError: If the shapes do not fit together.
    """

    X: Float[Tensor, "b n d"]
    """Points in the unit cube."""
    Y: Float[Tensor, "b n m"]
    """Objective values, minimised, columns (fast, slow); 0 where not observed."""
    observed: Bool[Tensor, "b n m"]
    """Whether a value of `Y` was measured."""

    def __post_init__(self) -> None:
        if self.X.shape[:-1] != self.Y.shape[:-1] or self.Y.shape != self.observed.shape:
            raise InvalidInputError(
                "X, Y and observed must have shapes (b, n, d), (b, n, m) and (b, n, m), got "
                f"{tuple(self.X.shape)}, {tuple(self.Y.shape)} and {tuple(self.observed.shape)}"
            )

    @classmethod
    def empty(
        cls,
        b: int,
        d: int,
        m: int = 2,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | None = None,
    ) -> "Archive":
        """Make an archive of b runs without rows."""
        return cls(
            X=torch.zeros(b, 0, d, dtype=dtype, device=device),
            Y=torch.zeros(b, 0, m, dtype=dtype, device=device),
            observed=torch.zeros(b, 0, m, dtype=torch.bool, device=device),
        )

    def __add__(self, other: "Archive") -> "Archive":
        """Append the rows of another archive of the same runs."""
        return Archive(
            X=torch.cat([self.X, other.X], dim=-2),
            Y=torch.cat([self.Y, other.Y], dim=-2),
            observed=torch.cat([self.observed, other.observed], dim=-2),
        )

    def __len__(self) -> int:
        """Return the number of rows, padding included."""
        return self.X.shape[-2]

    @property
    def complete(self) -> Bool[Tensor, "b n"]:
        """Rows with all their values: the points that results and metrics use."""
        return self.observed.all(dim=-1)
