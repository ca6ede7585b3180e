"""Runs that go on after an interruption, as if there had been none."""

import contextlib
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import strategies
from tcsaea_torch.errors import InvalidInputError, JournalError, ProtocolError
from tcsaea_torch.strategies import RandomSearch
from tcsaea_torch.study import Study
from tests import crashes
from tests.test_conventions import quick
from tests.test_optimizer import cheap, points, problem, tell_all
from tests.test_optimizer import run as run_to_end


def start(path, **options):
    options = {"n_slow": 14, "n_init": 8, "strategy": "random", **options}
    return tc.Optimizer(problem(), journal=path, **options)


def resume(path, **options):
    return tc.Optimizer.resume(path, problem(), **options)


def events(optimizer):
    return list(optimizer.events)


# ------------------------------------------------------------------ killed


@pytest.mark.parametrize("n_kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_kill_at_random_moments_loses_nothing_and_changes_nothing(n_kills, tmp_path):
    """In a process of its own, since it forks: see `tests.crashes`."""
    command = [sys.executable, "-m", "tests.crashes", str(n_kills), "0", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    n_killed, n_finished = map(int, done.stdout.split())
    assert n_killed >= n_kills
    assert n_finished >= 1


SCRIPT = """
import sys, os, signal, time
import tcsaea_torch as tc
calls = 0
def fast(x):
    global calls
    calls += 1
    time.sleep(0.05)  # the disk may be slow
    if calls == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return float((x**2).sum())
problem = tc.Problem(
    fast=fast, slow=lambda x: float(((x - 1) ** 2).sum()), bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2
)
result = tc.minimize(
    problem, n_slow=14, n_init=8, strategy="random", journal=sys.argv[1], progress=False
)
print(calls, result.n_fast, result.n_slow, result.status)
"""


def test_the_same_script_again_after_a_crash_goes_on(path):
    def run(kill_at):
        command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path), str(kill_at)]
        environment = {**os.environ, "PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert run(12).returncode == -9
    n_told = sum(r.objective == "fast" for r in Study.read(path).result().history if r.value > 0)
    assert 0 < n_told < 12  # the calls run ahead of the disk
    finished = run(0)
    n_calls, n_fast, n_slow, status = finished.stdout.split()
    assert int(n_calls) == 14 - n_told
    assert (n_fast, n_slow, status) == ("14", "14", "finished")
    assert run(0).stdout.split() == ["0", "14", "14", "finished"]  # nothing is left to do


# ------------------------------------------------------------------ bit for bit


@pytest.mark.parametrize("name", strategies.names())
def test_a_run_resumed_in_every_period_is_the_uninterrupted_one(name, path):
    strategy = small(name)
    whole = tc.Optimizer(problem(tau=3), n_slow=14, n_init=8, strategy=strategy, seed=2)
    run_to_end(whole)
    optimizer = tc.Optimizer(
        problem(tau=3), n_slow=14, n_init=8, strategy=strategy, seed=2, journal=path
    )
    while evaluations := optimizer.ask():
        tell_all(optimizer, evaluations)
        optimizer.close()
        optimizer = tc.Optimizer.resume(path, problem(tau=3))
        assert optimizer.strategy == strategy
        assert optimizer.pending == []
    assert crashes.is_same(events(optimizer), events(whole))
    assert optimizer.result().message == whole.result().message
    optimizer.close()


def small(name):
    """A strategy whose search is short."""
    strategy = strategies.get(name)
    if hasattr(strategy, "n_ref_vectors"):
        return strategies.get(name, search=crashes.RVEAConfig(n_generations=2), n_ref_vectors=12)
    if hasattr(strategy, "n_population"):
        return strategies.get(name, n_population=6)
    return strategy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_precision_is_the_studys(dtype, path, device):
    optimizer = start(path, dtype=dtype, device=device, strategy=cheap("tc-saea"))
    for _ in range(2):
        tell_all(optimizer, optimizer.ask())
    state = optimizer._state.strategy_state
    optimizer.close()
    with resume(path) as again:
        assert (again.dtype, again.device) == (dtype, device)
        assert crashes.same_value(again._state.strategy_state, state)
        assert torch.equal(again.archive.Y, optimizer.archive.Y)


def test_on_another_device_than_the_studys(path, monkeypatch):
    monkeypatch.setattr(tc.Optimizer, "_header", with_device(tc.Optimizer._header, "cuda:77"))
    optimizer = start(path)
    tell_all(optimizer, optimizer.ask())
    optimizer.close()
    with pytest.raises(JournalError, match=r"begun on 'cuda:77', .* not present.*device='cpu'"):
        resume(path)
    with pytest.raises(InvalidInputError, match="device must name a device that is present"):
        resume(path, device="cuda:78")
    with resume(path, device="cpu") as again:
        assert torch.equal(again.archive.Y, optimizer.archive.Y)


def with_device(header, device):
    return lambda self: {**header(self), "device": device}


def test_the_resumed_run_never_asked_its_strategy(path, monkeypatch):
    optimizer = start(path)
    tell_all(optimizer, optimizer.ask())
    optimizer.close()

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(RandomSearch, "propose", refuse)
    with resume(path) as again:
        assert again.n_used == (8, 8)


# ------------------------------------------------------------------ what was pending


def interrupted(path):
    """A run with failures and retries of which five evaluations were under way.

    Number 3 was given up and is to be tried again as 16; 5 likewise as 17, and then came.
    """
    optimizer = start(path)
    evaluations = optimizer.ask()
    for e in evaluations[:12]:
        if e.id in (3, 5):
            optimizer.fail(e.id, "no licence", retry=True)
        else:
            optimizer.tell(e.id, e.id + 0.5)
    retries = optimizer.ask()
    assert [e.id for e in retries] == [16, 17]
    optimizer.tell(5, 0.125)
    optimizer.close()
    return {e.id: e for e in [*evaluations, *retries]}


def test_pending_evaluations_can_be_waited_for(path):
    asked = interrupted(path)
    with resume(path) as optimizer:
        pending = optimizer.pending
        assert [e.id for e in pending] == [12, 13, 14, 15, 16, 17]
        for e in pending:
            before = asked[e.id]
            assert (e.point_id, e.objective) == (before.point_id, before.objective)
            assert (e.x == before.x).all()
        new = optimizer.ask()
        assert [e.id for e in new] == list(range(18, 18 + len(new)))
        assert new
        tell_all(optimizer, pending[:-1])
        with pytest.raises(ProtocolError, match=r"evaluation 0 was told 0.5 before, now 7.0"):
            optimizer.tell(0, 7.0)
        optimizer.tell(0, 0.5)  # told again by a worker that did not hear of it


def test_pending_evaluations_can_be_handed_out_again(path):
    asked = interrupted(path)
    used = resume_and_close(path).n_used
    for _ in range(2):
        with resume(path, on_pending="rerun") as optimizer:
            assert optimizer.pending[0].id == 17  # its value has come late
            again = optimizer.ask()
            assert [e.id for e in again] == [12, 13, 14, 15, 16]
            assert all((e.x == asked[e.id].x).all() for e in again)
            assert optimizer.n_used == used
            assert len(optimizer.events) == len(Study.read(path).events)
    with resume(path, on_pending="rerun") as optimizer:
        optimizer.tell(12, 1.0)  # before it is asked for
        assert [e.id for e in optimizer.ask()] == [13, 14, 15, 16]


def resume_and_close(path, **options):
    with resume(path, **options) as optimizer:
        return optimizer


def test_pending_evaluations_can_be_failed(path):
    interrupted(path)
    with resume(path, on_pending="fail") as optimizer:
        assert optimizer.pending == []
        failed = [r for r in optimizer.result().history if r.status == "failed"]
        assert [r.id for r in failed] == [3, 12, 13, 14, 15, 16, 17]
        assert failed[1].reason == "the run was interrupted"
        assert optimizer._state.observed[2].all()  # the late value of 5 stays
        optimizer.tell(12, 0.5)  # it comes after all
    with resume(path, on_pending="fail") as optimizer:
        assert optimizer.record(12).value == 0.5
        run_to_end(optimizer)
        assert optimizer.result().status == "finished"
        assert optimizer.n_used[1] == 14


def test_attached_data_are_there_after_a_crash_at_once(path):
    data = {"X": [[0.5, 0.25], [0.5, 0.5]], "fast": [1.0, None], "slow": [2.0, 3.0]}
    start(path, initial_data=data).close()
    with resume(path) as optimizer:
        assert optimizer.result().all_X.tolist() == data["X"]
        assert optimizer.result().Y.tolist() == [[1.0, 2.0]]
        assert len(optimizer.ask()) == 14  # one point of the design is known


def test_bad_initial_data_leave_no_file(path):
    with pytest.raises(InvalidInputError, match=r"X must .*shape"):
        start(path, initial_data={"X": [[0.5]]})
    assert not path.exists()


# ------------------------------------------------------------------ strategies of one's own


@dataclass(frozen=True, kw_only=True)
class Mine(RandomSearch):
    """A strategy that the library does not know."""

    name: str = "mine"


def test_a_strategy_of_ones_own_must_be_given_again(path):
    optimizer = start(path, strategy=Mine())
    tell_all(optimizer, optimizer.ask())
    optimizer.close()
    with pytest.raises(JournalError, match="strategy 'mine' is of a class of its own: pass"):
        resume(path)
    with pytest.raises(JournalError, match="the study's strategy is 'mine', not 'random'"):
        resume(path, strategy="random")
    with resume(path, strategy=Mine()) as again:
        again_points = points(again.ask())
    whole = tc.Optimizer(problem(), n_slow=14, n_init=8, strategy=Mine())
    tell_all(whole, whole.ask())
    assert (again_points == points(whole.ask())).all()
    assert Study.read(path).settings.strategy is None


def test_another_configuration_is_refused(path):
    start(path, strategy=quick()).close()
    with pytest.raises(JournalError, match="the study has another strategy: TCSAEA"):
        resume(path, strategy=quick(n_new=2))
    resume_and_close(path, strategy=quick())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": [[0.0, 0.0], [1.0, 1.5]]}, r"its bounds is .*1\.0\)\), not .*1\.5\)\)"),
        ({"tau": 2.5}, r"its tau is 2\.0, not 2\.5"),
        ({"names": ("a", "b")}, r"its names is \('x0', 'x1'\), not \('a', 'b'\)"),
        ({"integers": (1,)}, r"its integers is \(\), not \(1,\)"),
        ({"directions": ("minimize", "maximize")}, "its directions is .*, not .*'maximize'"),
        ({"ref_point": (1.0, 2.0)}, r"its ref_point is None, not \(1\.0, 2\.0\)"),
    ],
)
def test_another_problem_is_refused_naming_what_differs(changes, message, path):
    start(path).close()
    with pytest.raises(JournalError, match=message):
        tc.Optimizer.resume(path, problem(**changes))


# ------------------------------------------------------------------ minimize


MINIMIZE = {"n_slow": 14, "n_init": 8, "strategy": "random", "seed": 3, "progress": False}


class Stopped(Exception):  # noqa: N818
    pass


def stop_at(n):
    def callback(optimizer, event):
        if len(optimizer.events) >= n:
            raise Stopped

    return callback


@pytest.mark.parametrize("error", [Stopped, KeyboardInterrupt])
def test_minimize_goes_on_with_what_it_finds(error, path, capfd):
    data = {"X": [[0.5, 0.5]], "fast": [0.5]}
    whole = tc.minimize(problem(), **MINIMIZE, initial_data=data)

    def callback(optimizer, event):
        if len(optimizer.events) == 12:
            raise error

    with contextlib.suppress(Stopped):
        tc.minimize(problem(), **MINIMIZE, initial_data=data, journal=path, callbacks=[callback])
    done = [r for r in Study.read(path).result().history if r.status == "done"]
    assert len(done) >= 9
    seen = []
    options = {**MINIMIZE, "progress": True}
    result = tc.minimize(
        problem(), **options, initial_data=data, journal=path,
        callbacks=[lambda optimizer, event: seen.append(event)],
    )  # fmt: skip
    assert len(seen) == 28 - len(done)
    assert result.status == "finished"
    assert "14/14" in capfd.readouterr().err
    # Random search does not depend on the order in which values come.
    assert torch.equal(result.all_X, whole.all_X)
    assert torch.equal(result.all_Y.nan_to_num(-1), whole.all_Y.nan_to_num(-1))
    assert Study.read(path).owner is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_slow": 15}, "has n_slow = 14, not 15"),
        ({"n_init": 7}, "has n_init = 8, not 7"),
        ({"n_init": None}, "has n_init = 8, not 4"),
        ({"seed": 4}, "has seed = 3, not 4"),
        ({"dtype": torch.float32}, "has dtype = torch.float64, not torch.float32"),
        ({"strategy": None}, "the study has another strategy: RandomSearch"),
        ({"initial_data": {"X": [[0.5, 0.5]], "fast": [0.5]}}, "has other initial_data"),
        ({"initial_data": {"X": [[0.5, 0.25]], "fast": [None]}}, "has other initial_data"),
    ],
)
def test_minimize_refuses_other_settings_and_keeps_the_run(changes, message, path):
    data = {"X": [[0.5, 0.25]], "fast": [0.5]}
    with pytest.raises(Stopped):
        tc.minimize(problem(), **MINIMIZE, journal=path, initial_data=data, callbacks=[stop_at(5)])
    before = len(Study.read(path).events)
    with pytest.raises(JournalError, match=message):
        tc.minimize(problem(), **{**MINIMIZE, **changes}, journal=path)
    assert len(Study.read(path).events) == before
    assert tc.minimize(problem(), **MINIMIZE, journal=path).status == "finished"


def test_a_strategy_of_ones_own_in_minimize(path):
    options = {**MINIMIZE, "strategy": Mine()}
    with pytest.raises(Stopped):
        tc.minimize(problem(), **options, journal=path, callbacks=[stop_at(5)])
    assert tc.minimize(problem(), **options, journal=path).status == "finished"


def test_minimize_says_that_the_disk_is_full(path):
    def fill(optimizer, event):
        connection = optimizer._run._journal._connection
        n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={n_pages}")

    with pytest.raises(JournalError, match="full; nothing of this was stored or counted"):
        tc.minimize(problem(), **{**MINIMIZE, "n_slow": 40}, journal=path, callbacks=[fill])
    result = tc.minimize(problem(), **{**MINIMIZE, "n_slow": 40}, journal=path)
    assert result.status == "finished"
    assert len(result.Y) == 40


def test_a_run_that_had_nothing_left_to_propose_says_so_when_it_is_resumed(path):
    options = {"bounds": [[0.0, 0.0], [1.0, 1.0]], "integers": (0, 1)}
    grid = problem(**options)
    with tc.Optimizer(grid, n_slow=9, n_init=3, strategy="random", journal=path) as optimizer:
        run_to_end(optimizer)
        assert optimizer.result().status == "exhausted"
    with tc.Optimizer.resume(path, grid) as resumed:
        assert resumed.result().status == "exhausted"
        assert resumed.is_done
        assert resumed.next_action().kind == "stop"
        assert resumed.ask() == []
