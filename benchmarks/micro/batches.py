"""Work of many runs at once."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.micro import data
from tcsaea_torch.kernels import PowerMode
from tcsaea_torch.models import fit_config, fitting
from tcsaea_torch.models.optimise import Minimum
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import uniforms
from tcsaea_torch.types import Tensor


def fits(
    b: int, n: int, d: int, device: str, *, p: PowerMode = 2.0, problem: str = "dtlz2"
) -> Callable[[], Surrogate]:
    """Return b cold fits as one batch, each of n rows of its own in d dimensions."""
    seeds = torch.arange(data.SEED, data.SEED + b, device=device)
    X = uniforms(seeds, "micro/rows", 0, (n, d))
    y = data.slow_values(problem, X.flatten(0, 1)).reshape(b, n)
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    constant = torch.zeros(b, dtype=torch.bool, device=device)
    config = fit_config.FitConfig(p=p)
    return lambda: fitting.fit(train, config, trend=constant)


def counted(fit: Callable[[], object]) -> Callable[[], int]:
    """Return the same fit; it returns how many likelihoods it evaluated."""
    minimise = fitting.minimise_in_box

    def work() -> int:
        counts: list[Tensor] = []

        def noted(*args: Any, **options: Any) -> Minimum:
            found = minimise(*args, **options)
            counts.append(found.n_evaluations.sum())
            return found

        with patch.object(fitting, "minimise_in_box", noted):
            fit()
        return sum(int(count) for count in counts)

    return work
