"""Kriging surrogates: fit, predict, and use in GPyTorch and BoTorch."""

from tcsaea_torch.models.choice import Candidate, choose, fit_best
from tcsaea_torch.models.chosen import Chosen
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.kriging import KrigingGP
from tcsaea_torch.models.kriging_fit import fit_kriging
from tcsaea_torch.models.leave_one_out import LeaveOneOut, leave_one_out
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate
from tcsaea_torch.models.training_set import TrainingSet

__all__ = [
    "BFGSOptions",
    "Candidate",
    "Chosen",
    "FitConfig",
    "Hyperparameters",
    "KrigingGP",
    "LeaveOneOut",
    "Surrogate",
    "TrainingSet",
    "choose",
    "fit_best",
    "fit_kriging",
    "leave_one_out",
]
