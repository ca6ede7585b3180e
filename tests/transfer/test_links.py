"""Links as pairs of maps: from two values to a target, and back."""

import pytest
import torch

from tcsaea_torch.transfer.links import (
    Angle,
    Autoregressive,
    Difference,
    LinkConfig,
    LogRatio,
    Scales,
    lower_bounds,
    slow_by_choice,
)

WAYS = [Difference(), LogRatio(1e-3), LogRatio(0.1), Angle(), Autoregressive()]


def values(b=2, n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.2 + torch.rand(b, n, 2, generator=generator, dtype=torch.float64)


def scales_of(Y, lower_bound=None):
    return Scales.of(Y, torch.ones_like(Y[..., 0], dtype=torch.bool), lower_bound)


@pytest.mark.parametrize("low", [None, [-3.0, 0.1]])
@pytest.mark.parametrize("way", WAYS)
def test_what_goes_to_the_target_comes_back(way, low, tensor):
    Y = values()
    scales = scales_of(Y, None if low is None else tensor([low]))
    f, s = Y.unbind(dim=-1)
    t = way.target(f, s, scales)
    mean, variance = way.slow(t, torch.zeros_like(t), f, scales)
    assert torch.allclose(mean, s, rtol=1e-12)
    assert torch.equal(variance, torch.zeros_like(variance))


@pytest.mark.parametrize(("way", "sd"), [(LogRatio(0.1), 0.3), (Angle(), 0.01)])
def test_variances_are_those_of_samples(way, sd, tensor):
    Y = values(b=1)
    scales = scales_of(Y)
    f, t = tensor([[0.3, 0.8, 1.1]]), tensor([[0.2, 0.5, 0.7]])
    mean, variance = way.slow(t, torch.full_like(t, sd**2), f, scales)
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(200_000, 3, generator=generator, dtype=torch.float64)
    samples, _ = way.slow(t + sd * z, torch.zeros_like(z), f.expand_as(z), scales)
    found = (samples - mean).square().mean(dim=0)
    assert torch.allclose(found, variance[0], rtol=0.03)


@pytest.mark.parametrize("way", [LogRatio(1e-3), LogRatio(0.1), Angle()])
def test_near_the_axis_ratios_and_angles_say_nothing(way, tensor):
    Y = values(b=1)
    scales = scales_of(Y)
    unit = scales.unit[0]
    f = unit[0] * tensor([[0.0, 1e-12, 1e-4, -0.1, 1.0]])
    s = unit[1] * tensor([[1.0, 1.0, 1.0, 1.0, 1.0]])
    t = way.target(f, s, scales)
    mean, variance = way.slow(t, torch.full_like(t, 1e-8), f, scales)
    assert (variance[0, :4] == torch.inf).all()
    assert variance[0, 4] < 1e-6
    assert mean.isfinite().all()


@pytest.mark.parametrize("way", WAYS)
def test_unknown_targets_give_unknown_values(way, tensor):
    scales = scales_of(values(b=1))
    for v in (torch.inf, 1e9):
        t = tensor([[0.4, 900.0]])
        mean, variance = way.slow(t, torch.full_like(t, v), tensor([[0.5, 0.5]]), scales)
        assert mean.isfinite().all()
        assert (variance >= min(v, 1e9)).all()


def test_scales_do_not_see_dead_rows():
    Y = values()
    live = torch.rand(2, 40, generator=torch.Generator().manual_seed(3)) < 0.5
    changed = torch.where(live.unsqueeze(-1), Y, 1e6)
    a, b = (Scales.of(v, live, None) for v in (Y, changed))
    assert all(torch.equal(getattr(a, k), getattr(b, k)) for k in ("low", "unit", "first", "span"))
    for i in range(2):
        rows = Y[i, live[i]]
        assert torch.allclose(a.unit[i], rows.mean(dim=0))
        assert float(a.span[i]) == pytest.approx(float(rows[:, 0].max() - rows[:, 0].min()))
    inside = a.input(Y[..., 0])[live]
    assert inside.min() == 0.0
    assert inside.max() == pytest.approx(1.0)


def test_scales_without_rows_or_without_spread():
    Y = torch.zeros(2, 5, 2).double()
    for live in (torch.zeros(2, 5, dtype=torch.bool), torch.ones(2, 5, dtype=torch.bool)):
        scales = Scales.of(Y, live, None)
        assert (scales.unit == 1.0).all()
        assert (scales.span == 1.0).all()


@pytest.mark.parametrize("factor", [1e-9, 1e9])
@pytest.mark.parametrize("way", [LogRatio(1e-3), Angle()])
def test_targets_have_no_units(way, factor, tensor):
    Y = values()
    other = Y * tensor([factor, 1.0 / factor])
    targets = [way.target(*y.unbind(dim=-1), scales_of(y)) for y in (Y, other)]
    assert torch.allclose(*targets, rtol=1e-10, atol=1e-12)


def test_each_run_has_its_own_way(tensor):
    Y = values(b=3)
    scales = scales_of(Y)
    f, s = Y.unbind(dim=-1)
    ways = (Difference(), Angle())
    t = torch.stack([s[0] - f[0], ways[1].target(f, s, scales)[1], s[2]])
    mean, variance = slow_by_choice(
        ways, torch.tensor([0, 1, -1]), t, torch.zeros_like(t), f, scales
    )
    assert torch.allclose(mean[:2], s[:2])
    assert (variance[:2] == 0).all()
    assert (variance[2] == torch.inf).all()
    assert (mean[2] == 0).all()


def test_each_offset_makes_a_way():
    config = LinkConfig(links=("ratio", "angle"), ratio_offsets=(0.1, 0.01))
    assert config.ways() == (LogRatio(0.1), LogRatio(0.01), Angle())


def test_bounds_are_as_given_but_never_above_a_measured_value(tensor):
    Y = tensor([[[1.0, -4.0], [2.0, -9.0]], [[-0.5, 3.0], [-7.0, 5.0]]])
    observed = torch.tensor([[[True, True], [True, False]], [[True, True], [False, True]]])
    assert lower_bounds(Y, observed, (0.0, -5.0)).tolist() == [[0.0, -5.0], [-0.5, -5.0]]
    assert lower_bounds(Y, observed, (None, -1.0)).tolist() == [
        [-torch.inf, -4.0],
        [-torch.inf, -1.0],
    ]


def test_a_bound_that_is_not_known_counts_as_0(tensor):
    Y = values()
    unknown = scales_of(Y, tensor([[-torch.inf, 0.1]]))
    assert unknown.low.tolist() == [[0.0, 0.1]] * 2
