"""Two lanes: the fast objective does not wait for the slow one, and neither overlaps itself."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.executors import Lanes
from tcsaea_torch.types import Objective

PATIENCE = 20.0


def test_by_default_the_lanes_are_different_threads():
    with Lanes.make(None) as lanes:
        name = lambda: threading.current_thread().name  # noqa: E731
        names = [lanes.of(objective).submit(name).result(PATIENCE) for objective in Objective]
    assert names[0].startswith("fast")
    assert names[1].startswith("slow")


def test_the_fast_lane_goes_on_while_the_slow_one_is_busy():
    release = threading.Event()
    with Lanes.make(None) as lanes:
        slow = lanes.of(Objective.SLOW).submit(release.wait, PATIENCE)
        fast = [lanes.of(Objective.FAST).submit(int, k) for k in range(5)]
        assert [future.result(PATIENCE) for future in fast] == list(range(5))
        assert not slow.done()
        release.set()
        assert slow.result(PATIENCE)


@pytest.mark.parametrize("objective", list(Objective))
def test_calls_in_one_lane_come_one_after_another(objective):
    running, seen = [], []

    def call(k):
        running.append(k)
        time.sleep(0.002)
        seen.append(list(running))
        running.remove(k)

    with Lanes.make(None) as lanes:
        for future in [lanes.of(objective).submit(call, k) for k in range(10)]:
            future.result(PATIENCE)
    assert seen == [[k] for k in range(10)]


def test_leaving_drops_what_waits_and_does_not_wait_for_what_runs():
    started, release = threading.Event(), threading.Event()

    def call():
        started.set()
        release.wait(PATIENCE)
        return "done"

    with Lanes.make(None) as lanes:
        running = lanes.slow.submit(call)
        waiting = lanes.slow.submit(call)
        assert started.wait(PATIENCE)
    assert not running.done()
    assert waiting.cancelled()
    for executor in (lanes.fast, lanes.slow):
        with pytest.raises(RuntimeError, match="shutdown"):
            executor.submit(call)
    release.set()
    assert running.result(PATIENCE) == "done"


def test_the_users_executor_serves_both_lanes_and_stays_open():
    with ThreadPoolExecutor(1) as pool:
        with Lanes.make(pool) as lanes:
            assert lanes.of(Objective.FAST) is lanes.of(Objective.SLOW) is pool
        assert pool.submit(int, 3).result(PATIENCE) == 3


@pytest.mark.usefixtures("unchecked")
def test_anything_with_submit_is_an_executor():
    class Minimal:
        def submit(self, function, *arguments):
            future = Future()
            future.set_result(function(*arguments))
            return future

    executor = Minimal()
    lanes = Lanes.make(executor)  # pyright: ignore[reportArgumentType]
    assert lanes.of(Objective.FAST) is lanes.of(Objective.SLOW) is executor


@pytest.mark.parametrize("value", [4, "threads", ThreadPoolExecutor])
@pytest.mark.usefixtures("unchecked")
def test_other_things_are_not(value):
    with pytest.raises(InvalidInputError, match=r"^executor must be a concurrent\.futures\.Exec"):
        Lanes.make(value)
