"""What TC-EHVI knows of an archive, and which rows its models learn from."""

import math

import pytest
import torch

from tcsaea_torch.strategies.ehvi_rows import (
    Known,
    Sample,
    Samples,
    choose_rows,
    distance_from_front,
    non_dominated_rows,
)

B, N = 6, 60


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rows():
    """Living rows, those that fill the space, distances, and uniform numbers."""
    live, is_space = draw(B, N, seed=1) < 0.9, draw(B, N, seed=2) < 0.6
    is_space[0] = False  # none fills the space
    is_space[1] = True  # all do
    live[2] = torch.arange(N) < 9  # too few
    is_space[3] = torch.arange(N) < 4  # few do
    live[4] = False
    return live, is_space, draw(B, N, seed=3) - 0.5, draw(B, N, seed=4)


def by_hand(live, is_space, distance, sample, u, preferred=()):
    """The living rows of one run that are taken, by lists."""
    alive = [i for i in range(len(live)) if live[i]]
    space = sorted((i for i in alive if is_space[i]), key=lambda i: float(u[i]))
    taken = space[: int(sample.space * sample.n)]
    rest = sorted((i for i in alive if i not in taken), key=lambda i: float(distance[i]))
    taken += rest[: int(sample.near * sample.n)]
    liked = {i for i, is_liked in enumerate(preferred) if is_liked}
    rest = [i for i in alive if i not in taken]
    rest.sort(key=lambda i: (i not in liked, float(u[i])))
    return set(taken + rest[: sample.n - len(taken)])


def sample(n, space=0.5, near=0.25):
    return Sample(n=n, space=space, near=near)


@pytest.mark.parametrize("n_max", [4, 7, 20, 41])
@pytest.mark.parametrize("shares", [(0.5, 0.25), (0.25, 0.5), (0.0, 1.0), (0.3, 0.0)])
def test_rows_are_those_of_lists(n_max, shares):
    some = sample(n_max, *shares)
    live, is_space, distance, u = rows()
    found = choose_rows(live, is_space, distance, some, u)
    assert found.shape == (B, n_max)
    for i in range(B):
        assert len(set(found[i].tolist())) == n_max
        alive = {r for r in found[i].tolist() if live[i, r]}
        assert alive == by_hand(live[i], is_space[i], distance[i], some, u[i])
        # Living rows come first.
        assert live[i][found[i]].diff().sum() <= 1
        k = slice(i, i + 1)
        alone = choose_rows(live[k], is_space[k], distance[k], some, u[k])
        assert torch.equal(alone[0], found[i])


@pytest.mark.parametrize("n_max", [20, 41])
@pytest.mark.parametrize("share", [0.1, 0.6])
def test_preferred_rows_come_before_others(n_max, share):
    some, preferred = sample(n_max), draw(B, N, seed=5) < share
    live, is_space, distance, u = rows()
    found = choose_rows(live, is_space, distance, some, u, preferred)
    for i in range(B):
        alive = {r for r in found[i].tolist() if live[i, r]}
        assert alive == by_hand(live[i], is_space[i], distance[i], some, u[i], preferred[i])
    usual = choose_rows(live, is_space, distance, some, u)
    assert preferred.gather(1, found).sum() > preferred.gather(1, usual).sum()


def test_few_rows_are_all_taken_as_they_are():
    live, is_space, distance, u = rows()
    for n_max in (N, N + 5):
        found = choose_rows(live, is_space, distance, sample(n_max), u)
        assert torch.equal(found, torch.arange(N).expand(B, N))


def test_half_fill_the_space_and_a_quarter_is_near_the_front():
    live, is_space = torch.ones(B, N, dtype=torch.bool), draw(B, N, seed=2) < 0.6
    distance = draw(B, N, seed=3)
    found = choose_rows(live, is_space, distance, sample(20), draw(B, N, seed=4))
    assert (is_space.gather(1, found).sum(dim=1) >= 10).all()
    nearest = distance.argsort(dim=1)[:, :5]
    assert all(set(a) <= set(b) for a, b in zip(nearest.tolist(), found.tolist(), strict=True))


def test_what_dead_rows_hold_does_not_matter():
    live, is_space, distance, u = rows()
    expected = choose_rows(live, is_space, distance, sample(20), u)
    strange = distance.masked_fill(~live, torch.nan)
    for i, row in enumerate(choose_rows(live, is_space, strange, sample(20), u)):
        assert live[i][row].sum() == live[i][expected[i]].sum()
        assert torch.equal(row[live[i][row]], expected[i][live[i][expected[i]]])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_distance_is_the_shift_that_ends_domination(dtype):
    Y, front = draw(3, 30, 2, dtype=dtype), draw(3, 8, 2, seed=1, dtype=dtype)
    alive = draw(3, 8, seed=2) < 0.7
    found = distance_from_front(Y, front, alive)
    assert found.dtype == dtype
    for i in range(3):
        points = front[i][alive[i]]
        for y, shift in zip(Y[i], found[i].tolist(), strict=True):
            expected = max(min(float(y[j] - f[j]) for j in (0, 1)) for f in points)
            assert shift == pytest.approx(expected, abs=1e-6)
            beyond, short = y - shift - 1e-4, y - shift + 1e-4
            assert not (points < beyond).all(dim=1).any()
            assert (points < short).all(dim=1).any()


def test_members_of_the_front_have_no_distance():
    front = torch.tensor([[[0.0, 1.0], [0.4, 0.4], [1.0, 0.0]]]).double()
    alive = torch.ones(1, 3, dtype=torch.bool)
    assert distance_from_front(front, front, alive).tolist() == [[0.0, 0.0, 0.0]]
    better = distance_from_front(front - 0.1, front, alive)
    torch.testing.assert_close(better, torch.full_like(better, -0.1))
    assert (distance_from_front(front, front, ~alive) == -math.inf).all()


def known():
    observed = torch.tensor(
        [[[1, 1], [1, 0], [0, 1], [0, 0]], [[0, 0]] * 4, [[1, 1], [0, 0], [1, 0], [1, 1]]]
    ).bool()
    Y = torch.where(observed, 10.0 * draw(3, 4, 2) - 5.0, 0.0)
    return Known(X=draw(3, 4, 5), Y=Y, observed=observed, is_space=draw(3, 4) < 0.5)


def test_masks_say_which_values_are_known():
    k = known()
    assert k.fast.tolist()[0] == [True, True, False, False]
    assert k.slow.tolist()[0] == [True, False, True, False]
    assert k.both.tolist()[0] == [True, False, False, False]


def test_the_span_is_that_of_known_values():
    k = known()
    assert k.span.shape == (3, 1, 2)
    for i in range(3):
        for j in range(2):
            values = k.Y[i, :, j][k.observed[i, :, j]].tolist()
            expected = max(values) - min(values) if values else 0.0
            assert k.span[i, 0, j].item() == expected


def test_values_are_a_training_set_of_what_is_known():
    k = known()
    for column in (0, 1):
        train = k.values(column)
        assert torch.equal(train.live, k.observed[..., column])
        assert (train.noise_var[train.live] == 0).all()
        assert torch.equal(train.y, k.Y[..., column])
        assert torch.equal(train.X, k.X)


def test_many_dimensions_get_fewer_rows():
    few, many = Samples.of(10, 900), Samples.of(30, 900)
    assert (few.fit.n, few.condition.n) == (400, 700)
    assert many.fit.n < few.fit.n
    assert many.condition.n < few.condition.n


def test_predictions_rest_on_half_of_the_rows_within_limits():
    sizes = [Samples.of(10, n).condition.n for n in (20, 1400, 1600, 2000, 2001, 5000)]
    assert sizes == [700, 700, 800, 1000, 1000, 1000]


def test_predictions_rest_on_more_rows_near_the_front_than_fits():
    for d in (2, 30):
        samples = Samples.of(d, 900)
        fit, condition = samples.fit, samples.condition
        assert condition.near * condition.n > fit.near * fit.n
        assert condition.space * condition.n >= 100


def test_fronts_come_in_the_order_of_their_fast_values(tensor):
    Y = tensor([[[3.0, 1.0], [1.0, 4.0], [2.0, 2.0], [2.5, 3.0]], [[1.0, 1.0]] + [[2.0, 2.0]] * 3])
    is_known = torch.ones(2, 4, dtype=torch.bool)
    rows, exists = non_dominated_rows(Y, is_known)
    assert rows[0].tolist() == [1, 2, 0]
    assert rows[1, 0] == 0
    assert exists.tolist() == [[True, True, True], [True, False, False]]
    is_known[0, 2] = False  # then what it dominated counts
    assert non_dominated_rows(Y, is_known)[0][0].tolist() == [1, 3, 0]


def test_an_unknown_front_has_one_row_that_does_not_exist():
    rows, exists = non_dominated_rows(draw(2, 5, 2), torch.zeros(2, 5, dtype=torch.bool))
    assert rows.shape == (2, 1)
    assert not exists.any()
