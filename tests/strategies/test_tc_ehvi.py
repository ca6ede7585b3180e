from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import (
    TCEHVI,
    TCSAEA,
    Optimizer,
    RandomSearch,
    VirtualExecutor,
    metrics,
    minimize,
    problems,
)
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal
from tcsaea_torch.transfer import LinkConfig
from tests.strategies.runs import Toy, steps_of

QUICK: dict[str, Any] = {
    "search": RVEAConfig(n_generations=3),
    "n_ref_vectors": 20,
    "kernels": ("additive",),
}
BUDGET: dict[str, Any] = {"n_slow": 20, "n_init": 10}


def counts(strategy, tau, n_slow, n_init):
    """Return (slow of known points, slow of new points, fast) of each step."""
    steps = []
    for _, p, _ in steps_of(Toy(tau=tau), strategy, [0], n_slow=n_slow, n_init=n_init):
        old = 0 if p.archive_mask is None else int(p.archive_mask[..., SLOW].sum())
        new = p.evaluation_mask[0].sum(dim=0).tolist()
        steps.append((old, new[SLOW], new[FAST]))
    return steps


def asked(proposal, run):
    """Return the values that are asked for, of the archive's rows and of new ones."""
    old = proposal.archive_mask
    if old is None:
        old = torch.zeros_like(run.archive.observed)
    return torch.cat([old, proposal.evaluation_mask], dim=1)


def tell(optimizer, evaluations):
    for e in evaluations:
        f = optimizer.problem.function_of(e.objective)
        optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))


def same(first, second):
    """Return whether two proposals are the same, bit for bit."""
    pairs = [(getattr(first, k), getattr(second, k)) for k in ("X", "evaluation_mask")]
    masks = [p.archive_mask for p in (first, second)]
    masks = [torch.zeros(0) if m is None or not m.any() else m for m in masks]
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in [*pairs, tuple(masks)])


# ---------------------------------------------------------------- the course of a run


def test_a_strict_clock_spends_the_fast_budget_as_slow_evaluations_release_it():
    # A design of 10 buys 40 more fast ones, 20 of them all over the space; a period of 3 slow
    # ones 15, 15, ..., and the last one none, since nobody would use them.
    *steps, last = counts(TCEHVI(**QUICK), 5, 18, 10)
    assert steps[:5] == [(0, 10, 10), (0, 0, 10), (0, 0, 10), (0, 0, 10), (0, 0, 10)]
    assert [(old + new, fast) for old, new, fast in steps[5:]] == [(3, 15), (3, 15)]
    assert last[0] + last[1] == 2
    assert last[1] == last[2]  # a new point needs its fast value


def test_a_lenient_clock_spends_it_before_the_slow_ones_of_a_period():
    strategy = TCEHVI(**QUICK, strict_clock=False)
    steps = counts(strategy, 5, 17, 10)
    assert steps[:5] == [(0, 10, 10), (0, 0, 10), (0, 0, 10), (0, 0, 10), (0, 0, 10)]
    slow, fast = steps[5::2], steps[6::2]
    assert [old + new for old, new, _ in slow] == [3, 3, 1]
    # New points get both values at once.
    assert all(n_fast == new for _, new, n_fast in slow)
    assert fast == [(0, 0, 15 - new) for _, new, _ in slow[:2]]


@pytest.mark.parametrize("strict_clock", [True, False])
def test_without_delay_each_point_gets_both_values(strict_clock):
    strategy = TCEHVI(**QUICK, strict_clock=strict_clock)
    assert counts(strategy, 1, 15, 8) == [(0, 8, 8), (0, 3, 3), (0, 3, 3), (0, 1, 1)]


def test_fractional_tau_accrues():
    steps = counts(TCEHVI(**QUICK), 2.5, 11, 5)
    assert steps[:3] == [(0, 5, 5), (0, 0, 3), (0, 0, 4)]  # floor(1.5 * 5 / 2), floor(2.5 * 5) = 12
    assert [old + new for old, new, _ in steps[3:]] == [3, 3]
    assert [fast for *_, fast in steps[3:]] == [8, steps[4][1]]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_share_of_space_filling_points(share):
    """Those that fill the space are the same whatever was measured."""
    strategy = TCEHVI(**QUICK, space_share=share)
    found = []
    for problem in (Toy(), problems.get("zdt1", d=2)):
        steps = list(steps_of(problem, strategy, [0], **BUDGET, n_steps=5))
        found.append(torch.cat([p.X for _, p, _ in steps[1:]], dim=1))
    assert torch.equal(*found) == (share == 1.0)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_points_of_the_start_fill_the_space_however_few_are_asked_for_at_a_time(asynchronous):
    """Together they are one Latin hypercube, but for those too near to outstanding points."""
    strategy = TCEHVI(**QUICK, space_share=1.0, asynchronous=asynchronous)
    optimizer = Optimizer(Toy(), n_slow=12, n_init=10, strategy=strategy)
    tell(optimizer, optimizer.ask())
    found = []
    while len(found) < 40:  # 10 (tau - 1)
        evaluations = optimizer.ask(n_fast=1, n_slow=0)
        tell(optimizer, evaluations)
        found += [torch.from_numpy(e.x) for e in evaluations]
    cells = (torch.stack(found) * 40).floor()
    assert all(len(column.unique()) == 40 for column in cells.T)


@pytest.mark.parametrize("tau", [2, 5])
@pytest.mark.parametrize("strict_clock", [True, False])
def test_slow_evaluations_go_to_points_with_a_known_fast_value_or_to_new_ones(tau, strict_clock):
    strategy, n_rows, n_new = TCEHVI(**QUICK, strict_clock=strict_clock), 0, 0
    for run, p, after in steps_of(Toy(tau=tau), strategy, [1], **BUDGET):
        if after["stage"] != "periods":
            assert p.archive_mask is None or not p.archive_mask.any()
            continue
        assert p.archive_mask is not None
        rows, new = p.archive_mask[0, :, SLOW], p.evaluation_mask[0, :, SLOW]
        has_fast = run.archive.observed[0, :, FAST] & ~run.archive.observed[0, :, SLOW]
        assert not (rows & ~has_fast).any()
        assert not (new & ~p.evaluation_mask[0, :, FAST]).any()
        assert not p.archive_mask[..., FAST].any()
        assert rows.sum() + new.sum() in (0, min(3, int(run.left[0, SLOW])))
        n_rows, n_new = n_rows + int(rows.sum()), n_new + int(new.sum())
    assert n_rows + n_new == 10


# ---------------------------------------------------------------- the clock


def comes_late(n_design, n_new, tau, used_fast):
    """Return which of the design's slow values come after the fast ones so far, by hand.

    n_new lanes each: value i of the slow objective comes when its lane has done i // n_new + 1
    of them, and k fast ones take k / n_new.
    """
    return [(i // n_new + 1) * tau > used_fast / n_new + 1e-9 for i in range(n_design)]


def changed(run, late, how):
    """Return a view in which the slow values of the first rows that are late are others."""
    rows = torch.zeros_like(run.archive.observed)
    rows[:, : len(late), SLOW] = torch.tensor(late)
    archive = run.archive
    if how == "altered":
        return replace(run, archive=replace(archive, Y=torch.where(rows, -1e3, archive.Y)))
    archive = replace(
        archive, Y=archive.Y.masked_fill(rows, 0.0), observed=archive.observed & ~rows
    )
    return replace(run, archive=archive, **{how: rows})


@pytest.mark.parametrize("how", ["altered", "failed", "pending"])
@pytest.mark.parametrize(
    ("n_new", "tau", "n_init"), [(3, 5.0, 10), (2, 2.5, 9), (1, 4.0, 7), (20, 3.0, 9)]
)
def test_on_a_strict_clock_no_decision_rests_on_values_that_come_later(how, n_new, tau, n_init):
    problem, n_late = Toy(tau=tau), 0
    strategy = TCEHVI(**QUICK, n_new=n_new, space_share=0.3)
    run = initial_view(problem, [2], n_slow=n_init + 2 * n_new, n_init=n_init)
    state = strategy.init(run)
    while True:
        proposal, after = strategy.propose(state, run)
        if after["stage"] == "periods":
            break
        if len(run.archive):
            late = comes_late(n_init, n_new, tau, int(run.used[0, FAST]))
            again, after_again = strategy.propose(state, changed(run, late, how))
            assert same(proposal, again)
            assert after.keys() == after_again.keys()
            n_late += sum(late)
        state, run = after, tell_all(problem, run, proposal)
    assert n_late > n_init
    # In a period, all count.
    if how == "altered":
        late = comes_late(n_init, n_new, tau, int(run.used[0, FAST]) - n_new)
        assert any(late)
        again, _ = strategy.propose(state, changed(run, late, how))
        assert not same(proposal, again)


def test_what_came_in_time_counts():
    """Row 5 comes with the second batch; of 6, 7 and 8 nothing is known."""
    problem, strategy = Toy(), TCEHVI(**QUICK)
    *_, last = steps_of(problem, strategy, [0], **BUDGET, n_steps=3)
    run, proposal, state = last
    run = tell_all(problem, run, proposal)
    assert run.used[0].tolist() == [30, 10]  # two times 15: 6 slow ones
    expected, _ = strategy.propose(state, run)
    lenient = replace(strategy, strict_clock=False)
    for other_strategy, row, is_known in [
        (strategy, 5, True),
        (strategy, 6, False),
        (lenient, 6, True),
    ]:
        other = replace(run, archive=replace(run.archive, Y=run.archive.Y.clone()))
        other.archive.Y[0, row, SLOW] = -3.0
        assert same(other_strategy.propose(state, other)[0], expected) != is_known


def test_it_waits_for_what_must_have_come():
    problem, strategy = Toy(), TCEHVI(**QUICK)
    run = initial_view(problem, [0], **BUDGET)
    state = strategy.init(run)
    waited = []
    while True:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            break
        told, new = tell_all(problem, run, proposal), asked(proposal, run)
        archive = replace(told.archive, observed=told.archive.observed & ~new)
        waiting = replace(told, pending=new, archive=archive)
        waits_for = strategy.propose(state, waiting)[0].waits_for
        assert waits_for is not None
        waited.append(waits_for.sum(dim=1)[0].tolist())
        run = told
    # The design's fast values, since none of the slow ones would have come.
    assert waited[0] == [10, 0]
    assert waited[1:5] == [[10, 0]] * 4
    # No fast values go beside the last slow one, but for its own, where its point is new.
    assert waited[5:8] == [[15, 3]] * 3
    assert waited[8:] in ([[0, 1]], [[1, 1]])


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_decisions_are_the_same_on_any_clock(workers):
    """Values come one by one, in another order with other numbers of workers."""
    strategy = TCEHVI(**QUICK)
    settings: dict[str, Any] = {"n_slow": 18, "n_init": 9, "seed": 4}
    clock = VirtualExecutor(time_slow=5, workers=workers)
    found = minimize(Toy(), strategy=strategy, executor=clock, progress=False, **settings)
    expected = run_batch(Toy(), strategy, [4], n_slow=18, n_init=9).archive
    assert torch.equal(found.all_X, expected.X[0])
    if workers == 3:  # the strict clock is this one: no worker of the slow objective ever waits
        assert clock.makespan == 18 / 3 * 5
        assert clock.idle_share["slow"] == 0.0
        busy = found.n_fast / (3 * clock.makespan)
        assert clock.idle_share["fast"] == pytest.approx(1 - busy)
        # All but those beside the last period, in which only new points get a fast value.
        assert 75 <= found.n_fast <= 78


def test_a_lenient_clock_takes_longer():
    clock = VirtualExecutor(time_slow=5, workers=3)
    strategy = TCEHVI(**QUICK, strict_clock=False)
    minimize(Toy(), n_slow=18, n_init=9, strategy=strategy, executor=clock, progress=False)
    assert clock.makespan > 18 / 3 * 5 + 15  # periods one after the other, each 5 + 5


@pytest.mark.parametrize("workers", [1, {"fast": 4, "slow": 3}])
def test_asynchronous_no_worker_waits(workers):
    """But fast ones while slow evaluations have released none, and at the end."""
    clock = VirtualExecutor(time_slow=stats.lognorm(0.4, scale=5), workers=workers, seed=2)
    strategy = TCEHVI(**QUICK, asynchronous=True)
    result = minimize(Toy(), n_slow=12, n_init=6, strategy=strategy, executor=clock, progress=False)
    assert (result.n_fast, result.n_slow) == (60, 12)
    assert len(result.all_X.unique(dim=0)) == len(result.all_X)
    slow = sorted((i.start, i.end) for i in clock.timeline if i.lane == "slow")
    n = 1 if workers == 1 else 3
    for k in range(n, 12):  # each begins when one has ended
        assert slow[k][0] == sorted(end for _, end in slow[:k])[k - n]


@pytest.mark.parametrize("wanted", [[0, 2], [1, 3], [6, 3]])
def test_asynchronous_free_workers_get_no_more_than_they_can_begin_with(wanted):
    """Though new points would be better than what is known: all of that is bad."""
    problem, strategy = Toy(), TCEHVI(**QUICK, asynchronous=True)
    run = initial_view(problem, [0], **BUDGET)
    proposal, state = strategy.propose(strategy.init(run), run)
    run = tell_all(problem, run, proposal)
    X = 1.0 - 0.05 * run.archive.X
    more = torch.stack([X[..., 0], 1.0 - X[..., 1]], dim=-1)[:, :8]
    mask = torch.tensor([True, False]).expand(1, 8, 2)
    run = tell_all(problem, run, Proposal(X=more, evaluation_mask=mask))
    proposal, _ = strategy.propose(state, replace(run, wanted=torch.tensor([wanted])))
    n_fast, n_slow = asked(proposal, run).sum(dim=1)[0].tolist()
    assert n_slow == wanted[SLOW]
    assert n_fast == wanted[FAST]


# ---------------------------------------------------------------- what it finds


@pytest.mark.parametrize(("name", "d"), [("dtlz2", None), ("zdt1", 5)])
def test_it_beats_random_search_and_tc_saea(name, d):
    problem, seeds = problems.get(name, **({} if d is None else {"d": d})), range(8)
    point = torch.tensor([1.5, 1.5] if name == "dtlz2" else [1.1, 6.0], dtype=torch.float64)
    budget: dict[str, Any] = {"n_slow": 26, "n_init": 14}

    def total(strategy):
        result = run_batch(problem, strategy, seeds, **budget)
        return sum(float(metrics.hypervolume(result.points(i), point)) for i in seeds)

    options = {"search": RVEAConfig(n_generations=6), "n_ref_vectors": 40}
    mine = total(TCEHVI(**options, kernels=("joint", "additive")))
    assert mine > 1.05 * total(TCSAEA(**options))
    assert mine > 1.05 * total(RandomSearch())


class Linked(TestProblem):
    """f_s = (1 + |x - 0.5|^2) f_f, with a fast objective that is hard to learn."""

    def __init__(self, d=3, factor=1.0, shift=0.0):
        def fast(X):
            return factor * (1.2 + torch.cos(7.0 * X.sum(dim=-1) + 5.0 * X[..., 0] ** 2)) + shift

        super().__init__(
            fast=fast,
            slow=lambda X: (1.0 + ((X - 0.5) ** 2).sum(dim=-1)) * (fast(X) - shift) + shift,
            bounds=[[0.0] * d, [1.0] * d],
            tau=5.0,
            vectorized=True,
        )


def test_synthetic_slow_values_are_used_where_a_link_is_found():
    states = []
    for link in (LinkConfig(), None):
        found = []
        run_batch(Linked(), TCEHVI(**QUICK, link=link), [0], n_slow=33, n_init=30, n_steps=6,
                  watch=lambda run, state, found=found: found.append(state))  # fmt: skip
        states.append(found[-1])
    with_link, without = states
    assert int(with_link["link.choice"][0]) >= 0
    assert int(with_link["joined/space/all"]) > 60  # 30 slow values, and as many more of the start
    assert not any(key.startswith(("link", "joined")) for key in without)


class Unlinked(TestProblem):
    """Two objectives that have nothing to do with each other."""

    def __init__(self, d=3):
        super().__init__(
            fast=lambda X: torch.sin(9.0 * X).sum(dim=-1) ** 2,
            slow=lambda X: torch.cos(20.0 * X[..., 0]) + 1.0,
            bounds=[[0.0] * d, [1.0] * d],
            tau=5.0,
            vectorized=True,
        )


def test_a_run_has_its_own_link_or_none_whatever_the_others_of_its_batch_have():
    budget: dict[str, Any] = {"n_slow": 33, "n_init": 30, "n_steps": 6}
    pair, states = [Linked(), Unlinked()], []
    together = run_batch(pair, TCEHVI(**QUICK), [0, 1], **budget,
                         watch=lambda run, state: states.append(state))  # fmt: skip
    assert (states[-1]["link.choice"] >= 0).tolist() == [True, False]
    for i, problem in enumerate(pair):
        alone = run_batch(problem, TCEHVI(**QUICK), [i], **budget).archive
        mine = together.archive.observed[i].any(dim=-1)  # others may have more rows
        assert (alone.X[0] - together.archive.X[i][mine]).abs().max() < 1e-8
        assert torch.equal(alone.observed[0], together.archive.observed[i][mine])
