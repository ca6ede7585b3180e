"""Two lanes: the fast objective does not wait for the slow one, and neither overlaps itself."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.executors import Pools, make_lanes
from tcsaea_torch.threads import OwnThreads
from tcsaea_torch.types import Objective

PATIENCE = 20.0


def pools(executor):
    lanes = make_lanes(executor)
    assert isinstance(lanes, Pools)
    return lanes


def test_by_default_the_lanes_are_different_threads():
    with pools(None) as lanes:
        name = lambda: threading.current_thread().name  # noqa: E731
        names = [lanes.of(objective).submit(name).result(PATIENCE) for objective in Objective]
    assert names[0].startswith("fast")
    assert names[1].startswith("slow")


def test_the_fast_lane_goes_on_while_the_slow_one_is_busy():
    release = threading.Event()
    with pools(None) as lanes:
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

    with pools(None) as lanes:
        for future in [lanes.of(objective).submit(call, k) for k in range(10)]:
            future.result(PATIENCE)
    assert seen == [[k] for k in range(10)]


def test_leaving_drops_what_waits_and_does_not_wait_for_what_runs():
    started, release = threading.Event(), threading.Event()

    def call():
        started.set()
        release.wait(PATIENCE)
        return "done"

    with pools(None) as lanes:
        running = lanes.of(Objective.SLOW).submit(call)
        waiting = lanes.of(Objective.SLOW).submit(call)
        assert started.wait(PATIENCE)
    assert not running.done()
    assert waiting.cancelled()
    for executor in map(lanes.of, Objective):
        with pytest.raises(RuntimeError, match="shutdown"):
            executor.submit(call)
    release.set()
    assert running.result(PATIENCE) == "done"


def test_the_users_executor_serves_both_lanes_and_stays_open():
    with ThreadPoolExecutor(1) as pool:
        with pools(pool) as lanes:
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
    lanes = pools(executor)
    assert lanes.of(Objective.FAST) is lanes.of(Objective.SLOW) is executor


@pytest.mark.parametrize("value", [4, "threads", ThreadPoolExecutor])
@pytest.mark.usefixtures("unchecked")
def test_other_things_are_not(value):
    with pytest.raises(InvalidInputError, match=r"^executor must be a concurrent\.futures\.Exec"):
        make_lanes(value)


@pytest.mark.usefixtures("unchecked")
def test_what_submit_returns_must_be_a_future():
    class Wrong:
        def submit(self, function, *arguments):
            return function(*arguments)

    with pytest.raises(
        InvalidInputError, match=r"^executor must return a concurrent.*, got 3 \(int"
    ):
        make_lanes(Wrong()).submit(Objective.FAST, 0, int, 3)


def test_calls_that_have_ended_come_in_the_order_of_submission():
    with ThreadPoolExecutor(1) as pool, make_lanes({"fast": pool, "slow": pool}) as lanes:
        futures = [
            lanes.submit(Objective(o), 0, int, k) for k, o in enumerate(["slow", "fast"] * 3)
        ]
        futures[-1].result(PATIENCE)
        seen = []
        while len(seen) < 6:
            ended, overdue = lanes.wait()
            assert not overdue
            seen += ended
    assert seen == futures


def test_a_thread_that_is_left_behind_makes_no_more_calls():
    release, names = threading.Event(), []
    thread = OwnThreads("mine")

    def call(waits):
        names.append(threading.get_ident())
        assert not waits or release.wait(PATIENCE)
        return waits

    hanging = thread.submit(call, True)
    others = [thread.submit(call, False) for _ in range(3)]
    while not names:
        time.sleep(0.001)
    thread.leave_behind(others[0])  # not the one that runs: nothing happens
    assert not others[0].done()
    thread.leave_behind(hanging)
    assert [future.result(PATIENCE) for future in others] == [False] * 3
    release.set()
    assert hanging.result(PATIENCE)
    assert thread.submit(call, False).result(PATIENCE) is False
    assert len({*names[1:]}) == 1
    assert names[0] != names[1]
    thread.shutdown()


def test_several_threads_and_some_are_left_behind():
    release, together = threading.Event(), threading.Barrier(3)
    threads = OwnThreads("mine", 3)

    def meet():
        together.wait(PATIENCE)
        return threading.get_ident()

    def meetings():
        return {future.result(PATIENCE) for future in [threads.submit(meet) for _ in range(3)]}

    before = meetings()  # three at a time
    assert len(before) == 3
    started = [threading.Event() for _ in range(2)]

    def hang(k):
        started[k].set()
        assert release.wait(PATIENCE)

    hanging = [threads.submit(hang, k) for k in range(2)]
    # Both first: a thread that takes over from one must not be the one that takes the other.
    assert all(event.wait(PATIENCE) for event in started)
    for future in hanging:
        threads.leave_behind(future)
        threads.leave_behind(future)  # once is enough
    after = meetings()
    assert len(after) == 3
    assert len(after - before) == 2
    release.set()
    threads.shutdown()
    assert [future.result(PATIENCE) for future in hanging] == [None, None]


def test_idle_threads_end_with_the_lanes_and_busy_ones_are_not_waited_for():
    """An idle thread that is left to the interpreter's end can abort the process."""
    release, started = threading.Event(), threading.Event()

    def hang():
        started.set()
        assert release.wait(PATIENCE)

    def n_alive():
        return sum(thread.name == "mine" for thread in set(threading.enumerate()) - before)

    before = set(threading.enumerate())
    threads = OwnThreads("mine", 3)
    hanging = threads.submit(hang)
    assert started.wait(PATIENCE)
    for call in [threads.submit(int, k) for k in range(2)]:
        call.result(PATIENCE)
    assert n_alive() == 3
    threads.shutdown(wait=False, cancel_futures=True)
    assert n_alive() == 1
    assert not hanging.done()
    release.set()
    hanging.result(PATIENCE)


@pytest.mark.parametrize("waits", [True, False])
def test_a_thread_may_ask_for_its_own_end(waits):
    """A thread that waited for itself would get an exception, and the others no end."""
    threads = OwnThreads("ending", 2)
    assert threads.submit(int).result(PATIENCE) == 0  # a thread comes with each of the first calls

    def end():
        threads.shutdown(wait=waits)
        return threading.current_thread()

    own = threads.submit(end).result(PATIENCE)
    own.join(PATIENCE)
    assert not own.is_alive()
    assert not any(thread.name == "ending" for thread in threading.enumerate())
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.submit(int)


def test_a_run_leaves_no_threads():
    problem = tc.Problem(fast=sum, slow=max, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
    before = set(threading.enumerate())
    for _ in range(20):
        tc.minimize(problem, n_slow=4, strategy="random", progress=False)
        assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("value", [0.0, -1, True, "3", float("nan"), {"fast": 0}, {"slo": 3}])
@pytest.mark.usefixtures("unchecked")
def test_limits_are_positive_numbers(value):
    with pytest.raises(InvalidInputError, match=r"^timeout_s(\['fast'\]|'s keys)? must be"):
        make_lanes(None, value)


def test_waiting_for_a_limit_takes_no_time_of_the_processor():
    release = threading.Event()
    with make_lanes(None, {"slow": 0.5}) as lanes:
        future = lanes.submit(Objective.SLOW, 0, release.wait, PATIENCE)
        before = time.process_time()
        assert lanes.wait() == ([], {future: "timed out after 0.5 s"})
        assert time.process_time() - before < 0.1
        release.set()
        assert lanes.wait() == ([future], {})
