"""Asking for as many evaluations as there are free workers, at any time."""

import itertools
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest
import torch

from tcsaea_torch import (
    TCSAEA,
    NextAction,
    Objective,
    Optimizer,
    Problem,
    RandomSearch,
    VirtualExecutor,
    minimize,
    strategies,
)
from tcsaea_torch.errors import InvalidInputError, ObjectiveError
from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions

FAST, SLOW = Objective.FAST, Objective.SLOW
CLEARANCE = 1e-3


def fast(x):
    return float((x**2).sum())


def slow(x):
    return float(((x - 1) ** 2).sum())


def problem(**changes):
    options = {"fast": fast, "slow": slow, "bounds": [[0.0] * 3, [1.0] * 3], "tau": 4}
    return Problem(**{**options, **changes})


def quick(**changes):
    """TC-SAEA that proposes at any time, with short searches."""
    options = {"asynchronous": True, "search": RVEAConfig(n_generations=3), "n_ref_vectors": 12}
    fit = FitConfig(
        input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=5)
    )
    return TCSAEA(**{**options, "kriging": fit, **changes})


def start(strategy=None, **changes):
    options = {"n_slow": 20, "n_init": 6, **changes}
    return Optimizer(problem(), strategy=strategy or quick(), **options)


def tell(optimizer, *evaluations):
    for e in evaluations:
        optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))


def objectives(evaluations):
    return [e.objective for e in evaluations]


def released(optimizer):
    """Return how many fast evaluations the slow ones asked for so far allow."""
    return math.floor(optimizer.problem.tau * optimizer.n_used[1])


# ------------------------------------------------------------------ parts of a step


def test_parts_of_a_step_are_handed_out_and_the_rest_is_kept():
    optimizer = start(RandomSearch())
    first = optimizer.ask(n_fast=1)
    assert objectives(first) == [FAST]
    assert objectives(optimizer.ask(n_slow=2)) == [SLOW, SLOW]
    assert sorted(objectives(optimizer.ask(n_fast=2, n_slow=1))) == [FAST, FAST, SLOW]
    assert optimizer.ask(n_fast=0) == optimizer.ask(n_fast=0, n_slow=0) == []
    assert len(optimizer.pending) == 6
    rest = optimizer.ask()
    assert sorted(objectives(rest)) == [FAST] * 3 + [SLOW] * 3
    # Nothing twice, and what one gets in parts is what one gets at once.
    whole = start(RandomSearch()).ask()
    assert sorted(e.id for e in optimizer.pending) == [e.id for e in whole] == list(range(12))
    xs = {e.id: e.x.tolist() for e in whole}
    assert all(xs[e.id] == e.x.tolist() for e in optimizer.pending)


def test_what_is_wanted_may_take_several_steps():
    optimizer = start(RandomSearch())
    assert len(optimizer.ask(n_slow=20)) == 20  # the design has 6
    assert optimizer.ask(n_slow=1) == []
    assert len(optimizer.ask(n_fast=99)) == 20


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("n", [-1, 1.5, "2", True])
def test_numbers_must_be_counts(n):
    optimizer = start()
    for name in ("n_fast", "n_slow"):
        with pytest.raises(InvalidInputError, match=f"{name} must be an integer >= 0"):
            optimizer.ask(**{name: n})
    assert len(optimizer.events) == 0


def test_a_synchronous_strategy_asked_early_names_what_it_waits_for():
    optimizer = start(quick(asynchronous=False))
    design = optimizer.ask(n_fast=6, n_slow=6)
    assert len(design) == 12
    assert optimizer.ask(n_fast=1) == optimizer.ask(n_slow=1) == []
    waiting = optimizer.waits_for
    assert waiting == tuple(sorted(e.id for e in design if e.objective is FAST))
    assert optimizer.next_action() == NextAction(kind="wait", n_fast=0, n_slow=0, waits_for=waiting)
    tell(optimizer, *(e for e in design if e.objective is FAST))
    assert optimizer.next_action().kind == "ask"
    assert objectives(optimizer.ask(n_fast=1)) == [FAST]


def test_what_waits_in_the_queue_survives_a_crash(tmp_path):
    path = tmp_path / "study.db"
    with Optimizer(problem(), n_slow=20, n_init=6, strategy=quick(), journal=path) as optimizer:
        out = optimizer.ask(n_fast=2, n_slow=1)
    for on_pending, n_pending in (("wait", 3), ("rerun", 0)):
        with Optimizer.resume(path, problem(), on_pending=on_pending) as resumed:
            assert len(resumed.pending) == n_pending
            assert resumed.next_action().kind == "ask"
            again = resumed.ask(n_fast=6, n_slow=0) if n_pending else []
            ids = {e.id for e in out}
            assert not ids & {e.id for e in again}
    with Optimizer.resume(path, problem(), on_pending="fail") as resumed:
        failed = [r.id for r in resumed.result().history if r.status == "failed"]
        assert set(failed) >= {e.id for e in out}
        # What nobody had got is handed out as if nothing had been.
        assert objectives(resumed.ask(n_slow=5)) == [SLOW] * 5


# ------------------------------------------------------------------ what a scheduler may do


@dataclass(frozen=True)
class Counting(RandomSearch):
    """Random search that counts how often it is asked."""

    calls: list = field(default_factory=list)

    def propose(self, state, run):
        self.calls.append(len(run.archive))
        return super().propose(state, run)


def test_a_synchronous_strategy_thinks_only_once():
    strategy = Counting()
    optimizer = start(strategy)
    for _ in range(3):
        assert optimizer.next_action() == NextAction(kind="ask", n_fast=6, n_slow=6, waits_for=())
    assert len(strategy.calls) == 1
    assert len(optimizer.events) == 0  # a thought is no event
    assert len(optimizer.ask()) == 12
    assert len(strategy.calls) == 1


def test_next_action_from_start_to_end():
    optimizer = start(n_slow=8)
    assert optimizer.next_action() == NextAction(kind="ask", n_fast=6, n_slow=6, waits_for=())
    first = optimizer.ask(n_slow=1)
    # 5 in the queue and 2 more; 6 fast ones of the design, and 3 x 6 released by it.
    assert optimizer.next_action() == NextAction(kind="ask", n_fast=24, n_slow=7, waits_for=())
    rest = optimizer.ask(n_fast=99, n_slow=99)
    assert optimizer.n_used == (32, 8)
    assert optimizer.next_action().kind == "wait"
    assert not optimizer.is_done
    tell(optimizer, *first, *rest)
    assert optimizer.next_action() == NextAction(kind="stop", n_fast=0, n_slow=0, waits_for=())
    assert optimizer.is_done
    assert optimizer.result().status == "finished"


# ------------------------------------------------------------------ at any time


def test_there_is_always_work_while_budget_is_left():
    optimizer, rng = start(), random.Random(0)
    running = []
    while True:
        action = optimizer.next_action()
        n_fast, n_slow = rng.randint(0, 3), rng.randint(0, 2)
        got = optimizer.ask(n_fast=n_fast, n_slow=n_slow)
        kinds = objectives(got)
        # A slow point brings its fast value into the queue, too late for these workers.
        assert kinds.count(SLOW) == min(n_slow, action.n_slow)
        assert kinds.count(FAST) >= min(n_fast, action.n_fast)
        assert kinds.count(FAST) <= n_fast
        assert optimizer.n_used[0] <= released(optimizer)
        running += got
        if action.kind == "stop":
            break
        if running and rng.random() < 0.6:
            tell(optimizer, running.pop(rng.randrange(len(running))))
    assert optimizer.n_used == optimizer.n_total == (80, 20)
    assert not running


def test_without_numbers_there_is_a_period_at_a_time():
    optimizer = start(quick(n_new=2))
    design = optimizer.ask()
    assert len(design) == 12
    offspring = [optimizer.ask() for _ in range(3)]
    assert [objectives(step) for step in offspring] == [[FAST] * 6] * 3
    period = optimizer.ask()  # although nothing has been told
    assert sorted(objectives(period)) == [FAST] * 8 + [SLOW] * 2
    assert optimizer.n_used[0] == released(optimizer)


def test_points_keep_away_from_outstanding_ones():
    """In one dimension, where ten points in a narrow box would meet."""
    line = problem(bounds=[[0.0], [1.0]], tau=6)
    optimizer = Optimizer(line, n_slow=14, n_init=4, strategy=quick(clearance=0.01))
    while optimizer.n_used != optimizer.n_total:
        evaluations = optimizer.ask(n_fast=4, n_slow=1)
        outstanding = optimizer._state.pending.any(dim=-1)
        X = optimizer._state.X[outstanding, 0]
        new = {e.point_id for e in evaluations}
        rows = outstanding.nonzero().flatten().tolist()
        for row in new:
            others = X[torch.tensor([r != row for r in rows])]
            x = optimizer._state.X[row, 0]
            assert (others - x).abs().min() >= 0.01 - 1e-12
        tell(optimizer, *[e for e in optimizer.pending if e.objective is FAST][:3])
        if len(optimizer.pending) > 12:
            tell(optimizer, *[e for e in optimizer.pending if e.objective is SLOW][:1])


def test_a_fast_value_counts_while_its_slow_twin_runs():
    def next_point(value):
        optimizer = start(n_init=5)
        tell(optimizer, *optimizer.ask(n_fast=5, n_slow=5))
        twins = optimizer.ask(n_fast=1, n_slow=1)
        assert twins[0].point_id == twins[1].point_id
        optimizer.tell(next(e.id for e in twins if e.objective is FAST), value)
        (e,) = optimizer.ask(n_slow=1)
        return e.x.tolist()

    assert next_point(0.3) == next_point(0.3) != next_point(-3.0)


def test_the_same_order_of_results_gives_the_same_run():
    def run():
        optimizer, rng, running = start(seed=3), random.Random(1), []
        while optimizer.next_action().kind != "stop":
            running += optimizer.ask(n_fast=rng.randint(0, 3), n_slow=rng.randint(0, 1))
            if running:
                tell(optimizer, running.pop(rng.randrange(len(running))))
        return optimizer._state.X

    assert torch.equal(run(), run())


@pytest.mark.parametrize("integers", [(0, 1), (0,)])
def test_an_exhausted_space_ends_the_run(integers):
    grid = problem(bounds=[[0.0, 0.0], [2.0, 0.0]], integers=integers, tau=2)
    optimizer = Optimizer(grid, n_slow=9, n_init=2, strategy=quick())
    for _ in range(30):
        tell(optimizer, *optimizer.ask(n_fast=2, n_slow=1))
    assert len(optimizer.archive) < 12
    known = optimizer.archive.observed[0].any(dim=-1)
    points = (optimizer.archive.X[0][known] * 2).round().tolist()
    assert sorted(x for x, _ in points) == [0, 1, 2]
    assert optimizer.is_done
    assert optimizer.next_action().kind == "stop"
    assert optimizer.result().status == "exhausted"


def test_failures_are_neither_believed_nor_asked_for_again():
    optimizer, rng = start(), random.Random(4)
    while optimizer.next_action().kind != "stop":
        for e in optimizer.ask(n_fast=2, n_slow=1):
            if rng.random() < 0.3:
                optimizer.fail(e.id, "no")
            else:
                tell(optimizer, e)
    assert optimizer.n_used == optimizer.n_total
    X = optimizer._state.X[optimizer._state.exists]
    assert len({tuple(x) for x in X.tolist()}) == len(X)


# ------------------------------------------------------------------ minimize


def durations(k):
    """Return times of evaluations with mean k that vary a lot."""
    return lambda u: k * (0.3 - 0.7 * math.log(1 - u))


@pytest.mark.parametrize("workers", [{"fast": 1, "slow": 1}, {"fast": 3, "slow": 4}])
def test_no_slow_worker_is_idle_while_budget_is_left(workers):
    makespans = []
    for asynchronous in (False, True):
        clock = VirtualExecutor(
            time_fast=durations(1.0), time_slow=durations(4.0), workers=workers, seed=1
        )
        result = minimize(
            problem(), n_slow=40, n_init=8, strategy=quick(asynchronous=asynchronous),
            executor=clock, progress=False,
        )  # fmt: skip
        assert (result.n_slow, result.n_fast, result.status) == (40, 160, "finished")
        makespans.append(clock.makespan)
    slow_ones = [i for i in clock.timeline if i.lane is SLOW]
    for worker in range(workers["slow"]):
        mine = sorted((i.start, i.end) for i in slow_ones if i.worker == worker)
        assert mine[0][0] == 0.0
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))
    assert makespans[1] < makespans[0]


def test_workers_that_come_get_work_and_those_that_go_hold_nothing_up():
    schedule = [(5.0, "slow", 2), (9.0, "fast", 2), (30.0, "slow", -2)]
    clock = VirtualExecutor(
        time_slow=4.0, workers={"fast": 1, "slow": 0}, schedule=schedule, seed=1
    )
    result = minimize(
        problem(), n_slow=20, n_init=6, strategy=quick(), executor=clock, progress=False,
    )  # fmt: skip
    # Both that came are gone again at 30: what is left waits for ever, and says so.
    assert result.status == "interrupted"
    assert "no worker is left" in result.message
    begun = [i.start for i in clock.timeline if i.lane is SLOW]
    assert begun[:2] == [5.0, 5.0]


def test_a_pool_of_threads_gets_as_much_as_it_takes():
    n_now, most = {FAST: 0, SLOW: 0}, {FAST: 0, SLOW: 0}

    def counting(objective, function):
        def call(x):
            n_now[objective] += 1
            most[objective] = max(most[objective], n_now[objective])
            time.sleep(0.03)
            n_now[objective] -= 1
            return function(x)

        return call

    counted = problem(fast=counting(FAST, fast), slow=counting(SLOW, slow), tau=2)
    options = {"n_slow": 14, "n_init": 6, "strategy": quick(), "progress": False}
    with ThreadPoolExecutor(3) as pool:
        result = minimize(counted, executor={"slow": pool}, workers={"fast": 2}, **options)
    assert (result.n_slow, result.n_fast, result.status) == (14, 28, "finished")
    assert 1 < most[SLOW] <= 3
    assert 1 < most[FAST] <= 2
    with ThreadPoolExecutor(3) as pool:
        result = minimize(counted, executor=pool, **options)  # one for both
    assert (result.n_slow, result.n_fast, result.status) == (14, 28, "finished")


class Nameless:
    """An executor that does not say how many workers it has."""

    def __init__(self, pool):
        self._pool = pool

    def submit(self, function, /, *arguments, **options):
        return self._pool.submit(function, *arguments, **options)


def test_an_executor_that_does_not_say_how_many_workers_it_has(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        options = {
            "n_slow": 8, "n_init": 6, "executor": {"slow": Nameless(pool)}, "progress": False,
        }  # fmt: skip
        path = tmp_path / "study.db"
        with pytest.raises(InvalidInputError, match="workers must say how many calls the slow"):
            minimize(problem(), strategy=quick(), journal=path, **options)
        result = minimize(problem(), strategy=quick(), workers={"slow": 2}, **options)
        assert result.status == "finished"
        # Others do not need to know.
        result = minimize(problem(), strategy="random", **options)
        assert result.status == "finished"


@pytest.mark.filterwarnings("ignore:there (is|are) only")
def test_an_all_failed_start_ends_although_more_is_under_way():
    def broken(x):
        raise OSError("licence server is down")

    options = {"n_slow": 30, "n_init": 5, "strategy": quick(), "progress": False}
    for lane in ("fast", "slow"):
        with pytest.raises(ObjectiveError, match=rf"(?s)evaluations of the {lane} .* is down"):
            minimize(problem(**{lane: broken}), workers=2, **options)


def test_a_vectorized_problem():
    vectorized = problem(
        fast=lambda X: (X**2).sum(dim=-1), slow=lambda X: ((X - 1) ** 2).sum(dim=-1),
        vectorized=True,
    )  # fmt: skip
    sizes = []

    def slow_sizes(X):
        sizes.append(len(X))
        return ((X - 1) ** 2).sum(dim=-1)

    vectorized = replace(vectorized, slow=slow_sizes)
    result = minimize(vectorized, n_slow=14, n_init=6, strategy=quick(), workers=3, progress=False)
    assert (result.n_slow, result.n_fast, result.status) == (14, 56, "finished")
    assert sizes == [1] * 14  # so that all workers have something to do


@pytest.mark.parametrize("name", ["nt-saea", "ns-saea", "tc-saea-p", "tc-saea-released"])
def test_every_form_of_tc_saea_can_do_so(name):
    quick_options = {k: getattr(quick(), k) for k in ("search", "n_ref_vectors", "kriging")}
    strategy = strategies.get(name, asynchronous=True, **quick_options)
    clock = VirtualExecutor(time_slow=4.0, workers={"fast": 2, "slow": 2}, seed=1)
    result = minimize(
        problem(), n_slow=16, n_init=6, strategy=strategy, executor=clock, progress=False
    )
    assert (result.n_slow, result.status) == (16, "finished")
    assert clock.idle_share["slow"] < 0.1
