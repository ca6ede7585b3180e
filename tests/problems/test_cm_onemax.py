import pytest
import torch

from tcsaea_torch import metrics
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import CMOneMax


def uniform(n):
    return torch.rand(n, 10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("corr", [-1.0, -0.5, 0.0, 0.25, 1.0])
def test_objectives_correlate_as_the_map_says(corr):
    problem = CMOneMax(corr=corr, seed=3)
    k = int(problem.map.sum())
    Y = problem.evaluate(uniform(20_000))
    expected = (10 - 2 * k) / 10
    assert float(torch.corrcoef(Y.T)[0, 1]) == pytest.approx(expected, abs=0.02)


def test_the_mean_correlation_over_seeds_is_the_one_asked_for():
    for corr in (-0.75, 0.0, 0.5):
        ones = [int(CMOneMax(corr=corr, seed=seed).map.sum()) for seed in range(400)]
        mean = sum((10 - 2 * k) / 10 for k in ones) / 400
        assert mean == pytest.approx(corr, abs=0.06)


def test_the_map_is_drawn_once_and_extremes_are_certain():
    first, again = (CMOneMax(seed=5) for _ in range(2))
    assert torch.equal(first.map, again.map)
    X = uniform(50)
    assert torch.equal(first.evaluate(X), again.evaluate(X))
    assert CMOneMax(corr=1.0, seed=9).map.sum() == 0
    assert CMOneMax(corr=-1.0, seed=9).map.sum() == 10


@pytest.mark.parametrize("corr", [-1.0, 0.0, 1.0])
def test_the_front_is_attained_and_not_dominated(corr):
    problem = CMOneMax(corr=corr, seed=2)
    k = int(problem.map.sum())
    front = problem.pareto_front(101)
    assert torch.allclose(front.sum(dim=-1), torch.full((101,), float(k)).double())
    X = uniform(2000)
    X[:, problem.map == 0] = 0.0  # the Pareto set: free where the map is 1
    Y = problem.evaluate(X)
    assert torch.allclose(Y.sum(dim=-1), torch.full((2000,), float(k)).double())
    everything = torch.cat([Y, problem.evaluate(uniform(500))])
    assert not (everything.sum(dim=-1) < k - 1e-9).any()
    assert metrics.igd(Y, front) < 0.7


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidInputError, match="corr must be a finite real number >= -1 and <= 1"):
        CMOneMax(corr=1.5)
