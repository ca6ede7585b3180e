import math

import pytest
import torch

from tcsaea_torch.acquisition import AAFNormalizer, adaptive_acquisition, adaptive_weight


def population(seed=0, low=0.5):
    generator = torch.Generator().manual_seed(seed)
    mean = torch.rand(3, 12, 2, generator=generator, dtype=torch.float64) + low
    s = torch.rand(3, 12, 2, generator=generator, dtype=torch.float64)
    alive = torch.rand(3, 12, generator=generator) < 0.7
    return mean, s, alive


def test_weight_follows_its_formula(tensor):
    # a = 1/2 - cos(pi FE / B) / 2, from the paper of the acquisition function.
    weight = adaptive_weight(
        tensor([0.0, 50.0, 100.0, 150.0, 200.0]), torch.full((5,), 200.0).double()
    )
    expected = [0.0, 0.5 - math.sqrt(0.5) / 2, 0.5, 0.5 + math.sqrt(0.5) / 2, 1.0]
    assert torch.allclose(weight, tensor(expected), rtol=0, atol=1e-15)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equals_a_naive_loop(sign, tensor):
    mean, s, alive = population()
    weight = tensor([0.2, 0.5, 0.9])
    value = adaptive_acquisition(
        mean, s, AAFNormalizer.from_population(mean, s, alive), weight, sign=sign
    )
    for i in range(3):
        rows = [k for k in range(12) if alive[i, k]]
        a = float(weight[i])
        for j in range(2):
            max_mean = max(float(mean[i, k, j]) for k in rows)
            max_s = max(float(s[i, k, j]) for k in rows)
            for k in range(12):
                exploit = float(mean[i, k, j]) / max_mean
                explore = float(s[i, k, j]) / max_s
                expected = (1 - a) * exploit + sign * a * explore
                assert float(value[i, k, j]) == pytest.approx(expected, rel=1e-14)


def test_negative_means_are_shifted_to_begin_at_zero():
    mean, s, alive = population()
    lower = mean - 100.0
    a = adaptive_acquisition(
        lower, s, AAFNormalizer.from_population(lower, s, alive), torch.zeros(3).double()
    )
    for i in range(3):
        values = a[i][alive[i]]
        assert values.amin(dim=0).tolist() == [0.0, 0.0]
        assert values.amax(dim=0).tolist() == pytest.approx([1.0, 1.0], rel=1e-12)
        # The order of points is the order of their means.
        assert torch.equal(values.argsort(dim=0), mean[i][alive[i]].argsort(dim=0))


def test_slightly_negative_means_keep_the_released_scale():
    mean, s, alive = population(low=-0.05)
    mean = mean.clamp_min(-0.05)
    normalizer = AAFNormalizer.from_population(mean, s, alive)
    assert (normalizer.shift == 0).all()


def test_equal_or_zero_values_stay_finite():
    zeros = torch.zeros(1, 4, 2, dtype=torch.float64)
    alive = torch.ones(1, 4, dtype=torch.bool)
    for mean in (zeros, zeros - 3.0, zeros + 3.0):
        normalizer = AAFNormalizer.from_population(mean, zeros, alive)
        value = adaptive_acquisition(mean, zeros, normalizer, torch.full((1,), 0.5).double())
        assert value.isfinite().all()
        assert (value == value[0, 0]).all()


def test_nobody_alive_stays_finite():
    mean, s, _ = population()
    nobody = torch.zeros(3, 12, dtype=torch.bool)
    normalizer = AAFNormalizer.from_population(mean, s, nobody)
    assert (normalizer.max_mean > 0).all()
    assert (normalizer.max_s > 0).all()
