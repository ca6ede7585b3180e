"""Acquisition functions: what to evaluate next."""

from tcsaea_torch.acquisition.adaptive import (
    AAFNormalizer,
    adaptive_acquisition,
    adaptive_weight,
)
from tcsaea_torch.acquisition.adaptive_botorch import AdaptiveAcquisition, normalizer_from_model
from tcsaea_torch.acquisition.hypervolume import Strips, ehvi, log_ehvi
from tcsaea_torch.acquisition.hypervolume_botorch import BiObjectiveEHVI

__all__ = [
    "AAFNormalizer",
    "AdaptiveAcquisition",
    "BiObjectiveEHVI",
    "Strips",
    "adaptive_acquisition",
    "adaptive_weight",
    "ehvi",
    "log_ehvi",
    "normalizer_from_model",
]
