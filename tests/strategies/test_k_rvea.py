from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import Optimizer, problems, strategies
from tcsaea_torch.evolution import Population
from tcsaea_torch.strategies import KRVEA
from tcsaea_torch.strategies.base import budget, tensor_in
from tcsaea_torch.strategies.k_rvea import limited
from tcsaea_torch.strategies.vector_selection import new_points, representatives
from tests.strategies.runs import Toy, igds, steps_of, with_rows


def rows(*values):
    """Return numbers of a batch of one."""
    return torch.tensor([values], dtype=torch.float64)


# ---------------------------------------------------------------- budgets


def counts(strategy, tau, n_slow, n_init):
    """Return (slow, fast) of each step."""
    return [
        (int(p.evaluation_mask[..., 1].sum()), int(p.evaluation_mask[..., 0].sum()))
        for _, p, _ in steps_of(Toy(tau=tau), strategy, [0], n_slow=n_slow, n_init=n_init)
    ]


def test_each_point_gets_both_values_and_the_last_batch_is_cut():
    assert counts(KRVEA(), 5, 18, 10) == [(10, 10), (3, 3), (3, 3), (2, 2)]
    assert counts(KRVEA(n_new=1), 2, 7, 5) == [(5, 5), (1, 1), (1, 1)]


def test_tau_makes_no_difference():
    first, second = (
        run_batch(problems.get("dtlz2", tau=tau), KRVEA(), [0, 1], n_slow=30, n_init=20)
        for tau in (5, 10)
    )
    assert torch.equal(first.archive.X, second.archive.X)
    assert torch.equal(first.archive.observed, second.archive.observed)


@pytest.mark.parametrize(("tau", "n"), [(2.0, 24), (2.5, 30), (5.0, 60)])
def test_without_delay_there_are_as_many_slow_evaluations_as_fast_ones(tau, n):
    strategy = strategies.get("undelayed")
    assert budget(strategy, Toy(tau=tau), 12) == (n, n)
    result = run_batch(Toy(tau=tau), strategy, [0, 1], n_slow=12, n_init=8)
    assert result.used.tolist() == [[n, n]] * 2
    assert len(result.points(0)) == n


def test_the_optimizer_knows_the_budget_without_delay():
    problem = Toy(tau=5)
    optimizer = Optimizer(problem, n_slow=6, n_init=5, strategy="undelayed")
    assert optimizer.n_total == (30, 30)
    while evaluations := optimizer.ask():
        for e in evaluations:
            f = problem.function_of(e.objective)
            optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))
    assert optimizer.is_done
    assert optimizer.n_used == (30, 30)
    assert optimizer.result().status == "finished"
    assert Optimizer(problem, n_slow=200, strategy="undelayed").n_total == (1000, 1000)
    assert Optimizer(problem, n_slow=200, strategy="k-rvea").n_total == (1000, 200)


def test_undelayed_is_k_rvea_with_more_evaluations():
    plain, undelayed = strategies.get("k-rvea"), strategies.get("undelayed")
    assert isinstance(plain, KRVEA)
    assert isinstance(undelayed, KRVEA)
    short = run_batch(Toy(tau=2), plain, [3], n_slow=14, n_init=8)
    long = run_batch(Toy(tau=2), undelayed, [3], n_slow=7, n_init=8)
    # The kriging may differ, the design and the counts do not.
    assert short.used[0, 1] == long.used[0, 1]
    assert torch.equal(short.archive.X[:, :8], long.archive.X[:, :8])
    assert replace(undelayed, name="k-rvea", ignores_delay=False, kriging=plain.kriging) == plain


# ---------------------------------------------------------------- steps 3 to 5

ARC = torch.linspace(0, 1, 5, dtype=torch.float64)
LATTICE = torch.stack([ARC, 1 - ARC], dim=-1).clamp_min(1e-6)
"""Directions at 90, 71.6, 45, 18.4 and 0 degrees from the first axis."""


def choose(F, uncertainty, *, before, vectors=LATTICE, n_clusters=2, tolerance=1.0, alive=None):
    F = torch.as_tensor(F, dtype=torch.float64)
    if F.ndim == 2:
        F = F.unsqueeze(0)
    b, n = F.shape[:2]
    alive = torch.ones(b, n, dtype=torch.bool) if alive is None else alive
    population = Population(X=torch.zeros(b, n, 2, dtype=torch.float64), F=F, alive=alive)
    return representatives(
        population,
        torch.as_tensor(uncertainty, dtype=torch.float64).expand(b, n),
        LATTICE,
        vectors.expand(b, *vectors.shape),
        torch.as_tensor(before).expand(b),
        # The first vector starts the first cluster.
        torch.tensor([0.9, 0.5, 0.5, 0.5, 0.5], dtype=torch.float64).expand(b, -1),
        n_clusters=n_clusters,
        tolerance=tolerance,
        penalty=1.0,
    )


# Two members near each axis, none in between: vectors 0 and 4 are active, 3 are not.
ENDS = [[0.0, 1.0], [0.01, 1.5], [1.0, 0.0], [1.5, 0.01]]


def test_while_vectors_stay_active_each_cluster_gives_its_best():
    # Translated by the ideal point (0, 0); the longer of each pair has the larger APD.
    chosen, exists, n_inactive = choose(ENDS, [1, 2, 3, 4], before=2)
    assert n_inactive.tolist() == [3]
    assert exists.tolist() == [[True, True]]
    assert chosen.tolist() == [[0, 2]]


def test_when_more_vectors_are_inactive_each_cluster_gives_its_most_uncertain():
    chosen, _, n_inactive = choose(ENDS, [1, 2, 3, 4], before=1)  # 3 - 1 > 1
    assert n_inactive.tolist() == [3]
    assert chosen.tolist() == [[1, 3]]


def test_members_of_a_batch_switch_on_their_own():
    F = torch.tensor([ENDS, ENDS], dtype=torch.float64)
    chosen, _, _ = choose(F, [1, 2, 3, 4], before=[2, 1])
    assert chosen.tolist() == [[0, 2], [1, 3]]


def test_inactive_are_counted_on_fixed_vectors_and_clusters_made_of_adapted_ones():
    # Ten times the range in the first objective: fixed vectors see all but one member at
    # the first axis; adapted ones see one each.
    F = [[0.0, 1.0], [2.5, 0.75], [5.0, 0.5], [7.5, 0.25], [10.0, 0.0]]
    adapted = LATTICE * torch.tensor([10.0, 1.0], dtype=torch.float64)
    sd = [1, 5, 2, 4, 3]
    chosen, exists, n_inactive = choose(F, sd, before=0, vectors=adapted, n_clusters=5)
    assert n_inactive.tolist() == [5 - 3]  # 90, 16.7, 5.7, 1.9 and 0 degrees
    assert exists.all()
    assert sorted(chosen[0].tolist()) == [0, 1, 2, 3, 4]


def test_fewer_active_vectors_than_clusters_give_fewer_points():
    alive = torch.tensor([[True, False, False, False]])
    chosen, exists, n_inactive = choose(ENDS, [1, 2, 3, 4], before=4, n_clusters=3, alive=alive)
    assert n_inactive.tolist() == [4]
    assert exists.sum() == 1
    assert chosen[exists].tolist() == [0]


def test_the_dead_are_not_chosen():
    alive = torch.tensor([[False, True, True, False]])
    chosen, exists, _ = choose(ENDS, [9, 2, 3, 9], before=0, alive=alive)
    assert exists.all()
    assert sorted(chosen[0].tolist()) == [1, 2]


# ---------------------------------------------------------------- step 7


def keep(
    Y, is_new, n_max, *, vectors=LATTICE, u_points=None, u_choice=None, alive=None, spread=False
):
    Y = torch.as_tensor(Y, dtype=torch.float64).unsqueeze(0)
    n = Y.shape[1]
    even = (torch.arange(n, dtype=torch.float64).unsqueeze(0) + 0.5) / n
    return limited(
        Y,
        torch.ones(1, n, dtype=torch.bool) if alive is None else alive,
        torch.tensor([is_new]),
        n_max,
        vectors.unsqueeze(0),
        u_vectors=rows(0.1, 0.9, 0.2, 0.3, 0.8),
        u_points=even if u_points is None else rows(*u_points),
        u_choice=even if u_choice is None else rows(*u_choice),
        spread=spread,
    )[0].tolist()


# Points on the vectors at 90, 71.6, 45, 18.4 and 0 degrees; the ideal point is (0, 0).
ON_VECTORS = [[0.0, 1.0], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1.0, 0.0]]


def test_a_small_training_archive_stays_as_it_is():
    assert keep(ON_VECTORS, [False] * 5, 5) == [True] * 5
    alive = torch.tensor([[True, True, False, True, True]])
    assert keep(ON_VECTORS, [False] * 5, 4, alive=alive) == alive[0].tolist()


def test_old_points_spread_over_the_vectors_that_new_ones_leave_inactive():
    # The new point takes the first vector. The old ones occupy the four others, which make
    # two clusters, (1, 2) and (3, 4), from starts 1 and 4. One point of each stays.
    Y = [*ON_VECTORS, [0.0, 1.1]]
    is_new = [True, False, False, False, False, False]
    kept = keep(Y, is_new, 3, u_choice=[0.9, 0.6, 0.5, 0.4, 0.3, 0.7])
    # The last point, nearest to the taken vector, joins vector 1 and has a larger number.
    assert kept == [True, False, True, False, True, False]
    kept = keep(Y, is_new, 3, u_choice=[0.9, 0.6, 0.5, 0.3, 0.4, 0.1])
    assert kept == [True, False, False, True, False, True]


def test_old_points_that_occupy_few_vectors_are_clustered_by_their_values():
    # All old points are at the axes, so they occupy two vectors for three clusters:
    # {(0, 1), (0, 1.1)}, {(0, 5)} and {(5, 0)}, from the starts with the largest numbers.
    Y = [[2.0, 2.0], [0.0, 1.0], [0.0, 1.1], [0.0, 5.0], [5.0, 0.0]]
    is_new = [True, False, False, False, False]
    starts = [0.1, 0.9, 0.2, 0.8, 0.7]
    kept = keep(Y, is_new, 4, u_points=starts, u_choice=[0.5, 0.4, 0.3, 0.2, 0.1])
    assert kept == [True, False, True, True, True]
    kept = keep(Y, is_new, 4, u_points=starts, u_choice=[0.5, 0.1, 0.3, 0.2, 0.4])
    assert kept == [True, True, False, True, True]


def test_spread_clusters_drop_points_where_they_are_dense():
    # Seven old points near each other and three far ones, on three vectors; room for four.
    near = [[0.01 * k, 0.01 * k] for k in range(7)]
    Y = [*near, [5.0, 5.0], [9.0, 1.0], [1.0, 9.0]]
    # The first four by their numbers are near ones.
    numbers = [0.9, 0.8, 0.7, 0.65, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    kept = keep(Y, [False] * 10, 4, u_points=numbers, spread=True)
    assert kept[7:] == [True] * 3
    assert sum(kept) == 4
    kept = keep(Y, [False] * 10, 4, u_points=numbers, spread=False)
    assert sum(kept[:7]) >= 3
    assert sum(kept) == 4


def test_new_points_stay_even_if_they_are_too_many():
    kept = keep(ON_VECTORS, [True, True, True, False, False], 2)
    assert kept == [True, True, True, False, False]


def test_the_training_archive_of_a_run_is_limited_and_holds_the_newest_points():
    strategy = KRVEA(n_train_max=12)
    for run, proposal, state in steps_of(Toy(), strategy, [0, 1], n_slow=30, n_init=10):
        n = len(run.archive)
        if n == 0:
            continue
        in_training, is_new = tensor_in(state, "in_training"), tensor_in(state, "is_new")
        assert in_training.shape[1] == is_new.shape[1] == n + proposal.X.shape[1]
        # Of the rows that are evaluated, N_I; those just proposed come on top.
        n_trained = in_training[:, :n].sum(dim=1)
        assert (n_trained <= 12).all()
        assert (n_trained >= min(n, 10)).all()
        assert torch.equal(in_training[:, n:], proposal.evaluation_mask.all(dim=-1))
        if n > 10:  # the previous proposal
            previous = run.archive.complete.clone()
            previous[:, : n - 3] = False
            assert in_training[:, :n][previous].all()


def test_points_once_dropped_do_not_come_back():
    before = None
    for run, _, state in steps_of(Toy(), KRVEA(n_train_max=9), [2], n_slow=25, n_init=9):
        now = tensor_in(state, "in_training")
        if before is not None and len(run.archive):
            assert not (now[:, : before.shape[1]] & ~before).any()
        before = now if len(run.archive) else None


def test_attached_points_are_trained_on_and_equal_ones_once():
    problem = Toy()
    X = torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X = torch.cat([X, X[:2]])
    strategy = KRVEA()
    run = replace(initial_view(problem, [0], n_slow=20, n_init=8), n_init=0)
    run = with_rows(run, X, problem.evaluate(X))
    _, state = strategy.propose(strategy.init(run), run)
    assert tensor_in(state, "in_training")[0, :11].tolist() == [True] * 9 + [False] * 2
    # In the middle of a run, too.
    run = with_rows(run, X[:9], problem.evaluate(X[:9]))
    proposal, state = strategy.propose(strategy.init(run), run)
    run = tell_all(problem, run, proposal)
    late = torch.full((1, 2), 0.123, dtype=torch.float64)
    grown = with_rows(
        run,
        torch.cat([run.archive.X[0], late]),
        torch.cat([run.archive.Y[0], problem.evaluate(late)]),
    )
    _, state = strategy.propose(state, grown)
    assert tensor_in(state, "in_training")[0, len(run.archive)]


# ---------------------------------------------------------------- the whole


KNOWN = torch.tensor([[0.1, 0.1], [0.2, 0.9], [0.3, 0.4]], dtype=torch.float64)


def propose_from(X, chosen, exists):
    """Return the new points when KNOWN are in the archive and X in the population."""
    problem = Toy()
    run = with_rows(initial_view(problem, [0], n_slow=20, n_init=3), KNOWN, problem.evaluate(KNOWN))
    X = torch.as_tensor(X, dtype=torch.float64).unsqueeze(0)
    alive = torch.ones(1, X.shape[1], dtype=torch.bool)
    population = Population(X=X, F=torch.zeros_like(X), alive=alive)
    points, is_new = new_points(
        population, torch.tensor([chosen]), torch.tensor([exists]), torch.tensor([2]), 2, run, 1
    )
    return sorted(points[is_new].tolist())


def test_known_points_are_dropped():
    X = [*KNOWN.tolist(), [0.5, 0.5], [0.6, 0.6]]
    assert propose_from(X, [3, 4], [True, True]) == [[0.5, 0.5], [0.6, 0.6]]
    assert propose_from(X, [0, 4], [True, True]) == [[0.6, 0.6]]
    assert propose_from(X, [3, 4], [False, True]) == [[0.6, 0.6]]
    assert propose_from(X, [3, 3], [True, True]) == [[0.5, 0.5]]


def test_where_nothing_is_new_one_unseen_member_is_taken():
    X = [*KNOWN.tolist(), [0.5, 0.5], [0.6, 0.6]]
    assert propose_from(X, [0, 1], [True, True]) in ([[0.5, 0.5]], [[0.6, 0.6]])
    # Neither is anybody else: a random point.
    (point,) = propose_from(KNOWN, [0, 1], [True, True])
    assert point not in KNOWN.tolist()


def test_it_beats_random_search():
    problem = problems.get("dtlz2")
    igd = {
        name: igds(problem, strategies.get(name), 2, n_slow=120, n_init=90)
        for name in ("k-rvea", "random")
    }
    assert max(igd["k-rvea"]) < 0.7 * min(igd["random"])
