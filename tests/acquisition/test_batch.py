"""Batches of candidates against loops that do each step from scratch."""

from dataclasses import replace

import pytest
import torch

from tcsaea_torch.acquisition.batch import Front, greedy_ehvi, spread
from tcsaea_torch.acquisition.hypervolume import Strips, ehvi, log_ehvi
from tcsaea_torch.models import Hyperparameters, KrigingGP
from tcsaea_torch.models.bundles import map_tensors

B, K = 4, 25


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def front_of(b=B, n=7, *, lower_bound=None, seed=0):
    """A front whose units are not those of the values."""
    low, extent = 5.0 * draw(b, 1, 2, seed=seed + 1), 0.5 + 3.0 * draw(b, 1, 2, seed=seed + 2)
    return Front(
        Y=draw(b, n, 2, seed=seed + 3),
        alive=draw(b, n, seed=seed + 4) < 0.8,
        ref_point=torch.full((b, 2), 1.1).double(),
        low=low,
        extent=extent,
        lower_bound=lower_bound,
    )


def predictions(b=B, k=K, *, seed=10):
    """Means, and covariances of processes of which one is smooth and one rough."""
    X = draw(b, k, 2, seed=seed)
    distance = torch.cdist(X, X)
    smooth, rough = (-2.0 * distance.square()).exp(), (-4.0 * distance).exp()
    scale = 0.02 + 0.1 * draw(b, 2, 1, 1, seed=seed + 1)
    return draw(b, k, 2, seed=seed + 2), scale * torch.stack([smooth, rough], dim=1)


ALL = torch.ones(B, K, dtype=torch.bool)
NONE = torch.tensor([0, 3, 6, 1])


def by_hand(mean, C, free, front, n, bonus=None):
    """One run: covariances given all that is believed, by one inverse."""
    chosen, free = [], free.clone()
    Y, ref_point = front.Y[front.alive], front.ref_point[0]
    low = None if front.lower_bound is None else front.lower_bound[0]
    for _ in range(n):
        if not free.any():
            break
        S = C[:, chosen][:, :, chosen]
        shrunk = C - C[:, :, chosen] @ torch.linalg.solve(S, C[:, chosen]) if chosen else C
        sd = shrunk.diagonal(dim1=-2, dim2=-1).clamp_min(1e-12).sqrt().mT
        live = torch.ones(len(Y), dtype=torch.bool)
        score = ehvi(mean, sd, Strips.between(Y, live, ref_point), low)
        score = (score if bonus is None else score * bonus.exp()).masked_fill(~free, -1.0)
        chosen.append(int(score.argmax()))
        free[chosen[-1]] = False
        Y = torch.cat([Y, mean[chosen[-1]][None]])
    return chosen


def one(front, i):
    return map_tensors(front, lambda t: t[i : i + 1])


def choices(picks, counts):
    return [row[keep].tolist() for row, keep in zip(picks, counts, strict=True)]


LOW = torch.tensor([[0.0, 0.0], [-0.1, 0.2], [0.3, 0.1], [-9.0, -9.0]]).double()


@pytest.mark.parametrize("lower_bound", [None, LOW])
@pytest.mark.parametrize("with_bonus", [False, True])
def test_each_choice_is_that_of_a_loop_from_scratch(with_bonus, lower_bound):
    mean, C = predictions()
    front, free = front_of(lower_bound=lower_bound), draw(B, K, seed=5) < 0.8
    bonus = draw(B, K, seed=6).log() if with_bonus else None
    picks, counts = greedy_ehvi(mean, C, free, front, NONE, 6, bonus)
    assert picks.shape == counts.shape == (B, 6)
    for i, mine in enumerate(choices(picks, counts)):
        own = None if bonus is None else bonus[i]
        assert mine == by_hand(mean[i], C[i], free[i], one(front, i), int(NONE[i]), own)
    assert counts.sum(dim=1).tolist() == NONE.tolist()


def test_believed_values_are_as_if_kriging_had_seen_them():
    X, Z = draw(12, 2, seed=1), draw(20, 2, seed=2)
    hyper = Hyperparameters(
        theta=torch.tensor([3.0, 5.0]).double(), variance=torch.tensor(0.9).double()
    )
    models = [KrigingGP(X, (s * X).sin().sum(dim=-1), hyper, nugget=1e-10) for s in (3.0, -5.0)]
    found = [model.surrogate.predict_joint(Z) for model in models]
    mean, C = torch.stack([m for m, _ in found], -1)[None], torch.stack([c for _, c in found])[None]
    front = replace(front_of(1), Y=torch.tensor([[[-0.5, 0.5], [0.5, -0.5]]]).double(),
                    alive=torch.ones(1, 2, dtype=torch.bool))  # fmt: skip
    free = torch.ones(1, 20, dtype=torch.bool)
    picks, counts = greedy_ehvi(mean, C, free, front, torch.tensor([5]), 5)
    assert counts.all()
    expected, Y = [], front.Y[0]
    for _ in range(5):
        m, v = zip(*(model.surrogate.predict(Z) for model in models), strict=True)
        torch.testing.assert_close(torch.stack(m, -1), mean[0], rtol=0, atol=1e-6)
        live = torch.ones(len(Y), dtype=torch.bool)
        strips = Strips.between(Y, live, front.ref_point[0])
        score = log_ehvi(torch.stack(m, -1), torch.stack(v, -1).sqrt().clamp_min(1e-6), strips)
        score[expected] = -torch.inf
        best = int(score.argmax())
        models = [
            model.condition_on_observations(Z[best, None], mean[0, best, j].view(1, 1))
            for j, model in enumerate(models)
        ]
        expected.append(best)
        Y = torch.cat([Y, mean[0, best, None]])
    assert picks[0].tolist() == expected


def test_a_batch_is_its_members():
    mean, C = predictions()
    front, free = front_of(lower_bound=LOW), draw(B, K, seed=5) < 0.8
    bonus = draw(B, K, seed=6).log()
    together = choices(*greedy_ehvi(mean, C, free, front, NONE, 6, bonus))
    for i in range(B):
        k = slice(i, i + 1)
        alone = greedy_ehvi(mean[k], C[k], free[k], one(front, i), NONE[k], 6, bonus[k])
        assert choices(*alone) == [together[i]]


def test_more_slots_than_candidates_and_runs_without_free_ones():
    mean, C = predictions(k=3)
    free = torch.tensor([[True] * 3, [False] * 3, [False, True, False], [True, False, True]])
    picks, counts = greedy_ehvi(mean, C, free, front_of(), torch.tensor([9, 9, 9, 1]), 9)
    assert picks.shape == (B, 3)
    assert counts.sum(dim=1).tolist() == [3, 0, 1, 1]
    assert sorted(choices(picks, counts)[0]) == [0, 1, 2]
    assert choices(picks, counts)[2] == [1]


@pytest.mark.parametrize("bonus", [None, -torch.inf])
def test_where_nothing_is_expected_free_ones_are_taken_all_the_same(bonus):
    # Far beyond the reference point, and certain: the logarithms are -inf, or nearly.
    mean, C = torch.full((B, K, 2), 1e9).double(), torch.zeros(B, 2, K, K).double()
    free = torch.arange(K) >= 10
    added = None if bonus is None else torch.full((B, K), bonus).double()
    picks, counts = greedy_ehvi(mean, C, free.expand(B, K), front_of(), NONE, 6, added)
    for mine, n in zip(choices(picks, counts), NONE.tolist(), strict=True):
        assert len(set(mine)) == n
        assert all(row >= 10 for row in mine)


def test_a_value_that_is_known_is_believed_as_it_is():
    mean, C = predictions()
    C[:, 0] = 0.0
    front = front_of()
    for i, mine in enumerate(choices(*greedy_ehvi(mean, C, ALL, front, NONE, 6))):
        known = C[i].clone()
        known[0] = 1e-12 * torch.eye(K)
        assert mine == by_hand(mean[i], known, ALL[i], one(front, i), int(NONE[i]))


def test_arguments_stay_as_they_are():
    mean, C = predictions()
    before = mean.clone(), C.clone()
    greedy_ehvi(mean, C, ALL, front_of(), NONE, 6)
    assert torch.equal(mean, before[0])
    assert torch.equal(C, before[1])


def test_scaled_ehvi_is_ehvi_but_for_a_factor():
    front = front_of(lower_bound=LOW)
    mean, C = predictions()
    variance = C.diagonal(dim1=-2, dim2=-1).mT
    unscale = lambda Y: Y * front.extent + front.low  # noqa: E731
    strips = Strips.between(
        unscale(front.Y), front.alive, unscale(front.ref_point.unsqueeze(1))[:, 0]
    )
    raw = ehvi(
        unscale(mean), variance.sqrt() * front.extent, strips, unscale(LOW.unsqueeze(1))[:, 0]
    )
    assert torch.allclose(front.scale(unscale(mean)), mean, atol=1e-12)
    expected = raw / front.extent.prod(dim=-1)
    torch.testing.assert_close(
        front.log_ehvi(mean, variance).exp(), expected, rtol=1e-8, atol=1e-12
    )


def test_points_that_are_added_leave_less_to_be_gained():
    front, (mean, C) = front_of(), predictions()
    variance = C.diagonal(dim1=-2, dim2=-1).mT
    alive = torch.tensor([[True, False], [False, False], [True, True], [False, True]])
    new = draw(B, 2, 2, seed=8) - 0.6
    more = front.with_points(new, alive)
    before, after = front.log_ehvi(mean, variance), more.log_ehvi(mean, variance)
    assert (after <= before + 1e-9).all()
    assert torch.equal(after[1], before[1])
    assert (after[[0, 2, 3]] < before[[0, 2, 3]] - 1e-6).any(dim=1).all()
    assert more.Y.shape == (B, 9, 2)
    assert torch.equal(more.low, front.low)
    assert torch.equal(more.extent, front.extent)


def test_certain_predictions_and_rounding_do_not_break_the_logarithm():
    front, (mean, _) = front_of(), predictions()
    for variance in (0.0, -1e-18):
        found = front.log_ehvi(mean, torch.full_like(mean, variance))
        assert not found.isnan().any()
        assert (found < torch.inf).all()


def spread_by_hand(F, free, taken, n):
    """One run, with all distances anew for each choice."""
    chosen, taken = [], list(taken)
    for _ in range(n):
        left = [i for i in range(len(F)) if free[i] and i not in chosen]
        if not left:
            break
        nearest = [min([float((F[i] - t).norm()) for t in taken], default=1e300) for i in left]
        chosen.append(left[nearest.index(max(nearest))])
        taken.append(F[chosen[-1]])
    return chosen


@pytest.mark.parametrize("n_taken", [0, 4])
def test_spread_takes_the_farthest_of_those_left(n_taken):
    F, free = draw(B, K, 3), draw(B, K, seed=1) < 0.7
    taken, is_taken = draw(B, n_taken, 3, seed=2), draw(B, n_taken, seed=3) < 0.6
    is_taken[2] = False
    free[3] = torch.arange(K) < 0
    n = torch.tensor([5, 0, 7, 3])
    picks, counts = spread(F, free, taken, is_taken, n, 7)
    for i, mine in enumerate(choices(picks, counts)):
        assert mine == spread_by_hand(F[i], free[i], taken[i][is_taken[i]], int(n[i]))
        k = slice(i, i + 1)
        alone = spread(F[k], free[k], taken[k], is_taken[k], n[k], 7)
        assert choices(*alone) == [mine]
    few = torch.arange(K).expand(B, K) < 2
    picks, counts = spread(F, few, taken, is_taken, torch.full((B,), 7), 7)
    assert counts.sum(dim=1).tolist() == [2] * B


def test_single_precision():
    mean, C = (t.float() for t in predictions())
    narrow = lambda t: t.float() if t.is_floating_point() else t  # noqa: E731
    front = map_tensors(front_of(lower_bound=LOW), narrow)
    assert front.log_ehvi(mean, C.diagonal(dim1=-2, dim2=-1).mT).dtype == torch.float32
    picks, counts = greedy_ehvi(mean, C, ALL, front, NONE, 6)
    for mine, n in zip(choices(picks, counts), NONE.tolist(), strict=True):
        assert len(set(mine)) == n
