"""`minimize(retries=...)`: what failed is tried again, within the budget, also after a crash."""

import math
import re
import threading
from collections import Counter

import pytest
import torch

from tcsaea_torch import Optimizer, Status, VirtualExecutor, minimize
from tcsaea_torch.errors import ObjectiveError
from tcsaea_torch.events import Failed, Told
from tcsaea_torch.study import Study
from tests.test_driver import AtOnce, Counted, Hanging, cheap, problem, shifted, solve

PATIENCE = 20.0


class Flaky:
    """An objective that fails at each point for some tries, and always in a corner."""

    def __init__(self, n, function=shifted, corner=2.0, bad=lambda: 1 / 0):
        self.n, self.function, self.corner, self.bad = n, function, corner, bad
        self.calls = Counter()

    def __call__(self, x):
        key = tuple(x.tolist())
        self.calls[key] += 1
        return self.bad() if self.calls[key] <= self.n or key[0] > self.corner else self.function(x)


def tries(result, objective="slow"):
    """Return the statuses of each point's tries, in order."""
    found = {}
    for record in result.history:
        if record.objective == objective:
            found.setdefault(record.point_id, []).append(str(record.status))
    return found


@pytest.mark.parametrize("bad", [lambda: 1 / 0, lambda: math.nan], ids=["raises", "nan"])
@pytest.mark.parametrize("executor", [None, AtOnce()], ids=["threads", "at once"])
def test_each_try_counts_and_the_value_of_a_later_one_is_kept(executor, bad):
    slow = Flaky(1, bad=bad)
    # The design of 8 and a step of 3, twice.
    result = solve({"slow": slow}, n_slow=22, executor=executor, retries=1)
    assert result.status == "finished"
    assert result.n_slow == sum(slow.calls.values()) == 22
    assert set(map(tuple, tries(result).values())) == {("failed", "done")}
    assert len(result.X) == 11
    assert result.Y[:, 1].tolist() == [shifted(x) for x in result.X.numpy()]
    assert result.message.endswith(", 11 failed")


def test_a_point_whose_tries_are_used_up_has_failed_for_good():
    slow = Flaky(0, corner=0.6)
    result = solve({"slow": slow}, n_slow=30, retries={"slow": 2})
    assert result.n_slow == sum(slow.calls.values()) == 30
    last = max(tries(result))  # the budget may end its tries
    for point, statuses in tries(result).items():
        is_bad = bool((result.all_X[result.all_ids == point, 0] > 0.6).item())
        if point != last:
            assert statuses == (["failed"] * 3 if is_bad else ["done"])
    assert max(slow.calls.values()) == 3


def test_by_default_nothing_is_tried_again():
    slow = Flaky(0, corner=0.6)
    result = solve({"slow": slow})
    assert max(slow.calls.values()) == 1
    assert {len(statuses) for statuses in tries(result).values()} == {1}


def test_retries_are_an_objectives_own():
    fast, slow = Flaky(1), Flaky(0, corner=0.6)
    result = solve({"fast": fast, "slow": slow}, retries={"fast": 1})
    assert max(slow.calls.values()) == 1
    assert set(fast.calls.values()) <= {1, 2}
    assert result.n_fast == sum(fast.calls.values()) <= 28
    assert result.all_Y[:, 0].isnan().sum() <= 1


def test_no_retry_exceeds_the_budget():
    slow = Counted(Flaky(10**9, corner=-1))
    with pytest.raises(ObjectiveError, match="all 9 evaluations of the slow objective failed"):
        solve({"slow": slow}, n_slow=9, n_init=8, retries=100, executor=AtOnce())
    assert len(slow.X) == 9


@pytest.mark.parametrize("name", ["tc-saea", "random"])
@pytest.mark.parametrize("objective", ["fast", "slow"])
def test_an_objective_that_never_works_ends_the_run_after_its_retries(name, objective):
    never = Counted(Flaky(10**9))
    with pytest.raises(ObjectiveError) as caught:
        solve(
            {objective: never}, n_slow=40, n_init=6, strategy=cheap(name), executor=AtOnce(),
            retries=2,
        )  # fmt: skip
    assert len(never.X) == 18
    assert re.match(rf"all 18 evaluations of the {objective} objective failed", str(caught.value))
    assert str(caught.value).endswith("ZeroDivisionError: division by zero")


def test_calls_that_hang_are_tried_again():
    slow = Hanging(shifted, bad=3)
    result = solve({"slow": slow}, timeout_s={"slow": 0.5}, retries={"slow": 1})
    slow.release.set()
    assert result.n_slow == slow.n_calls == 14
    assert sorted(map(len, tries(result).values())) == [1] * 12 + [2]
    assert ["failed", "done"] in tries(result).values()
    assert len(result.X) == 13


def test_a_value_that_comes_late_ends_the_tries():
    """The first call's value comes while its retry runs; the retry fails, and nothing is lost."""
    came_late, calls, release = threading.Event(), [], threading.Event()

    def slow(x):
        calls.append(x.tolist())
        if len(calls) == 1:
            assert release.wait(PATIENCE)
        elif x.tolist() == calls[0]:
            release.set()
            assert came_late.wait(PATIENCE)
            return math.nan
        return shifted(x)

    def note(optimizer, event):
        if isinstance(event, Told) and optimizer.record(event.id).objective == "slow":
            seen.append(event.id)
            if event.id == failed[0]:
                came_late.set()
        elif isinstance(event, Failed):
            failed.append(event.id)

    seen, failed = [], []
    result = solve({"slow": slow}, timeout_s={"slow": 1.0}, retries=3, callbacks=[note])
    assert calls.count(calls[0]) == 2
    assert len(failed) == 2
    assert result.history[failed[0]].status is Status.DONE
    assert len(result.X) == 13


def test_a_group_of_points_is_tried_again():
    calls = []

    def slow(X):
        calls.append(len(X))
        if len(calls) == 1:
            raise ValueError("no licence")
        return ((X - 1) ** 2).sum(dim=-1)

    functions = {"fast": lambda X: (X**2).sum(dim=-1), "slow": slow, "vectorized": True}
    result = solve(functions, n_slow=30, retries=1)
    assert calls[:2] == [8, 8]
    assert sum(calls) == result.n_slow == 30
    assert len(result.X) == 22


def test_retries_on_a_virtual_clock():
    clock = VirtualExecutor(time_slow=5, failures={"slow": 0.4}, workers={"slow": 3}, seed=1)
    options = {"n_slow": 40, "executor": clock, "retries": {"slow": 3}}
    result = solve(**options)
    assert result.n_slow == 40
    ended = [statuses[-1] for statuses in tries(result).values()]
    assert max(map(len, tries(result).values())) > 2
    assert ended.count("failed") <= 2
    assert torch.equal(result.X, solve(**options).X)


# ------------------------------------------------------------------ after a crash


class Stopped(Exception):  # noqa: N818
    pass


def stop_at(n):
    def callback(optimizer, event):
        if sum(isinstance(e, Failed) for e in optimizer.events) == n:
            raise Stopped

    return callback


@pytest.mark.parametrize("n", range(1, 7))
def test_tries_before_a_crash_count(n, tmp_path):
    """However often it crashes, no point is tried more often than in one go."""
    options = {
        "n_slow": 24, "n_init": 8, "strategy": cheap(), "seed": 2, "progress": False,
        "retries": {"slow": 2}, "executor": AtOnce(), "journal": tmp_path / "study.db",
    }  # fmt: skip
    whole = minimize(
        problem(slow=Flaky(0, corner=0.7)), **{**options, "journal": tmp_path / "whole.db"}
    )
    flaky = Flaky(0, corner=0.7)
    with pytest.raises(Stopped):
        minimize(problem(slow=flaky), **options, callbacks=[stop_at(n)])
    result = minimize(problem(slow=flaky), **options)
    assert tries(result) == tries(whole)
    assert torch.equal(result.all_X, whole.all_X)
    assert max(map(len, tries(result).values())) == 3


@pytest.mark.filterwarnings("ignore:there are only 0 slow values")
def test_a_start_that_failed_ends_after_a_crash_too(tmp_path):
    options = {
        "n_slow": 40, "n_init": 6, "strategy": cheap(), "progress": False, "retries": 1,
        "executor": AtOnce(), "journal": tmp_path / "study.db",
    }  # fmt: skip
    never = problem(slow=Flaky(10**9))
    with pytest.raises(Stopped):
        minimize(never, **options, callbacks=[stop_at(4)])
    with pytest.raises(ObjectiveError, match="all 12 evaluations of the slow objective failed"):
        minimize(never, **options)
    # Once the fault is mended, the run goes on.
    result = minimize(problem(), **options)
    assert result.status == "finished"
    assert len(result.X) == 28
    assert len(Study.read(options["journal"]).result().X) == 28


def test_retries_that_ask_and_tell_made_count_too(tmp_path):
    path = tmp_path / "study.db"
    settings = {"n_slow": 20, "n_init": 6, "strategy": cheap(), "journal": path}
    with Optimizer(problem(), **settings) as optimizer:
        slow = [e for e in optimizer.ask() if e.objective == "slow"]
        optimizer.fail(slow[0].id, "no licence", retry=True)
    flaky = Flaky(0, corner=-1.0, function=shifted)
    good = Flaky(0)

    def slow_objective(x):
        return flaky(x) if x.tolist() == slow[0].x.tolist() else good(x)

    result = minimize(problem(slow=slow_objective), **settings, progress=False, retries={"slow": 2})
    assert tries(result)[slow[0].point_id] == ["failed"] * 3
    assert sum(flaky.calls.values()) == 2
