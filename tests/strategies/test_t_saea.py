import math

import numpy as np
import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch
from tcsaea_torch import metrics, problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.strategies import TSAEA, steps, t_saea
from tcsaea_torch.strategies.base import tensor_in
from tcsaea_torch.transfer import SwarmConfig
from tests.strategies.runs import Toy, steps_of, with_rows


def periods_of(strategy, *, tau=3.0, n_slow=30, n_init=9, seeds=(0,), d=3):
    """Return (view, state before, state after) of each period."""
    found, before = [], {}
    for run, _, state in steps_of(Toy(d=d, tau=tau), strategy, seeds, n_slow=n_slow, n_init=n_init):
        if state["period"]:
            found.append((run, before, state))
        before = state
    return found


def test_steps_and_their_counts_are_those_of_tc_saea():
    counts = [
        (int(p.evaluation_mask[..., 1].sum()), int(p.evaluation_mask[..., 0].sum()))
        for _, p, _ in steps_of(Toy(tau=5), TSAEA(), [0], n_slow=18, n_init=10)
    ]
    # N slow buy N fast and N (tau - 1) more; a period of u buys u and u (tau - 1).
    assert counts == [(10, 10), (0, 10), (0, 10), (0, 10), (0, 10), (3, 15), (3, 15), (2, 10)]


@pytest.mark.parametrize(
    ("tau", "fitted"),
    [
        (3.0, [1, 3, 6]),
        (2.0, [1, 2, 4, 6]),
        (1.0, [1, 2, 3, 4, 5, 6, 7]),
        (2.4, [1, 2, 4, 6]),
        (10.0, [1]),
    ],
)
def test_gp_s_is_fitted_at_first_and_every_tau_th_period(tau, fitted, monkeypatch):
    names = []
    original = steps.fit_models

    def spy(sets, *arguments):
        names.append(sorted(sets))
        return original(sets, *arguments)

    monkeypatch.setattr(steps, "fit_models", spy)
    periods = periods_of(TSAEA(), tau=tau, n_slow=30)
    assert len(names) == len(periods) == 7
    assert [k + 1 for k, sets in enumerate(names) if sets == ["fast", "slow"]] == fitted
    assert all(sets == ["fast"] for k, sets in enumerate(names) if k + 1 not in fitted)


def chosen(monkeypatch, *wanted):
    """Let the swarm choose these variables; return what it is shown."""
    shown = []

    def choose(X, Y, live, u, config):
        shown.append((X, Y, live, u))
        selected = torch.zeros(len(X), X.shape[-1], dtype=torch.bool)
        selected[:, list(wanted)] = True
        return selected

    monkeypatch.setattr(t_saea, "select_variables", choose)
    return shown


def test_between_fits_the_chosen_theta_move_towards_those_of_gp_f(monkeypatch):
    chosen(monkeypatch, 0, 2)
    for run, before, after in periods_of(TSAEA(), seeds=(0, 1)):
        period = int(after["period"])
        if period == 1 or period % 3 == 0:
            continue
        old, fast = tensor_in(before, "theta_slow"), tensor_in(after, "theta_fast")
        a = 0.5 - 0.5 * math.cos(math.pi * int(run.used[0, 1]) / 30)
        expected = (a * old + (1 - a) * fast).clone()
        expected[:, 1] = old[:, 1]
        assert torch.allclose(tensor_in(after, "theta_slow"), expected, rtol=1e-12, atol=0)
        assert not torch.equal(old[:, [0, 2]], expected[:, [0, 2]])


def test_theta_lie_between_those_of_the_slow_and_of_the_fast_surrogate():
    n_moved = 0
    for _, before, after in periods_of(TSAEA(), seeds=(0, 1, 2)):
        period = int(after["period"])
        if period == 1 or period % 3 == 0:
            continue
        old, fast = tensor_in(before, "theta_slow"), tensor_in(after, "theta_fast")
        new = tensor_in(after, "theta_slow")
        low, high = torch.minimum(old, fast), torch.maximum(old, fast)
        assert ((new == old) | ((low <= new) & (new <= high))).all()
        n_moved += int((new != old).sum())
    assert n_moved > 0


def kriging(X, y, theta, Xq, nugget):
    """Ordinary Kriging with a Gaussian kernel, as in textbooks."""

    def correlate(A, B):
        return np.exp(-(theta * (A[:, None] - B[None]) ** 2).sum(-1))

    C, one = correlate(X, X) + nugget * np.eye(len(X)), np.ones(len(X))
    beta = one @ np.linalg.solve(C, y) / (one @ np.linalg.solve(C, one))
    return beta + correlate(Xq, X) @ np.linalg.solve(C, y - beta)


def wavy_view(n=24, d=3, n_fast_only=10):
    """A run of 30 slow evaluations with n points with both values and some without slow."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n + n_fast_only, d, generator=generator, dtype=torch.float64)
    Y = torch.stack([torch.sin(6 * X).sum(-1), torch.cos(5 * X).sum(-1)], dim=-1)
    observed = torch.ones_like(Y, dtype=torch.bool)
    observed[n:, 1] = False
    return with_rows(initial_view(Toy(d=d, tau=5), [0], n_slow=30, n_init=9), X, Y, observed)


def test_gp_s_has_todays_data_and_is_factorised_with_the_new_theta(monkeypatch, tensor):
    chosen(monkeypatch, 1)
    run, strategy = wavy_view(), TSAEA(kriging=FitConfig(nugget=1e-8))
    state = {
        **strategy.init(run), "period": 2,
        "theta_fast": tensor([[3.0, 3.0, 3.0]]), "theta_slow": tensor([[4.0, 5.0, 6.0]]),
    }  # fmt: skip
    gp_f, gp_s = strategy._train(state, run, 2)
    theta = gp_s.hyperparameters.theta[0].numpy()
    assert theta[[0, 2]].tolist() == [4.0, 6.0]
    # No slow evaluation is used yet, so a = 0 and the theta is that of GP_f.
    assert theta[1] == pytest.approx(float(gp_f.hyperparameters.theta[0, 1]), rel=1e-12)
    X, y = run.archive.X[0, :24].numpy(), run.archive.Y[0, :24, 1].numpy()
    Xq = torch.rand(1, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = kriging(X, y, theta, Xq[0].numpy(), 1e-8)
    assert gp_s.mean(Xq)[0].tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert gp_s.data.live.sum() == 24  # the fast-only points are not among them


def test_standardised_inputs_are_brought_to_common_units(monkeypatch, tensor):
    """In units of the cube the new theta is the mean of both, weighted by a."""
    chosen(monkeypatch, 0, 1, 2)
    run = wavy_view()
    run.used[:, 1] = 15  # half of 30: a = 1/2
    strategy = TSAEA(kriging=FitConfig(input_scaling="standardize"))
    state = {
        **strategy.init(run), "period": 2,
        "theta_fast": tensor([[0.3, 0.3, 0.3]]), "theta_slow": tensor([[0.4, 0.5, 0.6]]),
    }  # fmt: skip
    gp_f, gp_s = strategy._train(state, run, 2)
    deviation = [run.archive.X[0, :n].std(dim=0) for n in (34, 24)]
    in_cube = gp_f.hyperparameters.theta[0] / deviation[0] ** 2
    in_cube = 0.5 * in_cube + 0.5 * tensor([0.4, 0.5, 0.6]) / deviation[1] ** 2
    assert torch.allclose(gp_s.hyperparameters.theta[0], in_cube * deviation[1] ** 2, rtol=1e-10)


def test_variables_are_chosen_by_the_points_with_both_values(monkeypatch, tensor):
    shown = chosen(monkeypatch, 0)
    run = wavy_view()
    theta = tensor([[3.0, 3.0, 3.0]])
    for n_max, n in ((None, 24), (200, 24), (20, 20)):
        strategy = TSAEA(n_train_max=n_max)
        state = {**strategy.init(run), "period": 2, "theta_fast": theta, "theta_slow": theta}
        strategy._train(state, run, 2)
        X, Y, live, u = shown.pop()
        assert live.all()
        assert X.shape == (1, n, 3)
        assert u.shape == (1, 61, 20, 3)
        rows = torch.cat([X, Y], dim=-1)[0].tolist()
        archive = torch.cat([run.archive.X, run.archive.Y], dim=-1)[0, :24].tolist()
        assert len({tuple(row) for row in rows}) == n
        assert {tuple(row) for row in rows} <= {tuple(row) for row in archive}


def test_training_sets_have_200_rows_at_most():
    run = wavy_view(n=60, n_fast_only=190)
    sizes = [int(gp.data.live.sum()) for gp in TSAEA()._train(TSAEA().init(run), run, 1)]
    assert sizes == [200, 60]
    strategy = TSAEA(n_train_max=None)
    sizes = [int(gp.data.live.sum()) for gp in strategy._train(strategy.init(run), run, 1)]
    assert sizes == [11 * 3 + 24, 11 * 3 + 24]


def test_it_is_registered_and_its_swarm_is_used():
    assert strategies.get("t-saea") == TSAEA()
    still = TSAEA(swarm=SwarmConfig(n_particles=1, n_iterations=0))
    full, other = (run_batch(Toy(d=3), s, [4], n_slow=20, n_init=9) for s in (TSAEA(), still))
    assert not torch.equal(full.archive.X, other.archive.X)


@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked():
    with pytest.raises(InvalidInputError, match="swarm must be a SwarmConfig"):
        TSAEA(swarm=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInputError, match="n_new must be an integer >= 1"):
        TSAEA(n_new=0)


def test_beats_random_search():
    problem = problems.get("dtlz7")
    front = problem.pareto_front(1000)

    def scores(strategy):
        result = run_batch(problem, strategies.get(strategy), [0, 1], n_slow=60, n_init=30)
        return [
            metrics.igd(Y[metrics.is_non_dominated(Y)], front)
            for Y in (result.points(i) for i in range(2))
        ]

    assert max(scores("t-saea")) < 0.9 * min(scores("random"))
