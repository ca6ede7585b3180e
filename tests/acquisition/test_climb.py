"""Candidates that climb to the nearest maximum of their score."""

import math

import pytest
import torch

from tcsaea_torch.acquisition.climb import climb
from tcsaea_torch.models.optimise import BFGSOptions

OPTIONS = BFGSOptions(max_evaluations=80, max_step=0.5, value_tolerance=0.0)
CURVATURE = torch.tensor([1.0, 4.0, 30.0]).double()
INSIDE = torch.tensor([[0.3, 0.6, 0.5], [0.8, 0.1, 0.45]]).double()
OUTSIDE = torch.tensor([[-0.4, 0.6, 0.5], [0.2, 1.7, -3.0]]).double()


def starts(b=2, k=5, d=3, seed=0, dtype=torch.float64):
    return torch.rand(b, k, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def quadratic(top):
    """Scores of each run that are largest at its own point."""

    def score(X):
        return -(CURVATURE.to(X) * (X - top.to(X).unsqueeze(1)).square()).sum(dim=-1)

    return score


@pytest.mark.parametrize("top", [INSIDE, OUTSIDE], ids=["inside", "at-faces"])
def test_the_maximum_of_a_quadratic_is_found(top):
    found = climb(quadratic(top), starts(), OPTIONS)
    # Its axes are those of the cube: the best point of it has each variable moved inside.
    expected = top.clamp(0.0, 1.0).unsqueeze(1).expand(2, 5, 3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert ((found >= 0) & (found <= 1)).all()


def test_where_axes_are_mixed_the_best_point_of_a_face_is_found():
    # s = -(x^2 + x y + y^2) about (-0.5, 0.5): with x = 0, y = 0.5 - 0.5 / 2.
    def score(X):
        x, y = X[..., 0] + 0.5, X[..., 1] - 0.5
        return -(x * x + x * y + y * y)

    found = climb(score, starts(d=2), OPTIONS)
    expected = torch.tensor([0.0, 0.25]).double().expand(2, 5, 2)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_each_candidate_climbs_to_the_maximum_nearby():
    def score(X):
        return torch.cos(4 * math.pi * X).sum(dim=-1)  # tops at 0, 0.5 and 1

    X = torch.tensor([[[0.05], [0.45], [0.6], [0.93]]]).double()
    found = climb(score, X, BFGSOptions(max_evaluations=80, max_step=0.05))
    expected = torch.tensor([[[0.0], [0.5], [0.5], [1.0]]]).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


def wavy(X):
    return torch.sin(9.0 * X).prod(dim=-1) + torch.cos(5.0 * X.sum(dim=-1))


@pytest.mark.parametrize("max_evaluations", [1, 2, 5, 40])
def test_scores_never_fall(max_evaluations):
    X = starts(k=30, seed=3)
    options = BFGSOptions(max_evaluations=max_evaluations, max_step=0.5)
    gain = wavy(climb(wavy, X, options)) - wavy(X)
    assert (gain >= 0).all()
    assert (gain > 0).any() == (max_evaluations > 1)


def test_runs_of_a_batch_climb_as_they_do_alone():
    X, top = starts(k=7, seed=4), INSIDE
    # One run ends sooner than the other.
    X[0] = top[0] + 1e-4 * X[0]
    options = BFGSOptions(max_evaluations=6, max_step=0.5)
    together = climb(quadratic(top), X, options)
    for i in range(2):
        alone = climb(quadratic(top[i : i + 1]), X[i : i + 1], options)
        torch.testing.assert_close(together[i], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_candidates_without_a_finite_score_stay(bad):
    X = starts(k=4, seed=5)
    X[0, 1], X[1, 3] = 0.95, 0.99
    is_bad = (X > 0.9).all(dim=-1)

    def score(X):
        value = quadratic(INSIDE)(X)
        return torch.where((X > 0.9).all(dim=-1), bad, value)

    found = climb(score, X, OPTIONS)
    assert is_bad.sum() == 2
    assert torch.equal(found[is_bad], X[is_bad])
    expected = INSIDE.unsqueeze(1).expand(2, 4, 3)[~is_bad]
    torch.testing.assert_close(found[~is_bad], expected, rtol=0, atol=1e-5)


def test_candidates_without_a_finite_slope_stay():
    # The root has an infinite slope at 0, and none below.
    X = torch.tensor([[[0.0], [0.25]]]).double()
    found = climb(lambda X: X[..., 0].sqrt(), X, OPTIONS)
    assert found[0, 0, 0] == 0.0
    assert found[0, 1, 0] == 1.0


def test_nothing_else_changes():
    X = starts()
    before = X.clone()
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            found = climb(quadratic(INSIDE), X, OPTIONS)
            assert torch.is_grad_enabled() == mode
        assert not found.requires_grad
    assert torch.equal(X, before)
    assert not X.requires_grad
    assert X.grad is None


def test_single_precision():
    found = climb(quadratic(INSIDE), starts(dtype=torch.float32), OPTIONS)
    assert found.dtype == torch.float32
    expected = INSIDE.float().unsqueeze(1).expand(2, 5, 3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
