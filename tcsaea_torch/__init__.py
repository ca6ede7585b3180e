"""Bi-objective optimization when one objective is fast and the other slow."""

from tcsaea_torch import (
    acquisition,
    botorch_models,
    evolution,
    kernels,
    metrics,
    models,
    plotting,
    problems,
    strategies,
)
from tcsaea_torch.asking import Evaluation, NextAction
from tcsaea_torch.command import CommandObjective
from tcsaea_torch.driver import minimize
from tcsaea_torch.events import Status
from tcsaea_torch.jobs import JobExecutor
from tcsaea_torch.optimizer import Optimizer
from tcsaea_torch.problem import Problem
from tcsaea_torch.result import Result
from tcsaea_torch.strategies import TCEHVI, TCSAEA, RandomSearch
from tcsaea_torch.types import Objective
from tcsaea_torch.virtual import VirtualExecutor

__version__ = "0.1.0"

__all__ = [
    "TCEHVI",
    "TCSAEA",
    "CommandObjective",
    "Evaluation",
    "JobExecutor",
    "NextAction",
    "Objective",
    "Optimizer",
    "Problem",
    "RandomSearch",
    "Result",
    "Status",
    "VirtualExecutor",
    "acquisition",
    "botorch_models",
    "evolution",
    "kernels",
    "metrics",
    "minimize",
    "models",
    "plotting",
    "problems",
    "strategies",
]
