"""Additive correlations without gradients, and with those in points alone, as by autograd."""

import pytest
import torch

from tcsaea_torch import correlations
from tcsaea_torch.correlations import additive


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


BATCHES = [((), (), ()), ((3,), (3,), (3,)), ((1,), (3,), (3,)), ((), (), (3,)),
           ((2, 1), (3,), (2, 3)), ((2, 3), (2, 3), ())]  # fmt: skip


@pytest.mark.parametrize("p", [None, 1.5, 1.2, 1.0])
@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("n_block", [1, 50, 2**16])
def test_blocks_give_what_gradients_are_taken_of(n_block, batches, p, monkeypatch):
    monkeypatch.setattr(correlations, "_BLOCK", n_block)
    of_a, of_b, of_theta = batches
    A, B = draw(*of_a, 11, 4), draw(*of_b, 7, 4, seed=1)
    B[..., 0, :] = A.reshape(-1, 11, 4)[0, 5]
    theta, amplitudes = 30.0 * draw(*of_theta, 4, seed=2), 0.1 + draw(*of_theta, 5, seed=3)
    powers = None if p is None else torch.full_like(theta, p)
    found = additive(A, B, theta, amplitudes, powers)
    expected = additive(A.clone().requires_grad_(), B, theta, amplitudes, powers)
    assert expected.requires_grad
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-15)
    with torch.no_grad():
        again = additive(A.clone().requires_grad_(), B, theta, amplitudes, powers)
    assert torch.equal(again, found)


@pytest.mark.parametrize("p", [None, 1.5, 1.0])
def test_single_precision_and_one_dimension(p):
    for dtype, d in ((torch.float32, 4), (torch.float64, 1)):
        A, B = draw(9, d, dtype=dtype), draw(6, d, seed=1, dtype=dtype)
        theta, amplitudes = 9.0 * draw(d, seed=2, dtype=dtype), draw(d + 1, seed=3, dtype=dtype)
        powers = None if p is None else torch.full_like(theta, p)
        found = additive(A, B, theta, amplitudes, powers)
        expected = additive(A.requires_grad_(), B, theta, amplitudes, powers)
        assert found.dtype == dtype
        torch.testing.assert_close(
            found, expected.detach(), rtol=0, atol=4 * torch.finfo(dtype).eps
        )


@pytest.mark.parametrize("p", [None, 1.5, 1.2, 1.0])
def test_arguments_stay_as_they_are(p):
    theta = 9.0 * draw(2, 4, seed=2)
    powers = None if p is None else torch.full_like(theta, p)
    arguments = draw(2, 9, 4), draw(2, 6, 4, seed=1), theta, draw(2, 5, seed=3)
    before = [t.clone() for t in arguments]
    additive(*arguments, powers)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(arguments, before, strict=True))
    assert powers is None or bool((powers == p).all())


def test_there_may_be_no_points():
    theta, amplitudes = draw(4), draw(5)
    for n, m in ((0, 3), (3, 0)):
        assert additive(draw(n, 4), draw(m, 4), theta, amplitudes).shape == (n, m)


# --- slopes in points alone


def arguments_of(batches, p, *, seed=0):
    of_a, of_b, of_theta = batches
    A, B = draw(*of_a, 9, 3, seed=seed), draw(*of_b, 6, 3, seed=seed + 1)
    # One point is also one of B; another shares a coordinate with one.
    A[..., 4, :] = B.reshape(-1, 6, 3)[0, 2]
    A[..., 5, 0] = B.reshape(-1, 6, 3)[0, 1, 0]
    theta = 5.0 * draw(*of_theta, 3, seed=seed + 2)
    amplitudes = 0.1 + draw(*of_theta, 4, seed=seed + 3)
    return A, B, theta, amplitudes, None if p is None else torch.full_like(theta, p)


def slope_of(A, *rest, weights):
    A = A.clone().requires_grad_()
    R = additive(A, *rest)
    (slope,) = torch.autograd.grad((weights * R).sum(), A)
    return R, slope


@pytest.mark.parametrize("p", [None, 2.0, 1.5, 1.2, 1.0])
@pytest.mark.parametrize("batches", [*BATCHES, ((2, 3), (3,), (3,)), ((2, 3), (2, 1), (3,))])
def test_slopes_in_points_are_those_of_the_general_path(batches, p):
    A, B, theta, amplitudes, powers = arguments_of(batches, p)
    weights = draw(*additive(A, B, theta, amplitudes, powers).shape, seed=7) - 0.5
    R, found = slope_of(A, B, theta, amplitudes, powers, weights=weights)
    assert "InPoints" in type(R.grad_fn).__name__
    theta = theta.requires_grad_()
    general, expected = slope_of(A, B, theta, amplitudes, powers, weights=weights)
    assert "InPoints" not in type(general.grad_fn).__name__
    assert found.shape == A.shape
    torch.testing.assert_close(R, general, rtol=0, atol=1e-14)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("p", [None, 1.5, 1.0])
def test_slopes_in_points_are_those_of_central_differences(p):
    A, B, theta, amplitudes, powers = arguments_of(((2,), (2,), (2,)), p)
    A = draw(2, 9, 3, seed=20)  # away from those of B, where a power has kinks
    weights, step = draw(2, 9, 6, seed=7) - 0.5, 1e-6
    _, found = slope_of(A, B, theta, amplitudes, powers, weights=weights)
    for k in range(3):
        shift = torch.zeros(3).double()
        shift[k] = step
        high, low = (additive(A + s * shift, B, theta, amplitudes, powers) for s in (1, -1))
        expected = (weights * (high - low)).sum(dim=-1) / (2 * step)
        torch.testing.assert_close(found[..., k], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("p", [None, 1.5, 1.0])
def test_points_that_coincide_have_no_slope(p):
    A, _, theta, amplitudes, powers = arguments_of(((), (), ()), p)
    eye = torch.eye(len(A)).double()
    R, slope = slope_of(A, A, theta, amplitudes, powers, weights=eye)
    torch.testing.assert_close(R.diagonal(), torch.ones(len(A)).double(), rtol=0, atol=1e-15)
    assert torch.equal(slope, torch.zeros_like(slope))


@pytest.mark.parametrize("p", [None, 1.5, 1.0])
def test_slopes_in_single_precision(p):
    given = arguments_of(((2,), (2,), (2,)), p)
    few = [t if t is None else t.float() for t in given]
    weights = draw(2, 9, 6, seed=7)
    _, expected = slope_of(*given, weights=weights)
    R, found = slope_of(*few, weights=weights.float())
    assert R.dtype == found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


def test_arguments_stay_as_they_are_when_slopes_are_taken():
    given = arguments_of(((2,), (2,), (2,)), 1.5)
    before = [t.clone() for t in given if t is not None]
    slope_of(*given, weights=1.0)
    after = [t for t in given if t is not None]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(after, before, strict=True))


@pytest.mark.parametrize("p", [None, 2.0])
def test_slopes_of_slopes_are_those_of_the_general_path(p):
    A, B, theta, amplitudes, powers = arguments_of(((2,), (2,), (2,)), p)
    found = []
    for is_general in (False, True):
        A = A.detach().requires_grad_()
        theta = theta.detach().requires_grad_(is_general)
        R = additive(A, B, theta, amplitudes, powers)
        assert ("InPoints" in type(R.grad_fn).__name__) != is_general
        (slope,) = torch.autograd.grad(R.square().sum(), A, create_graph=True)
        found.append((slope.detach(), *torch.autograd.grad(slope.sin().sum(), A)))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-12)
    assert found[0][1].abs().amax() > 0.1
