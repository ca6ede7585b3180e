"""Hot loops neither wait for the device nor mix devices.

Tensors on torch's "meta" device have shapes but no values: reading a value on the host
raises, and so does an operation with a CPU tensor. What runs on them runs on a GPU
without host synchronisation.
"""

import pytest
import torch

from tcsaea_torch import problems
from tcsaea_torch.acquisition import AAFNormalizer, adaptive_acquisition, adaptive_weight
from tcsaea_torch.evolution import Draws, RVEAConfig, apd_select, rvea, simplex_lattice
from tcsaea_torch.models.likelihood import Standardised, negative_log_likelihood
from tcsaea_torch.models.optimise import BFGSOptions, _Search
from tcsaea_torch.models.surrogate import scale
from tcsaea_torch.models.training_set import TrainingSet, limit, merge_duplicates
from tcsaea_torch.rng import latin_hypercube, uniforms

META = torch.device("meta")
SEEDS = torch.zeros(3, dtype=torch.int64, device=META)


def meta(*shape):
    return torch.zeros(*shape, dtype=torch.float64, device=META)


def everyone(*shape):
    return torch.ones(*shape, dtype=torch.bool, device=META)


def test_the_meta_device_would_tell():
    with pytest.raises(RuntimeError):
        bool(meta(3).any())
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(meta(1))
    with pytest.raises(RuntimeError):
        torch.add(meta(3), torch.zeros(3))


@pytest.mark.parametrize("each_once", [True, False])
def test_rvea(each_once):
    problem = problems.get("dtlz7")
    config = RVEAConfig(n_generations=4, each_once=each_once)
    draws = Draws.make(SEEDS, "test", 0, 4, 15, problem.d, torch.float64)
    vectors = simplex_lattice(15, device=META)
    X = meta(3, 40, problem.d)
    grid = meta(problem.d)
    population, adapted = rvea(
        problem.evaluate, X, everyone(3, 40), vectors, draws, config, grid=grid
    )
    assert population.X.shape == (3, 15, problem.d)
    assert adapted.device == META


@pytest.mark.parametrize("p", [None, "ard"])
@pytest.mark.parametrize("has_variance", [False, True])
def test_likelihood(p, has_variance):
    data = Standardised(
        X=meta(3, 20, 4), y=meta(3, 20), F=meta(3, 20, 5), noise=meta(3, 20),
        live=everyone(3, 20), is_exact=everyone(3),
    )  # fmt: skip
    powers = None if p is None else meta(3, 4)
    variance = meta(3) if has_variance else None
    value = negative_log_likelihood(data, meta(3, 4), powers, variance, 1e-10)
    assert value.d_log_theta.shape == (3, 4)


def test_a_pass_of_the_optimiser():
    lower, upper = meta(4), meta(4)
    search = _Search.begin(meta(3, 4), meta(3), meta(3, 4), lower, upper, BFGSOptions())
    assert search.advance(meta(3, 4), meta(3), meta(3, 4)).x.shape == (3, 4)


def test_training_data_acquisition_and_random_numbers():
    train = TrainingSet(X=meta(3, 20, 4), y=meta(3, 20), noise_var=meta(3, 20))
    limited = limit(merge_duplicates(train), 10, uniforms(SEEDS, "test", 0, (20,)))
    data, _ = scale(limited, trend=everyone(3), input_scaling="standardize")
    assert data.X.shape == (3, 10, 4)
    mean, s = meta(3, 8, 2), meta(3, 8, 2)
    normalizer = AAFNormalizer.from_population(mean, s, everyone(3, 8))
    aaf = adaptive_acquisition(mean, s, normalizer, adaptive_weight(meta(3), meta(3)))
    winner, _ = apd_select(aaf, everyone(3, 8), simplex_lattice(6, device=META), meta(3))
    assert winner.shape == (3, 6)
    u, jitter = uniforms(SEEDS, "test", 1, (2, 9, 4)).unbind(dim=1)
    assert latin_hypercube(u, jitter, everyone(3, 9)).shape == (3, 9, 4)
