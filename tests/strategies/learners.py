"""What TC-EHVI's models learn from, for the tests of how they learn."""

from dataclasses import replace
from typing import Any

import torch

from tcsaea_torch.models import Candidate, FitConfig, Hyperparameters, TrainingSet
from tcsaea_torch.strategies.ehvi_surrogates import KERNEL_KINDS, Learner, sources
from tests.models.models import draw, wavy

B, D = 3, 3
CONSTANT = torch.zeros(B, dtype=torch.bool)
CONFIGS = {
    "ard": FitConfig(theta_range=(1e-6, 1e3), nugget=1e-8),
    "additive": FitConfig(kernel="additive", nugget=1e-8),
    "smooth": FitConfig(
        kernel="additive", starts=(0.3, 5.0), theta_prior=(1.0, 2.0), amplitude_spread=1.0,
        nugget=1e-8,
    ),
    "cautious": FitConfig(
        kernel="additive", starts=(5.0,), theta_prior=(20.0, 1.0), amplitude_spread=0.75,
        nugget=1e-8,
    ),
    "soft": FitConfig(
        theta_range=(1e-6, 1e3), nugget="fit", nugget_range=(1e-4, 0.1),
        nugget_prior=(0.005, 1.0),
    ),
    "rough": FitConfig(kernel="additive", p=1.5, nugget=1e-8),
}  # fmt: skip


def config_of(model, kernel):
    """Joint kernels of GP_s have a prior, by the number of dimensions."""
    if model == "slow" and kernel in ("ard", "soft"):
        return replace(CONFIGS[kernel], theta_prior=(12.0 / D, 3.5))
    return CONFIGS[kernel]


def training(n, *, seed=0, noise=0.0):
    X = draw(B, n, D, seed=seed)
    y = wavy(X) + torch.arange(B)[:, None] * (12.0 * X[..., 1]).cos()
    return TrainingSet(X=X, y=y, noise_var=torch.full((B, n), noise).double())


def learner(model: Any = "fast", kernels=KERNEL_KINDS, **options) -> Any:
    options = {"refit_after": 30.0, "noisy": False, "calibrated": False, **options}
    return Learner(model=model, sources=sources(model, kernels), **options)


def candidates_of(some, state):
    found = []
    for source in some.sources:
        prefix = f"{some.model}/{source.name}."
        values = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
        hyper = Hyperparameters(**values)
        found.append(Candidate(config=config_of(some.model, source.kernel), hyperparameters=hyper))
    return found
