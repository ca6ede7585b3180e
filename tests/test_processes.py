"""Programs end with their evaluation: in time, with all that they began, and with their process."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tcsaea_torch import processes
from tcsaea_torch.errors import CommandError
from tests.test_command import outcome_of, run, shell

PATIENCE = 20.0


def eventually(condition):
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def as_in_the_foreground():
    """Heed Ctrl-C, which is ignored by what a shell starts in the background, and its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def number_in(path):
    """Return the number in a file, or 0 while it is not there or not complete."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else 0


def is_alive(pid):
    """Return whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@needs_proc
@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["ends", "must be killed"])
def test_when_the_time_is_up_the_whole_group_ends(tmp_path, trap):
    pids = tmp_path / "pids"
    script = f"{trap}sleep 60 & echo $! > {pids}; echo step 1; sleep 60; sleep 60"
    began = time.monotonic()
    with pytest.raises(CommandError, match=r"longer than 0\.2 s; its stdout ends with: step 1"):
        shell(script, timeout_s=0.2, grace_s=0.2)([0.5])
    assert time.monotonic() - began < PATIENCE
    eventually(lambda: not is_alive(number_in(pids)))


@needs_proc
def test_what_a_program_leaves_running_ends_with_it(tmp_path):
    pids = tmp_path / "pid"
    assert shell(f"sleep 60 & echo $! > {pids}; echo 3", grace_s=0.1)([0.5]) == 3
    eventually(lambda: not is_alive(number_in(pids)))


def test_a_program_has_time_to_clean_up(tmp_path):
    script = f"trap 'echo cleaned > {tmp_path}/a; exit 0' TERM; sleep 60 & wait"
    with pytest.raises(CommandError, match=r"took longer than"):
        shell(script, timeout_s=0.2, grace_s=1)([0.5])
    assert (tmp_path / "a").read_text() == "cleaned\n"


@needs_proc
def test_a_killed_guard_leaves_nothing_running(tmp_path):
    pids = tmp_path / "pids"
    objective = shell(f"echo $$ > {pids}; sleep 60", timeout_s=1, grace_s=0.1)
    thread = threading.Thread(target=lambda: outcome.append(outcome_of(objective)))
    outcome = []
    thread.start()
    pid = eventually(lambda: number_in(pids))
    (guard,) = (p for p in children() if p != pid)
    os.kill(guard, signal.SIGKILL)
    thread.join(PATIENCE)
    assert "took longer than 1 s" in outcome[0]
    eventually(lambda: not is_alive(pid))


def children():
    """Return this process's children that are shells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "sh" and int(rest.split()[1]) == os.getpid():
            found.append(int(path.parent.name))
    return found


WAITS_FOREVER = """
import sys
import tcsaea_torch.command as command
script = f"echo $$ > {sys.argv[1]}; sleep 60 & sleep 60"
command.CommandObjective(["sh", "-c", script, "{x0}"], grace_s=0.1)([0.5])
"""
NEVER_KNOWS = """
import subprocess, sys, time
import tcsaea_torch.command as command

class Slow(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if "guard" not in command:
            time.sleep(60)

subprocess.Popen = Slow
script = f"echo $$ > {sys.argv[1]}; cat; sleep 60"
command.CommandObjective(["sh", "-c", script, "{x0}"], grace_s=0.1)([0.5])
"""
"""Its process is killed before it knows that the program runs."""


@needs_proc
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("script", [WAITS_FOREVER, NEVER_KNOWS], ids=["runs", "starts"])
def test_no_program_outlives_its_process(tmp_path, script, sent):
    pids = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(pids)],
        stderr=subprocess.DEVNULL,
        preexec_fn=as_in_the_foreground,
    ) as process:
        pid = eventually(lambda: number_in(pids))
        assert is_alive(pid)
        process.send_signal(sent)
        process.wait(PATIENCE)
    eventually(lambda: not is_alive(pid))


@pytest.mark.parametrize("before", [True, False])
def test_a_program_is_stopped_before_its_guard_knows_it(tmp_path, monkeypatch, before):
    monkeypatch.setattr(processes, "_START", f"sleep 0.3; {processes._START}")
    program = processes.Program(["sleep", "60"], cwd=tmp_path, env={}, grace_s=0.1)
    if before:
        program.stop()
    with program:
        program.stop()
        assert program.wait(PATIENCE) == -signal.SIGTERM
    assert program.was_stopped


def test_stop_ends_what_is_starting(monkeypatch):
    objective, start = shell("sleep 60", grace_s=0.1), processes.Program.__enter__

    def stopped_start(program):
        objective.stop()
        return start(program)

    monkeypatch.setattr(processes.Program, "__enter__", stopped_start)
    assert "was stopped after" in str(outcome_of(objective))


@needs_proc
def test_ctrl_c_ends_programs(tmp_path):
    pids = tmp_path / "pid"

    def interrupt(optimizer, event):
        assert optimizer.record(event.id).objective == "fast"
        eventually(lambda: number_in(pids))
        raise KeyboardInterrupt

    result = run(shell(f"echo $$ > {pids}; sleep 60"), callbacks=[interrupt])
    assert result.status == "interrupted"
    eventually(lambda: not is_alive(number_in(pids)))


def test_stop_ends_what_runs_and_not_what_comes(tmp_path):
    began = tmp_path / "began"
    objective = shell(f"test -e {began} && echo 4 && exit; echo 1 > {began}; sleep 60", grace_s=0.1)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(outcome_of(objective)))
    thread.start()
    eventually(lambda: number_in(began))
    objective.stop()
    thread.join(PATIENCE)
    assert "was stopped after" in outcome[0]
    assert objective([0.5]) == 4
    objective.stop()  # there is nothing to stop
