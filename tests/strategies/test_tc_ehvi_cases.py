"""TC-EHVI where something is unusual: scales, bounds, noise, failures, data, shapes."""

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import TCEHVI, Optimizer, metrics, rng
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies.base import FAST, SLOW
from tests.strategies.runs import Toy

QUICK: dict[str, Any] = {
    "search": RVEAConfig(n_generations=3),
    "n_ref_vectors": 20,
    "kernels": ("additive",),
}
BUDGET: dict[str, Any] = {"n_slow": 20, "n_init": 10}


def of_pair(fast, slow, d=2, **options):
    return TestProblem(
        fast=fast, slow=slow, bounds=[[0.0] * d, [1.0] * d], tau=5.0, vectorized=True, **options
    )


def pad_rows(mask, n):
    """Return a mask `b x n x 2` with False in the rows that it lacks."""
    return torch.nn.functional.pad(mask, (0, 0, 0, n - mask.shape[1]))


def share_of(Y):
    """Return the hypervolume of a Toy's points below (0.5, 0.5)."""
    return float(metrics.hypervolume(Y, torch.tensor([0.5, 0.5], dtype=torch.float64)))


# ---------------------------------------------------------------- scales and bounds


def transformed(problem, factor, shift):
    """Return a problem whose objectives are scaled and shifted."""
    a, b = torch.tensor(factor, dtype=torch.float64), torch.tensor(shift, dtype=torch.float64)
    signs = ["minimize" if f > 0 else "maximize" for f in factor]

    def column(k):
        return lambda X: a[k] * problem.evaluate(X)[..., k] + b[k]

    return of_pair(column(0), column(1), directions=signs)


@pytest.mark.parametrize("options", [{"link": None}, {"link": None, "noisy": True}, {}])
def test_units_make_no_difference(options):
    """Powers of 2 leave all digits as they are, and so should each decision."""
    strategy, low = TCEHVI(**QUICK, **options), (-2.0, None)
    expected = run_batch(Toy(), replace(strategy, objective_lower_bounds=low), [3], **BUDGET)
    factor, low = (2.0**30, 2.0**-40), (-(2.0**31), None)
    if not options:  # a difference of the objectives is one in units that both have
        factor = (2.0**30, 2.0**30)
    strategy = replace(strategy, objective_lower_bounds=low)
    found = run_batch(transformed(Toy(), factor, (0.0, 0.0)), strategy, [3], **BUDGET)
    assert torch.equal(found.archive.X, expected.archive.X)


def test_an_objective_to_be_maximised_is_the_negative_of_one_to_be_minimised():
    strategy = TCEHVI(**QUICK)
    expected = run_batch(Toy(), strategy, [3], **BUDGET)
    found = run_batch(transformed(Toy(), (-1.0, -1.0), (0.0, 0.0)), strategy, [3], **BUDGET)
    assert torch.equal(found.archive.X, expected.archive.X)


@functools.cache
def plain_share(link, seeds):
    options: dict[str, Any] = {} if link else {"link": None}
    plain = run_batch(Toy(), TCEHVI(**QUICK, **options), seeds, **BUDGET)
    return sum(share_of(plain.points(i)) for i in seeds)


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize(
    ("factor", "shift"), [((1e6, 1e6), (1e9, -1e9)), ((1e-6, 1e-6), (0.0, 1e-3)), ((3, 1), (-9, 5))]
)
def test_objectives_of_any_size_and_sign_are_searched_as_well(factor, shift, link):
    options: dict[str, Any] = {} if link else {"link": None}
    problem, seeds = transformed(Toy(), factor, shift), range(2)
    result = run_batch(problem, TCEHVI(**QUICK, **options), seeds, **BUDGET)
    a, b = torch.tensor(factor), torch.tensor(shift)
    share = sum(share_of((result.points(i) - b) / a) for i in seeds)
    assert share > 0.97 * plain_share(link, seeds)


def test_the_bound_0_is_guessed_where_no_value_is_negative():
    negative = transformed(Toy(), (1.0, 1.0), (-2.0, -2.0))

    def X(problem, **options):
        strategy = TCEHVI(**QUICK, link=None, **options)
        return run_batch(problem, strategy, [1], **BUDGET, n_steps=7).archive.X  # two periods

    guessed = X(Toy())
    assert torch.equal(guessed, X(Toy(), guesses_bounds=False, objective_lower_bounds=(0.0, 0.0)))
    assert torch.equal(guessed, X(Toy(), objective_lower_bounds=(0.0, None)))
    assert not torch.equal(guessed, X(Toy(), guesses_bounds=False))
    unknown = X(negative, guesses_bounds=False)
    assert torch.equal(unknown, X(negative))
    assert not torch.equal(unknown, X(negative, objective_lower_bounds=(-2.0, -2.0)))


def test_a_wrong_bound_does_no_great_harm():
    """Measured values count more than what was said of them."""
    seeds = range(2)
    shares = []
    for bounds in ((None, None), (0.4, 0.4)):
        strategy = TCEHVI(**QUICK, objective_lower_bounds=bounds)
        result = run_batch(Toy(), strategy, seeds, **BUDGET)
        shares.append(sum(share_of(result.points(i)) for i in seeds))
    assert shares[1] > 0.9 * shares[0]


@pytest.mark.parametrize("which", ["fast", "slow", "both"])
def test_constant_objectives(which):
    toy = Toy()

    def column(k, name):
        if which in (name, "both"):
            return lambda X: torch.full_like(X[..., 0], 3.0)
        return lambda X: toy.evaluate(X)[..., k]

    result = run_batch(
        of_pair(column(0, "fast"), column(1, "slow")), TCEHVI(**QUICK), [0], **BUDGET
    )
    assert result.used[0, 1] == 20
    assert len(result.archive.X[0].unique(dim=0)) == len(result.archive.X[0])
    if which == "fast":  # the other one is minimised, then
        assert result.points(0)[:, 1].amin() < 1e-3


# ---------------------------------------------------------------- shapes and budgets


@pytest.mark.parametrize("kernels", [("joint",), ("additive", "cautious")])
@pytest.mark.parametrize(("d", "n_slow", "n_init"), [(1, 15, 6), (4, 15, 10), (60, 23, 20)])
def test_dimensions(kernels, d, n_slow, n_init):
    problem, strategy = Toy(d=d, tau=3.0), TCEHVI(**{**QUICK, "kernels": kernels})
    result = run_batch(problem, strategy, [0], n_slow=n_slow, n_init=n_init)
    X = result.archive.X[0]
    assert result.used[0, 1] == n_slow
    assert ((X >= 0) & (X <= 1)).all()
    assert len(X.unique(dim=0)) == len(X)


def test_a_finite_space_is_searched_to_the_last_point():
    """There are 9 points; once all have a fast value, the slow ones still follow."""
    for strict_clock in (True, False):
        problem = Toy(bounds=[[0, 0], [2, 2]], integers=(0, 1), tau=5)
        strategy = TCEHVI(**QUICK, strict_clock=strict_clock)
        result = run_batch(problem, strategy, [0], n_slow=20, n_init=4)
        assert result.used[0].tolist() == [9, 9]
        assert len(result.points(0)) == 9


def test_runs_of_a_batch_go_on_where_others_have_lost_values():
    """Each run loses other values: a third, a sixth and none."""
    problem, strategy = Toy(), TCEHVI(**QUICK)
    run = initial_view(problem, [0, 1, 2], n_slow=22, n_init=10)
    state = strategy.init(run)
    failed = torch.zeros(3, 0, 2, dtype=torch.bool)
    every = torch.tensor([3, 6, 1000])
    while True:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            break
        run = tell_all(problem, run, proposal)
        row = torch.arange(len(run.archive))
        lost = (row % every[:, None] == 1).unsqueeze(-1) & run.archive.observed
        lost[2] = False
        failed = pad_rows(failed, len(row)) | lost
        observed = run.archive.observed & ~failed
        archive = replace(run.archive, observed=observed, Y=run.archive.Y.masked_fill(~observed, 0))
        run = replace(run, archive=archive, failed=failed)
    assert (run.used[:, SLOW] == 22).all()
    assert failed[0].sum() > 10
    # Those without failures did as they do alone: the first steps, at least.
    alone = run_batch(problem, strategy, [2], n_slow=22, n_init=10, n_steps=4).archive.X
    assert (alone[0] - run.archive.X[2, : alone.shape[1]]).abs().max() < 1e-8
    for i in range(3):
        X = run.archive.X[i][run.exists[i]]
        assert len(X.unique(dim=0)) == len(X)
        assert share_of(run.archive.Y[i][run.archive.complete[i]]) > 0.05


# ---------------------------------------------------------------- data


def values_at(problem, X):
    return problem.evaluate(problem.from_unit(X))


def to_end(optimizer):
    problem = optimizer.problem
    while evaluations := optimizer.ask():
        for e in evaluations:
            f = problem.function_of(e.objective)
            optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))
    return optimizer


def test_attached_data_take_the_designs_place():
    problem = Toy()
    X = rng.uniforms(torch.tensor([5]), "data", 0, (12, 2), dtype=torch.float64)[0]
    Y = values_at(problem, X)
    data = {"X": X, "fast": Y[:, 0], "slow": Y[:, 1]}
    optimizer = Optimizer(problem, n_slow=9, n_init=8, strategy=TCEHVI(**QUICK), initial_data=data)
    action = optimizer.next_action()
    assert (action.n_fast, action.n_slow) == (15, 3)  # at once a period
    result = to_end(optimizer).result()
    n_fast, n_slow = optimizer.n_used
    assert n_slow == 9
    assert 30 <= n_fast <= 33  # 15 in each period but the last
    assert share_of(result.Y) > share_of(Y)


def test_attached_points_with_a_fast_value_may_get_the_slow_one():
    """Many points of the front, others far from it."""
    problem, n = Toy(), 60
    X = rng.uniforms(torch.tensor([5]), "data", 0, (n + 8, 2), dtype=torch.float64)[0]
    X = X * 0.3 + torch.tensor([0.7, 0.0])
    X[:n] = torch.linspace(0.2, 0.8, n).double()[:, None]
    Y = values_at(problem, X)
    data = [{"X": X[:n], "fast": Y[:n, 0]}, {"X": X[n:], "fast": Y[n:, 0], "slow": Y[n:, 1]}]
    optimizer = Optimizer(problem, n_slow=9, n_init=8, strategy=TCEHVI(**QUICK), initial_data=data)
    asked = []
    while evaluations := optimizer.ask():
        for e in evaluations:
            f = problem.function_of(e.objective)
            optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))
        asked += [e.point_id for e in evaluations if e.objective == "slow"]
    assert len(asked) == 9
    assert min(asked) < n


@pytest.mark.parametrize("noisy", [False, True])
def test_points_attached_twice_with_other_values(noisy):
    problem = Toy()
    X = rng.uniforms(torch.tensor([5]), "data", 0, (8, 2), dtype=torch.float64)[0].repeat(2, 1)
    Y = values_at(problem, X)
    Y[8:] += 0.01
    optimizer = Optimizer(
        problem,
        n_slow=9,
        n_init=8,
        strategy=TCEHVI(**QUICK, noisy=noisy),
        initial_data=[
            {"X": X[half], "fast": Y[half, 0], "slow": Y[half, 1]}
            for half in (slice(8), slice(8, 16))
        ],
    )
    assert len(to_end(optimizer).result().all_X) > 8


# ---------------------------------------------------------------- noise and failures


def noisy_toy(spread):
    """Return a Toy whose values come with deterministic noise, and the noise."""

    def noise(X, seed):
        u = torch.frac(
            torch.sin(X @ torch.tensor([12.9898, 78.233], dtype=X.dtype) + seed) * 43758.5
        )
        return spread * 3.46 * (u.abs() - 0.5)

    toy = Toy()
    return of_pair(
        lambda X: toy.evaluate(X)[..., 0] + noise(X, 0.3),
        lambda X: toy.evaluate(X)[..., 1] + noise(X, 0.7),
    )


def test_noise_is_inferred():
    budget: dict[str, Any] = {"n_slow": 32, "n_init": 20}
    problem, seeds, found = noisy_toy(0.05), range(3), []
    for noisy in (True, False):
        states = []
        strategy = TCEHVI(**QUICK, noisy=noisy)
        result = run_batch(problem, strategy, seeds, **budget,
                           watch=lambda run, state, s=states: s.append(state))  # fmt: skip
        X = [result.archive.X[i][result.archive.complete[i]] for i in seeds]
        found.append(sum(share_of(Toy().evaluate(x)) for x in X))
        if noisy:
            state = states[-1]
            nugget, sigma = (state[f"fast/mixed-additive.{k}"] for k in ("nugget", "variance"))
            sd = (nugget * sigma).sqrt()
            assert ((sd > 0.03) & (sd < 0.08)).all()
    assert found[0] > 0.97 * found[1]


@pytest.mark.parametrize("failing", ["both", "slow"])
def test_it_keeps_away_from_where_evaluations_fail(failing):
    """Half of the front fails; with the model of failures less is lost."""
    problem, lost = Toy(), []
    for failure_model in (True, False):
        strategy = TCEHVI(**QUICK, failure_model=failure_model)
        run = initial_view(problem, [2], n_slow=26, n_init=14)
        state, failed = strategy.init(run), torch.zeros(1, 0, 2, dtype=torch.bool)
        while True:
            proposal, state = strategy.propose(state, run)
            if proposal.is_empty:
                break
            run = tell_all(problem, run, proposal)
            bad = (run.archive.X[..., 0] > 0.5).unsqueeze(-1).repeat(1, 1, 2)
            if failing == "slow":
                bad[..., FAST] = False
            failed = pad_rows(failed, len(run.archive)) | (run.archive.observed & bad)
            observed = run.archive.observed & ~failed
            Y = run.archive.Y.masked_fill(~observed, 0.0)
            run = replace(run, failed=failed, archive=replace(run.archive, Y=Y, observed=observed))
        lost.append(int(run.failed[0, 42:].sum()))  # after those that fill the space
        assert run.used[0, SLOW] == 26
    assert lost[0] < 0.5 * lost[1]
