"""Kriging models of all kinds, for the tests of what is done with a model."""

import io
import math
from typing import Any

import torch

from tcsaea_torch.models import Hyperparameters, KrigingGP

BATCHES = [(), (2,), (2, 3)]
TRENDS = ["constant", "linear"]
KINDS = ["exact", "noisy", "absent"]


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def wavy(X):
    return (4.0 * X[..., 0]).sin() + X.square().sum(dim=-1)


def noise_of(kind, *shape, seed=0):
    """Noise variances: none, of all rows, or of the last row infinite and else none."""
    noise = draw(*shape, seed=seed) * (0.1 if kind == "noisy" else 0.0)
    if kind == "absent":
        noise[..., -1] = math.inf
    return noise


def model(
    batch=(), *, n=12, d=2, kind="exact", trend: Any = "constant", p=None, seed=0, **options: Any
):
    """A well-conditioned model of `wavy`, with other data and hyper-parameters in each member."""
    X = draw(*batch, n, d, seed=seed)
    theta = 2.0 + 3.0 * draw(*batch, d, seed=seed + 1)
    hyper = Hyperparameters(
        theta=theta,
        p=None if p is None else torch.full_like(theta, p),
        variance=1.0 + draw(*batch, seed=seed + 2) if kind == "noisy" else None,
    )
    noise = noise_of(kind, *batch, n, seed=seed + 3)
    return KrigingGP(X, wavy(X), hyper, noise, trend=trend, **{"nugget": 1e-6, **options})


def same(a, b, tolerance=1e-10):
    """Equal within `tolerance` of the largest entry."""
    assert a.shape == b.shape
    assert a.isfinite().all()
    largest = max(float(b.detach().abs().max()), 1e-300)
    torch.testing.assert_close(a, b, rtol=0, atol=tolerance * largest)


def sigma2_of(gp):
    variance = gp.surrogate.hyperparameters.variance
    assert variance is not None
    return float(variance.max())


def saved_and_loaded(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)
