"""The virtual clock: schedules against ones made by hand or by a plain list scheduler."""

import logging
import math
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from scipy import stats

from tcsaea_torch import Optimizer, Problem, Status, VirtualExecutor, minimize, strategies
from tcsaea_torch.errors import InvalidInputError, ObjectiveError
from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.rng import uniforms
from tcsaea_torch.timeline import Outcome
from tcsaea_torch.types import Objective
from tests.strategies.runs import Toy

FAST, SLOW = Objective
DONE, FAILED, TIMED_OUT, LOST = Outcome
NO_LIMITS = {FAST: None, SLOW: None}


def play(clock, calls, limits=NO_LIMITS):
    """Submit calls at time 0, (objective, function) each; return what came, in batches."""
    batches, n = [], 0
    with clock.lanes(limits) as lanes:
        futures = [lanes.submit(o, k, function) for k, (o, function) in enumerate(calls)]
        while n < len(calls):
            ended, overdue = lanes.wait()
            batches.append(sorted(futures.index(f) for f in [*ended, *overdue]))
            n += len(batches[-1])
    return futures, batches


def short(clock):
    return [
        (str(i.lane), i.worker, i.evaluation_id, i.start, i.end, str(i.outcome))
        for i in clock.timeline
    ]


def solve(clock, n_slow=8, **options):
    defaults = {"strategy": "random", "n_init": 4, "progress": False}
    problem = options.pop("problem", Toy())
    return minimize(problem, n_slow=n_slow, executor=clock, **{**defaults, **options})


# ------------------------------------------------------------------ schedules by hand


def test_two_lanes_with_one_and_two_workers():
    clock = VirtualExecutor(time_fast=1, time_slow=2.5, workers={"slow": 2})
    value = lambda: 7.0  # noqa: E731
    futures, batches = play(clock, [(SLOW, value)] * 3 + [(FAST, value)] * 3)
    assert batches == [[3], [4], [0, 1], [5], [2]]
    assert short(clock) == [
        ("fast", 0, 3, 0.0, 1.0, "done"),
        ("fast", 0, 4, 1.0, 2.0, "done"),
        ("slow", 0, 0, 0.0, 2.5, "done"),
        ("slow", 1, 1, 0.0, 2.5, "done"),
        ("fast", 0, 5, 2.0, 3.0, "done"),
        ("slow", 0, 2, 2.5, 5.0, "done"),
    ]
    assert [future.result() for future in futures] == [7.0] * 6
    assert clock.makespan == 5.0
    assert clock.idle_share == {"fast": pytest.approx(0.4), "slow": pytest.approx(0.25)}


def test_workers_come_and_go():
    schedule = [(7, "slow", 2), (3, "slow", -1)]
    clock = VirtualExecutor(time_slow=5, workers={"slow": 2}, schedule=schedule)
    _, batches = play(clock, [(SLOW, float)] * 4)
    # Worker 1 goes at time 3: call 1 is lost and begins anew, before the others in the queue.
    assert short(clock) == [
        ("slow", 1, 1, 0.0, 3.0, "lost"),
        ("slow", 0, 0, 0.0, 5.0, "done"),
        ("slow", 0, 1, 5.0, 10.0, "done"),
        ("slow", 1, 2, 7.0, 12.0, "done"),
        ("slow", 2, 3, 7.0, 12.0, "done"),
    ]
    assert batches == [[0], [], [1], [2, 3]]  # at time 7, nothing ends but workers come
    # Present: 2 workers until 3, 1 until 7, 3 until 12; busy: 3 + 4 * 5.
    assert clock.idle_share["slow"] == pytest.approx(1 - 23 / (6 + 4 + 15))
    assert clock.idle_share["fast"] == 1.0


def test_who_goes_is_idle_if_possible_and_a_call_that_ends_just_then_is_not_lost():
    clock = VirtualExecutor(time_slow=2, workers={"slow": 3}, schedule=[(2, "slow", -1)])
    play(clock, [(SLOW, float)] * 5)
    assert [(i.worker, i.start, i.outcome) for i in clock.timeline] == [
        (0, 0.0, DONE), (1, 0.0, DONE), (2, 0.0, DONE), (0, 2.0, DONE), (1, 2.0, DONE),
    ]  # fmt: skip
    clock = VirtualExecutor(time_slow=2, workers={"slow": 3}, schedule=[(1, "slow", -1)])
    play(clock, [(SLOW, float)] * 2)
    assert [i.outcome for i in clock.timeline] == [DONE, DONE]


def test_workers_may_come_later_or_at_time_zero():
    schedule = [(0, "fast", 1), (4, "slow", 1)]
    clock = VirtualExecutor(time_slow=2, workers=0, schedule=schedule)
    _, batches = play(clock, [(SLOW, float), (FAST, float)])
    assert batches == [[], [1], [], [0]]  # workers come at 0 and 4
    assert [(i.start, i.end) for i in clock.timeline] == [(0.0, 1.0), (4.0, 6.0)]
    assert clock.idle_share["fast"] == pytest.approx(5 / 6)
    assert clock.idle_share["slow"] == pytest.approx(0.0)


def test_a_limit_ends_a_call_and_frees_its_worker():
    called = []
    clock = VirtualExecutor(time_fast=1, time_slow=lambda u: 3.0 if u < 0.5 else 9.0, seed=3)
    u = uniforms(torch.tensor([3]), "virtual time_slow", 0, (1024,))[0, :6].tolist()
    is_long = [not v < 0.5 for v in u]
    assert 0 < sum(is_long) < 6
    calls = [(SLOW, lambda k=k: called.append(k)) for k in range(6)]
    play(clock, calls, {FAST: None, SLOW: 4.0})
    assert [i.outcome is TIMED_OUT for i in clock.timeline] == is_long
    assert called == [k for k in range(6) if not is_long[k]]
    ends = np.cumsum([4.0 if long else 3.0 for long in is_long])
    assert [i.end for i in clock.timeline] == ends.tolist()


def durations(name, seed, n):
    blocks = [uniforms(torch.tensor([seed]), name, k, (1024,))[0] for k in range(n // 1024 + 1)]
    return stats.lognorm(0.6, scale=5.0).ppf(torch.cat(blocks)[:n].numpy())


@pytest.mark.parametrize("n_workers", [1, 3, 40])
def test_random_times_give_the_schedule_of_a_plain_list_scheduler(n_workers):
    n = 1500
    clock = VirtualExecutor(
        time_slow=stats.lognorm(0.6, scale=5.0), workers={"slow": n_workers}, seed=7
    )
    play(clock, [(SLOW, float)] * n)
    free = np.zeros(n_workers)
    expected = {}
    for k, duration in enumerate(durations("virtual time_slow", 7, n)):
        worker = int(free.argmin())  # the first one that is free
        expected[k] = (free[worker], free[worker] + duration)
        free[worker] += duration
    assert {i.evaluation_id: (i.start, i.end) for i in clock.timeline} == expected
    assert clock.makespan == free.max()
    assert clock.idle_share["slow"] == pytest.approx(1 - free.sum() / (n_workers * free.max()))
    by_worker = {}
    for i in clock.timeline:  # nobody does two things at a time
        assert i.start >= by_worker.get(i.worker, 0.0)
        by_worker[i.worker] = i.end


# ------------------------------------------------------------------ runs


def test_a_vectorized_run_is_made_one_by_one():
    clock = VirtualExecutor(time_slow=5.0)
    result = solve(clock)
    assert (clock.makespan, result.n_slow, result.n_fast) == (40.0, 8, 8)
    assert clock.idle_share == {"fast": pytest.approx(0.8), "slow": pytest.approx(0.0)}
    assert sorted(i.evaluation_id for i in clock.timeline) == list(range(16))
    for i in clock.timeline:
        assert result.history[i.evaluation_id].objective is i.lane


def test_the_clock_changes_no_value():
    real = minimize(Toy(), n_slow=8, n_init=4, strategy="random", progress=False)
    for clock in (VirtualExecutor(time_slow=5), VirtualExecutor(time_slow=0.1, workers=9)):
        result = solve(clock)
        assert torch.equal(result.X, real.X)
        assert torch.equal(result.Y, real.Y)


def test_the_optimizer_is_asked_only_when_it_may_have_something(monkeypatch):
    asked, ask = [], Optimizer.ask
    monkeypatch.setattr(Optimizer, "ask", lambda self: asked.append(len(self.pending)) or ask(self))
    times = stats.lognorm(0.5)
    solve(VirtualExecutor(time_fast=times, time_slow=times, workers=5), n_slow=100)
    # The design; after its first value all other points; then nothing, and nothing at the end.
    assert asked == [0, 2 * 4 - 1, 2 * 100 - 2, 0]


def test_reports_are_those_of_the_latest_run():
    clock = VirtualExecutor(time_slow=stats.expon(scale=5), failures=0.2, seed=4)
    assert clock.timeline == []
    assert (clock.makespan, clock.idle_share) == (0.0, {"fast": 0.0, "slow": 0.0})
    solve(clock)
    first = clock.timeline
    solve(clock)
    assert clock.timeline == first
    other = VirtualExecutor(time_slow=stats.expon(scale=5), failures=0.2, seed=5)
    solve(other)
    assert other.timeline != first


def test_simulated_failures_are_recorded_as_often_as_they_should(caplog):
    clock = VirtualExecutor(time_slow=1, workers=50, failures={"slow": 0.3})
    with caplog.at_level(logging.CRITICAL, logger="tcsaea_torch"):
        result = solve(clock, n_slow=1000)
    failed = [r for r in result.history if r.status is Status.FAILED]
    assert {r.objective for r in failed} == {"slow"}
    assert 250 < len(failed) < 350
    assert all(r.reason == "RuntimeError: simulated failure" for r in failed)
    assert [i.evaluation_id for i in clock.timeline if i.outcome is FAILED] == [
        r.id for r in sorted(failed, key=lambda r: (r.ended_at, r.id))
    ]


def test_objectives_that_fail_or_time_out_are_in_the_timeline():
    calls = []

    def slow(x):
        calls.append(1)
        return (1.0, math.nan, 1 / (len(calls) % 3))[len(calls) % 3]

    problem = Problem(fast=lambda x: 1.0, slow=slow, bounds=[[0.0], [1.0]], tau=1)
    clock = VirtualExecutor(time_slow=lambda u: 1.0 + u)
    result = solve(clock, n_slow=20, problem=problem, timeout_s={"slow": 1.75})
    ended = {i.evaluation_id: i.outcome for i in clock.timeline if i.lane is SLOW}
    assert set(ended.values()) == {DONE, FAILED, TIMED_OUT}
    for record in result.history:
        if record.objective is SLOW:
            assert (record.status is Status.DONE) == (ended[record.id] is DONE)
            is_late = record.reason == "timed out after 1.75 units of virtual time"
            assert is_late == (ended[record.id] is TIMED_OUT)


def test_a_run_of_failures_ends():
    with pytest.raises(ObjectiveError, match=r"all 4 evaluations .* RuntimeError: simulated fail"):
        solve(VirtualExecutor(time_slow=5, failures={"slow": 1}), n_slow=4)


def test_a_lane_whose_workers_are_gone_ends_the_run():
    clock = VirtualExecutor(time_slow=5, schedule=[(12, "slow", -1)])
    result = solve(clock)
    assert result.status == "interrupted"
    assert "no worker is left for 6 slow evaluations at time 12" in result.message
    assert len(result.X) == 2
    assert clock.makespan == 12.0


def test_an_interrupt_returns_what_there_is():
    calls = []

    def slow(x):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return 1.0

    problem = Problem(fast=lambda x: 1.0, slow=slow, bounds=[[0.0], [1.0]], tau=1)
    result = solve(VirtualExecutor(time_slow=5), problem=problem)
    assert result.status == "interrupted"
    assert len(result.X) == 2


# ------------------------------------------------------------------ what strategies make of it


def test_waiting_leaves_the_fast_lane_idle():
    """Each generation takes the time of its slow evaluations; the fast ones take a fifth."""
    clock = VirtualExecutor(time_slow=5)
    scheme = strategies.get("waiting", n_population=4)
    result = solve(clock, n_slow=12, strategy=scheme)
    assert (result.n_slow, result.n_fast) == (12, 12)
    assert clock.makespan == 60.0
    assert clock.idle_share == {"fast": pytest.approx(0.8), "slow": pytest.approx(0.0)}


def test_broods_take_turns_with_the_slow_objective():
    """By hand: a design of 4 (20), a brood of 16 (16), 4 slow (20), a brood of 20, 4 slow (20)."""
    clock = VirtualExecutor(time_slow=5)
    scheme = strategies.get("brood-interleaving", n_population=4)
    result = solve(clock, n_slow=12, strategy=scheme)
    assert (result.n_slow, result.n_fast) == (12, 40)
    assert clock.makespan == 20 + 16 + 20 + 20 + 20
    assert clock.idle_share["slow"] == pytest.approx(1 - 60 / 96)
    assert clock.idle_share["fast"] == pytest.approx(1 - 40 / 96)


def test_tc_saea_uses_both_lanes():
    """The sum of either objective's times is the least that a run can take.

    The slow ones of a period, and the fast ones beside them, take as long: 3 * 5 here.
    """
    fit = FitConfig(starts=(2.0,), options=BFGSOptions(max_evaluations=5))
    search = RVEAConfig(n_generations=2)
    scheme = strategies.get("tc-saea", search=search, n_ref_vectors=12, kriging=fit)
    clock = VirtualExecutor(time_slow=5)
    result = solve(clock, n_slow=14, n_init=8, strategy=scheme)
    assert (result.n_slow, result.n_fast) == (14, 70)
    assert 14 * 5 <= clock.makespan <= 14 * 5 + 3 * 5
    busy = {FAST: 70.0, SLOW: 70.0}
    for objective in Objective:
        share = 1 - busy[objective] / clock.makespan
        assert clock.idle_share[objective] == pytest.approx(share)
    # While there is a slow evaluation in a period, fast ones run beside it.
    slow = [(i.start, i.end) for i in clock.timeline if i.lane is SLOW]
    assert any(a < i.start and i.end < b for i in clock.timeline for a, b in slow if i.lane is FAST)


@pytest.mark.slow
def test_a_hundred_thousand_evaluations_on_a_thousand_workers():
    code = """
import logging, time
from scipy import stats
from tcsaea_torch import Problem, VirtualExecutor, minimize
logging.getLogger("tcsaea_torch").setLevel(logging.CRITICAL)
problem = Problem(fast=lambda x: 1.0, slow=lambda x: 1.0, bounds=[[0.0] * 2, [1.0] * 2], tau=1)
clock = VirtualExecutor(
    time_slow=stats.lognorm(0.5, scale=5.0), workers={"fast": 200, "slow": 800}, failures=0.01
)
before = time.perf_counter()
minimize(problem, n_slow=50_000, n_init=1000, strategy="random", executor=clock, progress=False)
print(time.perf_counter() - before, len(clock.timeline), clock.idle_share["slow"])
"""
    # A process of its own: here, all types are checked.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seconds, n, idle = map(float, done.stdout.split())
    assert seconds < 60
    assert n == 100_000
    assert idle < 0.1


def test_bookkeeping_does_not_slow_down_with_the_number_of_evaluations():
    """Work that grows with the square of it would take thousands of times as long."""
    problem = Problem(fast=lambda x: 1.0, slow=lambda x: 1.0, bounds=[[0.0] * 2, [1.0] * 2], tau=1)
    seconds = []
    for n in (250, 2000):
        clock = VirtualExecutor(time_slow=stats.lognorm(0.5, scale=5.0), workers=100)
        before = time.process_time()
        solve(clock, n_slow=n, problem=problem)
        seconds.append(time.process_time() - before)
    assert seconds[1] < 3 * 8 * seconds[0]


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_slow": lambda u: -u}, "time_slow must be a finite real number > 0, got -0."),
        ({"time_slow": stats.norm()}, "time_slow must be a finite real number > 0, got -"),
        ({"time_fast": lambda u: "x"}, "time_fast must be a finite real number > 0, got 'x'"),
        ({"workers": {"slow": 0}}, "workers must be at least 1 in the slow lane, now or by sche"),
        (
            {"schedule": [(3, "slow", -2), (2, "slow", 0)]},
            "schedule must not take away more workers than the slow lane has, got -1 at time 3",
        ),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_arguments(options, message):
    with pytest.raises(InvalidInputError, match="^" + re.escape(message)):
        VirtualExecutor(**{"time_slow": 5, **options})
