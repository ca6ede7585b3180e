import numpy as np
import pytest
import torch
from scipy.cluster.vq import kmeans2

from tcsaea_torch.evolution import kmeans
from tcsaea_torch.evolution.clustering import spread_starts
from tcsaea_torch.rng import uniforms


def points_of(seeds, n, m, dtype=torch.float64):
    """Return points, and numbers that start clusters."""
    X = uniforms(torch.tensor(seeds), "points", 0, (n, m), dtype=dtype)
    return X, uniforms(torch.tensor(seeds), "starts", 0, (n,), dtype=dtype)


def everyone(u):
    return torch.ones_like(u, dtype=torch.bool)


def starts_of(X, u, q):
    """Return the indices of spread starts, by loops."""
    chosen = []
    for _ in range(q):
        keys = []
        for i, x in enumerate(X):
            weight = min((((x - X[j]) ** 2).sum() for j in chosen), default=1.0)
            keys.append(-np.log(u[i]) / weight if weight > 0 else np.inf)
        if min(keys) == np.inf:
            break
        chosen.append(int(np.argmin(keys)))
    return chosen


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize(("n", "m", "k"), [(40, 2, 3), (120, 5, 20), (50, 3, 47), (30, 1, 4)])
def test_it_is_scipys_lloyd_from_the_same_starts(n, m, k, spread):
    X, u = points_of([0, 1, 2], n, m)
    labels, centres = kmeans(X, everyone(u), torch.full((3,), k), k, u, spread=spread)
    for i in range(3):
        starts = (-u[i]).argsort()[:k].tolist()
        if spread:
            starts = starts_of(X[i].numpy(), u[i].numpy(), k)
        expected, _ = kmeans2(
            X[i].numpy(), X[i].numpy()[starts], iter=10, minit="matrix", missing="warn"
        )
        np.testing.assert_allclose(centres[i].numpy(), expected, atol=1e-12)
        distances = np.linalg.norm(X[i].numpy()[:, None] - expected[None], axis=-1)
        assert labels[i].tolist() == distances.argmin(axis=1).tolist()


def test_starts_are_drawn_in_proportion_to_squared_distances():
    # From the first start, 0, the points 1 and 3 have the weights 1 and 9.
    X = torch.tensor([0.0, 1.0, 3.0], dtype=torch.float64).view(1, 3, 1).expand(20000, 3, 1)
    u = uniforms(torch.arange(20000), "starts", 0, (3,))
    u[:, 0] = 1 - 1e-9
    starts, exists = spread_starts(X, everyone(u), 3, u)
    assert exists.all()
    assert (starts[:, 0] == 0).all()
    share = float((starts[:, 1] == 2).double().mean())
    assert abs(share - 0.9) < 0.01  # 4.7 standard deviations
    assert (starts.sum(dim=1) == 3).all()  # distinct


def test_starts_cover_far_crowds():
    centres = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    noise, u = points_of(list(range(50)), 80, 2)
    X = centres.repeat_interleave(20, dim=0) + 1e-3 * noise
    starts, _ = spread_starts(X, everyone(u), 4, u)
    crowds = (starts // 20).sort(dim=1).values
    assert (crowds == torch.arange(4)).all()


def test_the_numbers_of_clusters_may_differ_in_a_batch():
    X, u = points_of([0, 1, 2], 30, 2)
    k = torch.tensor([1, 4, 9])
    labels, centres = kmeans(X, everyone(u), k, 9, u)
    for i in range(3):
        assert sorted(set(labels[i].tolist())) == list(range(int(k[i])))
        one = slice(i, i + 1)
        alone = kmeans(X[one], everyone(u)[one], k[one], int(k[i]), u[one])
        assert torch.equal(alone[0][0], labels[i])
        assert torch.equal(alone[1][0], centres[i, : k[i]])
    torch.testing.assert_close(centres[0, 0], X[0].mean(dim=0))


def test_dead_points_have_no_influence():
    X, u = points_of([3], 25, 2)
    alive = (torch.arange(25) % 3 > 0).unsqueeze(0)
    k = torch.tensor([4])
    labels, centres = kmeans(X.masked_fill(~alive.unsqueeze(-1), 1e30), alive, k, 4, u)
    kept = X[alive].unsqueeze(0)
    few = kmeans(kept, everyone(kept[..., 0]), k, 4, u[alive].unsqueeze(0))
    assert torch.equal(labels[alive], few[0][0])
    assert torch.equal(centres, few[1])


@pytest.mark.parametrize("spread", [True, False])
def test_no_more_clusters_than_living_points(spread):
    X, u = points_of([0, 1], 5, 2)
    alive = torch.tensor([[True, False, True, False, False], [False] * 5])
    labels, centres = kmeans(X, alive, torch.tensor([4, 4]), 7, u, spread=spread)
    assert centres.shape == (2, 5, 2)
    assert centres.isfinite().all()
    assert sorted(labels[0][alive[0]].tolist()) == [0, 1]


def test_equal_points_share_a_cluster():
    X = torch.tensor([[[0.0], [0.0], [0.0], [1.0]]], dtype=torch.float64)
    u = torch.tensor([[0.8, 0.9, 0.7, 0.5]], dtype=torch.float64)
    labels, centres = kmeans(X, everyone(u), torch.tensor([4]), 4, u)
    assert labels.tolist() == [[0, 0, 0, 1]]
    assert centres[0, :2].squeeze(-1).tolist() == [0.0, 1.0]


def test_a_cluster_that_loses_its_points_keeps_its_centre():
    # At first {(3, 3), (8, 2)}, with the mean (5.5, 2.5), which no point is nearest to then.
    X = [[3.0, 3.0], [3.0, 4.0], [3.0, 6.0], [8.0, 2.0], [9.0, 5.0], [7.0, 4.0]]
    X = torch.tensor([X], dtype=torch.float64)
    u = torch.tensor([[1 - 1e-9, 1 - 1e-7, 1 - 1e-5, 0.2, 0.2, 0.2]], dtype=torch.float64)
    labels, centres = kmeans(X, everyone(u), torch.tensor([3]), 3, u)
    assert labels.tolist() == [[2, 2, 2, 1, 1, 1]]
    expected = torch.tensor([[[5.5, 2.5], [8.0, 11 / 3], [3.0, 13 / 3]]], dtype=torch.float64)
    torch.testing.assert_close(centres, expected)


def test_points_at_equal_distances_join_the_first_centre():
    X = torch.tensor([0.0, 0.3, 0.1 + 0.2 + 0.3, 0.9], dtype=torch.float64).view(1, 4, 1)
    u = torch.tensor([[0.5, 0.1, 0.1, 0.9]], dtype=torch.float64)  # starts 0.9, 0
    middle = torch.tensor([[[0.45]]], dtype=torch.float64)
    points = torch.cat([X, middle], dim=1)
    numbers = torch.cat([u, torch.tensor([[0.1]], dtype=torch.float64)], dim=1)
    labels, _ = kmeans(points, everyone(numbers), torch.tensor([2]), 2, numbers, n_iterations=0)
    assert labels.tolist() == [[1, 1, 0, 0, 0]]


def test_each_iteration_lowers_the_sum_of_squares(device):
    X, u = points_of([5], 60, 3)
    X, u = X.to(device), u.to(device)
    sums = []
    for n_iterations in range(8):
        labels, centres = kmeans(
            X, everyone(u), torch.tensor([6], device=device), 6, u, n_iterations=n_iterations
        )
        own = centres.gather(1, labels.unsqueeze(-1).expand_as(X))
        sums.append(float((X - own).square().sum()))
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] < 0.9 * sums[0]


def test_float32_and_no_change_of_the_input():
    X, u = points_of([0], 20, 2, torch.float32)
    before = X.clone(), u.clone()
    labels, centres = kmeans(X, everyone(u), torch.tensor([3]), 3, u)
    assert centres.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert torch.equal(X, before[0])
    assert torch.equal(u, before[1])
