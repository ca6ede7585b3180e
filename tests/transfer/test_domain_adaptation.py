import numpy as np
import pytest
import scipy.linalg
import torch
from scipy.spatial.distance import cdist

from tcsaea_torch.models.bundles import map_tensors
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.transfer.domain_adaptation import TCA, coral_factor, find_points, most_certain

OPTIONS = BFGSOptions(max_evaluations=100, max_step=0.5, value_tolerance=1e-14)


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def samples(b=3, n=15):
    """Source and target of different spread, of which all members but the first lack rows."""
    live = torch.arange(n) < torch.tensor([[n], [n - 4], [n - 9]])[:b]
    return 2.0 * draw(b, n, seed=1), 1.0 + 5.0 * draw(b, n, seed=2) ** 2, live


def textbook(source, target, k, mu=0.5):
    """TCA with dense matrices, and the eigenvectors of the nonsymmetric one, in numpy."""
    v = np.concatenate([source, target])
    n, n_s, n_t = len(v), len(source), len(target)
    K = np.exp(-((v[:, None] - v[None]) ** 2))
    L = np.full((n, n), -1.0 / (n_s * n_t))
    L[:n_s, :n_s], L[n_s:, n_s:] = 1.0 / n_s**2, 1.0 / n_t**2
    H = np.eye(n) - 1.0 / n
    A = np.linalg.solve(np.eye(n) + mu * K @ L @ K, K @ H @ K)
    values, vectors = (np.real(part) for part in scipy.linalg.eig(A))
    return vectors[:, np.argsort(-values)[:k]], v


def mapped(W, v, q):
    return np.exp(-((q[:, None] - v[None]) ** 2)) @ W


def test_the_coral_factor_is_that_of_variances():
    source, target, live = samples()
    found = coral_factor(source, target, live)
    for i in range(3):
        s, t = source[i][live[i]].numpy(), target[i][live[i]].numpy()
        expected = np.sqrt((np.var(t, ddof=1) + 1.0) / (np.var(s, ddof=1) + 1.0))
        assert found[i].item() == pytest.approx(expected, rel=1e-14)


def test_without_spread_nothing_is_scaled(tensor):
    alone, none = torch.tensor([[True, False]]), torch.tensor([[False, False]])
    for live in (alone, none):
        assert coral_factor(tensor([[3.0, 9.0]]), tensor([[4.0, 1.0]]), live).tolist() == [1.0]


def test_components_are_the_leading_eigenvectors():
    source, target, live = samples()
    tca = TCA.of(source, target, live, live, n_components=5)
    for i in range(3):
        W, v = textbook(source[i][live[i]].numpy(), target[i][live[i]].numpy(), 5)
        found = tca.W[i][tca.live[i]].numpy()
        assert np.allclose(tca.values[i][tca.live[i]], v)
        signs = np.sign((found * W).sum(axis=0))
        np.testing.assert_allclose(found, signs * W, rtol=0, atol=1e-7)
        assert (tca.W[i][~tca.live[i]] == 0).all()


def test_the_map_is_that_of_the_textbook_up_to_signs():
    source, target, live = samples()
    q = 4.0 * draw(3, 7, seed=3)
    z = TCA.of(source, target, live, live).map(q)
    assert z.shape == (3, 7, 20)
    for i in range(3):
        s, t = source[i][live[i]].numpy(), target[i][live[i]].numpy()
        W, v = textbook(s, t, 20)
        expected = mapped(W, v, q[i].numpy())
        # A direction in which all are alike is an eigenvector of 0: distances are what counts.
        np.testing.assert_allclose(
            torch.cdist(z[i], z[i]), cdist(expected, expected), rtol=0, atol=1e-5
        )


def test_the_means_of_both_domains_come_near_each_other():
    source, target, live = draw(1, 40, seed=1), 1.5 + draw(1, 40, seed=2), torch.ones(1, 40) > 0

    def separation(mu):
        tca = TCA.of(source, target, live, live, mu=mu, n_components=4)
        means = [tca.map(values).mean(dim=1) for values in (source, target)]
        spread = tca.map(torch.cat([source, target], dim=1)).std(dim=1)
        return ((means[0] - means[1]).norm() / spread.norm()).item()

    assert separation(10.0) < separation(0.5) < separation(0.0)


@pytest.mark.parametrize("extra", [1, 6])
def test_rows_that_do_not_exist_have_no_influence(extra):
    source, target, live = samples()
    pad = lambda t, value: torch.nn.functional.pad(t, (0, extra), value=value)  # noqa: E731
    padded = [pad(source, 7e5), pad(target, -3.0), pad(live, False)]
    assert torch.equal(coral_factor(*padded), coral_factor(source, target, live))
    q, z = 4.0 * draw(3, 5, seed=3), {}
    for name, parts in {"short": (source, target, live), "long": tuple(padded)}.items():
        tca = TCA.of(parts[0], parts[1], parts[2], parts[2])
        z[name] = torch.cdist(tca.map(q), tca.map(q))
    torch.testing.assert_close(z["long"], z["short"], rtol=0, atol=1e-6)


def test_no_rows_map_to_nothing():
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    tca = TCA.of(draw(2, 3), draw(2, 3), nothing, nothing)
    assert tca.map(draw(2, 4)).abs().max() == 0.0


def test_a_batch_is_its_members():
    source, target, live = samples()
    q = draw(3, 5, seed=3)
    together = TCA.of(source, target, live, live)
    for i in range(3):
        one = slice(i, i + 1)
        alone = TCA.of(source[one], target[one], live[one], live[one])
        distances = [torch.cdist(z, z) for z in (alone.map(q[one]), together.map(q)[one])]
        torch.testing.assert_close(distances[0], distances[1], rtol=0, atol=1e-6)


def test_the_mismatch_and_its_slope():
    source, target, live = samples()
    tca, v = TCA.of(source, target, live, live), 3.0 * draw(3, 4, seed=4)
    z = tca.map(3.0 * draw(3, 4, seed=5))
    value, slope = tca.mismatch(v, z)
    torch.testing.assert_close(value, (tca.map(v) - z).square().sum(dim=-1))
    ends = [tca.mismatch(v + sign * 1e-6, z)[0] for sign in (1.0, -1.0)]
    torch.testing.assert_close(slope, (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8)


def smooth(X):
    return X[..., 0] + 2.0 * X[..., 1] ** 2


@pytest.mark.parametrize("grad", [True, False])
def test_points_are_found_whose_slow_mean_is_mapped_to_the_same_place(grad):
    source, target, live = samples()
    tca, factor = TCA.of(source, target, live, live), torch.tensor([1.0, 1.3, 0.7]).double()
    wanted = 0.5 + 1.5 * draw(3, 6, seed=6)  # within the range of the mean
    z = tca.map(factor.unsqueeze(-1) * wanted)
    with torch.set_grad_enabled(grad):
        X = find_points(smooth, tca, factor, z, draw(3, 6, 2, seed=7), OPTIONS)
    assert ((X >= 0) & (X <= 1)).all()
    assert not X.requires_grad
    value, _ = tca.mismatch(factor.unsqueeze(-1) * smooth(X), z)
    assert value.max() < 1e-6
    torch.testing.assert_close(smooth(X), wanted, rtol=0, atol=1e-2)


def test_the_search_of_one_point_does_not_depend_on_the_others():
    source, target, live = samples()
    tca, factor = TCA.of(source, target, live, live), torch.ones(3).double()
    z, start = tca.map(2.0 * draw(3, 6, seed=6)), draw(3, 6, 2, seed=7)
    together = find_points(smooth, tca, factor, z, start, OPTIONS)
    assert torch.equal(together, find_points(smooth, tca, factor, z, start, OPTIONS))
    alone = find_points(
        smooth, map_tensors(tca, lambda t: t[:1]), factor[:1], z[:1, :2], start[:1, :2], OPTIONS
    )
    torch.testing.assert_close(alone, together[:1, :2], rtol=0, atol=1e-6)


def test_the_most_certain_points_are_labelled(tensor):
    variance = tensor([[3.0, 1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0], [5.0, 4.0, 3.0, 2.0]])
    live = torch.tensor([[True, True, True, False], [True] * 4, [False, False, True, True]])
    chosen = most_certain(variance, live, torch.tensor([2, 3, 3]))
    assert chosen.tolist() == [
        [False, True, True, False], [True, True, True, False], [False, False, True, True],
    ]  # fmt: skip
