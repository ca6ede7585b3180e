"""Additive correlations without gradients: in blocks, and as those with gradients."""

import pytest
import torch

from tcsaea_torch import correlations
from tcsaea_torch.correlations import additive


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


BATCHES = [((), (), ()), ((3,), (3,), (3,)), ((1,), (3,), (3,)), ((), (), (3,)),
           ((2, 1), (3,), (2, 3)), ((2, 3), (2, 3), ())]  # fmt: skip


@pytest.mark.parametrize("p", [None, 1.5, 1.2])
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


@pytest.mark.parametrize("p", [None, 1.5])
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


@pytest.mark.parametrize("p", [None, 1.5, 1.2])
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
