"""Models for BoTorch's acquisition functions, with the transfer inside."""

from tcsaea_torch.botorch_models.co_surrogate import CoSurrogateModel, Synthetic

__all__ = ["CoSurrogateModel", "Synthetic"]
