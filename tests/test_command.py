"""Objectives that are external programs: what they get, what they give, and how they end."""

import json
import os
import pickle
import re
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch.command import CommandResult, last_number
from tcsaea_torch.errors import CommandError, InvalidInputError

PATIENCE = 20.0
SPRING = Path(__file__).parent / "programs" / "spring.c"
X = [0.1 + 0.2, 3.0]


def shell(script, *arguments, **options):
    """Make an objective of a shell script with arguments $1, $2, ..."""
    command = ["sh", "-c", script, "script", *(arguments or ("{x0}",))]
    return tc.CommandObjective(command, **options)


def printed(*arguments, x=X, **options):
    """Return the arguments that a program gets."""
    seen = []
    options["parse"] = lambda result: seen.extend(result.stdout.splitlines()) or 0.0
    shell('printf "%s\\n" "$@"', *arguments, **options)(np.array(x))
    return seen


def outcome_of(objective):
    """Return the value at a point, or the error's message."""
    try:
        return objective([0.5])
    except CommandError as error:
        return str(error)


# ---------------------------------------------------------------- what the program gets


def test_values_have_all_their_digits():
    assert printed("{x0}", "a={x1}", "{x0},{x1}") == [
        "0.30000000000000004", "a=3.0", "0.30000000000000004,3.0",
    ]  # fmt: skip
    assert printed("{x0}", x=[-1e-300]) == ["-1e-300"]


def test_formats_are_those_of_python():
    assert printed("{x1:d}", "{x0:.3f}", "{x1:03d}", "{x0:e}", "{{{x1:d}}}") == [
        "3", "0.300", "003", "3.000000e-01", "{3}",
    ]  # fmt: skip


def test_names_work_beside_indexes_and_come_first():
    assert printed("{thickness}", "{n:d}", "{x1:d}", names=("thickness", "n")) == [
        "0.30000000000000004", "3", "3",
    ]  # fmt: skip
    names = ("x1", "x2", "wall t/c")
    assert printed("{x1}", "{x2:d}", "{wall t/c}", x=[1.5, 2, 3], names=names) == [
        "1.5",
        "2",
        "3.0",
    ]


def test_a_shell_sees_nothing_of_it():
    assert printed("$(echo {x1:d})", "* {x1:d}", "a;b {x1:d}") == ["$(echo 3)", "* 3", "a;b 3"]


def test_input_environment_and_output():
    objective = shell(
        'read a b; echo "$a $b $COLOUR" >&2; echo 1; exit 4', stdin="{x0} {x1:d}\n",
        exit_codes=(0, 4), env={"COLOUR": "red"}, parse=lambda r: results.append(r) or 2,
    )  # fmt: skip
    results = []
    assert objective([0.5, 2]) == 2.0
    (result,) = results
    assert (result.stdout, result.stderr, result.returncode) == ("1\n", "0.5 2 red\n", 4)
    assert 0 < result.seconds < PATIENCE


def test_without_stdin_there_is_no_input():
    assert shell("cat; echo 7")([0.5]) == 7


def test_files_come_along_and_templates_are_filled(tmp_path):
    (tmp_path / "mesh").mkdir()
    (tmp_path / "mesh" / "nodes.txt").write_text("12")
    (tmp_path / "table.csv").write_text("{x0}")
    deck = 'walls { t {t}; n {n:03d}; }\n{"x0": {x0:.2f}, {other}, {}}'
    (tmp_path / "deck.k").write_text(deck)

    def parse(result):
        here = result.folder
        seen.update({p.name: p.read_text() for p in here.rglob("*") if p.is_file()})
        return float((here / "out.txt").read_text())

    seen = {}
    objective = tc.CommandObjective(
        ["sh", "-c", "cat mesh/nodes.txt > out.txt"], names=("t", "n"), parse=parse,
        inputs=[tmp_path / "mesh", str(tmp_path / "table.csv")], templates=[tmp_path / "deck.k"],
    )  # fmt: skip
    assert objective(torch.tensor([0.25, 7.0])) == 12
    assert seen["table.csv"] == "{x0}"
    assert seen["deck.k"] == 'walls { t 0.25; n 007; }\n{"x0": 0.25, {other}, {}}'


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{ x0 } {t}", "must have placeholders such as"), (b"{x0} \xff\xfe", "must be text, got ")],
)
def test_templates_without_placeholders_are_refused(tmp_path, content, message):
    (tmp_path / "deck.k").write_bytes(content)
    with pytest.raises(InvalidInputError, match=rf"^templates {message}.*deck\.k"):
        tc.CommandObjective(["sh", "{x0}"], templates=[tmp_path / "deck.k"])


def test_a_program_by_its_relative_path_is_where_the_objective_is_made(tmp_path, monkeypatch):
    program = tmp_path / "simulate"
    program.write_text("#!/bin/sh\necho $1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    by_path = [tc.CommandObjective([p, "{x0}"]) for p in ("./simulate", Path("simulate"))]
    brought = tc.CommandObjective(["./simulate", "{x0}"], inputs=["simulate"])
    monkeypatch.chdir("/")
    assert [objective([2.5]) for objective in (*by_path, brought)] == [2.5] * 3
    assert [Path(o.command[0]).is_absolute() for o in (*by_path, brought)] == [True, True, False]


# ---------------------------------------------------------------- what it gives


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3), ("mass: 1.5 kg\nforce = -2.5e-3 N\n", -0.0025), ("12.5kN", 12.5),
        ("1.5D-03", 0.0015), ("peak .5\nbye", 0.5), ("it is 3.", 3), ("+4", 4),
        ("v2 x1 7 run2", 7), ("1 inf", np.inf), ("5\nNaN", np.nan), ("5 nano infant", 5),
    ],
)  # fmt: skip
def test_the_last_number_printed_is_the_value(text, number):
    result = CommandResult(stdout=text, stderr="9", returncode=0, folder=Path(), seconds=0.0)
    np.testing.assert_equal(last_number(result), number)


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("echo one; echo bad mesh >&2; exit 3", {},
         "ended with exit code 3; its stderr ends with: bad mesh"),
        ("seq 9; exit 1", {}, "exit code 1; its stdout ends with: 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9"),
        ("kill -9 $$", {}, "was killed by SIGKILL; it printed nothing"),
        ("exit 0", {"exit_codes": (1,)}, "ended with exit code 0"),
        ("echo fine", {}, "read: ValueError: it printed no number; its stdout ends with: fine"),
        ("echo 1", {"parse": lambda result: 1 / 0}, "ZeroDivisionError: division by zero"),
        ("echo nan", {}, "must give one finite number, got nan"),
        ("echo 1", {"parse": lambda result: "1"}, "must give one finite number, got '1'"),
    ],
)  # fmt: skip
def test_what_fails_says_why(script, options, message):
    with pytest.raises(CommandError, match=re.escape(message)) as caught:
        shell(script, **options)([0.5])
    assert "script 0.5" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("no-such-program", "No such file or directory: 'no-such-program'"),
        ("./plain.txt", "Permission denied: './plain.txt'"),
    ],
)
def test_a_program_that_cannot_be_started(tmp_path, program, reason):
    (tmp_path / "plain.txt").write_text("no program")
    objective = tc.CommandObjective([program, "{x0}"], inputs=[tmp_path / "plain.txt"])
    message = f"the command {program} 1.0 could not be started: .*{re.escape(reason)}"
    with pytest.raises(CommandError, match=message):
        objective([1.0])


def test_a_program_is_looked_for_in_its_folder_and_its_path(tmp_path):
    for name, text in {"mine": "echo 3", "theirs": "echo 4"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "solve").write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name / "solve").chmod(0o755)
    mine = tc.CommandObjective(["./solve", "{x0}"], inputs=[tmp_path / "mine" / "solve"])
    path = f"{tmp_path / 'theirs'}{os.pathsep}{os.environ['PATH']}"
    theirs = tc.CommandObjective(["solve", "{x0}"], env={"PATH": path})
    here = tc.CommandObjective(
        ["solve", "{x0}"], inputs=[tmp_path / "mine" / "solve"], env={"PATH": f".:{path}"}
    )
    assert [objective([1.0]) for objective in (mine, theirs, here)] == [3, 4, 3]


@pytest.mark.parametrize(
    ("x", "names", "message"),
    [
        ([[0.5]], None, r"x must be one point, of shape \(d,\), got shape \(1, 1\)"),
        ([0.5], ("a", "b"), r"x must be one point, of shape \(2,\), got shape \(1,\)"),
        ([0.5], None, r"placeholders must be of dimensions that x has, got \{x1\} for x0"),
        ([1, 0.5], None, r"placeholder \{x1:d\} must get an integer .*: 0\.5 is no integer"),
    ],
)
def test_points_that_do_not_fit(x, names, message):
    with pytest.raises(InvalidInputError, match=message):
        shell("echo 1", "{x1:d}", names=names)(x)


# ---------------------------------------------------------------- folders


def test_folders_are_temporary_or_kept(tmp_path):
    def folders(keep, script="pwd > here.txt; echo 5"):
        work = tmp_path / f"{keep}-{len(script)}" / "below"
        outcome = outcome_of(shell(script, workdir=work, keep=keep))
        assert outcome == 5 or (f"; see {work}" in str(outcome)) == bool(keep)
        return list(work.iterdir())

    assert folders(False) == folders("failed") == folders(False, "exit 1") == []
    (kept,) = folders(True)
    assert (kept / "here.txt").read_text().strip() == str(kept)
    assert (kept / "stdout.txt").read_text() == "5\n"
    assert (kept / "stderr.txt").read_text() == ""
    told = json.loads((kept / "command.json").read_text())
    assert told["x"] == {"x0": 0.5}
    assert told["command"][-1] == "0.5"
    (failed,) = folders("failed", "echo bad >&2; exit 1")
    assert (failed / "stderr.txt").read_text() == "bad\n"
    assert len(folders("failed", "echo nan")) == 1


def test_temporary_folders_are_different_and_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    objective = shell("touch a; echo 1", parse=lambda r: seen.append(r.folder) or len(seen))
    assert [objective([0.5]) for _ in range(2)] == [1, 2]
    assert len(set(seen)) == 2
    assert {folder.parent for folder in seen} == {tmp_path}
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- in runs


def run(slow, **options):
    problem = tc.Problem(
        fast=lambda x: float(x.sum()), slow=slow, bounds=[[0.5, 20], [3.0, 60]], tau=2,
        names=("stiffness", "steps"), integers=(1,),
    )  # fmt: skip
    settings = {"n_slow": 5, "n_init": 3, "strategy": "random", "progress": False}
    return tc.minimize(problem, **{**settings, **options})


def peak_force(stiffness, steps):
    """Return what spring.c prints."""
    x, v, peak, dt = 0.0, 1.0, 0.0, 4.0 / steps
    for _ in range(steps):
        v -= stiffness * x * dt
        x += v * dt
        peak = max(peak, stiffness * x)
    return peak


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_c_program_is_minimized_in_processes(tmp_path, monkeypatch):
    subprocess.run(["cc", "-O0", "-o", tmp_path / "spring", SPRING], check=True)
    monkeypatch.chdir(tmp_path)
    slow = tc.CommandObjective(
        ["./spring", "{stiffness}", "{steps:d}"], names=("stiffness", "steps"), timeout_s=60
    )
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        result = run(slow, executor={"slow": pool})
    assert result.n_slow == 5
    expected = [peak_force(x[0].item(), int(x[1])) for x in result.X]
    np.testing.assert_allclose(result.Y[:, 1], expected, rtol=1e-12)


def test_programs_that_fail_are_failed_evaluations():
    slow = shell("test ${{1%.*}} -ge 2 && echo no convergence >&2 && exit 7; echo $1")
    result = run(slow, n_slow=12, n_init=6)
    reasons = [r.reason for r in result.history if r.status == tc.Status.FAILED]
    assert 0 < len(reasons) < 12
    assert all("ended with exit code 7; its stderr ends with: no convergence" in r for r in reasons)
    assert len(result.X) == 12 - len(reasons)
