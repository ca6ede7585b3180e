"""`tcsaea run`: from a user's file to results, also through crashes."""

import csv
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import cli
from tcsaea_torch.study import Study
from tests.boxes import QUICK, calls, here, n_done, run, write
from tests.test_processes import as_in_the_foreground

PATIENCE = 120.0
__all__ = ["here"]


# ------------------------------------------------------------------ whole runs


def test_a_run_from_a_file(here, capsys):
    options = ["--n-slow", "8", "--csv", "a.csv", "--figure", "a.png", "--journal", "a.db"]
    assert run("box.py:problem", *options) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == (
        "box.py:problem: 2 variables, 8 slow and 16 fast evaluations, strategy tc-ehvi"
    )
    assert re.match(
        "the slow budget is spent: 8 of 8 slow and 1[45] of 16 fast evaluations, in ", lines[1]
    )
    result = Study.read("a.db").result()
    assert len(result.Y) == 8
    assert lines[2] == f"front:        {len(result.pareto_Y)} of 8 points with both values"
    assert re.fullmatch(rf"hypervolume:  {result.hypervolume():.6g} below \(.+, .+\)", lines[3])
    paths = [str(here / f"a.{kind}") for kind in ("db", "csv", "png")]
    assert [line.split(None, 1) for line in lines[4:]] == [
        ["journal:", paths[0]], ["evaluations:", paths[1]], ["picture:", paths[2]]
    ]  # fmt: skip
    assert (here / "a.png").read_bytes().startswith(b"\x89PNG")
    with open("a.csv", newline="") as file:
        n_rows = len(list(csv.DictReader(file)))
        assert n_rows in (22, 23)
    assert "slow: 100%" in captured.err
    assert len(calls()) == n_rows
    # The same as in Python.
    expected = tc.minimize(result.problem.__class__(
        fast=lambda x: float((x**2).sum()),
        slow=lambda x: 0.5 + 2.0 * float(((x - 1) ** 2).sum()),
        bounds=result.problem.bounds, tau=2,
    ), n_slow=8, progress=False)  # fmt: skip
    assert torch.equal(result.all_X, expected.all_X)
    assert torch.equal(result.Y, expected.Y)


@pytest.mark.parametrize(
    "target", ["box.py:make", "./box.py:_hidden", "box:problem", "parts.box_in:problem"]
)
def test_where_a_problem_can_be(target, here, capsys):
    (here / "parts").mkdir()
    (here / "parts" / "__init__.py").touch()
    (here / "parts" / "box_in.py").write_text("from box import make\nproblem = make()\n")
    try:
        assert run(target, *QUICK[1:], "--csv", "a.csv") == 0
        captured = capsys.readouterr()
        assert captured.out.startswith(f"{target}: 2 variables, 8 slow and 16 fast")
        assert captured.err == ""  # no bar
        assert len(calls()) == 16
    finally:
        for name in ("box", "parts.box_in", "parts"):
            sys.modules.pop(name, None)


def test_a_file_whose_name_is_taken(here, capsys):
    write(here, "json")  # the standard library's stays what it is
    assert run("json.py:problem", *QUICK[1:]) == 0
    assert len(calls()) == 16
    assert sys.modules["json"].dumps([1]) == "[1]"
    assert "json_of_the_run" not in sys.modules


def test_settings_and_seeds_reach_the_run(here):
    for k, seed in enumerate(["3", "3", "4"]):
        arguments = [*QUICK, "--seed", seed, "--device", "cpu", "--journal", f"{k}.db"]
        assert run(*arguments) == 0
    studies = [Study.read(f"{k}.db") for k in range(3)]
    settings = studies[0].settings
    assert (settings.n_slow, settings.n_init, settings.seed) == (8, 5, 3)
    assert (settings.strategy_name, settings.device) == ("random", "cpu")
    points = [study.result().all_X for study in studies]
    assert torch.equal(points[0], points[1])
    assert not torch.equal(points[0], points[2])


def test_workers_timeouts_and_retries_reach_the_run(here, capsys):
    (here / "boxes.py").write_text(
        "import threading, time\n"
        "import tcsaea_torch as tc\n"
        "seen, together, lock = [], threading.Barrier(3), threading.Lock()\n"
        "def slow(x):\n"
        "    with lock:\n"
        "        seen.append(tuple(x))\n"
        "        n = len(seen)\n"
        "    if n <= 3:\n"
        "        together.wait(20)\n"
        "    if n == 1 + 3:\n"
        "        time.sleep(60)\n"  # longer than its limit; a thread more goes on
        "    if n == 2 + 3:\n"
        "        raise ValueError('no licence')\n"
        "    return float(x[0])\n"
        "problem = tc.Problem(\n"
        "    fast=lambda x: -float(x[0]), slow=slow, bounds=[[0.0], [1.0]], tau=1)\n"
    )
    start = time.perf_counter()
    arguments = ["--n-slow", "14", "--n-init", "8", "--workers-slow", "3", "--timeout-slow", "4"]
    options = ["--retries", "1", "--journal", "a.db", "--quiet"]
    assert run("boxes.py:problem", *arguments, *options) == 0
    assert time.perf_counter() - start < 50
    history = Study.read("a.db").result().history
    failed = {r.reason.splitlines()[-1]: r.point_id for r in history if r.status == "failed"}
    assert failed.keys() == {"timed out after 4 s", "ValueError: no licence"}
    for point in failed.values():  # tried again
        statuses = [r.status for r in history if (r.point_id, r.objective) == (point, "slow")]
        assert statuses == ["failed", "done"]
    output = capsys.readouterr().out
    assert re.search(
        r"^failures:     2 slow, 0 fast; the last: (timed out|ValueError)", output, re.M
    )


def test_workers_in_processes(here, capsys):
    """The file's functions and its neighbours are found there; the result is the same."""
    assert run(*QUICK, "--journal", "threads.db") == 0
    Path("calls.txt").unlink()
    pools = ["--processes", "--workers-slow", "2", "--timeout-slow", "60"]
    assert run(*QUICK, "--journal", "processes.db", *pools) == 0
    found = [Study.read(f"{name}.db").result() for name in ("threads", "processes")]
    assert torch.equal(found[0].all_X, found[1].all_X)
    assert torch.equal(found[0].all_Y.nan_to_num(-1), found[1].all_Y.nan_to_num(-1))
    processes = {pid for _, pid, _ in calls()}
    assert str(os.getpid()) not in processes
    assert 2 <= len(processes) <= 3
    wait_until(lambda: not any(map(lives, processes)))


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# ------------------------------------------------------------------ interruptions


def begin(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "tcsaea_torch.cli", "run", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(tc.__file__).parents[1])},
        preexec_fn=as_in_the_foreground,
    )  # fmt: skip


def wait_for(child, path, n):
    def is_so():
        assert child.poll() is None, child.communicate()
        return n_done(path) >= n

    wait_until(is_so)


@pytest.mark.parametrize("lanes", [["--workers-slow", "2"], ["--processes"]], ids=str)
def test_a_killed_run_goes_on_without_losing_a_value(lanes, here, capsys):
    write(here, pause=0.4)
    arguments = ["box.py:problem", "--journal", "a.db", "--quiet", *lanes]
    begun = ["--n-slow", "24", "--n-init", "10", "--strategy", "random", "--seed", "7"]
    told, n_calls_of_told = {}, {}
    for n, options in ((5, begun), (14, ["--resume"])):
        child = begin(*arguments, *options)
        wait_for(child, "a.db", n)
        child.kill()
        child.communicate()
        study = Study.read("a.db", thoroughly=True)
        known = {r.id: r.value for r in study.state.records if r.status == "done"}
        assert known.items() >= told.items()
        told = known
        assert 0 < len(told) < 48
        # Workers do not go on without the process that keeps their values.
        processes = {pid for _, pid, _ in calls()}
        wait_until(lambda processes=processes: not any(map(lives, processes)))
        n_calls = Counter((name, x) for name, _, x in calls())
        for record in study.result().history:
            if record.id in told:
                call = str(record.objective), repr(study.state.x(record.point_id).tolist())
                assert n_calls_of_told.setdefault(call, n_calls[call]) == n_calls[call] > 0
    assert run(*arguments, "--resume") == 0
    result = Study.read("a.db", thoroughly=True).result()
    assert result.status == "finished"
    assert {r.id: r.value for r in result.history}.items() >= told.items()
    assert len(result.history) == 48
    # What was told was not run again; what was under way was, at most once for each kill.
    n_calls = Counter((name, x) for name, _, x in calls())
    assert len(n_calls) == 48
    assert set(n_calls.values()) <= {1, 2, 3}
    assert all(n_calls[call] == n for call, n in n_calls_of_told.items())
    assert len(n_calls_of_told) == len(told)
    output = capsys.readouterr().out
    assert "24 of 24 slow and 24 of 48 fast evaluations" in output


@pytest.mark.parametrize("lanes", [["--workers-slow", "2"], ["--processes"]], ids=str)
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(lanes, here, capsys):
    write(here, pause=0.4)
    (here / "out of the way").mkdir()
    journal = "out of the way/a.db"
    options = ["--n-slow", "20", "--n-init", "6", "--strategy", "random", "--csv", "a.csv"]
    child = begin("box.py:problem", *options, "--journal", journal, "--retries", "2", *lanes)
    wait_for(child, journal, 8)
    child.send_signal(signal.SIGINT)
    output, errors = child.communicate(timeout=PATIENCE)
    assert child.returncode == 130, errors
    assert "Traceback" not in errors
    lines = output.splitlines()
    assert lines[1].startswith("interrupted by the user: 20 of 20 slow")
    with open("a.csv", newline="") as file:
        done = [row for row in csv.DictReader(file) if row["status"] == "done"]
    assert 8 <= len(done) == n_done(journal) < 40
    expected = ["tcsaea", "run", "box.py:problem", "--journal", journal, "--resume"]
    assert lines[-1].startswith("to go on: tcsaea run box.py:problem --journal 'out of the way/")
    command = shlex.split(lines[-1].removeprefix("to go on: "))
    assert command == [*expected, *lanes, "--retries", "2", "--csv", "a.csv"]
    processes = {pid for _, pid, _ in calls()}
    wait_until(lambda: not any(map(lives, processes)))
    assert cli.main(command[1:]) == 0
    assert n_done(journal) == 40


def test_ctrl_c_without_a_journal(here, capsys, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tcsaea_torch.cli_run.minimize", interrupted)
    assert run(*QUICK) == 130
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "without --journal FILE there is nothing to go on with"
    assert run(*QUICK, "--journal", "a.db") == 130
    assert capsys.readouterr().out.splitlines()[-1] == "nothing was measured yet"


def test_a_worker_that_dies_ends_the_run_with_another_status(here, capsys):
    (here / "box_dies.py").write_text(
        "import os\n"
        "import tcsaea_torch as tc\n"
        "def fast(x):\n"
        "    return float(x[0])\n"
        "def slow(x):\n"
        "    os._exit(3)\n"
        "problem = tc.Problem(fast=fast, slow=slow, bounds=[[0.0], [1.0]], tau=1)\n"
    )
    options = ["--n-slow", "4", "--journal", "a.db", "--processes", "--quiet"]
    assert run("box_dies.py:problem", *options) == 1
    output = capsys.readouterr().out
    assert "\ninterrupted by a broken executor (" in output
    assert output.splitlines()[-1].startswith("to go on: tcsaea run box_dies.py:problem")


def test_options_of_the_strategy(here, capsys):
    options = ["--set", "asynchronous=true", "--set", "n_new=2", "--set", "name=mine"]
    workers = ["--workers-fast", "2", "--workers-slow", "2"]
    arguments = ["box.py:problem", "--journal", "a.db", "--quiet"]
    assert run(*arguments, "--n-slow", "8", *options, *workers) == 0
    expected = tc.TCEHVI(asynchronous=True, n_new=2, name="mine")
    assert Study.read("a.db").settings.strategy == expected
    assert n_done("a.db") == 24
    assert run(*arguments, "--resume", *workers) == 0  # with the journal's own
    assert run(*arguments, "--resume", "--set", "n_new=3") == 2
    assert "the study has another strategy" in capsys.readouterr().err


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("=1", "--set must be OPTION=VALUE, got '=1'"),
        ("asynchronous=True", "asynchronous must be True or False, got 'True' (str)"),
    ],
)
def test_options_that_will_not_do(option, message, here, capsys):
    assert run("box.py:problem", "--n-slow", "8", "--set", option) == 2
    assert message in capsys.readouterr().err
    assert not (here / "calls.txt").exists()
