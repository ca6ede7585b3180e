"""The models that both peers of BoTorch fit: its default Gaussian process for each objective."""

from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import SumMarginalLogLikelihood

from benchmarks.peers.base import Evaluations
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.types import Float, Tensor


def fit(evaluations: Evaluations) -> ModelListGP:
    """Fit one model to each objective's own points.

    Inputs lie in the unit cube already; outputs are negated, as BoTorch maximises, and
    standardised. Kernel, priors and noise are the library's defaults.
    """
    models = []
    for i in range(2):
        known = ~evaluations.Y[:, i].isnan()
        X, y = evaluations.X[known], -evaluations.Y[known, i].unsqueeze(-1)
        models.append(SingleTaskGP(X, y, outcome_transform=Standardize(m=1)))
    model = ModelListGP(*models)
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    return model


def reference_point(problem: TestProblem) -> Float[Tensor, "2"]:
    """Return the problem's reference point, negated: 1.1 times the nadir of the true front."""
    return -(problem.ref_point * problem.signs)


def maximise(
    acquisition: AcquisitionFunction, d: int, **options: Any
) -> tuple[Float[Tensor, "q d"], Float[Tensor, "*value"]]:
    """Maximise over the unit cube with `optimize_acqf`; return the points and their value."""
    bounds = torch.tensor([[0.0] * d, [1.0] * d], dtype=torch.float64)
    X, value = optimize_acqf(acquisition, bounds, **options)
    assert value is not None
    return X.clamp(0.0, 1.0), value
