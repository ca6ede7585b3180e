"""`tcsaea run`: journals that are gone on with, and what is refused before anything runs."""

import os
import re
import sys
from pathlib import Path

import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch.study import Study
from tests.boxes import QUICK, calls, here, n_done, run

__all__ = ["here"]


# ------------------------------------------------------------------ journals


@pytest.fixture
def study(here):
    """A journal of a run with settings of its own, some of it done."""
    problem = tc.Problem(
        fast=print, slow=print, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2,
    )  # fmt: skip
    with tc.Optimizer(
        problem, n_slow=9, n_init=4, strategy="random", seed=5, journal="a.db", dtype=torch.float32
    ) as optimizer:
        for e in optimizer.ask()[:3]:
            optimizer.tell(e.id, 0.25)
    return here / "a.db"


def test_settings_that_are_not_given_are_the_journals(study, capsys):
    assert run("box.py:problem", "--journal", "a.db", "--resume", "--quiet") == 0
    assert "2 variables, 9 slow and 18 fast evaluations, strategy random" in capsys.readouterr().out
    assert n_done(study) == 18
    assert len(calls()) == 15
    # A run that is over has nothing left to do.
    assert run("box.py:problem", "--journal", "a.db", "--resume", "--csv", "b.csv") == 0
    assert len(calls()) == 15
    assert len(Path("b.csv").read_text().splitlines()) == 19


def test_settings_that_agree_are_accepted(study):
    given = ["--n-slow", "9", "--n-init", "4", "--strategy", "random", "--seed", "5"]
    arguments = ["box.py:problem", "--journal", "a.db", "--resume", "--quiet"]
    assert run(*arguments, *given, "--device", "cpu") == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-slow", "10"], r"the run in 'a\.db' has n_slow = 9, not 10"),
        (["--n-slow", "3"], r"the run in 'a\.db' has n_slow = 9, not 3"),
        (["--n-init", "5"], r"the run in 'a\.db' has n_init = 4, not 5"),
        (["--seed", "0"], r"the run in 'a\.db' has seed = 5, not 0"),
        (["--strategy", "tc-saea"], r"the study has another strategy: RandomSearch"),
        (["--device", "cuda:99"], r"device must name a device that is present here"),
    ],
)
def test_settings_that_differ_are_refused(options, message, study, capsys):
    before = study.read_bytes()
    assert run("box.py:problem", "--journal", "a.db", "--resume", *options) == 2
    assert re.search(rf"^tcsaea: error: .*{message}", capsys.readouterr().err, re.M)
    assert not Path("calls.txt").exists()
    assert len(Study.read(study).events) == 4
    assert len(before) == len(study.read_bytes())


def test_another_problem_is_refused(study, capsys):
    assert run("box.py:local", "--journal", "a.db", "--resume") == 2
    assert "the study is of another problem: its bounds is" in capsys.readouterr().err


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("box.py", r"problem must be FILE\.py:NAME or package\.module:NAME, got 'box\.py'"),
        (":problem", r"problem must be FILE\.py:NAME or package\.module:NAME, got ':problem'"),
        ("box.py:", r"problem must be FILE\.py:NAME or package\.module:NAME, got 'box\.py:'"),
        (r"C:\box.py", r"problem must be FILE\.py:NAME or package\.module:NAME"),
        ("bax.py:problem", r"problem must be in a file, and there is none at /.*/bax\.py"),
        ("./box:problem", r"problem must be in a file that ends in \.py, got \./box"),
        ("bax:problem", r"problem must be in a module or .*, and there is no module 'bax'"),
        ("bax.by:problem", r"problem must be in a module or .*, and there is no module 'bax'"),
        ("tcsaea_torch.xx:problem", r".*, and there is no module 'tcsaea_torch\.xx'"),
        ("box.py:problm", r"box\.py has no 'problm'; did you mean 'problem'\?"),
        ("box.py:zzz", r"box\.py has no 'zzz'; did you mean 'problem'\?"),
        ("box.py:number", r"box\.py:number must be a Problem, or a function .*, got 3 \(int\)"),
        ("box.py:make_with", r"box\.py:make_with must be .*: missing a required argument: 'tau'"),
        ("box.py:make_nothing", r"box\.py:make_nothing must be .*, but it returned None"),
        (
            "box.py:make_trouble",
            r"make_trouble\(\) in box\.py raised ZeroDivisionError in line 34: division by zero",
        ),
    ],
)
def test_problems_that_cannot_be_had(target, message, here, capsys):
    assert run(target, *QUICK[1:], "--journal", "a.db") == 2
    assert re.match(rf"tcsaea: error: {message}", capsys.readouterr().err)
    assert not Path("a.db").exists()
    assert not Path("calls.txt").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = x / 0\n", "bad.py raised ZeroDivisionError in line 2: division by zero"),
        ("def f():\n    raise KeyError\n\nf()\n", "bad.py raised KeyError in line 2\n"),
        ("x = 1\ny = (\n", r"bad.py raised SyntaxError in line 2 of /.*/bad\.py: '\(' was never"),
        ("import nowhere\n", "bad.py raised ModuleNotFoundError in line 1: No module named 'now"),
        ("import sys\nsys.exit(3)\n", "bad.py raised SystemExit in line 2: 3"),
        (
            "from tcsaea_torch import Problem\n\nproblem = Problem(\n    fast=abs, tau=1)\n",
            r"bad.py raised TypeError in line 3: .*missing .*'slow'",
        ),
        (
            "from tcsaea_torch import Problem\n"
            "problem = Problem(fast=abs, slow=None, tau=1, bounds=[[0], [1]])\n",
            r"bad.py raised InvalidInputError in line 2: slow must be callable, got None",
        ),
    ],
)
@pytest.mark.parametrize("place", ["bad.py", "bad"])
@pytest.mark.usefixtures("unchecked")
def test_code_that_raises(place, code, message, here, capsys):
    Path("bad.py").write_text(code)
    sys.modules.pop("bad", None)
    assert run(f"{place}:problem", *QUICK[1:]) == 2
    wanted = message if place == "bad.py" else message.replace("bad.py raised", "bad raised", 1)
    assert re.match(rf"tcsaea: error: {wanted}", capsys.readouterr().err)
    assert "bad" not in sys.modules


BAD_OPTIONS = [
    ([], r"--n-slow N is missing, the budget of slow evaluations"),
    (["--resume"], r"--resume needs --journal FILE"),
    (["--resume", "--journal", "b.db"], r"there is no run in 'b\.db' to go on with: leave"),
    (["--resume", "--journal", "empty.db"], r"there is no run in 'empty\.db' to go on with"),
    (["--journal", "a.db"], r"there is a run in 'a\.db' already: add --resume to go on with"),
    (["--journal", "box.py"], r".*file is not a database"),
    (["--journal", "."], r"journal must be the path of a file, got '\.'"),
    (["--journal", "no/b.db"], r"journal must be a file that can be written, got 'no/b\.db'"),
    (["--csv", "."], r"csv must be a file that can be written, got '\.'"),
    (["--csv", "no/a.csv"], r"csv must be a file that can be written"),
    (["--csv", "box.py"], r"csv must be another file than the problem's file, got 'box\.py'"),
    (["--journal", "b.db", "--csv", "./b.db"], r"csv must be another file than the journal"),
    (["--csv", "a.png", "--figure", "a.png"], r"figure must be another file than the csv"),
    (["--figure", "a.txt"], r"figure must end in one of .*\.png.*, got '\.txt'"),
    (["--figure", "no/a.png"], r"figure must be a file that can be written"),
    (["--n-slow", "0"], r"n_slow must be an integer >= 1, got 0"),
    (["--n-init", "9"], r"n_init must be at most n_slow = 8, got 9"),
    (["--strategy", "radnom"], r"strategy must be one of .*; did you mean 'random'\?"),
    (["--device", "cuda:99"], r"device must name a device that is present here"),
    (["--workers-fast", "0"], r"--workers-fast must be an integer >= 1, got 0"),
    (["--workers-slow", "-1"], r"--workers-slow must be an integer >= 1, got -1"),
    (["--timeout-slow", "0"], r"timeout_s\['slow'\] must be a finite real number > 0, got 0"),
    (["--timeout-fast", "nan"], r"timeout_s\['fast'\] must be a finite real number > 0"),
    (["--retries", "-1"], r"retries must be an integer >= 0, got -1"),
    (["--set", "n_new"], r"--set must be OPTION=VALUE, got 'n_new'"),
    (["--set", "n_new=0"], r"n_new must be an integer >= 1, got 0"),
    (["--set", "asynchronos=true"], r".*did you mean 'asynchronous'"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused_before_anything_runs(options, message, study, capsys):
    Path("empty.db").touch()
    budget = [] if not options or "--resume" in options else ["--n-slow", "8"]
    files = set(os.listdir())
    assert run("box.py:problem", "--quiet", *budget, *options) == 2
    assert re.match(rf"tcsaea: error: {message}", capsys.readouterr().err)
    assert not Path("calls.txt").exists()
    assert set(os.listdir()) - files <= {"__pycache__"}
    assert len(Study.read(study).events) == 4


def test_processes_need_functions_that_can_be_sent(here, capsys):
    assert run("box.py:local", *QUICK[1:], "--processes", "--journal", "a.db") == 2
    assert "error: fast must be picklable to run in a process pool" in capsys.readouterr().err
    assert not Path("a.db").exists()


def test_an_objective_that_never_works(here, capsys):
    (here / "box_bad.py").write_text(
        "import tcsaea_torch as tc\n"
        "problem = tc.Problem(\n"
        "    fast=lambda x: 1.0, slow=lambda x: 1 / 0, bounds=[[0.0], [1.0]], tau=1)\n"
    )
    assert run("box_bad.py:problem", "--n-slow", "4", "--n-init", "4", "--quiet") == 2
    assert "error: all 4 evaluations of the slow objective failed" in capsys.readouterr().err


def test_a_missing_matplotlib_is_said_before_anything_runs(here, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(*QUICK, "--figure", "a.png") == 2
    assert "error: plots need matplotlib: pip install" in capsys.readouterr().err
    assert not Path("calls.txt").exists()
