import pytest
import torch

from tcsaea_torch.models.success import N_FAILURES, learn_success

CENTRE, RADIUS = torch.tensor([0.6, 0.4]).double(), 0.3


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fails(X):
    """A disc, in which everything fails."""
    return (X - CENTRE.to(X)).norm(dim=-1) < RADIUS


def learned(X, failed=None, *, n_max=1000, done=None):
    failed = fails(X) if failed is None else failed
    done = ~failed if done is None else done
    u = draw(*X.shape[:-1], seed=9, dtype=X.dtype)
    success = learn_success(X, done, failed, n_max, u.to(X.device))
    assert success is not None
    return success


def grid(dtype=torch.float64):
    side = (torch.arange(40, dtype=dtype) + 0.5) / 40
    return torch.cartesian_prod(side, side).unsqueeze(0)


def right(success, X):
    """The share of points of which the model says rightly whether they fail."""
    return ((success.probability(X) < 0.5) == fails(X)).double().mean(dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(5))
def test_a_disc_of_failures_is_found(seed, dtype, device):
    X = draw(1, 80, 2, seed=seed, dtype=dtype).to(device)
    success, Z = learned(X), grid(dtype).to(device)
    assert float(right(success, Z)) >= 0.9
    p = success.probability(Z)
    assert p.dtype == dtype
    assert p.device.type == device.type
    assert ((p >= 0) & (p <= 1)).all()
    # Sure in the middle of it and far from it.
    middle, far = torch.tensor([[[0.6, 0.4]], [[0.1, 0.9]]]).to(X).unbind(0)
    assert float(success.probability(middle.unsqueeze(0))) < 0.1
    assert float(success.probability(far.unsqueeze(0))) > 0.9


def test_a_few_rows_of_many_are_enough():
    X = draw(1, 400, 2)
    success = learned(X, n_max=80)
    assert int(success.model.data.live.sum()) == 80
    assert float(right(success, grid())) >= 0.9


@pytest.mark.parametrize("n_failed", range(N_FAILURES))
def test_too_few_failures_say_nothing(n_failed):
    X = draw(1, 20, 2)
    failed = (torch.arange(20) < n_failed).unsqueeze(0)
    assert learn_success(X, ~failed, failed, 1000, draw(1, 20)) is None


def test_failures_alone_are_enough():
    """Nothing has ever worked: then nothing is likely to, far from what was tried neither."""
    X = draw(1, 10, 2)
    p = learned(X, torch.ones(1, 10, dtype=torch.bool)).probability(grid())
    assert ((p >= 0) & (p < 0.5)).all()


def test_pending_rows_say_nothing():
    X = draw(1, 100, 2)
    failed = fails(X)
    is_pending = torch.arange(100) >= 80
    with_pending = learned(X, failed & ~is_pending, done=~failed & ~is_pending)
    alone = learned(X[:, :80])
    torch.testing.assert_close(
        with_pending.probability(grid()), alone.probability(grid()), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("n_max", [1000, 40])
def test_runs_in_a_batch_are_as_if_alone(n_max):
    X, Z, u = draw(3, 60, 2), draw(3, 50, 2, seed=1), draw(3, 60, seed=9)
    failed = fails(X)
    failed[1] = torch.arange(60) < N_FAILURES - 1  # this run knows too little
    p = learned(X, failed, n_max=n_max).probability(Z)
    assert (p[1] == 1).all()
    for i in (0, 2):
        row = slice(i, i + 1)
        alone = learn_success(X[row], ~failed[row], failed[row], n_max, u[row])
        assert alone is not None
        torch.testing.assert_close(alone.probability(Z[row]), p[row], rtol=0, atol=1e-8)


@pytest.mark.parametrize("n_failed", [12, 30, 395])
def test_failures_are_kept_up_to_the_half_and_others_whenever_they_came(n_failed):
    X = draw(1, 400, 2)
    failed = (torch.arange(400) < n_failed).unsqueeze(0)
    success = learned(X, failed, n_max=40)
    kept = success.model.scaling.inputs(X)  # as the model has them
    rows = (
        (kept[0].unsqueeze(0) == success.model.data.X[0].unsqueeze(1)).all(dim=-1).nonzero()[:, 1]
    )
    assert len(rows.unique()) == 40
    n_failures = int((rows < n_failed).sum())
    assert n_failures == 12 if n_failed == 12 else n_failures >= 20
    if n_failed < 100:  # not the oldest of the others
        assert int((rows >= 200).sum()) >= 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_and_contradictions(dtype):
    """Repeated points count once; where half of the tries failed, the chance is a half."""
    X = draw(1, 30, 2, dtype=dtype)
    twice = torch.cat([X, X], dim=1)
    torch.testing.assert_close(
        learned(twice).probability(grid(dtype)),
        learned(X).probability(grid(dtype)),
        rtol=0,
        atol=1e-3 if dtype == torch.float32 else 1e-9,
    )
    failed = torch.cat([fails(X), ~fails(X)], dim=1)
    p = learned(twice, failed).probability(twice)
    torch.testing.assert_close(p, torch.full_like(p, 0.5), rtol=0, atol=0.02)
