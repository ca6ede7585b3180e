"""What TC-EHVI's models learn from, for the tests of how they learn."""

from dataclasses import replace
from typing import Any

import torch

from tcsaea_torch.models import Candidate, Hyperparameters, TrainingSet
from tcsaea_torch.strategies.ehvi_surrogates import (
    _KERNELS,
    _NUGGET,
    KERNEL_KINDS,
    Learner,
    sources,
)
from tests.models.models import draw, wavy

B, D = 3, 3
CONSTANT = torch.zeros(B, dtype=torch.bool)


def config_of(kernel):
    """Joint kernels have a prior, by the number of dimensions; without noise, rows are exact."""
    config = _KERNELS[kernel]
    if config.kernel == "power-exponential":
        config = replace(config, theta_prior=(12.0 / D, 3.5))
    return config if config.nugget == "fit" else replace(config, nugget=_NUGGET)


def training(n, *, seed=0, noise=0.0):
    X = draw(B, n, D, seed=seed)
    y = wavy(X) + torch.arange(B)[:, None] * (12.0 * X[..., 1]).cos()
    return TrainingSet(X=X, y=y, noise_var=torch.full((B, n), noise).double())


def learner(model: Any = "fast", kernels=KERNEL_KINDS, **options) -> Any:
    options = {"noisy": False, "calibrated": False, **options}
    return Learner(model=model, sources=sources(model, kernels), **options)


def candidates_of(some, state):
    found = []
    for source in some.sources:
        prefix = f"{some.model}/{source.name}."
        values = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        hyper = Hyperparameters(**values)
        found.append(Candidate(config=config_of(source.kernel), hyperparameters=hyper))
    return found
