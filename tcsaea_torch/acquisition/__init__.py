"""Acquisition functions: what to evaluate next."""

from tcsaea_torch.acquisition.adaptive import (
    AAFNormalizer,
    adaptive_acquisition,
    adaptive_weight,
)

__all__ = ["AAFNormalizer", "adaptive_acquisition", "adaptive_weight"]
