"""Choosing rows of batched tensors."""

from tcsaea_torch.types import Float, Int, Tensor


def take_rows(
    X: Float[Tensor, "*batch n k"], index: Int[Tensor, "*batch q"]
) -> Float[Tensor, "*batch q k"]:
    """Return the rows of each batch member that its own indices name."""
    return X.gather(-2, index.unsqueeze(-1).expand(*index.shape, X.shape[-1]))
