import itertools

import numpy as np
import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.strategies import (
    BroodInterleaving,
    FastFirst,
    SpeculativeInterleaving,
    Waiting,
)
from tcsaea_torch.strategies.base import tensor_in
from tcsaea_torch.strategies.latency_schemes import tournament_key
from tests.strategies.runs import Toy, igds, steps_of


def counts(strategy, tau, n_slow):
    """Return (slow, fast) of each step."""
    return [
        (int(p.n_asked[0, 1]), int(p.n_asked[0, 0]))
        for _, p, _ in steps_of(Toy(tau=tau), strategy, [0], n_slow=n_slow, n_init=5)
    ]


def test_waiting_asks_for_both_objectives_of_each_generation():
    assert counts(Waiting(n_population=6), 5, 20) == [(6, 6), (6, 6), (6, 6), (2, 2)]
    assert counts(Waiting(n_population=6, n_initial=10), 5, 20) == [(10, 10), (6, 6), (4, 4)]


def test_brood_interleaving_spends_what_the_last_slow_evaluations_paid_for():
    assert counts(BroodInterleaving(n_population=6), 5, 20) == [
        (6, 6), (0, 24), (6, 0), (0, 30), (6, 0), (0, 30), (2, 0),
    ]  # fmt: skip
    assert counts(BroodInterleaving(n_population=4), 1, 10) == [
        (4, 4), (0, 4), (4, 0), (0, 2), (2, 0),
    ]  # fmt: skip


def test_speculative_interleaving_makes_generations_on_the_fast_objective():
    assert counts(SpeculativeInterleaving(n_population=6), 3, 14) == [
        (6, 6), (0, 6), (0, 6), (6, 0), (0, 6), (0, 6), (0, 6), (2, 0),
    ]  # fmt: skip


def test_fast_first_spends_the_whole_fast_budget_first():
    assert counts(FastFirst(n_population=10), 2.5, 12) == [(0, 10)] * 3 + [(12, 0)]
    assert counts(FastFirst(n_population=10, n_chosen=4), 2.5, 12) == [(0, 10)] * 3 + [(4, 0)]


def test_fast_first_takes_the_best_points_of_all():
    problem = Toy(d=4, tau=5)
    result = run_batch(problem, FastFirst(n_population=10), [0, 1], n_slow=12)
    for i in range(2):
        fast = result.archive.Y[i, :, 0]
        assert result.archive.observed[i, :, 0].all()
        chosen = result.archive.complete[i]
        assert chosen.sum() == 12
        assert fast[chosen].max() <= fast[~chosen].min()


def test_the_inner_search_improves_the_fast_objective_of_what_gets_the_slow_one():
    def mean_of_generation(strategy):
        steps = list(steps_of(Toy(d=6, tau=8), strategy, [0], n_slow=40, n_init=5, n_steps=20))
        run, proposal, _ = next(s for s in steps if s[1].archive_mask is not None)
        return run.archive.Y[0, :, 0][proposal.archive_mask[0, :, 1]].mean()

    speculative = mean_of_generation(SpeculativeInterleaving(n_population=20))
    brood = mean_of_generation(BroodInterleaving(n_population=20))
    anyone = mean_of_generation(BroodInterleaving(n_population=20, choice="random"))
    best = mean_of_generation(BroodInterleaving(n_population=20, choice="best"))
    assert speculative < best < brood < anyone


def test_waiting_is_rvea():
    """Its population is what a brute-force selection by angle-penalised distance gives."""
    problem, strategy = problems.get("dtlz2"), Waiting(n_population=8)
    steps = list(steps_of(problem, strategy, [3], n_slow=40, n_init=8))
    for (before, _, state), (after, _, next_state) in itertools.pairwise(steps[1:4]):
        old = tensor_in(state, "rows")[0]
        new = torch.arange(len(before.archive), len(after.archive))
        rows = torch.cat([old, new]).unique()
        F = after.archive.Y[0, rows].numpy()
        done = int(after.used[0, 1] - 8) / 32
        expected = brute_force(F, tensor_in(state, "vectors")[0].numpy(), done**2)
        assert set(tensor_in(next_state, "rows")[0].tolist()) == {int(rows[i]) for i in expected}


def brute_force(F, vectors, penalty):
    F = F - F.min(axis=0)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    angles = np.arccos(np.clip(unit @ unit.T, -1, 1)) + 10 * np.eye(len(unit))
    gamma = angles.min(axis=1)
    length = np.linalg.norm(F, axis=1)
    cosine = (F @ unit.T) / np.maximum(length, 1e-300)[:, None]
    niche, angle = cosine.argmax(axis=1), np.arccos(np.clip(cosine.max(axis=1), -1, 1))
    angle = np.where(length > 0, angle, 0.0)
    apd = (1 + 2 * penalty * angle / gamma[niche]) * length
    return {min(np.flatnonzero(niche == j), key=lambda i: apd[i]) for j in set(niche)}


def test_waiting_knows_nothing_of_tau():
    X = [
        run_batch(problems.get("dtlz2", tau=tau), Waiting(), [4], n_slow=70).archive.X
        for tau in (5, 10)
    ]
    assert torch.equal(*X)


def test_tournaments_are_drawn_without_replacement():
    y = torch.tensor([[3.0, 1.0, 2.0, 5.0, 4.0]]).double()
    u = torch.tensor([[0.4, 0.1, 0.2, 0.3, 0.5]]).double()
    # In the order of u: 1 meets 2, 3 meets 0, 4 is alone. Winners: 1, 0, 4; then 2 and 3.
    assert tournament_key(y, u).argsort(dim=1).tolist() == [[1, 0, 4, 2, 3]]
    failed = torch.tensor([[3.0, torch.inf, 2.0, 5.0, 4.0]]).double()
    # Without 1: 2 meets 3, 0 meets 4.
    assert tournament_key(failed, u)[:, [0, 2, 3, 4]].argsort(dim=1).tolist() == [[1, 0, 2, 3]]


def test_attached_points_are_members_of_the_first_population():
    problem = Toy()
    run = initial_view(problem, [0], n_slow=30, n_init=5)
    proposal, _ = (strategy := Waiting(n_population=6)).propose(strategy.init(run), run)
    known = tell_all(problem, run, proposal)
    proposal, state = strategy.propose(strategy.init(known), known)
    assert proposal.n_asked.tolist() == [[6, 6]]  # a generation
    assert state["n_first"] == 6


@pytest.mark.parametrize("scheme", [BroodInterleaving, SpeculativeInterleaving])
def test_where_all_fast_values_failed_the_next_generation_is_bred(scheme):
    problem, strategy = Toy(tau=3), scheme(n_population=4)
    run = initial_view(problem, [0], n_slow=30, n_init=5)
    state = strategy.init(run)
    proposal, state = strategy.propose(state, run)
    run = tell_all(problem, run, proposal)
    for _ in range(6):
        proposal, state = strategy.propose(state, run)
        assert proposal.archive_mask is None
        assert proposal.n_asked[0, 0] > 0
        n = len(run.archive)
        run = tell_all(problem, run, proposal)
        failed = run.archive.observed.clone()
        failed[:, :4] = False
        seen = run.archive.observed & ~failed
        archive = type(run.archive)(
            X=run.archive.X, Y=torch.where(seen, run.archive.Y, 0.0), observed=seen
        )
        run = type(run)(**{**vars(run), "archive": archive, "failed": failed})
        assert len(run.archive) > n


def test_orderings_of_the_paper():
    """Mean IGD on DTLZ2: Waiting beats random points, and Fast-first is far behind."""
    problem = problems.get("dtlz2")
    scores = {
        n: sum(igds(problem, strategies.get(n), 8)) / 8
        for n in ("waiting", "brood-interleaving", "random", "fast-first")
    }
    assert max(scores["waiting"], scores["brood-interleaving"]) < 0.8 * scores["random"]
    assert scores["random"] < 0.6 * scores["fast-first"]


@pytest.mark.parametrize(
    ("scheme", "options", "message"),
    [
        (Waiting, {"n_population": 1}, "n_population must be an integer >= 2"),
        (Waiting, {"n_initial": 1}, "n_initial must be an integer >= 2"),
        (Waiting, {"alpha": -1}, "alpha must be"),
        (Waiting, {"adaptation_frequency": 0}, "adaptation_frequency must be"),
        (BroodInterleaving, {"choice": "tournamen"}, "did you mean 'tournament'"),
        (FastFirst, {"n_chosen": 0}, "n_chosen must be"),
        (FastFirst, {"variation": None}, "variation must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked(scheme, options, message):
    with pytest.raises(InvalidInputError, match=message):
        scheme(**options)
