"""Which rows and which new points TC-EHVI takes for slow evaluations."""

from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view
from tcsaea_torch import metrics
from tcsaea_torch.archive import Archive
from tcsaea_torch.evolution import Population
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_choice import Choice
from tcsaea_torch.strategies.ehvi_models import Models, Synthetic
from tcsaea_torch.strategies.ehvi_rows import Known
from tcsaea_torch.strategies.ehvi_search import Pool, measure_front
from tests.models.models import draw
from tests.strategies.runs import Exact, Toy

N_BOTH, N_FAST, N_POOL = 8, 12, 20
BAD = torch.tensor([0.95, 0.05]).double()
"""Far from the front, which is the segment between (0.2, 0.2) and (0.8, 0.8)."""


def near_front(b, n, *, width=0.1, seed=0):
    along = 0.2 + 0.6 * draw(b, n, 1, seed=seed)
    return along + width * (draw(b, n, 2, seed=seed + 1) - 0.5)


def near_bad(b, n, *, seed=0):
    return BAD + 0.05 * (draw(b, n, 2, seed=seed) - 0.5)


def choice_of(rows, pool, *, b=1, noisy=False, n_fast_left=50, ref_point=None, sd=1e-9):
    """Return a choice among rows with a fast value, after some with both, and a pool."""
    problem = Toy()
    X = torch.cat([near_bad(b, N_BOTH, seed=8), rows], dim=1)
    observed = torch.ones(b, X.shape[1], 2, dtype=torch.bool)
    observed[:, N_BOTH:, SLOW] = False
    Y = torch.where(observed, problem.evaluate(X), 0.0)
    run = initial_view(problem, list(range(b)), n_slow=30, n_init=10)
    nothing = torch.zeros_like(observed)
    run = replace(run, archive=Archive(X=X, Y=Y, observed=observed), pending=nothing,
                  failed=nothing, used=run.total - torch.tensor([n_fast_left, 20]))  # fmt: skip
    known = Known(X=X, Y=Y, observed=observed, is_space=observed[..., FAST])
    models = Models(fast=Exact(problem, 0, sd=sd), slow=Exact(problem, 1, sd=sd))
    front = measure_front(Y, known.both, known.span, None, ref_point)
    mean, variance = models.predict(pool)
    score = front.log_ehvi(front.scale(mean), variance / front.extent.square())
    alive = torch.ones_like(score, dtype=torch.bool)
    population = Population(X=pool, F=mean, alive=alive)
    return Choice(
        run=run, known=known, models=models, chances=Chances(), noisy=noisy,
        clearance=steps.SAME_POINT, step=3,
        pool=Pool(X=pool, score=score, population=population, front=front),
    )  # fmt: skip


def taken(choice, n, n_fast=None):
    """Return each run's rows and new points; new ones may cost all of the fast budget."""
    n = torch.as_tensor(n)
    n_fast = choice.run.left[:, FAST] if n_fast is None else torch.as_tensor(n_fast)
    rows, X, is_new, front = choice.slow_points(n, n_fast, choice.pool.front)
    assert rows.shape == choice.run.archive.observed.shape[:2]
    assert X.shape[:2] == is_new.shape
    # The front holds what is believed of the chosen, but for random ones.
    assert (front.alive.sum(dim=1) <= choice.pool.front.alive.sum(dim=1) + n).all()
    return (
        [row.nonzero()[:, 0].tolist() for row in rows],
        [x[new] for x, new in zip(X, is_new, strict=True)],
    )


def greedy(choice, n, i=0):
    """Return rows and points of the pool that improve the hypervolume most, by brute force."""
    problem, front = Toy(), choice.pool.front
    point = (front.ref_point[i] * front.extent[i, 0] + front.low[i, 0]).double()
    run = choice.run
    k = len(run.archive)
    X = torch.cat([run.archive.X[i], choice.pool.X[i]])
    Y = problem.evaluate(X)
    asked = (run.archive.observed | run.pending | run.failed)[i, :, SLOW]
    free = [j for j in range(len(X)) if j >= k or (choice.known.fast[i, j] and not asked[j])]
    believed = run.archive.Y[i][choice.known.both[i]]
    picks = []
    for _ in range(n):
        volumes = [float(metrics.hypervolume(torch.cat([believed, Y[j : j + 1]]), point))
                   for j in free]  # fmt: skip
        best = free.pop(max(range(len(free)), key=volumes.__getitem__))
        believed = torch.cat([believed, Y[best : best + 1]])
        picks.append(best)
    return sorted(j for j in picks if j < k), X[sorted(j for j in picks if j >= k)]


def same_points(found, expected):
    assert {tuple(x) for x in found.tolist()} == {tuple(x) for x in expected.tolist()}


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("n", [1, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_the_largest_improvements_are_taken_of_rows_and_new_points_alike(seed, n, noisy):
    choice = choice_of(
        near_front(1, N_FAST, seed=seed), near_front(1, N_POOL, seed=50 + seed), noisy=noisy
    )
    (rows,), (new,) = taken(choice, [n])
    expected_rows, expected_new = greedy(choice, n)
    assert rows == expected_rows
    same_points(new, expected_new)
    if n == 7:
        assert rows
        assert len(new)


@pytest.mark.parametrize("noisy", [False, True])
def test_rows_win_where_they_are_better(noisy):
    choice = choice_of(near_front(1, N_FAST, width=0.01), near_bad(1, N_POOL), noisy=noisy)
    (rows,), (new,) = taken(choice, [4])
    assert len(rows) == 4
    assert len(new) == 0


@pytest.mark.parametrize("noisy", [False, True])
def test_new_points_win_where_they_are_better(noisy):
    choice = choice_of(near_bad(1, N_FAST), near_front(1, N_POOL, width=0.01), noisy=noisy)
    (rows,), (new,) = taken(choice, [4])
    assert rows == []
    assert len(new) == 4


def test_what_a_fast_value_is_matters_only_without_noise():
    """A row's value says that it is bad, the model that it is good."""
    for noisy in (False, True):
        X = torch.tensor([[[0.5, 0.5]]]).double()
        choice = choice_of(X, near_bad(1, N_POOL), noisy=noisy)
        choice.known.Y[0, N_BOTH, FAST] = 5.0
        (rows,), _ = taken(choice, [1])
        assert (rows == [N_BOTH]) == noisy


def test_known_fast_values_have_no_uncertainty():
    """The slow value alone is left to chance, but where values have noise."""
    X = torch.tensor([[[0.5, 0.5]]]).double()
    for noisy in (False, True):
        choice = choice_of(X, near_bad(1, N_POOL), noisy=noisy, sd=0.05)
        front = choice.pool.front
        score = choice._score_of_rows(*choice._predict_rows(), front)[0, N_BOTH]
        mean, variance = choice.models.predict(X)
        variance = variance / front.extent.square()
        if not noisy:
            variance[..., FAST] = 0.0
        assert score.item() == front.log_ehvi(front.scale(mean), variance).item()


def told_of(choice, rows, y, *, is_believed):
    """Return the choice with a link that says this of some rows, and nothing of others."""
    nothing = torch.full_like(choice.known.Y[..., SLOW], torch.inf)
    says, told = nothing.clone(), torch.zeros_like(nothing)
    says[0, rows], told[0, rows] = 1e-12, y
    some = Synthetic(y=told, variance=says, believed=says if is_believed else nothing)
    return replace(choice, models=replace(choice.models, synthetic=some))


@pytest.mark.parametrize("is_believed", [True, False])
def test_a_row_that_a_link_says_is_good_is_tried(is_believed):
    """The model says that all rows are bad, or another time that it may be wrong of one."""
    choice = choice_of(near_bad(1, N_FAST), near_front(1, N_POOL, width=0.3))
    assert taken(choice, [1])[0] == [[]]
    choice = told_of(choice, [N_BOTH + 11], -50.0, is_believed=is_believed)
    assert taken(choice, [1])[0] == [[N_BOTH + 11]]


def test_a_row_that_a_link_says_is_bad_is_left():
    choice = choice_of(near_front(1, N_FAST, width=0.01), near_bad(1, N_POOL))
    (rows,), _ = taken(choice, [4])
    choice = told_of(choice, rows, 5.0, is_believed=True)
    (others,), _ = taken(choice, [4])
    assert not set(rows) & set(others)


@pytest.mark.parametrize("noisy", [False, True])
def test_rows_that_were_asked_for_are_not_taken_again(noisy):
    choice = choice_of(
        near_front(1, N_FAST, width=0.02), near_front(1, N_POOL, seed=50), noisy=noisy
    )
    pending, failed = (torch.zeros_like(choice.run.pending) for _ in range(2))
    pending[:, N_BOTH : N_BOTH + 4, SLOW] = True
    failed[:, N_BOTH + 4 : N_BOTH + 8, SLOW] = True
    # Of some, the fast value is not known.
    observed = choice.run.archive.observed.clone()
    observed[:, -2:, FAST] = False
    archive = replace(choice.run.archive, observed=observed)
    run = replace(choice.run, pending=pending, failed=failed, archive=archive)
    choice = replace(choice, run=run, known=replace(choice.known, observed=observed))
    for n in (2, 6, 25):
        (rows,), (new,) = taken(choice, [n])
        assert len(rows) + len(new) == n
        assert set(rows) <= {N_BOTH + 8, N_BOTH + 9}
        expected_rows, expected_new = greedy(choice, min(n, 22))
        assert rows == expected_rows
        if n <= 22:
            same_points(new, expected_new)


@pytest.mark.parametrize("n", [3, 9])
def test_random_points_stand_in_where_candidates_lack(n):
    choice = choice_of(near_front(1, 2), near_front(1, N_POOL, seed=50))
    # All of the pool but one are known, or excluded.
    pool = choice.pool.X.clone()
    pool[0, 1:10] = choice.run.archive.X[0, :9]
    score = choice.pool.score.clone()
    score[0, 10:] = -torch.inf
    choice = replace(choice, pool=replace(choice.pool, X=pool, score=score))
    (rows,), (new,) = taken(choice, [n])
    assert rows == [N_BOTH, N_BOTH + 1]
    assert len(new) == n - 2
    assert pool[0, 0].tolist() in new.tolist()
    assert ((new >= 0) & (new <= 1)).all()
    assert len(torch.cat([choice.run.archive.X[0], new]).unique(dim=0)) == N_BOTH + 2 + n - 2


@pytest.mark.parametrize(("left", "n"), [(0, 3), (2, 3), (2, 14), (0, 14)])
def test_new_points_keep_to_the_fast_budget(left, n):
    """As where failures have spent it before the slow one."""
    choice = choice_of(near_bad(1, N_FAST), near_front(1, N_POOL, width=0.01), n_fast_left=left)
    (rows,), (new,) = taken(choice, [n])
    assert len(rows) == min(n, N_FAST)
    assert len(new) == min(n - len(rows), left)


def test_new_points_compete_where_all_of_the_slow_ones_could_be_new():
    b, n = 4, 3
    choice = choice_of(
        near_bad(b, N_FAST, seed=3), near_front(b, N_POOL, width=0.01), b=b, n_fast_left=n
    )
    # The last one could pay by what it may cost, but not by the budget.
    choice.run.used[3, FAST] += 1
    rows, new = taken(choice, [n] * b, n_fast=[n - 1, n, n + 1, 50])
    assert [len(x) for x in rows] == [n, 0, 0, n]
    assert [len(x) for x in new] == [0, n, n, 0]
    # Those that are left out do not change which rows are the best.
    score = torch.full_like(choice.pool.score, -torch.inf)
    expected, _ = taken(replace(choice, pool=replace(choice.pool, score=score)), [n] * b)
    assert rows[0] == expected[0]
    assert rows[3] == expected[3]


def test_where_rows_are_too_few_the_budget_counts_alone():
    """Slow evaluations are not left out for what new points cost."""
    n, b = 5, 2
    pool = near_front(b, N_POOL, seed=50)
    choice = choice_of(near_front(b, 4), pool, b=b)
    # The second run has a row more.
    choice.run.archive.observed[0, -1, FAST] = False
    few = replace(choice, known=replace(choice.known, observed=choice.run.archive.observed))
    found = taken(few, [n, 4], n_fast=[0, 0])
    expected = taken(few, [n, 4])
    assert found[0][0] == expected[0][0]
    assert torch.equal(found[1][0], expected[1][0])
    assert len(found[0][0]) + len(found[1][0]) == n
    assert len(found[1][0]) >= n - 3
    # With as many rows as slow evaluations, these are taken, good or bad.
    assert found[0][1] == list(range(N_BOTH, N_BOTH + 4))
    assert len(found[1][1]) == 0
    assert len(expected[1][1]) > 0


def test_nothing_is_taken_where_nothing_is_asked_for():
    choice = choice_of(near_front(1, N_FAST), near_front(1, N_POOL, seed=50))
    assert [len(part[0]) for part in taken(choice, [0])] == [0, 0]


@pytest.mark.parametrize("noisy", [False, True])
def test_runs_of_a_batch_choose_as_they_do_alone(noisy):
    n, rows, pool = [5, 0, 2], near_front(3, N_FAST), near_front(3, N_POOL, seed=50)
    together = taken(choice_of(rows, pool, b=3, noisy=noisy, sd=0.02), n)
    assert [len(r) + len(x) for r, x in zip(*together, strict=True)] == n
    choice = choice_of(rows, pool, b=3, noisy=noisy, sd=0.02)
    for i in range(3):
        k = slice(i, i + 1)
        run, known, whole = choice.run, choice.known, choice.pool
        front = measure_front(known.Y[k], known.both[k], known.span[k], None, None)
        archive = Archive(X=run.archive.X[k], Y=run.archive.Y[k], observed=run.archive.observed[k])
        alone = replace(
            choice,
            run=replace(run, archive=archive, pending=run.pending[k], failed=run.failed[k],
                        used=run.used[k], total=run.total[k], seeds=run.seeds[k],
                        ref_point=None),
            known=Known(X=known.X[k], Y=known.Y[k], observed=known.observed[k],
                        is_space=known.is_space[k]),
            pool=replace(whole, X=whole.X[k], score=whole.score[k], front=front),
        )  # fmt: skip
        (mine,), (new,) = taken(alone, n[i : i + 1])
        assert mine == together[0][i]
        assert torch.equal(new, together[1][i])


def test_what_lies_beyond_the_reference_point_is_not_taken():
    """Rows along all of the front, of which only a part is of interest."""
    X = torch.linspace(0.2, 0.8, N_FAST).double()[None, :, None].expand(1, N_FAST, 2)
    point = torch.tensor([[0.2, 1.0]]).double()
    choice = choice_of(X, near_bad(1, N_POOL), ref_point=point)
    (rows,), (new,) = taken(choice, [5])
    inside = (Toy().evaluate(choice.run.archive.X[0]) < point[0]).all(dim=-1)
    assert len(new) == 0
    assert len(rows) == 5
    assert inside[rows].all()
    assert not inside[N_BOTH:].all()


# ---------------------------------------------------------------- spread


def on_front(b, n):
    """Points of the whole front, none of which dominates another."""
    return torch.linspace(0.2, 0.8, n).double()[None, :, None].expand(b, n, 2)


def spread_points(choice, n):
    """Return each run's new fast points, all of them to spread over the predicted front."""
    n = torch.as_tensor(n)
    X, count = choice.fast_points(n, n, 0 * n, choice.pool.X[:, :0], choice.pool.front)
    return [x[c] for x, c in zip(X, count, strict=True)]


def members(points, choice, i):
    """Return which members of the predicted front were chosen."""
    X = choice.pool.population.X[i]
    return [int((X == x).all(dim=-1).nonzero()) for x in points]


@pytest.mark.parametrize("n", [1, 4, 8])
def test_spread_keeps_to_what_lies_within_the_reference_point(n):
    point = torch.tensor([[0.2, 0.6], [10.0, 10.0]]).double()
    choice = choice_of(near_bad(2, N_FAST), on_front(2, N_POOL), b=2, ref_point=point)
    inside = (Toy().evaluate(on_front(2, N_POOL)) <= point.unsqueeze(1)).all(dim=-1)
    assert inside.sum(dim=1).tolist() == [9, N_POOL]
    for i, points in enumerate(spread_points(choice, [n, n])):
        picks = members(points, choice, i)
        assert len(set(picks)) == n
        assert inside[i, picks].all()
        if n == 8 and i == 1:  # from all over the front
            assert min(picks) < 4
            assert max(picks) >= N_POOL - 4


def test_where_nothing_reaches_the_reference_point_all_of_the_front_is_spread_over():
    beyond = torch.tensor([[-0.1, -0.1]]).double()
    rows, pool = near_bad(1, N_FAST), on_front(1, N_POOL)
    choice = choice_of(rows, pool, ref_point=beyond)
    (points,) = spread_points(choice, [6])
    (expected,) = spread_points(choice_of(rows, pool, ref_point=100.0 - beyond), [6])
    assert members(points, choice, 0) == members(expected, choice, 0)
    assert len(points) == 6


def test_members_that_are_known_do_not_count_as_within_the_reference_point():
    """The only ones within it were evaluated: the others show the way."""
    point = torch.tensor([[0.2, 0.6]]).double()
    X = on_front(1, N_POOL)
    inside = (Toy().evaluate(X[0]) <= point).all(dim=-1)
    choice = choice_of(torch.cat([X[:, inside], near_bad(1, 2)], dim=1), X, ref_point=point)
    (points,) = spread_points(choice, [3])
    picks = members(points, choice, 0)
    assert len(set(picks)) == 3
    assert not inside[picks].any()


# ---------------------------------------------------------------- between neighbours


def with_front(choice, points):
    """Return the choice with other points that have both values, and these values."""
    X = choice.known.X.clone()
    X[:, : points.shape[1]] = points
    Y = torch.where(choice.known.observed, Toy().evaluate(X), 0.0)
    known = replace(choice.known, X=X, Y=Y)
    run = replace(choice.run, archive=replace(choice.run.archive, X=X, Y=Y))
    front = measure_front(Y, known.both, known.span, None, None)
    pool = replace(choice.pool, front=front)
    return replace(choice, known=known, run=run, pool=pool)


def between(choice, n, taken=None):
    """Return each run's new fast points, all of them between neighbours."""
    n = torch.as_tensor(n)
    taken = choice.pool.X[:, :0] if taken is None else taken
    X, count = choice._between(n, taken, choice.pool.front)
    return [x[c] for x, c in zip(X, count, strict=True)]


ENDS = torch.tensor([[0.2, 0.2], [0.3, 0.3], [0.8, 0.8]]).double()


def test_points_between_lie_in_the_middle_part_of_a_gap_wide_ones_more_often():
    """The front is the diagonal; its gaps are of 1 to 5."""
    choice = with_front(choice_of(near_bad(1, N_FAST), near_bad(1, N_POOL)), ENDS[None])
    found = torch.cat([between(replace(choice, step=i), [10])[0] for i in range(60)])
    assert len(found) == 600
    torch.testing.assert_close(found[:, 0], found[:, 1])
    along = found[:, 0]
    in_narrow = (along > 0.225) & (along < 0.275)
    in_wide = (along > 0.425) & (along < 0.675)
    assert (in_narrow | in_wide).all()
    Y = Toy().evaluate(ENDS)
    scaled = choice.pool.front.scale(Y[None])[0]
    gaps = (scaled[1:] - scaled[:-1]).norm(dim=-1)
    assert in_narrow.double().mean() == pytest.approx(float(gaps[0] / gaps.sum()), abs=0.05)
    # All over that part.
    assert along[in_wide].std() == pytest.approx(0.25 / 12**0.5, rel=0.1)


def test_between_a_point_and_itself_there_is_nothing():
    choice = choice_of(near_bad(1, N_FAST), near_bad(1, N_POOL))
    choice = with_front(choice, torch.full((1, N_BOTH, 2), 0.5).double())
    assert [len(points) for points in between(choice, [4])] == [0]


def test_points_between_are_those_of_each_run_alone():
    rows, pool = near_bad(3, N_FAST), near_bad(3, N_POOL)
    fronts = torch.stack([ENDS, ENDS.flip(0) * 0.9, near_bad(1, 3)[0]])
    fronts[2, :2] = torch.tensor([0.5, 0.5])  # one member only, twice
    fronts[2, 2] = 0.5
    together = between(with_front(choice_of(rows, pool, b=3), fronts), [2, 5, 3])
    for i, n in enumerate((2, 5, 3)):
        k = slice(i, i + 1)
        alone = with_front(choice_of(rows[k], pool[k]), fronts[k])
        alone = replace(alone, run=replace(alone.run, seeds=torch.tensor([i])))
        (points,) = between(alone, [n])
        torch.testing.assert_close(points, together[i], rtol=0, atol=1e-12)
    assert [len(points) for points in together] == [2, 5, 0]


def test_points_between_are_new():
    choice = with_front(choice_of(near_bad(1, N_FAST), near_bad(1, N_POOL)), ENDS[None])
    (points,) = between(choice, [6])
    assert len(points) == 6
    (others,) = between(choice, [6], taken=points[None, :2])
    same_points(others, points[2:])
