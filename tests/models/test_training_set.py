import math

import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import TrainingSet
from tcsaea_torch.models.training_set import (
    drop_superseded,
    first_equal_row,
    limit,
    merge_duplicates,
    stack,
)

INF = math.inf


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def integers(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def rows(X, y, noise_var):
    return TrainingSet(X=X, y=f64(y), noise_var=f64(noise_var))


def living(train):
    """The living rows as (x, y, noise) triples."""
    live = train.live
    return list(
        zip(
            map(tuple, train.X[live].tolist()),
            train.y[live].tolist(),
            train.noise_var[live].tolist(),
            strict=True,
        )
    )


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("X", "y", "noise_var"))


def naive_first_equal_row(X, live):
    result = []
    for i, x in enumerate(X):
        equal = [j for j in range(i) if live[j] and live[i] and bool((X[j] == x).all())]
        result.append(equal[0] if equal else i)
    return result


# --- first_equal_row ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 3])
def test_first_equal_row_equals_a_naive_loop(dtype, d, device):
    X = integers(3, 4, 40, d).to(dtype) / 2 - 0.5
    live = draw(4, 40, seed=1) < 0.7
    found = first_equal_row(X.to(device), live.to(device)).tolist()
    assert found == [naive_first_equal_row(X[i], live[i]) for i in range(4)]
    assert any(j != k for row in found for k, j in enumerate(row))


def test_first_equal_row_works_with_any_batch_shape():
    X, live = integers(2, 2, 3, 10, 2).double(), draw(2, 3, 10) < 0.8
    found = first_equal_row(X, live)
    for i in range(2):
        for j in range(3):
            assert torch.equal(found[i, j], first_equal_row(X[i, j], live[i, j]))


def test_zeros_of_both_signs_are_equal_and_neighbours_are_not():
    tiny, next_to_one = 5e-324, 1.0 - 2.0**-53
    X = f64([[0.0, 1.0], [-0.0, 1.0], [tiny, 1.0], [0.0, next_to_one], [1.0, 0.0], [1.0, -0.0]])
    assert first_equal_row(X, torch.ones(6, dtype=torch.bool)).tolist() == [0, 0, 2, 3, 4, 4]


def test_coordinates_may_not_be_exchanged():
    X = f64([[0.25, 0.5], [0.5, 0.25], [0.5, 0.5], [0.25, 0.25]])
    assert first_equal_row(X, torch.ones(4, dtype=torch.bool)).tolist() == [0, 1, 2, 3]


def test_the_dead_are_never_equal_to_anything():
    X = torch.zeros(5, 2).double()
    live = torch.tensor([False, True, False, True, False])
    assert first_equal_row(X, live).tolist() == [0, 1, 2, 1, 4]
    assert first_equal_row(X, torch.zeros(5, dtype=torch.bool)).tolist() == [0, 1, 2, 3, 4]


def test_many_rows_have_no_collisions():
    X = torch.cat([draw(20_000, 2), torch.arange(20_000).double().unsqueeze(-1).expand(-1, 2)])
    first = first_equal_row(X, torch.ones(len(X), dtype=torch.bool))
    assert torch.equal(first, torch.arange(len(X)))


# --- merge_duplicates ---


def naive_merge(train):
    """Groups of equal living rows, one after another, in Python."""
    groups: dict[tuple, list] = {}
    for x, y, noise in living(train):
        groups.setdefault(x, []).append((y, noise))
    merged = []
    for x, members in groups.items():
        exact = [y for y, noise in members if noise == 0.0]
        if exact:
            merged.append((x, sum(exact) / len(exact), 0.0))
            continue
        precision = sum(1.0 / noise for _, noise in members)
        merged.append((x, sum(y / noise for y, noise in members) / precision, 1.0 / precision))
    return merged


def test_merging_equals_a_naive_loop(device):
    X, y = integers(3, 50, 2).double() / 3, draw(50, seed=1)
    noise_var = draw(50, seed=2) + 0.1
    noise_var[draw(50, seed=3) < 0.15] = 0.0
    noise_var[draw(50, seed=4) < 0.2] = INF
    train = TrainingSet(X=X.to(device), y=y.to(device), noise_var=noise_var.to(device))
    merged = living(merge_duplicates(train))
    expected = naive_merge(train)
    assert 1 < len(expected) < 12
    assert {m[2] == 0.0 for m in merged} == {True, False}
    assert [m[0] for m in merged] == [e[0] for e in expected]
    for m, e in zip(merged, expected, strict=True):
        assert m[1:] == pytest.approx(e[1:], rel=1e-12)


def test_values_are_weighted_by_their_precision():
    train = rows(torch.full((3, 1), 0.5).double(), [1.0, 2.0, 4.0], [1.0, 0.5, 0.25])
    merged = merge_duplicates(train)
    assert merged.noise_var.tolist() == [pytest.approx(1 / 7), INF, INF]
    assert merged.y[0].item() == pytest.approx((1 + 2 * 2 + 4 * 4) / 7)


def test_exact_values_beat_uncertain_ones():
    train = rows(torch.full((4, 1), 0.5).double(), [9.0, 1.0, 2.0, -7.0], [1e-12, 0.0, 0.0, 5.0])
    merged = merge_duplicates(train)
    assert merged.noise_var.tolist() == [0.0, INF, INF, INF]
    assert merged.y[0].item() == 1.5


def test_untouched_rows_keep_their_bits():
    # (y / v) / (1 / v) is not y for these.
    y, noise = draw(200), draw(200, seed=1) + 1e-3
    assert bool(((y / noise) / (1.0 / noise) != y).any())
    X = torch.cat([draw(200, 2, seed=2), torch.zeros(2, 2).double()])
    train = TrainingSet(
        X=X, y=torch.cat([y, f64([1.0, 3.0])]), noise_var=torch.cat([noise, f64([0.0, 0.0])])
    )
    merged = merge_duplicates(train)
    assert torch.equal(merged.y[:200], y)
    assert torch.equal(merged.noise_var[:200], noise)
    assert merged.y[200].item() == 2.0
    assert torch.equal(merged.X, X)


def test_merging_twice_changes_nothing_more():
    train = TrainingSet(X=integers(2, 9, 2).double(), y=draw(9), noise_var=draw(9, seed=1))
    once = merge_duplicates(train)
    assert same(merge_duplicates(once), once)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_merging_a_batch_equals_merging_its_members(dtype):
    X = integers(2, 3, 12, 2).to(dtype)
    noise_var = draw(3, 12, seed=1, dtype=dtype)
    noise_var[:, 8:] = INF
    noise_var[1] = 0.0
    noise_var[2] = INF
    train = TrainingSet(X=X, y=draw(3, 12, seed=2, dtype=dtype), noise_var=noise_var)
    merged = merge_duplicates(train)
    assert merged.y.dtype == dtype
    assert merged.n_live.tolist()[2] == 0
    assert 1 <= merged.n_live[0] <= 4
    for i in range(3):
        alone = TrainingSet(X=X[i], y=train.y[i], noise_var=noise_var[i])
        assert living(merge_duplicates(alone)) == living(
            TrainingSet(X=X[i], y=merged.y[i], noise_var=merged.noise_var[i])
        )


# --- limit ---


def test_limit_keeps_the_best_half_and_some_others():
    y = draw(40, seed=1)
    train = TrainingSet(X=draw(40, 2), y=y, noise_var=draw(40, seed=2))
    kept = limit(train, 10, draw(40, seed=3))
    assert kept.X.shape == (10, 2)
    assert len(set(living(kept))) == 10
    assert set(living(kept)) <= set(living(train))
    best = sorted(y.tolist())[:5]
    assert set(best) <= set(kept.y.tolist())
    others = draw(40, seed=3)[y > best[-1]].sort()
    expected = y[y > best[-1]][others.indices[:5]]
    assert set(kept.y.tolist()) == set(best) | set(expected.tolist())


def test_limit_with_an_odd_number_keeps_the_smaller_half_of_best():
    train = TrainingSet(
        X=draw(20, 1), y=torch.arange(20).double(), noise_var=torch.zeros(20).double()
    )
    u = torch.arange(20).flip(0).double() / 20  # prefers the worst
    assert sorted(limit(train, 5, u).y.tolist()) == [0.0, 1.0, 17.0, 18.0, 19.0]


def test_limit_samples_the_others_uniformly():
    draws, n, n_max = 4000, 12, 6
    train = TrainingSet(
        X=draw(n, 1).expand(draws, n, 1),
        y=torch.arange(n).double().expand(draws, n),
        noise_var=torch.zeros(draws, n).double(),
    )
    kept = limit(train, n_max, draw(draws, n, seed=5)).y
    counts = torch.bincount(kept.flatten().long(), minlength=n)
    assert counts[:3].tolist() == [draws] * 3
    # 3 of 9: binomial with p = 1/3; five standard deviations.
    assert ((counts[3:] - draws / 3).abs() < 5 * (draws * 2 / 9) ** 0.5).all()


def test_limit_of_a_ragged_batch_equals_limits_of_its_members():
    n_live = [30, 12, 5, 0]
    live = torch.arange(30) < torch.tensor(n_live).unsqueeze(-1)
    live = live.gather(-1, draw(4, 30, seed=9).argsort(dim=-1))
    train = TrainingSet.from_mask(draw(4, 30, 2), draw(4, 30, seed=1), live)
    u = draw(4, 30, seed=2)
    kept = limit(train, 12, u)
    assert kept.X.shape == (4, 12, 2)
    assert kept.n_live.tolist() == [12, 12, 5, 0]
    for i in range(4):
        mine = TrainingSet(X=kept.X[i], y=kept.y[i], noise_var=kept.noise_var[i])
        whole = TrainingSet(X=train.X[i], y=train.y[i], noise_var=train.noise_var[i])
        if n_live[i] <= 12:
            assert set(living(mine)) == set(living(whole))
        present = TrainingSet(
            X=train.X[i][live[i]], y=train.y[i][live[i]], noise_var=train.noise_var[i][live[i]]
        )
        alone = limit(present, 12, u[i][live[i]])
        assert set(living(mine)) == set(living(alone))


def test_small_sets_are_returned_as_they_are():
    train = TrainingSet(X=draw(7, 2), y=draw(7), noise_var=draw(7))
    assert limit(train, 7, draw(7)) is train
    assert limit(train, 100, draw(7)) is train


def test_the_dead_are_not_the_best():
    train = rows(draw(6, 1), [-1e9, 5.0, 1.0, 3.0, -1e9, 2.0], [INF, 0.0, 0.0, 0.0, INF, 0.0])
    kept = limit(train, 4, f64([0.0] * 6))
    assert sorted(kept.y[kept.live].tolist()) == [1.0, 2.0, 3.0, 5.0]


# --- drop_superseded ---


def test_measured_rows_supersede_synthetic_ones_at_the_same_point():
    X = f64([[0.1], [0.2], [0.1], [0.3], [0.2], [0.4], [0.4]])
    measured = torch.tensor([False, True, True, False, True, False, False])
    train = rows(X, [1, 2, 3, 4, 5, 6, 7], [0.5, 0.0, 0.0, 0.5, 0.0, 0.5, 0.5])
    kept = drop_superseded(train, measured)
    assert kept.live.tolist() == [False, True, True, True, True, True, True]
    assert torch.equal(kept.y, train.y)
    assert torch.equal(kept.noise_var[1:], train.noise_var[1:])


def test_a_dead_measurement_supersedes_nothing_and_the_dead_stay_dead():
    X = torch.full((4, 1), 0.5).double()
    measured = torch.tensor([True, False, False, False])
    train = rows(X, [1, 2, 3, 4], [INF, 0.5, 0.25, INF])
    assert drop_superseded(train, measured).noise_var.tolist() == [INF, 0.5, 0.25, INF]


def test_dropping_in_a_batch_equals_dropping_in_its_members():
    X, measured = integers(3, 4, 20, 1).double(), draw(4, 20, seed=1) < 0.2
    train = TrainingSet.from_mask(X, draw(4, 20), draw(4, 20, seed=2) < 0.8)
    kept = drop_superseded(train, measured)
    for i in range(4):
        alone = TrainingSet(X=X[i], y=train.y[i], noise_var=train.noise_var[i])
        assert torch.equal(drop_superseded(alone, measured[i]).noise_var, kept.noise_var[i])
        real = {
            x for x, y in zip(X[i].flatten().tolist(), (measured & train.live)[i], strict=True) if y
        }
        for x, is_measured, is_live in zip(
            X[i].flatten().tolist(), measured[i], kept.live[i], strict=True
        ):
            assert not is_live or is_measured or x not in real


# --- compact, take, stack, from_mask ---


def ragged():
    live = torch.tensor([[False, True, True, False], [True, False, False, False]])
    return TrainingSet.from_mask(draw(2, 4, 3), draw(2, 4, seed=1), live)


def test_compact_moves_the_living_to_the_front_in_order():
    train = ragged()
    compact = train.compact()
    assert compact.X.shape == (2, 2, 3)
    assert compact.live.tolist() == [[True, True], [True, False]]
    assert torch.equal(compact.X[0], train.X[0, [1, 2]])
    assert torch.equal(compact.y[0], train.y[0, [1, 2]])
    assert compact.y[1, 0] == train.y[1, 0]


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_compact_pads_to_the_size_asked_for(n):
    train = ragged()
    compact = train.compact(n)
    assert compact.X.shape == (2, n, 3)
    assert compact.y.shape == compact.noise_var.shape == (2, n)
    assert compact.n_live.tolist() == [2, 1]
    assert compact.y.isfinite().all()
    assert living(compact) == living(train)


def test_compact_of_nothing_keeps_one_dead_row():
    train = TrainingSet.from_mask(draw(2, 3, 2), draw(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    assert train.compact().live.tolist() == [[False], [False]]


def test_take_gathers_rows_and_may_repeat_them():
    train = ragged()
    taken = train.take(torch.tensor([[3, 1, 1], [0, 2, 0]]))
    for i, index in enumerate(([3, 1, 1], [0, 2, 0])):
        assert torch.equal(taken.X[i], train.X[i, index])
        assert torch.equal(taken.y[i], train.y[i, index])
        assert torch.equal(taken.noise_var[i], train.noise_var[i, index])


def test_stack_adds_a_leading_dimension():
    train = ragged()
    members = [
        TrainingSet(X=train.X[i], y=train.y[i], noise_var=train.noise_var[i]) for i in range(2)
    ]
    assert same(stack(members), train)
    assert stack([train, train, train]).X.shape == (3, 2, 4, 3)


def test_from_mask_hides_what_the_dead_hold():
    y = f64([1.0, math.nan, 3.0])
    train = TrainingSet.from_mask(draw(3, 1), y, torch.tensor([True, False, True]))
    assert train.y.tolist() == [1.0, 0.0, 3.0]
    assert train.noise_var.tolist() == [0.0, INF, 0.0]
    assert train.live.tolist() == [True, False, True]
    assert train.n_live == 2


@pytest.mark.parametrize(
    ("y_shape", "noise_shape"),
    [((4,), (5,)), ((5,), (4,)), ((5, 1), (5,)), ((2, 5), (2, 5)), ((5,), ())],
)
def test_shapes_that_do_not_fit_are_refused(y_shape, noise_shape, unchecked):
    with pytest.raises(
        InvalidInputError, match=r"must have shapes \(\*batch, n, d\).*got \(5, 2\)"
    ):
        TrainingSet(X=draw(5, 2), y=draw(*y_shape), noise_var=draw(*noise_shape))


# --- indexing ---


@pytest.mark.parametrize(
    "index", [slice(1, 3), torch.tensor([2, 0]), 1, torch.tensor([True, False, True])]
)
def test_indexing_takes_batch_members(index):
    train = rows(draw(3, 4, 2), draw(3, 4, seed=1).tolist(), draw(3, 4, seed=2).tolist())
    found = train[index]
    assert isinstance(found, TrainingSet)
    for name in ("X", "y", "noise_var"):
        assert torch.equal(getattr(found, name), getattr(train, name)[index])


def test_members_of_a_stack_are_what_was_stacked():
    sets = [rows(draw(4, 2, seed=i), [1.0, 2.0, 3.0, i], [0.0, 0.1, INF, 0.0]) for i in range(3)]
    together = stack(sets)
    for i, one in enumerate(sets):
        assert same(together[i], one)
    assert together[1:].live.tolist() == [one.live.tolist() for one in sets[1:]]
