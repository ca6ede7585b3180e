import numpy as np
import pytest
import torch
from scipy.cluster.vq import kmeans2

from tcsaea_torch.evolution import kmeans
from tcsaea_torch.rng import uniforms


def points_of(seeds, n, m, dtype=torch.float64):
    """Return points, and numbers that start clusters."""
    X = uniforms(torch.tensor(seeds), "points", 0, (n, m), dtype=dtype)
    return X, uniforms(torch.tensor(seeds), "starts", 0, (n,), dtype=dtype)


def everyone(u):
    return torch.ones_like(u, dtype=torch.bool)


@pytest.mark.parametrize(("n", "m", "k"), [(40, 2, 3), (200, 5, 20), (50, 3, 47), (30, 1, 4)])
def test_it_is_scipys_lloyd_from_the_same_starts(n, m, k):
    X, u = points_of([0, 1, 2], n, m)
    labels, centres = kmeans(X, everyone(u), torch.full((3,), k), k, u, n_iterations=10)
    for i in range(3):
        starts = X[i][u[i].argsort()[:k]].numpy()
        expected, _ = kmeans2(X[i].numpy(), starts, iter=10, minit="matrix", missing="warn")
        np.testing.assert_allclose(centres[i].numpy(), expected, atol=1e-12)
        distances = np.linalg.norm(X[i].numpy()[:, None] - expected[None], axis=-1)
        assert labels[i].tolist() == distances.argmin(axis=1).tolist()


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


def test_no_more_clusters_than_living_points():
    X, u = points_of([0, 1], 5, 2)
    alive = torch.tensor([[True, False, True, False, False], [False] * 5])
    labels, centres = kmeans(X, alive, torch.tensor([4, 4]), 7, u)
    assert centres.shape == (2, 5, 2)
    assert centres.isfinite().all()
    assert sorted(labels[0][alive[0]].tolist()) == [0, 1]


def test_equal_points_share_a_cluster_and_others_stay_empty():
    X = torch.tensor([[[0.0], [0.0], [0.0], [1.0]]], dtype=torch.float64)
    u = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
    labels, centres = kmeans(X, everyone(u), torch.tensor([4]), 4, u)
    assert labels.tolist() == [[0, 0, 0, 3]]
    assert centres.squeeze(-1).tolist() == [[0.0, 0.0, 0.0, 1.0]]


def test_a_cluster_that_loses_its_points_keeps_its_centre():
    # The middle start, 5, has 4 to 6.2 at first; no other point is near its mean, 5.4.
    X = torch.tensor([0.0, 3.0, 5.0, 5.8, 10.0, 7.6], dtype=torch.float64).view(1, 6, 1)
    u = torch.tensor([[0.1, 0.9, 0.2, 0.8, 0.3, 0.7]], dtype=torch.float64)
    for n_iterations in range(6):
        labels, centres = kmeans(X, everyone(u), torch.tensor([3]), 3, u, n_iterations=n_iterations)
        distance = (X[0] - centres[0].T).abs()
        assert labels[0].tolist() == distance.argmin(dim=1).tolist()
        assert centres.isfinite().all()


def test_points_at_equal_distances_join_the_first_centre():
    X = torch.tensor([0.0, 0.3, 0.1 + 0.2 + 0.3, 0.9], dtype=torch.float64).view(1, 4, 1)
    u = torch.tensor([[0.2, 0.3, 0.4, 0.1]], dtype=torch.float64)  # starts 0.9, 0
    middle = torch.tensor([[[0.45]]], dtype=torch.float64)
    points = torch.cat([X, middle], dim=1)
    numbers = torch.cat([u, torch.tensor([[0.9]], dtype=torch.float64)], dim=1)
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
