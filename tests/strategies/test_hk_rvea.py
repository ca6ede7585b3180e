from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import problems, strategies
from tcsaea_torch.evolution import RVEAConfig, Variation
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies import HKRVEA, vector_selection
from tcsaea_torch.strategies.base import tensor_in
from tests.strategies.runs import Toy, igds, steps_of, with_rows

QUICK = FitConfig(
    input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=6)
)


def counts(strategy, tau, n_slow, n_init):
    """Return (slow, fast) of each step."""
    return [
        (int(p.evaluation_mask[..., 1].sum()), int(p.evaluation_mask[..., 0].sum()))
        for _, p, _ in steps_of(Toy(tau=tau), strategy, [0], n_slow=n_slow, n_init=n_init)
    ]


def test_each_step_spends_what_the_slow_evaluations_leave_time_for():
    # N slow: N fast and N (tau - 1) of the SOEA; P: |P| fast and |P| (tau - 1) offspring.
    assert counts(HKRVEA(kriging=QUICK), 5, 18, 10) == [
        (10, 10), (0, 10), (0, 10), (0, 10), (0, 10), (3, 15), (3, 15), (2, 10),
    ]  # fmt: skip
    assert counts(HKRVEA(n_new=1, kriging=QUICK), 3, 6, 4) == [
        (4, 4), (0, 4), (0, 4), (1, 3), (1, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("tau", [1.0, 2.0, 2.5, 5.0, 10.0])
@pytest.mark.parametrize("n_slow", [17, 20])
def test_budgets_are_exact(tau, n_slow):
    strategy = HKRVEA(kriging=QUICK, search=RVEAConfig(n_generations=5))
    result = run_batch(Toy(tau=tau), strategy, [0, 1, 2], n_slow=n_slow, n_init=7)
    assert result.used.tolist() == [[int(tau * n_slow), n_slow]] * 3
    assert [len(result.points(i)) for i in range(3)] == [n_slow] * 3


def test_the_start_is_that_of_the_other_strategies():
    first, second = (
        run_batch(Toy(), strategies.get(name), [4], n_slow=30, n_init=12, n_steps=5)
        for name in ("hk-rvea", "tc-saea")
    )
    assert torch.equal(first.archive.X, second.archive.X)
    assert torch.equal(first.archive.observed, second.archive.observed)


def test_offspring_are_new_and_near_their_parents():
    strategy = HKRVEA(kriging=QUICK, variation=Variation(mutation_rate=0.0))
    for run, p, _ in steps_of(Toy(d=6), strategy, [0], n_slow=21, n_init=9):
        if len(run.archive) < 45:
            continue
        both = p.evaluation_mask.all(dim=-1)[0]
        only_fast = p.evaluation_mask[0, :, 0] & ~both
        P, X = p.X[0][both], p.X[0][only_fast]
        assert len(P) == 3
        assert len(X) == 12
        assert torch.cdist(torch.cat([P, X]), run.archive.X[0]).min() > 0
        assert len(torch.cat([P, X]).unique(dim=0)) == 15
        # Crossover of index 20 stays within the box of the parents, or not far outside.
        low, high = P.amin(dim=0), P.amax(dim=0)
        margin = 0.7 * (high - low) + 1e-9
        assert ((low - margin <= X) & (high + margin >= X)).all()


def test_all_offspring_are_new_where_they_can_only_equal_their_parents():
    # No crossover and no mutation: random points take their place.
    variation = Variation(crossover_probability=0.0, mutation_rate=0.0)
    strategy = HKRVEA(kriging=QUICK, variation=variation)
    result = run_batch(Toy(tau=4), strategy, [0], n_slow=15, n_init=9)
    assert result.used.tolist() == [[60, 15]]
    seen = result.archive.X[0][result.archive.observed[0].any(dim=-1)]
    assert len(seen.unique(dim=0)) == 60


def test_large_training_sets_are_thinned_evenly():
    """Two crowds of 30 points and 20 single ones: most of 24 rows are the single ones."""
    strategy = HKRVEA(n_train_max=24)
    generator = torch.Generator().manual_seed(0)
    single = torch.rand(20, 2, dtype=torch.float64, generator=generator)
    crowds = [c + 1e-4 * torch.rand(30, 2, dtype=torch.float64, generator=generator)
              for c in (0.3, 0.6)]  # fmt: skip
    X = torch.cat([*crowds, single])
    problem = Toy()
    run = with_rows(initial_view(problem, [0], n_slow=100, n_init=5), X, problem.evaluate(X))
    train = strategy._training_set("fast", 0, run, 1)
    assert int(train.n_live) <= 24
    rows = train.X[train.live]
    assert len(rows.unique(dim=0)) == len(rows)
    is_single = (torch.cdist(rows, single) == 0).any(dim=-1)
    assert is_single.sum() >= 12  # of 24 random rows, 6 would be expected
    # Its values are its own.
    Y = problem.evaluate(rows)[..., 0]
    torch.testing.assert_close(train.y[train.live], Y)
    again = strategy._training_set("fast", 0, run, 2)
    assert not torch.equal(again.X, train.X) or not torch.equal(again.live, train.live)


def test_small_training_sets_keep_all_rows_of_their_objective():
    problem = Toy()
    X = torch.rand(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(9, 2, dtype=torch.bool)
    seen[5:, 1] = False
    run = with_rows(initial_view(problem, [0], n_slow=20, n_init=5), X, problem.evaluate(X), seen)
    assert int(HKRVEA(n_train_max=9)._training_set("fast", 0, run, 1).n_live) == 9
    assert int(HKRVEA(n_train_max=9)._training_set("slow", 1, run, 1).n_live) == 5


def test_the_search_starts_from_the_archive_with_its_measured_values(monkeypatch):
    seen = []

    def spy(evaluate, X, alive, *args, F, **options):
        seen.append((X, alive, F))
        return rvea(evaluate, X, alive, *args, F=F, **options)

    rvea = vector_selection.rvea
    monkeypatch.setattr(vector_selection, "rvea", spy)
    problem = Toy()
    for run, _, _ in steps_of(problem, HKRVEA(kriging=QUICK), [0], n_slow=16, n_init=10):
        if len(seen):
            X, alive, F = seen.pop()
            assert alive.all()
            assert torch.equal(X[0], run.archive.X[0][run.archive.complete[0]])
            torch.testing.assert_close(F, problem.evaluate(X))


def test_the_number_of_inactive_vectors_is_kept():
    numbers = [
        tensor_in(state, "n_inactive").tolist()
        for _, _, state in steps_of(Toy(), HKRVEA(kriging=QUICK), [0, 1], n_slow=20, n_init=8)
    ]
    assert numbers[0] == [0, 0]
    assert all(0 < n < 100 for n in numbers[-1])


def test_it_stops_at_either_budget():
    problem = Toy(tau=5)
    strategy = HKRVEA(kriging=QUICK)
    run = initial_view(problem, [0], n_slow=20, n_init=8)
    run = replace(run, total=torch.tensor([[46, 20]]))
    state = strategy.init(run)
    while True:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            break
        run = tell_all(problem, run, proposal)
    assert run.used.tolist() == [[46, 11]]


def test_its_search_is_the_authors():
    search = HKRVEA().search
    assert search.n_generations == 20
    # Adaptation after 30, 60 and 90 %; the square root of time; no factor for objectives.
    assert search.adaptation_interval == 6
    assert 2 * search.penalty_at(5) == pytest.approx(0.5)
    assert not search.each_once


def test_it_beats_random_search():
    problem = problems.get("dtlz2")
    igd = {
        name: igds(problem, strategies.get(name), 2, n_slow=110, n_init=80)
        for name in ("hk-rvea", "random")
    }
    assert max(igd["hk-rvea"]) < 0.7 * min(igd["random"])
