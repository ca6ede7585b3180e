from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch
from tcsaea_torch import metrics, problems
from tcsaea_torch.evolution import Population
from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies import TrSAEA, assisted, tr_saea
from tcsaea_torch.strategies.base import tensor_in
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.transfer.domain_adaptation import coral_factor
from tests.strategies.runs import Toy, steps_of, with_rows


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def periods(strategy, *, tau=5.0, n_slow=22, n_init=10, d=3, seeds=(0,)):
    """Return (view, proposal, state after, state before) of each step that is a period."""
    found, before = [], None
    problem = Toy(d=d, tau=tau)
    for run, proposal, state in steps_of(problem, strategy, seeds, n_slow=n_slow, n_init=n_init):
        if state["period"]:
            found.append((run, proposal, state, before))
        before = state
    return found


@pytest.fixture
def spied(monkeypatch):
    """Return a function that records arguments and result of each call of a name."""

    def spy(owner, name):
        calls, function = [], getattr(owner, name)

        def spying(*args, **options):
            result = function(*args, **options)
            calls.append((args, options, result))
            return result

        monkeypatch.setattr(owner, name, spying)
        return calls

    return spy


@pytest.mark.parametrize(
    ("tau", "expected"),
    [
        (5, [(10, 10), (0, 10), (0, 10), (0, 10), (0, 10), (3, 15), (3, 15), (2, 10)]),
        # floor(2.5 * 10) = 25 at the start; then 32, 40 and 45 in all.
        (2.5, [(10, 10), (0, 10), (0, 5), (3, 7), (3, 8), (2, 5)]),
        (1, [(10, 10), (3, 3), (3, 3), (2, 2)]),
    ],
)
def test_the_counts_of_each_step(tau, expected):
    steps = steps_of(Toy(tau=tau), TrSAEA(), [0], n_slow=18, n_init=10)
    found = [
        (int(p.evaluation_mask[..., 1].sum()), int(p.evaluation_mask[..., 0].sum()))
        for _, p, _ in steps
    ]
    assert found == expected


def test_the_models_and_where_the_search_starts(spied):
    trained, searches = spied(TrSAEA, "_train"), spied(assisted, "rvea")
    list(steps_of(Toy(d=3), TrSAEA(), [0], n_slow=16, n_init=10))
    models, D_a = trained[-1][2]
    kernels = {name: model.hyperparameters.kernel for name, model in models.items()}
    assert kernels == {
        "fast": "power-exponential", "a": "power-exponential", "b": "matern-5/2",
    }  # fmt: skip
    assert all(model.hyperparameters.p is None for model in models.values())
    args = searches[-1][0]
    assert torch.equal(args[1], D_a.X)
    assert torch.equal(args[2], D_a.live)
    # 13 measured points, and 12 that GP_b labelled in the first period.
    assert int(D_a.live.sum()) == 13 + 12


def test_new_points_are_non_dominated_survivors(spied):
    trained, choices = spied(TrSAEA, "_train"), spied(tr_saea.steps, "choose_new")
    acquired = spied(TrSAEA, "_acquire")
    found = periods(TrSAEA())
    for i, (_, proposal, _, _) in enumerate(found):
        models, _ = trained[i][2]
        X, occupied = acquired[i][2]
        candidates = choices[i][0][1]
        assert not (candidates & ~occupied).any()
        F = torch.stack([models["fast"].mean(X), models["a"].mean(X)], dim=-1)[0, occupied[0]]
        assert torch.equal(candidates[0, occupied[0]], is_non_dominated(F))
        chosen = proposal.X[0][proposal.evaluation_mask[0, :, 1]]
        assert are_among(chosen, X[0, candidates[0]]).all()


def further(n_survivors, n_others, *, tau=5.0, n_known=0):
    """Let a period choose X^a: one new point, the first survivor.

    Returns:
        The proposal, and the points of survivors and others.
    """
    strategy, problem = TrSAEA(n_new=1, n_ref_vectors=20), Toy(d=2, tau=tau)
    X = draw(20, 2)
    known = torch.cat([draw(5, 2, seed=1), X[1 : 1 + n_known]])
    run = with_rows(initial_view(problem, [0], n_slow=60, n_init=5), known, problem.evaluate(known))
    used = torch.tensor([[int(tau * 5), 5]])  # the start has used up its credit
    run = replace(run, used=used)
    state = {**strategy.init(run), "n_design": 5, "period": 1}
    occupied = torch.arange(20).unsqueeze(0) < n_survivors
    others = Population(
        X=X.flip(0).unsqueeze(0),
        F=draw(1, 20, 2),
        alive=torch.arange(20).unsqueeze(0) >= 20 - n_survivors - n_others,
    )
    X_new, is_new = X[None, :1], torch.ones(1, 1, dtype=torch.bool)
    box = strategy._around(state, run, X_new, is_new, Chances())
    proposal = strategy._with_survivors(
        state, run, X_new, is_new, X.unsqueeze(0), occupied, others, *box
    )
    return proposal, X[:n_survivors], X[: n_survivors + n_others]


def asked(proposal):
    """Return the new and the further points that are asked for."""
    X, (fast, slow) = proposal.X[0], proposal.evaluation_mask[0].unbind(dim=-1)
    return X[slow], X[fast & ~slow]


def are_among(A, B):
    return (A.unsqueeze(1) == B).all(dim=-1).any(dim=1)


def test_further_points_are_other_survivors():
    proposal, survivors, _ = further(9, 6)
    new, points = asked(proposal)
    assert torch.equal(new, survivors[:1])
    assert len(points) == 4  # tau - 1
    assert are_among(points, survivors[1:]).all()
    assert len(points.unique(dim=0)) == 4


def test_too_few_survivors_are_followed_by_others_and_then_by_the_box():
    proposal, survivors, everyone = further(3, 1)
    new, points = asked(proposal)
    assert len(points) == 4
    assert are_among(points, survivors[1:]).sum() == 2
    assert are_among(points, everyone[1:]).sum() == 3
    (rest,) = points[~are_among(points, everyone)]
    assert (rest - new[0]).abs().max() <= 0.025


def test_known_survivors_are_no_further_points():
    proposal, survivors, _ = further(9, 6, n_known=4)
    _, points = asked(proposal)
    assert are_among(points, survivors[5:]).all()
    assert len(points) == 4


def test_the_models_of_the_last_period_are_those_that_were_trained(spied):
    trained = spied(TrSAEA, "_train")
    strategy = TrSAEA()
    found = periods(strategy)
    for i, (run, _, state, before) in enumerate(found[1:], start=1):
        assert state["period"] == i + 1
        models, _ = trained[i - 1][2]
        for name in ("a", "b"):
            model = strategy._last_model(name, {**before, "period": i + 1}, run)
            assert model.hyperparameters.kernel == models[name].hyperparameters.kernel
            Xq = draw(1, 9, 3, seed=i)
            for mine, theirs in zip(model.predict(Xq), models[name].predict(Xq), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-8)


def test_each_slow_model_labels_for_the_other_what_it_is_surest_of(spied):
    strategy, inverted = TrSAEA(), spied(tr_saea, "find_points")
    (_, first, _, _), (run, _, state, between) = periods(strategy)[:2]
    assert tensor_in(between, "pool_X_a").shape == (1, 0, 3)
    mask = first.evaluation_mask[0]
    X_a = first.X[0][mask[:, 0] & ~mask[:, 1]]
    X_tl = inverted[0][2][0, first.evaluation_mask[0, 3:, 0]]
    assert len(X_a) == len(X_tl) == 12
    pool = torch.cat([X_a, X_tl])
    for pupil, teacher in (("a", "b"), ("b", "a")):
        model = strategy._last_model(teacher, {**between, "period": 2}, run)
        mean, variance = (values[0] for values in model.predict(pool.unsqueeze(0)))
        surest = variance.argsort()[:12]  # k = min(15, 12)
        live = tensor_in(state, f"in_pool_{pupil}")[0]
        assert live.tolist() == [True] * 12 + [False] * 3
        X, y = (tensor_in(state, f"pool_{v}_{pupil}")[0, :12] for v in "Xy")
        assert are_among(X, pool[surest]).all()
        assert are_among(pool[surest], X).all()
        torch.testing.assert_close(y, model.mean(X.unsqueeze(0))[0])
        assert y.sort().values.tolist() == pytest.approx(mean[surest].sort().values.tolist())


def test_at_most_n_labelled_points_and_pools_grow():
    found = periods(TrSAEA(n_labelled=7), n_slow=19)
    sizes = [int(tensor_in(state, "in_pool_a").sum()) for _, _, state, _ in found]
    assert sizes == [0, 7, 14]
    # X^a of tau = 2 has three points.
    found = periods(TrSAEA(), tau=2, n_slow=19)
    assert [int(tensor_in(s, "in_pool_b").sum()) for _, _, s, _ in found] == [0, 3, 6]


def slow_state(strategy, *, n=8, m=6, n_before=8):
    """A view of n complete rows and a state with m rows in each pool, the last of them dead."""
    X = draw(n, 2)
    problem = Toy(d=2)
    run = with_rows(initial_view(problem, [0], n_slow=30, n_init=5), X, problem.evaluate(X))
    state = {**strategy.init(run), "n_trained": n, "n_before": n_before}
    for i, name in enumerate("ab"):
        state[f"pool_X_{name}"] = draw(1, m, 2, seed=5 + i)
        state[f"pool_y_{name}"] = 10.0 + torch.arange(m).double().unsqueeze(0)
        state[f"in_pool_{name}"] = torch.arange(m).unsqueeze(0) < m - 1
    return run, state


@pytest.mark.parametrize(("period", "n"), [(1, 13), (4, 13), (5, 8), (6, 13), (10, 8)])
def test_in_each_tau_th_period_both_learn_from_measured_values_alone(period, n):
    strategy = TrSAEA()
    run, state = slow_state(strategy)
    for name in "ab":
        train = strategy._slow_set(name, state, run, period)
        assert int(train.live.sum()) == n
        synthetic = train.y[train.live & (train.y >= 10.0)]
        assert synthetic.tolist() == [10.0, 11.0, 12.0, 13.0, 14.0][: n - 8]


def test_a_measured_value_replaces_a_label():
    strategy = TrSAEA()
    run, state = slow_state(strategy)
    pool = tensor_in(state, "pool_X_a").clone()
    pool[0, 2] = run.archive.X[0, 4]
    train = strategy._slow_set("a", {**state, "pool_X_a": pool}, run, 1)
    assert int(train.live.sum()) == 12
    assert 12.0 not in train.y[train.live].tolist()


def test_rows_that_came_after_the_fit_do_not_count():
    strategy = TrSAEA()
    run, state = slow_state(strategy)
    assert int(strategy._slow_set("a", {**state, "n_trained": 6}, run, 5).live.sum()) == 6


def test_the_newest_rows_are_kept_and_half_of_the_rest_by_value():
    strategy = TrSAEA(n_train_max=9)
    y = torch.tensor([[9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0, 50.0, 60.0, 70.0]]).double()
    newest = torch.arange(12) >= 9
    run = initial_view(Toy(), [0], n_slow=9, n_init=5)
    train = TrainingSet.from_mask(draw(1, 12, 2), y, torch.ones_like(y) > 0)
    kept = strategy._with_newest(train, newest, "fast", run, 1)
    assert kept.n_live.tolist() == [9]
    values = set(kept.y[0].tolist())
    assert {50.0, 60.0, 70.0, 1.0, 2.0, 3.0} <= values  # 3 newest, 3 of the other 6 by value
    others = [
        set(strategy._with_newest(train, newest, "fast", run, k).y[0].tolist()) for k in range(20)
    ]
    assert len({frozenset(o) for o in others}) > 5  # the last three at random


def test_the_newest_batch_is_in_every_training_set(spied):
    strategy, kept = TrSAEA(n_train_max=20), spied(TrSAEA, "_with_newest")
    *_, (run, _, state, before) = periods(strategy)
    n = int(before["n_trained"])
    assert (state["n_before"], state["n_trained"]) == (n, len(run.archive))
    for _, options, result in kept[-3:]:
        assert int(result.live.sum()) <= 20
        assert not options
    names = [args[3] for args, _, _ in kept[-3:]]
    assert names == ["fast", "a", "b"]
    batch, (is_fast, is_slow) = run.archive.X[0, n:], run.archive.observed[0, n:].unbind(dim=-1)
    assert is_fast.sum() == 15
    assert are_among(batch[is_fast], kept[-3][2].X[0]).all()
    for _, _, result in kept[-2:]:
        assert are_among(batch[is_slow], result.X[0]).all()
    for name, (_, _, result) in zip("ab", kept[-2:], strict=True):
        newest = tensor_in(state, f"pool_X_{name}")[0, -15:]
        newest = newest[tensor_in(state, f"in_pool_{name}")[0, -15:]]
        assert are_among(newest, result.X[0]).sum() >= len(newest) - 1


def test_coral_may_scale_the_source_alone(spied):
    maps = spied(tr_saea.TCA, "of")
    for coral in ("both", "source"):
        run = periods(TrSAEA(coral=coral), n_slow=16)[-1][0]
    (both_s, both_t, *_), (source_s, source_t, *_) = (args for args, _, _ in maps)
    torch.testing.assert_close(both_s, source_s)  # the same run until then
    fast, slow = run.archive.Y[run.archive.complete].T
    c = coral_factor(fast, slow, torch.ones_like(fast) > 0)
    assert abs(float(c) - 1.0) > 1e-3
    torch.testing.assert_close(source_t[0], slow)
    torch.testing.assert_close(both_t[0], c * slow)
    torch.testing.assert_close(both_s[0], c * fast)


def test_points_for_integers_are_integers():
    problem = Toy(bounds=[[0, -3], [1, 4]], integers=(1,))
    steps = list(steps_of(problem, TrSAEA(), [0], n_slow=16, n_init=8))
    pool = tensor_in(steps[-1][2], "pool_X_a")[0][tensor_in(steps[-1][2], "in_pool_a")[0]]
    X = problem.from_unit(pool)[:, 1]
    assert len(X) > 0
    torch.testing.assert_close(X, X.round(), rtol=0, atol=1e-9)


def test_it_finds_a_front():
    problem = problems.get("dtlz2", tau=5)
    result = run_batch(problem, TrSAEA(), [0], n_slow=70, n_init=50)
    front = problem.pareto_front(1000)
    assert metrics.igd(result.points(0)[:50], front) > 0.3
    assert metrics.igd(result.points(0), front) < 0.2
