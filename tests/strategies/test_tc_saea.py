from dataclasses import fields, replace

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import metrics, problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.strategies import TCSAEA
from tcsaea_torch.strategies.base import tensor_in
from tcsaea_torch.strategies.tc_saea import RELEASED
from tests.strategies.runs import Toy, igds, steps_of, with_rows

RELEASED_STRATEGY = strategies.get("tc-saea-released")


def counts(strategy, tau, n_slow, n_init):
    """Return (slow, fast) of each step."""
    return [
        (int(p.evaluation_mask[..., 1].sum()), int(p.evaluation_mask[..., 0].sum()))
        for _, p, _ in steps_of(Toy(tau=tau), strategy, [0], n_slow=n_slow, n_init=n_init)
    ]


def test_algorithm_1_spends_the_fast_budget_as_it_is_released():
    # N slow buy N fast and N (tau - 1) more for the SOEA; a period of u buys u and u (tau - 1).
    assert counts(TCSAEA(), 5, 18, 10) == [
        (10, 10), (0, 10), (0, 10), (0, 10), (0, 10), (3, 15), (3, 15), (2, 10),
    ]  # fmt: skip


def test_the_released_code_spends_it_later():
    # N (tau - 1) at the start, the design included; then u tau additional points a period.
    assert counts(RELEASED_STRATEGY, 5, 16, 10) == [
        (10, 10), (0, 10), (0, 10), (0, 10), (3, 18), (3, 18),
    ]  # fmt: skip


def test_fractional_tau_accrues_and_the_tail_of_the_soea_is_cut():
    steps = counts(TCSAEA(), 2.5, 11, 5)
    assert steps[:3] == [(5, 5), (0, 5), (0, 2)]  # floor(2.5 * 5) = 12
    fast = torch.tensor([f for _, f in steps]).cumsum(0).tolist()
    assert fast[-1] == int(2.5 * 11)


@pytest.mark.parametrize("maximises", [False, True])
def test_the_soea_moves_the_fast_values_the_right_way(maximises):
    problem = Toy(d=4, tau=8)
    strategy = TCSAEA(soea_maximises=maximises)
    steps = list(steps_of(problem, strategy, [0], n_slow=60, n_init=50, n_steps=8))
    first = problem.evaluate(steps[0][1].X)[..., 0].mean()
    last = problem.evaluate(steps[-1][1].X)[..., 0].mean()
    assert (last > 1.3 * first) if maximises else (last < 0.7 * first)


def test_the_soea_waits_for_fast_values_only():
    problem = Toy()
    strategy = TCSAEA()
    run = initial_view(problem, [0], n_slow=18, n_init=8)
    proposal, state = strategy.propose(strategy.init(run), run)
    run = tell_all(problem, run, proposal)
    slow_pending = torch.zeros_like(run.archive.observed)
    slow_pending[..., 1] = True
    seen = run.archive.observed & ~slow_pending
    archive = replace(run.archive, observed=seen, Y=torch.where(seen, run.archive.Y, 0.0))
    waiting_slow = replace(run, archive=archive, pending=slow_pending)
    offspring, _ = strategy.propose(state, waiting_slow)
    assert offspring.evaluation_mask.sum() == 8

    one_fast = slow_pending.clone()
    one_fast[0, 3, 0] = True
    archive = replace(archive, observed=seen & ~one_fast)
    nothing, _ = strategy.propose(state, replace(run, archive=archive, pending=one_fast))
    assert nothing.evaluation_mask.numel() == 0
    assert nothing.waits_for is not None
    assert nothing.waits_for.nonzero().tolist() == [[0, 3, 0]]


def test_additional_points_lie_in_the_box_of_the_new_ones():
    for _, proposal, state in steps_of(Toy(d=3), TCSAEA(), [0], n_slow=20, n_init=9):
        if not state["period"]:
            continue
        mask = proposal.evaluation_mask[0]
        new, additional = proposal.X[0][mask[:, 1]], proposal.X[0][mask[:, 0] & ~mask[:, 1]]
        low, high = new.amin(dim=0), new.amax(dim=0)
        middle, half = (low + high) / 2, ((high - low) / 2).clamp_min(0.025)
        assert (additional >= (middle - half).clamp(0, 1) - 1e-12).all()
        assert (additional <= (middle + half).clamp(0, 1) + 1e-12).all()


def state_with_pool(strategy, run, synthetic, mean, width, born):
    state = strategy.init(run)
    n = run.archive.X.shape[1]
    y_fast = run.archive.Y[..., 0]
    return {
        **state,
        "stage": "periods",
        "born": torch.tensor([born]),
        "co_mean": synthetic - y_fast,
        "slow_mean": torch.full((1, n), mean, dtype=torch.float64),
        "width": torch.full((1, n), width, dtype=torch.float64),
    }


def pool_view(n=6):
    X = torch.rand(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = torch.stack([X[:, 0], X[:, 1] + 1.0], dim=-1)
    observed = torch.tensor([[True, True]] * 2 + [[True, False]] * (n - 2))
    return with_rows(initial_view(Toy(), [0], n_slow=20, n_init=5), X, Y, observed)


@pytest.mark.parametrize(
    ("options", "period", "expected"),
    [
        ({}, 3, [2, 3]),  # within mean +- width
        ({"transfer": "all"}, 3, [2, 3, 4]),
        ({"transfer": "none"}, 3, []),
        ({"accumulate": False}, 3, [3]),  # those of the last period only
        ({}, 6, []),  # the period after each tau-th learns from measured values alone
        ({}, 5, [2, 3]),
        ({"pure_at_fit": True}, 5, []),  # the released code tests one period earlier
        ({"pure_at_fit": True}, 6, [2, 3]),
        ({"last_transfer_period": 2}, 3, []),
        ({"last_transfer_period": 3}, 3, [2, 3]),
    ],
)
def test_which_synthetic_values_gp_s_learns_from(options, period, expected, tensor):
    run = pool_view()
    synthetic = tensor([[9.0, 9.0, 5.1, 4.9, 7.0, 5.0]])
    strategy = TCSAEA(**options)
    state = state_with_pool(strategy, run, synthetic, 5.0, 0.5, [0, 0, 1, 2, 1, 0])
    values, in_pool = strategy._transferable(state, run, period)
    assert in_pool[0].nonzero().flatten().tolist() == expected
    assert torch.allclose(values[in_pool], synthetic[in_pool])


def test_a_measured_value_replaces_a_synthetic_one(tensor):
    """Row 2's point is also measured in row 0: GP_s must have the measured value there."""
    run = pool_view()
    X = run.archive.X.clone()
    X[0, 2] = X[0, 0]
    run = replace(run, archive=replace(run.archive, X=X))
    synthetic = tensor([[0.0, 0.0, 50.0, 50.0, 50.0, 50.0]])
    strategy = TCSAEA()
    state = state_with_pool(strategy, run, synthetic, 50.0, 0.5, [0, 0, 1, 1, 1, 1])
    gp_s = strategy._train(state, run, 2).slow
    mean = gp_s.mean(X)
    assert mean[0, 0] == pytest.approx(float(run.archive.Y[0, 0, 1]), abs=1e-5)
    assert mean[0, 3:].tolist() == pytest.approx([50.0] * 3, rel=1e-5)


def test_transferred_values_teach_gp_s_what_it_could_not_know(tensor):
    """With exact synthetic values everywhere, GP_s predicts far better than without."""
    generator = torch.Generator().manual_seed(3)
    X = torch.rand(60, 3, generator=generator, dtype=torch.float64)

    def f(X):
        return torch.stack([X.sum(dim=-1), torch.sin(6 * X).sum(dim=-1)], dim=-1)

    Y, Xq = f(X), torch.rand(200, 3, generator=generator, dtype=torch.float64)
    observed = torch.ones(60, 2, dtype=torch.bool)
    observed[8:, 1] = False
    run = with_rows(initial_view(Toy(d=3), [0], n_slow=20, n_init=5), X, Y, observed)
    born = [0] * 8 + [1] * 52
    errors = {}
    for transfer in ("all", "none"):
        strategy = TCSAEA(transfer=transfer)
        state = state_with_pool(strategy, run, Y[:, 1].unsqueeze(0), 0.0, 1e9, born)
        gp_s = strategy._train(state, run, 2).slow
        errors[transfer] = float((gp_s.mean(Xq.unsqueeze(0))[0] - f(Xq)[:, 1]).square().mean())
    assert errors["all"] < 0.2 * errors["none"]


def test_training_sets_are_limited():
    problem = Toy(d=2, tau=10)
    steps = list(steps_of(problem, TCSAEA(), [0], n_slow=30, n_init=20, n_steps=12))
    run, _, state = steps[-1]
    assert int(run.archive.observed[0, :, 0].sum()) > 11 * 2 + 24
    models = TCSAEA()._train(state_before(steps), run, int(state["period"]))
    gp_f, gp_s, gp_c = models.fast, models.slow, models.co
    assert isinstance(gp_c, Surrogate)
    assert int(gp_f.data.live.sum()) == 11 * 2 + 24
    assert max(int(gp.data.live.sum()) for gp in (gp_s, gp_c)) <= 11 * 2 + 24
    unlimited = TCSAEA(limit_first_fast=False)._train(state_before(steps), run, 1).fast
    assert int(unlimited.data.live.sum()) == int(run.archive.observed[0, :, 0].sum())


def test_no_fast_evaluation_is_made_twice():
    """In two dimensions, clipping sends many offspring into the corners."""
    result = run_batch(Toy(d=2, tau=10), TCSAEA(), [0, 1], n_slow=30, n_init=20)
    for i in range(2):
        X = result.archive.X[i][result.archive.observed[i, :, 0]]
        assert len(X.unique(dim=0)) == len(X) == 300


def state_before(steps):
    return steps[-2][2]


def test_trends_are_those_asked_for():
    strategy = TCSAEA(trend_fast="linear", trend_co="linear")
    steps = list(steps_of(Toy(d=2), strategy, [0], n_slow=20, n_init=9, n_steps=7))
    run, _, state = steps[-1]
    models = strategy._train(state_before(steps), run, int(state["period"]))
    found = {name: bool(m.is_linear.all()) for name, m in models.fitted.items()}
    assert found == {"fast": True, "slow": False, "co": True}


def test_attached_points_take_the_place_of_the_design():
    X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = Toy()
    run = with_rows(initial_view(problem, [0], n_slow=6, n_init=0), X, problem.evaluate(X))
    strategy = TCSAEA()
    proposal, state = strategy.propose(strategy.init(run), run)
    assert state["period"] == 1
    assert proposal.evaluation_mask[..., 1].sum() == 3


def test_the_released_configuration_differs_where_it_should():
    default = TCSAEA()
    changed = {
        f.name for f in fields(TCSAEA)
        if getattr(RELEASED_STRATEGY, f.name) != getattr(default, f.name)
    }  # fmt: skip
    assert changed == set(RELEASED)
    assert RELEASED_STRATEGY.name == "tc-saea-released"
    assert strategies.get("tc-saea-released", n_new=2) == TCSAEA(**{**RELEASED, "n_new": 2})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_new": 0}, "n_new must be an integer >= 1"),
        ({"n_ref_vectors": 1}, "n_ref_vectors must be"),
        ({"n_train_max": 1}, "n_train_max must be"),
        ({"trend_slow": "quadratic"}, "trend_slow must be one of constant, linear"),
        ({"transfer": "interva"}, "did you mean 'interval'"),
        ({"interval": "std"}, "interval must be one of sd, variance"),
        ({"uncertainty": None}, "uncertainty must be one of"),
        ({"soea_maximises": 1}, "soea_maximises must be True or False"),
        ({"box_margin": -0.1}, "box_margin must be"),
        ({"uncertainty_sign": 3}, "uncertainty_sign must be"),
        ({"infill_penalty_scale": 0}, "infill_penalty_scale must be"),
        ({"last_transfer_period": -1}, "last_transfer_period must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked(options, message):
    with pytest.raises(InvalidInputError, match=message):
        TCSAEA(**options)


@pytest.mark.parametrize(("name", "problem"), [("tc-saea", "dtlz7"), ("tc-saea-released", "dtlz2")])
def test_beats_random_search(name, problem):
    problem = problems.get(problem)

    def scores(strategy):
        return igds(problem, strategies.get(strategy), 4, n_slow=60, n_init=30)

    assert sum(scores(name)) < 0.85 * sum(scores("random"))


def run_of(strategy):
    return run_batch(Toy(d=3), strategy, [4], n_slow=20, n_init=9).archive.X


def test_without_a_pool_no_selection_is_no_transfer():
    no_transfer = strategies.get("nt-saea")
    assert torch.equal(
        run_of(strategies.get("ns-saea", last_transfer_period=0)), run_of(no_transfer)
    )
    assert not torch.equal(run_of(strategies.get("ns-saea")), run_of(no_transfer))


def test_ablations_differ_from_the_algorithm_in_one_field():
    base = TCSAEA()
    assert strategies.get("nt-saea") == replace(base, name="nt-saea", transfer="none")
    assert strategies.get("ns-saea") == replace(base, name="ns-saea", transfer="all")
    p = replace(base, name="tc-saea-p", co_surrogate="quadratic")
    assert strategies.get("tc-saea-p") == p


def test_the_polynomial_makes_other_synthetic_values():
    """Both co-surrogates interpolate or regress the same data; only y'_s changes."""
    states = [
        list(steps_of(Toy(d=3), strategies.get(name), [4], n_slow=20, n_init=9))[-1][2]
        for name in ("tc-saea", "tc-saea-p")
    ]
    assert "theta_co" in states[0]
    assert "theta_co" not in states[1]
    first, second = (tensor_in(state, "co_mean") for state in states)
    assert not torch.equal(first, second)


@pytest.mark.slow
def test_released_code_reaches_the_authors_values():
    """Mean IGD over three seeds, against the issue's limits (authors' code: .029 and .95)."""
    for name, limit in (("dtlz2", 0.04), ("dtlz7", 1.2)):
        problem = problems.get(name)
        result = run_batch(problem, RELEASED_STRATEGY, range(3))
        front = problem.pareto_front(10_000)
        values = [
            metrics.igd(Y[metrics.is_non_dominated(Y)], front)
            for Y in (result.points(i) for i in range(3))
        ]
        assert result.used.tolist() == [[995, 200]] * 3 or (result.used[:, 0] <= 1000).all()
        assert sum(values) / 3 <= limit
