import math
from typing import Any

import pytest
import torch

from tcsaea_torch.kernels import correlations
from tcsaea_torch.models import correlation
from tcsaea_torch.models.correlation import Additive, Matern52, Powered, Squared

KINDS = [Squared, Matern52, Powered, Additive]
NAMES = {Matern52: "matern-5/2", Additive: "additive"}


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(kind, *, b=3, n=12, d=4):
    """Points of which some coincide in a dimension, masks, theta, and p or amplitudes."""
    X = draw(b, n, d) - 0.5
    X[:, 3, 1] = X[:, 7, 1]
    live = draw(b, n, seed=1) > 0.2
    live[0] = True
    theta = 3.0 * draw(b, d, seed=2) + 0.1
    p = {Powered: 1.0 + draw(b, d, seed=3), Additive: 0.1 + draw(b, d + 1, seed=3)}.get(kind)
    return kind.of(X, live), X, live, theta, p


def correlate(prepared, theta, p):
    return prepared.correlate(theta) if p is None else prepared.correlate(theta, p)


def dense(kind, X, live, theta, p):
    """Differentiable correlations without a diagonal, by the kernel's own formula."""
    both = (live.unsqueeze(-1) & live.unsqueeze(-2)).double()
    off_diagonal = 1.0 - torch.eye(X.shape[-2]).double()
    parameters = {"amplitudes": p} if kind is Additive else {"p": p}
    kernel: Any = NAMES.get(kind, "power-exponential")
    return correlations(X, X, theta, kernel=kernel, **parameters) * both * off_diagonal


@pytest.fixture(params=["kept", "blocks"])
def table(request, monkeypatch):
    """Tables of pairs that are kept, and such that are made anew in blocks of a few pairs."""
    if request.param == "blocks":
        monkeypatch.setattr(correlation, "_KEPT", {"cpu": 0, "cuda": 0})
        monkeypatch.setattr(correlation, "_BLOCK", 60)


@pytest.mark.parametrize("kind", KINDS)
def test_matrix_is_the_kernels(kind, table):
    prepared, X, live, theta, p = make(kind)
    R, _ = correlate(prepared, theta, p)
    expected = dense(kind, X, live, theta, p)
    torch.testing.assert_close(R.tril(-1), expected.tril(-1), rtol=0, atol=1e-14)
    assert (R.tril(-1)[expected.tril(-1) == 0] == 0).all()  # rows that do not exist: exactly


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_autograds(kind, table):
    prepared, X, live, theta, p = make(kind)
    W = draw(3, 12, 12, seed=4) - 0.5
    W = W + W.mT
    wanted = [v.clone().requires_grad_() for v in (theta, p) if v is not None]
    expected = dense(kind, X, live, *wanted, *([None] if p is None else []))
    (0.5 * (W * expected).sum()).backward()
    _, backward = correlate(prepared, theta, p)
    found = backward(W.clone())
    torch.testing.assert_close(found[0], wanted[0].grad, rtol=1e-12, atol=1e-12)
    assert (found[1] is None) == (p is None)
    if p is not None:
        assert wanted[1].grad is not None
        # By the logarithms of amplitudes.
        expected = wanted[1].grad * (p if kind is Additive else 1.0)
        torch.testing.assert_close(found[1], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_selected_members_are_those_of_the_batch(kind, table):
    prepared, _, _, theta, p = make(kind)
    whole, _ = correlate(prepared, theta, p)
    for index in (slice(1, 2), torch.tensor([2, 0, 2])):
        part, _ = correlate(prepared[index], theta[index], None if p is None else p[index])
        torch.testing.assert_close(part, whole[index], rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_makes_no_correlation_larger_than_one(kind):
    X = 0.1 + 1e-9 * draw(1, 40, 3)
    prepared = kind.of(X, torch.ones(1, 40, dtype=torch.bool))
    theta = torch.full((1, 3), 1e3).double()
    others = {Powered: torch.full_like(theta, 1.9), Additive: torch.ones(1, 4).double()}
    R, _ = correlate(prepared, theta, others.get(kind))
    assert R.max() <= (1.0 + 1e-15 if kind in NAMES else 1.0)
    assert R.tril(-1)[0, 1:, 0].min() > 1.0 - 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_rows(kind, n, table):
    _, X, live, theta, p = make(kind, b=1, n=12)
    short = kind.of(X[:, :n], live[:, :n])
    R, backward = correlate(short, theta, p)
    assert R.shape == (1, n, n)
    gradient, _ = backward(torch.ones_like(R))
    if n == 1:
        assert gradient.tolist() == [[0.0] * 4]
    else:
        expected = dense(kind, X[:, :2], live[:, :2], theta, p)[0, 1, 0].item()
        assert R[0, 1, 0].item() == pytest.approx(expected, abs=1e-15)
        assert (gradient < 0).all()


def test_fixed_powers_of_the_additive_kernel(table):
    _, X, live, theta, a = make(Additive)
    assert a is not None
    p = 0.5 + draw(3, 4, seed=5)
    prepared = Additive.of(X, live, p)
    R, backward = prepared.correlate(theta, a)
    wanted = [v.clone().requires_grad_() for v in (theta, a)]
    both = (live.unsqueeze(-1) & live.unsqueeze(-2)).double()
    expected = correlations(X, X, wanted[0], p, kernel="additive", amplitudes=wanted[1]) * both
    torch.testing.assert_close(R.tril(-1), expected.tril(-1), rtol=0, atol=1e-14)
    expected.tril(-1).sum().backward()
    for mine, by, v in zip(backward(torch.ones_like(R)), wanted, (1.0, a), strict=True):
        assert by.grad is not None
        torch.testing.assert_close(mine, by.grad * v, rtol=1e-12, atol=1e-12)
    index = torch.tensor([2, 0])
    part, _ = prepared[index].correlate(theta[index], a[index])
    torch.testing.assert_close(part, R[index], rtol=0, atol=1e-15)


def test_points_that_coincide_have_no_share_in_a_power():
    X = torch.tensor([[[0.1, 0.2], [0.1, 0.7]]], dtype=torch.float64)
    prepared = Powered.of(X, torch.ones(1, 2, dtype=torch.bool))
    theta, p = torch.tensor([[2.0, 3.0]]).double(), torch.tensor([[1.0, 1.5]]).double()
    R, backward = prepared.correlate(theta, p)
    r = math.exp(-3.0 * 0.5**1.5)
    assert R[0, 1, 0].item() == pytest.approx(r, abs=1e-15)
    d_theta, d_p = backward(torch.ones_like(R))
    assert d_p is not None
    assert d_theta[0].tolist() == pytest.approx([0.0, -r * 0.5**1.5], abs=1e-14)
    assert d_p[0].tolist() == pytest.approx([0.0, -r * 3.0 * 0.5**1.5 * math.log(0.5)], abs=1e-14)
