"""`tcsaea run`: from a user's file to results, through crashes, and what it refuses."""

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
from tcsaea_torch.errors import JournalError
from tcsaea_torch.study import Study

PATIENCE = 120.0

BOX = """
import os, time
import tcsaea_torch as tc
from {stem}_mesh import scale

def log(name, x):
    with open("calls.txt", "a") as file:  # one write, so that workers do not mix lines
        file.write(f"{{name}} {{os.getpid()}} {{x.tolist()!r}}\\n")

def mass(x):
    log("fast", x)
    return float((x**2).sum())

def peak(x):
    import {stem}_late  # not before it is called
    log("slow", x)
    time.sleep({pause})
    return {stem}_late.offset() + scale() * float(((x - 1) ** 2).sum())

problem = tc.Problem(fast=mass, slow=peak, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)
number = 3

def make():
    return tc.Problem(fast=mass, slow=peak, bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2)

def make_with(tau):
    return problem

def make_nothing():
    pass

def make_trouble():
    width = 1
    return width / 0

_hidden = problem
local = tc.Problem(fast=lambda x: 1.0, slow=peak, bounds=[[0.0], [1.0]], tau=2)
"""


def write(folder, stem="box", pause=0.0):
    """Write a problem's file and its neighbours."""
    (folder / f"{stem}.py").write_text(BOX.format(stem=stem, pause=pause))
    (folder / f"{stem}_mesh.py").write_text("def scale():\n    return 2.0\n")
    (folder / f"{stem}_late.py").write_text("def offset():\n    return 0.5\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a folder of the test's own, with a problem; modules do not outlive the test."""
    before, path = set(sys.modules), list(sys.path)
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert sys.path == path
    left = set(sys.modules) - before
    assert "box" not in left
    for name in left:
        if name.startswith("box"):
            del sys.modules[name]


def run(*arguments):
    return cli.main(["run", *arguments])


QUICK = ["box.py:problem", "--n-slow", "8", "--n-init", "5", "--strategy", "random", "--quiet"]


def calls():
    """Return the calls of both objectives: (objective, process, point)."""
    return [tuple(line.split(" ", 2)) for line in Path("calls.txt").read_text().splitlines()]


# ------------------------------------------------------------------ whole runs


def test_a_run_from_a_file(here, capsys):
    options = ["--n-slow", "8", "--csv", "a.csv", "--figure", "a.png", "--journal", "a.db"]
    assert run("box.py:problem", *options) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == (
        "box.py:problem: 2 variables, 8 slow and 16 fast evaluations, strategy tc-saea"
    )
    assert lines[1].startswith(
        "the slow budget is spent: 8 of 8 slow and 16 of 16 fast evaluations, in "
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
        assert len(list(csv.DictReader(file))) == 24
    assert "slow: 100%" in captured.err
    assert len(calls()) == 24
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
        "seen, together = [], threading.Barrier(3)\n"
        "def slow(x):\n"
        "    seen.append(tuple(x))\n"
        "    if len(seen) <= 3:\n"
        "        together.wait(20)\n"
        "    if len(seen) == 1 + 3:\n"
        "        time.sleep(60)\n"  # longer than its limit; a thread more goes on
        "    if len(seen) == 2 + 3:\n"
        "        raise ValueError('no licence')\n"
        "    return float(x[0])\n"
        "problem = tc.Problem(\n"
        "    fast=lambda x: -float(x[0]), slow=slow, bounds=[[0.0], [1.0]], tau=1)\n"
    )
    start = time.perf_counter()
    arguments = ["--n-slow", "14", "--n-init", "8", "--workers-slow", "3", "--timeout-slow", "0.5"]
    options = ["--retries", "1", "--journal", "a.db", "--quiet"]
    assert run("boxes.py:problem", *arguments, *options) == 0
    assert time.perf_counter() - start < 40
    history = Study.read("a.db").result().history
    failed = {r.reason.splitlines()[-1]: r.point_id for r in history if r.status == "failed"}
    assert failed.keys() == {"timed out after 0.5 s", "ValueError: no licence"}
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
        # What starts a test in the background may have it ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


def n_done(path):
    try:
        return sum(r.status == "done" for r in Study.read(path).state.records)
    except JournalError:  # not yet there
        return 0


def wait_for(child, path, n):
    def is_so():
        assert child.poll() is None, child.communicate()
        return n_done(path) >= n

    wait_until(is_so)


@pytest.mark.parametrize("lanes", [["--workers-slow", "2"], ["--processes"]], ids=str)
def test_a_killed_run_goes_on_without_losing_a_value(lanes, here, capsys):
    write(here, pause=0.1)
    arguments = ["box.py:problem", "--journal", "a.db", "--quiet", *lanes]
    begun = ["--n-slow", "24", "--n-init", "10", "--strategy", "random", "--seed", "7"]
    told = {}
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
    assert run(*arguments, "--resume") == 0
    result = Study.read("a.db", thoroughly=True).result()
    assert result.status == "finished"
    assert {r.id: r.value for r in result.history}.items() >= told.items()
    assert len(result.history) == 48
    # What was told was not run again; what was under way was, once for each kill.
    n_calls = Counter((name, x) for name, _, x in calls())
    x_of = {i: repr(x) for i, x in zip(result.all_ids.tolist(), result.all_X.tolist(), strict=True)}
    assert len(n_calls) == 48
    n_before = Counter(n_calls[str(r.objective), x_of[r.point_id]] for r in result.history)
    assert set(n_before) <= {1, 2, 3}
    assert sum(n_calls.values()) - 48 <= 2 * 3 * 2  # workers and what was queued beside them
    output = capsys.readouterr().out
    assert "24 of 24 slow and 24 of 48 fast evaluations" in output


@pytest.mark.parametrize("lanes", [["--workers-slow", "2"], ["--processes"]], ids=str)
def test_ctrl_c_keeps_what_was_measured_and_says_how_to_go_on(lanes, here, capsys):
    write(here, pause=0.1)
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
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
    ],
)
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
