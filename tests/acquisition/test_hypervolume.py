"""EHVI against sixty digits, Monte Carlo, and its own laws."""

import math

import pytest
import torch

from tcsaea_torch import metrics
from tcsaea_torch.acquisition.hypervolume import Strips, ehvi, log_ehvi
from tests.conftest import load_reference

CASES = load_reference("ehvi2d")["cases"]


def strips_of(F, ref_point):
    F = torch.as_tensor(F, dtype=torch.float64).reshape(-1, 2)
    ref_point = torch.as_tensor(ref_point, dtype=torch.float64)
    return Strips.between(F, torch.ones(len(F), dtype=torch.bool), ref_point)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_values(case, tensor):
    strips = strips_of(case["F"], case["ref"])
    mean, sd, right = tensor([case["mu"]]), tensor([case["sigma"]]), case["ehvi_60_digits"]
    # Sums of tails lose digits where nothing is left but tails; logarithms do not.
    assert float(ehvi(mean, sd, strips)) == pytest.approx(right, rel=1e-9, abs=1e-15)
    if right > 0:
        assert float(log_ehvi(mean, sd, strips)) == pytest.approx(math.log(right), abs=1e-11)


def front(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, 2, generator=generator, dtype=torch.float64)


def test_without_uncertainty_it_is_the_improvement(tensor):
    F, ref_point = front(12), tensor([0.9, 0.8])
    strips = strips_of(F, ref_point)
    Y = front(30, seed=1)
    before = metrics.hypervolume(F, ref_point)
    expected = [metrics.hypervolume(torch.cat([F, y[None]]), ref_point) - before for y in Y]
    found = ehvi(Y, torch.zeros_like(Y), strips)
    assert torch.allclose(found, tensor(expected), atol=1e-12)


@pytest.mark.parametrize("lower_bound", [None, [0.05, 0.1], [-5.0, 0.3]])
def test_monte_carlo(lower_bound, tensor):
    F, ref_point = front(6), tensor([1.1, 1.1])
    strips = strips_of(F, ref_point)
    low = None if lower_bound is None else tensor(lower_bound)
    mean, sd = tensor([[0.3, 0.4], [0.05, 0.9]]), tensor([[0.2, 0.3], [0.1, 0.05]])
    generator = torch.Generator().manual_seed(3)
    z = torch.randn(4000, 2, 2, generator=generator, dtype=torch.float64)
    Y = mean + sd * z
    Y = Y if low is None else Y.maximum(low)
    gains = ehvi(Y, torch.zeros_like(Y), Strips(edges=strips.edges, heights=strips.heights))
    error = gains.std(dim=0) / math.sqrt(len(z))
    found = ehvi(mean, sd, strips, low)
    assert ((found - gains.mean(dim=0)).abs() < 4 * error).all()
    assert torch.allclose(log_ehvi(mean, sd, strips, low).exp(), found, rtol=1e-9)


def test_dead_and_dominated_points_and_order_do_not_matter(tensor):
    F, ref_point = front(9), tensor([1.0, 1.0])
    mean, sd = front(5, seed=2), 0.1 + front(5, seed=4)
    expected = ehvi(mean, sd, strips_of(F[metrics.is_non_dominated(F)], ref_point))
    more = torch.cat([F.flip(0), F[:2] + 0.5, tensor([[2.0, -1.0], [-9.0, -9.0]])])
    alive = torch.arange(len(more)) < len(more) - 1
    found = ehvi(mean, sd, Strips.between(more, alive, ref_point))
    assert torch.allclose(found, expected, rtol=1e-12)


def test_a_batch_is_its_members(tensor):
    F = torch.stack([front(7, seed) for seed in range(3)])
    alive = torch.rand(3, 7, generator=torch.Generator().manual_seed(9)) < 0.7
    ref_point = tensor([[1.0, 1.0], [0.5, 2.0], [1.2, 0.3]])
    mean, sd = (torch.stack([front(4, s) for s in (k, k + 1, k + 2)]) for k in (20, 30))
    low = tensor([[0.0, 0.0], [0.1, 0.1], [-1.0, 0.2]])
    strips = Strips.between(F, alive, ref_point)
    for function in (ehvi, log_ehvi):
        together = function(mean, sd, strips, low)
        for i in range(3):
            own = Strips.between(F[i], alive[i], ref_point[i])
            assert torch.allclose(together[i], function(mean[i], sd[i], own, low[i]), rtol=1e-12)


def test_gradients_where_nothing_but_tails_is_left(tensor):
    strips = strips_of([[0.2, 0.8], [0.5, 0.4], [0.9, 0.1]], [1.0, 1.0])
    mean = tensor([[3.0, 4.0], [0.4, 0.3], [0.7, 9.0]]).requires_grad_()
    sd = tensor([[0.05, 0.05], [0.1, 0.2], [0.01, 0.3]]).requires_grad_()
    value = log_ehvi(mean, sd, strips)
    assert value[0] < -1e3
    value.sum().backward()
    assert mean.grad is not None
    assert sd.grad is not None
    assert mean.grad.isfinite().all()
    assert sd.grad.isfinite().all()
    assert (mean.grad <= 0).all()  # lower means are better
    torch.autograd.gradcheck(
        lambda m, s: log_ehvi(m, s, strips),
        (mean.detach()[1:2].requires_grad_(), sd.detach()[1:2].requires_grad_()),
    )


def test_float32(tensor):
    strips = strips_of(front(5), [1.0, 1.0])
    single = Strips(edges=strips.edges.float(), heights=strips.heights.float())
    mean, sd = front(6, seed=2), 0.1 + front(6, seed=3)
    found = log_ehvi(mean.float(), sd.float(), single)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), log_ehvi(mean, sd, strips), atol=1e-4)
