"""`minimize`: budgets, failures, interruptions and executors, seen from the objectives' side."""

import logging
import math
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tcsaea_torch import Optimizer, Problem, Status, minimize, strategies
from tcsaea_torch.errors import InvalidInputError, ObjectiveError
from tcsaea_torch.events import Failed, Told
from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions

PATIENCE = 20.0
BOX = [[0.0, 0.0], [1.0, 1.0]]


def paraboloid(x):
    return float((x**2).sum())


def shifted(x):
    return float(((x - 1) ** 2).sum())


def paraboloids(X):
    return (X**2).sum(dim=-1)


def shifteds(X):
    return ((X - 1) ** 2).sum(dim=-1)


def unlucky(x):
    """Fail in a part of the space, the same in every process."""
    if x[0] > 0.7:
        raise ValueError(f"mesh broken at {x[0]:.3f}")
    return shifted(x)


def problem(**changes):
    return Problem(**{"fast": paraboloid, "slow": shifted, "bounds": BOX, "tau": 2, **changes})


def cheap(name="tc-saea"):
    """Make a strategy with a short search: the driver does the same with any."""
    if name == "random":
        return strategies.get(name)
    fit = FitConfig(starts=(2.0,), options=BFGSOptions(max_evaluations=5))
    return strategies.get(name, search=RVEAConfig(n_generations=2), n_ref_vectors=12, kriging=fit)


def solve(changes=None, **options):
    defaults = {"n_slow": 14, "n_init": 8, "strategy": cheap(), "progress": False}
    return minimize(problem(**(changes or {})), **{**defaults, **options})


class Counted:
    """An objective that keeps its points, in the order in which they came."""

    def __init__(self, function):
        self.function, self.X, self.lock = function, [], threading.Lock()

    def __call__(self, x):
        with self.lock:
            self.X.append(x.clone() if isinstance(x, torch.Tensor) else x.copy())
        return self.function(x)


class AtOnce(Executor):
    """Run each call when it is submitted, in this thread; keep errors for later."""

    def __init__(self):
        self.n_calls = 0

    def submit(self, fn, /, *arguments, **options):
        future = OrderedFuture(self.n_calls)
        self.n_calls += 1
        try:
            future.set_result(fn(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)
        return future


class OrderedFuture(Future):
    """A future whose place in a set is known: the first one comes first."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def __hash__(self):
        return self.place

    def __eq__(self, other):
        return self is other


def same(a, b):
    return all(
        torch.equal(getattr(a, name).nan_to_num(-1), getattr(b, name).nan_to_num(-1))
        for name in ("all_X", "all_Y", "X", "Y", "pareto_X", "pareto_Y")
    )


# ------------------------------------------------------------------ budgets


@pytest.mark.parametrize("tau", [1, 2.5])
@pytest.mark.parametrize("name", ["tc-saea", "tc-saea-released", "random"])
def test_calls_are_counted_exactly(name, tau):
    fast, slow = Counted(paraboloid), Counted(shifted)
    result = solve({"fast": fast, "slow": slow, "tau": tau}, strategy=cheap(name))
    assert len(slow.X) == result.n_slow == 14
    assert len(fast.X) == result.n_fast
    assert result.n_fast <= math.floor(tau * 14)
    if name == "tc-saea":
        assert result.n_fast == math.floor(tau * 14)
    assert result.status == "finished"
    assert len(result.X) == 14
    for objective in (fast, slow):
        assert len(np.unique(objective.X, axis=0)) == len(objective.X)


def test_values_belong_to_their_points():
    result = solve({"directions": ("minimize", "maximize")})
    expected = [[paraboloid(x), shifted(x)] for x in result.X.numpy()]
    assert result.Y.tolist() == expected
    # Every slow call was made, every value is in the history, with its times.
    for record in result.history:
        assert record.status is Status.DONE
        assert record.asked_at <= record.ended_at


def test_the_front_is_found_better_than_by_chance():
    bounds = [[0.0] * 4, [1.0] * 4]
    result, random = (
        solve({"bounds": bounds}, n_slow=26, n_init=12, strategy=name)
        for name in ("tc-saea", "random")
    )
    # On the segment between the minima, (0, ..., 0) and (1, ..., 1), coordinates are equal.
    spread = [r.pareto_X.std(dim=1).mean() for r in (result, random)]
    assert spread[0] < 0.75 * spread[1]
    assert result.hypervolume([4.0, 4.0]) > random.hypervolume([4.0, 4.0])


# ------------------------------------------------------------------ reproducibility


def by_hand(**options):
    defaults = {"n_slow": 14, "n_init": 8, "strategy": cheap()}
    optimizer = Optimizer(problem(), **{**defaults, **options})
    while evaluations := optimizer.ask():
        for e in evaluations:
            optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
    return optimizer.result()


@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_a_run_equals_a_loop_of_ask_and_tell_with_the_same_seed(name):
    result = solve(strategy=cheap(name), seed=7)
    assert same(result, solve(strategy=cheap(name), seed=7))
    assert same(result, by_hand(strategy=cheap(name), seed=7))
    assert not torch.equal(result.X, by_hand(strategy=cheap(name), seed=8).X)
    assert result.seed == 7


@pytest.mark.parametrize("slow", [shifted, unlucky])
def test_threads_and_processes_give_the_same_result(slow):
    expected = solve({"slow": slow})
    assert (len(expected.X) == 14) == (slow is shifted)
    with ThreadPoolExecutor(4) as pool:
        assert same(solve({"slow": slow}, executor=pool), expected)
        assert pool.submit(int, 3).result(PATIENCE) == 3  # it is left open
    assert same(solve({"slow": slow}, executor=AtOnce()), expected)


def test_processes_give_the_same_result():
    expected = solve({"slow": unlucky}, strategy=cheap("random"))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        result = solve({"slow": unlucky}, strategy=cheap("random"), executor=pool)
    assert same(result, expected)
    failed = [r for r in result.history if r.status is Status.FAILED]
    assert failed
    assert all("ValueError: mesh broken at 0." in r.reason for r in failed)


def test_each_objective_may_have_its_executor():
    seen = {"fast": set(), "slow": set()}

    def noting(name, function):
        return lambda x: seen[name].add(threading.current_thread().name) or function(x)

    functions = {"fast": noting("fast", paraboloid), "slow": noting("slow", shifted)}
    with ThreadPoolExecutor(2, "cluster") as pool:
        assert same(solve(functions, executor={"slow": pool}), solve())
        assert seen["fast"] == {"fast"}
        assert all(name.startswith("cluster") for name in seen["slow"])
        assert same(solve(functions, executor={"fast": AtOnce(), "slow": pool}), solve())
        assert seen["fast"] == {"fast", threading.current_thread().name}


def test_processes_need_objectives_that_can_be_pickled():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        slow = lambda x: 1.0  # noqa: E731
        with pytest.raises(InvalidInputError, match=r"^slow must be picklable to run in a process"):
            solve({"slow": slow}, executor={"slow": pool})
        assert solve({"fast": slow}, strategy="random", executor={"slow": pool}).n_slow == 14


def test_the_fast_objective_goes_on_while_the_slow_one_runs():
    design_is_over = threading.Event()
    waited = []

    def fast(x):
        fast.n_calls += 1
        if fast.n_calls > 8:  # the search that follows the design
            design_is_over.set()
        return paraboloid(x)

    def slow(x):
        waited.append(design_is_over.wait(PATIENCE))
        return shifted(x)

    fast.n_calls = 0
    solve({"fast": fast, "slow": slow})
    assert waited == [True] * 14


def test_neither_objective_is_called_twice_at_a_time():
    depth, deepest = {"fast": 0, "slow": 0}, []
    lock = threading.Lock()

    def watched(name, function):
        def call(x):
            with lock:
                depth[name] += 1
                deepest.append(depth[name])
            value = function(x)
            with lock:
                depth[name] -= 1
            return value

        return call

    solve({"fast": watched("fast", paraboloid), "slow": watched("slow", shifted)})
    assert max(deepest) == 1


def test_objectives_may_change_their_argument():
    def rude(x):
        value = paraboloid(x)
        x[:] = -1e9
        return value

    assert same(solve({"fast": rude}), solve())


# ------------------------------------------------------------------ failures


def sometimes(bad):
    """Make a slow objective that does something bad on every third call."""
    calls = []

    def slow(x):
        calls.append(1)
        return bad() if len(calls) % 3 == 0 else shifted(x)

    return slow


def break_the_mesh():
    raise ValueError("mesh broken\nat element 7")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (break_the_mesh, r"(?s)Traceback .*break_the_mesh.*ValueError: mesh broken\nat element 7$"),
        (lambda: 1 / 0, r"(?s)Traceback .*ZeroDivisionError: .*$"),
        (
            lambda: math.nan,
            r"value of evaluation \d+ must be a finite real number, got nan \(float\)$",
        ),
        (lambda: -math.inf, r"value of evaluation \d+ must be a finite real number, got -inf"),
        (lambda: "2.5", r"value of evaluation \d+ must be one real number, got '2.5' \(str\)$"),
        (lambda: None, r"value of evaluation \d+ must be one real number, got None \(NoneType\)$"),
        (lambda: np.ones(2), r"value of evaluation \d+ must be one real number, got ndarray of sh"),
    ],
    ids=["raises", "divides", "nan", "inf", "text", "None", "array"],
)
def test_a_run_goes_on_when_evaluations_fail(bad, reason, caplog):
    slow = Counted(sometimes(bad))
    with caplog.at_level(logging.WARNING, logger="tcsaea_torch"):
        result = solve({"slow": slow}, n_slow=12, n_init=6)
    assert result.status == "finished"
    assert len(slow.X) == result.n_slow == 12
    failed = [r for r in result.history if r.status is Status.FAILED]
    assert len(failed) == 4
    assert all(re.match(reason, r.reason) for r in failed)
    assert len(result.X) == 8
    assert result.message.endswith(", 4 failed")
    # Their fast values are kept, and the log names each of them.
    lost = result.all_Y.isnan()
    assert lost[:, 1].sum() == 4 + result.n_fast - 12
    assert not lost[:, 0].any()
    assert len(caplog.messages) == 4
    logged = re.findall(r"^slow evaluation (\d+) failed: .", "\n".join(caplog.messages), re.M)
    assert sorted(map(int, logged)) == [r.id for r in failed]


@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_an_objective_that_never_works_ends_the_run(name):
    slow = Counted(lambda x: unlucky(x + 1))
    with pytest.raises(ObjectiveError) as caught:
        solve({"slow": slow}, n_slow=12, n_init=6, strategy=cheap(name), executor=AtOnce())
    assert len(slow.X) == 6  # the initial design, and no call more
    assert str(caught.value).startswith("all 6 evaluations of the slow objective failed; the last")
    last = slow.X[-1][0] + 1
    assert str(caught.value).endswith(f"ValueError: mesh broken at {last:.3f}")


def test_a_fast_objective_that_never_works_ends_the_run_too():
    with pytest.raises(ObjectiveError, match="evaluations of the fast objective failed"):
        solve({"fast": lambda x: math.nan})


@pytest.mark.filterwarnings("ignore:there is only 1 (fast|slow) value")
def test_one_value_is_enough_to_go_on():
    calls = []

    def slow(x):
        calls.append(1)
        return shifted(x) if len(calls) == 8 else math.nan

    result = solve({"slow": slow})
    assert result.status == "finished"
    assert len(result.X) == 1
    assert len(calls) == 14


# ------------------------------------------------------------------ time limits


class Hanging:
    """An objective of which one call lasts until it is released."""

    def __init__(self, function, bad):
        self.function, self.bad, self.n_calls = function, bad, 0
        self.release, self.lock = threading.Event(), threading.Lock()

    def __call__(self, x):
        with self.lock:
            self.n_calls += 1
            n = self.n_calls
        if n == self.bad:
            assert self.release.wait(PATIENCE)
        return self.function(x)


def timed_out(result):
    return [r for r in result.history if r.reason.startswith("timed out")]


@pytest.mark.parametrize("limit", [0.5, {"slow": 0.5}, {"slow": 0.5, "fast": None}])
@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_a_call_that_hangs_is_given_up_and_the_lane_goes_on(name, limit):
    slow = Hanging(shifted, bad=3)
    result = solve({"slow": slow}, strategy=cheap(name), timeout_s=limit)
    assert result.status == "finished"
    assert result.n_slow == slow.n_calls == 14
    (record,) = timed_out(result)
    assert (record.objective, record.status) == ("slow", Status.FAILED)
    assert record.reason == "timed out after 0.5 s"
    assert record.ended_at - record.asked_at >= 0.5
    assert len(result.X) == 13
    assert result.message.endswith(", 1 failed")
    slow.release.set()


def test_a_limit_counts_from_when_a_call_begins():
    slow = Counted(lambda x: time.sleep(0.06) or shifted(x))
    result = solve({"slow": slow}, strategy=cheap("random"), timeout_s={"slow": 0.5})
    # The last one was in the queue for 13 times as long as one takes.
    assert max(r.ended_at - r.asked_at for r in result.history) > 0.5
    assert len(result.X) == 14


def test_time_limits_in_the_users_threads():
    slow = Hanging(shifted, bad=3)
    with ThreadPoolExecutor(2) as pool:  # one thread stays with the call that hangs
        result = solve({"slow": slow}, executor={"slow": pool}, timeout_s=0.5)
        assert [r.reason for r in timed_out(result)] == ["timed out after 0.5 s"]
        assert result.n_slow == slow.n_calls == 14
        slow.release.set()


def slow_in_a_corner(x):
    """Take long in a part of the space, the same in every process."""
    time.sleep(0.7 if x[0] > 0.9 else 0.05)
    return shifted(x)


def test_time_limits_in_processes():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        options = {"executor": {"slow": pool}, "timeout_s": {"slow": 0.4}}
        result = solve({"slow": slow_in_a_corner}, strategy=cheap("random"), **options)
    expected = [r for r in result.history if r.objective == "slow" and in_corner(result, r)]
    late = [r for r in expected if r.status is Status.DONE]  # while the run lasted
    assert expected
    assert len(timed_out(result)) + len(late) == len(expected)
    assert {r.id for r in timed_out(result)} <= {r.id for r in expected}


def in_corner(result, record):
    return result.all_X[record.point_id, 0] > 0.9


def test_a_value_that_comes_late_counts(caplog):
    slow = Hanging(shifted, bad=3)
    seen = []

    def release(optimizer, event):
        seen.append(event)
        if isinstance(event, Failed):
            slow.release.set()

    with caplog.at_level(logging.INFO, logger="tcsaea_torch"):
        result = solve(
            {"slow": slow, "fast": lambda x: time.sleep(0.02) or paraboloid(x)},
            timeout_s={"slow": 0.5},
            callbacks=[release],
        )
    assert len(result.X) == result.n_slow == slow.n_calls == 14
    assert not timed_out(result)
    (failed,) = (e for e in seen if isinstance(e, Failed))
    assert [e.value for e in seen if isinstance(e, Told) and e.id == failed.id] == [
        result.history[failed.id].value
    ]
    assert f"slow evaluation {failed.id} came late" in caplog.messages


@pytest.mark.parametrize("bad", [lambda: 1 / 0, lambda: math.nan])
def test_a_call_that_fails_late_has_timed_out(bad):
    release, calls, raised = threading.Event(), [], threading.Event()

    def slow(x):
        calls.append(1)
        if len(calls) == 1:
            release.wait(PATIENCE)
            raised.set()
            return bad()
        assert raised.wait(PATIENCE)  # the run lasts until then
        return shifted(x)

    def note(optimizer, event):
        seen.append(event)
        if isinstance(event, Failed):
            release.set()

    seen = []
    result = solve({"slow": slow}, timeout_s={"slow": 0.5}, callbacks=[note])
    assert len(timed_out(result)) == 1
    assert len([e for e in seen if isinstance(e, Failed)]) == 1
    assert len(result.X) == 13


def test_a_run_in_which_all_calls_time_out_ends():
    release = threading.Event()
    with pytest.raises(
        ObjectiveError, match=r"all 4 eval.* of the slow .*: timed out after 0\.05 s$"
    ):
        solve(
            {"slow": lambda x: release.wait(PATIENCE)}, n_slow=4, n_init=4, timeout_s={"slow": 0.05}
        )
    release.set()


def test_progress_counts_a_late_value_once(capsys):
    slow = Hanging(shifted, bad=3)

    def release(optimizer, event):
        if isinstance(event, Failed):
            slow.release.set()

    fast = lambda x: time.sleep(0.02) or paraboloid(x)  # noqa: E731
    options = {"timeout_s": {"slow": 0.5}, "callbacks": [release], "progress": True}
    result = solve({"slow": slow, "fast": fast}, **options)
    assert len(result.X) == 14
    assert re.search(r"slow: 100%\|.*\| 14/14 ", capsys.readouterr().err.split("\r")[-1])


def test_a_call_that_hangs_does_not_keep_the_program():
    code = """
import time
from tcsaea_torch import Problem, minimize
problem = Problem(
    fast=lambda x: float(x[0]), slow=lambda x: time.sleep(1000 * (x[0] > 0.5)) or 1.0,
    bounds=[[0.0], [1.0]], tau=1,
)
result = minimize(
    problem, n_slow=4, n_init=4, strategy="random", timeout_s=0.05, progress=False
)
print(result.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=5 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("2 failed")


def test_a_call_that_its_executor_cancels_has_failed():
    class Cancelling(AtOnce):
        def submit(self, fn, /, *arguments, **options):
            if self.n_calls == 5:
                self.n_calls += 1
                future = Future()
                future.cancel()
                return future
            return super().submit(fn, *arguments, **options)

    result = solve(strategy=cheap("random"), executor={"slow": Cancelling()})
    (failed,) = (r for r in result.history if r.status is Status.FAILED)
    assert failed.reason == "concurrent.futures._base.CancelledError"


# ------------------------------------------------------------------ interruptions


@pytest.mark.parametrize("executor", [None, AtOnce()], ids=["threads", "at once"])
@pytest.mark.parametrize("objective", ["fast", "slow"])
def test_an_interrupt_returns_what_was_measured(objective, executor):
    functions = {"fast": paraboloid, "slow": shifted}
    calls = []

    def stop(x):
        calls.append(1)
        # In the second step: the design was told by then.
        if len(calls) == 10:
            raise KeyboardInterrupt
        return functions[objective](x)

    result = solve({objective: stop}, executor=executor, strategy=cheap(), n_slow=30)
    assert result.status == "interrupted"
    assert result.message.startswith("interrupted by the user: ")
    # The design's values of this objective were told by then.
    column = ["fast", "slow"].index(objective)
    assert (~result.all_Y[:, column].isnan()).sum() >= 8
    assert result.Y.tolist() == [[paraboloid(x), shifted(x)] for x in result.X.numpy()]
    assert result.n_slow < 30


def test_an_interrupt_keeps_all_that_was_measured():
    calls, measured = [], []

    def stop(x):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        measured.append(x.tolist())
        return shifted(x)

    result = solve({"slow": stop}, strategy=cheap("random"), executor=AtOnce())
    assert len(measured) == 7
    assert result.all_X[~result.all_Y[:, 1].isnan()].tolist() == measured


def test_a_callback_can_stop_a_run():
    def stop_at_20(optimizer, event):
        if len(optimizer.events) >= 20:
            raise KeyboardInterrupt

    result = solve(callbacks=[stop_at_20], executor=AtOnce())
    assert result.status == "interrupted"
    assert sum(r.status is Status.DONE for r in result.history) >= 17


def test_other_ends_of_the_program_come_through():
    def leave(x):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        solve({"slow": leave})


# ------------------------------------------------------------------ callbacks


@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_callbacks_see_every_value_and_failure_once_in_order(name):
    seen, others, last = [], [], []

    def callback(optimizer, event):
        record = optimizer.record(event.id)
        assert record.status is (Status.DONE if isinstance(event, Told) else Status.FAILED)
        seen.append(event)
        last[:] = [optimizer]

    result = solve(
        {"slow": unlucky}, strategy=cheap(name), callbacks=(callback, lambda o, e: others.append(e))
    )
    (optimizer,) = last
    assert seen == [e for e in optimizer.events if isinstance(e, Told | Failed)]
    assert others == seen
    assert sum(isinstance(e, Failed) for e in seen) == sum(
        r.status is Status.FAILED for r in result.history
    )
    assert sorted(e.id for e in seen) == list(range(len(result.history)))


def test_what_a_callback_raises_comes_through():
    def explode(optimizer, event):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        solve(callbacks=[explode])


# ------------------------------------------------------------------ progress


def test_no_progress_prints_nothing(capfd):
    solve()
    assert capfd.readouterr() == ("", "")


def test_progress_is_a_bar_on_stderr(capsys):
    result = solve(progress=True)
    output = capsys.readouterr()
    assert output.out == ""
    last = output.err.rstrip().split("\r")[-1]
    assert re.search(r"^slow: 100%\|.*\| 14/14 ", last)
    assert f"fast {result.n_fast}/28" in last
    volume = re.search(r"hypervolume ([\d.e+-]+)", last)
    assert volume is not None
    assert 0.0 < float(volume[1]) <= result.hypervolume() * 1.001


def test_progress_counts_failures_and_survives_an_interrupt(capsys):
    calls = []

    def slow(x):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return math.nan if len(calls) == 3 else shifted(x)

    assert solve({"slow": slow}, progress=True).status == "interrupted"
    err = capsys.readouterr().err
    last = re.search(r"slow: +\d+%\|.*\| (\d+)/14 .*fast (\d+)/28", err.split("\r")[-1])
    assert last is not None
    assert 8 <= int(last[1]) < 14
    assert 16 <= int(last[2]) < 28
    assert err.endswith("\n")  # the bar is closed


# ------------------------------------------------------------------ vectorized problems


def test_vectorized_functions_get_tensors_on_the_runs_device(device):
    fast, slow = Counted(paraboloids), Counted(shifteds)
    result = solve({"fast": fast, "slow": slow, "vectorized": True}, device=device)
    assert all(isinstance(X, torch.Tensor) and X.shape[1] == 2 for X in fast.X + slow.X)
    assert {X.dtype for X in fast.X + slow.X} == {torch.float64}
    assert {X.device.type for X in fast.X + slow.X} == {device.type}
    assert sum(map(len, slow.X)) == 14
    assert sum(map(len, fast.X)) == 28
    assert [len(X) for X in slow.X] == [8, 3, 3]  # one call for each step
    assert len(result.X) == 14


def test_vectorized_or_not_is_the_same_run():
    functions = {
        "fast": lambda X: [paraboloid(x) for x in X.numpy()],
        "slow": lambda X: np.array([[shifted(x)] for x in X.numpy()]),
    }
    assert same(solve({**functions, "vectorized": True}), solve())


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda X: shifteds(X)[:-1], "an objective must return {n} values for {n} points, got sh"),
        (lambda X: "text", "an objective must return {n} numbers for {n} points, got 'text' (str)"),
        (lambda X: X / "0", "TypeError: "),
    ],
    ids=["too few", "text", "raises"],
)
def test_a_vectorized_call_fails_as_a_whole(bad, reason):
    calls = []

    def slow(X):
        calls.append(len(X))
        return bad(X) if len(calls) == 2 else shifteds(X)

    result = solve({"fast": paraboloids, "slow": slow, "vectorized": True})
    assert calls == [8, 3, 3]
    failed = [r for r in result.history if r.status is Status.FAILED]
    assert len(failed) == 3
    assert all(reason.format(n=3) in r.reason for r in failed)
    assert len(result.X) == 11


def test_a_vectorized_call_may_fail_in_part():
    def slow(X):
        values = shifteds(X)
        values[0] = math.nan
        return values

    result = solve({"fast": paraboloids, "slow": slow, "vectorized": True})
    assert len(result.X) == 14 - 3
    reasons = {r.reason for r in result.history if r.status is Status.FAILED}
    assert all("must be a finite real number, got nan" in reason for reason in reasons)


# ------------------------------------------------------------------ arguments


def test_initial_data_takes_the_place_of_the_design():
    X = np.random.default_rng(0).random((8, 2))
    data = {"X": X, "fast": [paraboloid(x) for x in X], "slow": [shifted(x) for x in X]}
    slow = Counted(shifted)
    result = solve({"slow": slow}, initial_data=data, n_slow=6, n_init=6)
    assert len(slow.X) == 6
    assert result.n_slow == 6
    assert result.all_X[:8].tolist() == X.tolist()
    assert len(result.X) == 14
    assert not {tuple(x) for x in slow.X} & {tuple(x) for x in X}
    assert same(result, by_hand(initial_data=data, n_slow=6, n_init=6))


def test_float32_and_strategies_by_name():
    result = solve(strategy="random", dtype=torch.float32)
    assert result.strategy == "random"
    assert result.X.dtype == torch.float64
    assert torch.equal(result.X.float().double(), result.X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"progress": 1}, "progress must be True or False, got 1 (int)"),
        ({"progress": None}, "progress must be True or False, got None (NoneType)"),
        ({"callbacks": [3]}, "callbacks must be callable, got 3 (int)"),
        (
            {"executor": 4},
            "executor must be a concurrent.futures.Executor, or a dict of fast and sl",
        ),
        ({"n_slow": 0}, "n_slow must be an integer >= 1, got 0 (int)"),
        (
            {"strategy": "randon"},
            "strategy must be one of brood-interleaving, fast-first, ",
        ),
        ({"initial_data": {"X": [[0.5]]}}, "X must have shape (n, 2), got shape (1, 1)"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_found_before_anything_is_called(options, message):
    fast, slow = Counted(paraboloid), Counted(shifted)
    with pytest.raises(InvalidInputError, match="^" + re.escape(message)):
        solve({"fast": fast, "slow": slow}, **options)
    assert fast.X == slow.X == []


def die(x):
    os._exit(3)


def test_a_broken_executor_returns_what_was_measured():
    """The worker of the slow lane dies; what the fast objective gave is kept."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        problem = Problem(fast=paraboloid, slow=die, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
        result = minimize(
            problem, n_slow=12, n_init=4, strategy=cheap(), executor=executor, progress=False
        )
    assert result.status == "interrupted"
    assert "broken executor" in result.message
