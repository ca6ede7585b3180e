"""Acquisition functions: what to evaluate next."""

from tcsaea_torch.acquisition.adaptive import (
    AAFNormalizer,
    adaptive_acquisition,
    adaptive_weight,
)
from tcsaea_torch.acquisition.adaptive_botorch import AdaptiveAcquisition, normalizer_from_model

__all__ = [
    "AAFNormalizer",
    "AdaptiveAcquisition",
    "adaptive_acquisition",
    "adaptive_weight",
    "normalizer_from_model",
]
