"""The progress bar, in a terminal and in a notebook, and what it costs."""

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tcsaea_torch import Result, progress
from tests.test_driver import AtOnce, solve

BAR = re.compile(
    r"slow: +(\d+)%\|.*\| (\d+)/(\d+) .*fast (\d+)/(\d+)(?:, hypervolume ([\d.e+-]+))?"
)


def bars(err):
    """Return (slow, fast, hypervolume) of each time that the bar was drawn."""
    found = [BAR.search(line) for line in re.split(r"[\r\n]", err)]
    return [(int(m[2]), int(m[4]), m[6] and float(m[6])) for m in found if m]


@pytest.fixture
def always_drawn(monkeypatch):
    """Let the bar be drawn anew after each event, as if evaluations took long."""
    import tqdm.auto

    free = SimpleNamespace(perf_counter=lambda: 0.0, thread_time=lambda: 0.0)
    monkeypatch.setattr(progress, "time", free)
    original = tqdm.auto.tqdm
    monkeypatch.setattr(
        tqdm.auto, "tqdm", lambda **options: original(**{**options, "mininterval": 0.0})
    )


def test_the_bar_shows_how_the_hypervolume_grows(capsys, always_drawn):
    result = solve(progress=True, executor=AtOnce(), n_slow=20)
    volumes = [volume for _, _, volume in bars(capsys.readouterr().err) if volume]
    assert len(set(volumes)) > 3
    assert volumes == sorted(volumes)
    assert volumes[-1] == pytest.approx(result.hypervolume(), rel=1e-3)


@pytest.fixture
def measured(monkeypatch):
    """Run with clocks by hand, and return before which events the hypervolume was computed.

    An event takes a second. The k-th hypervolume takes `costs[k]` of this thread's own time, and
    `waits` for others.
    """
    clock, spent, n_events, at = [0.0], [0.0], [0], []
    clocks = SimpleNamespace(perf_counter=lambda: clock[0], thread_time=lambda: spent[0])
    monkeypatch.setattr(progress, "time", clocks)
    original = Result.hypervolume

    def run(costs, waits=0.0):
        def hypervolume(self, *arguments):
            cost = costs[min(len(at), len(costs) - 1)]
            spent[0] += cost
            clock[0] += cost + waits
            at.append(n_events[0])
            return original(self, *arguments)

        def tick(optimizer, event):
            clock[0] += 1.0
            n_events[0] += 1

        monkeypatch.setattr(Result, "hypervolume", hypervolume)
        solve(
            {"ref_point": [3.0, 3.0]}, progress=True, executor=AtOnce(), strategy="random",
            n_slow=30, callbacks=[tick],
        )  # fmt: skip
        return at

    return run


def test_a_slow_first_hypervolume_does_not_put_off_the_next(measured):
    """It may load and set up what the others use."""
    at = measured([10.0, 0.01])
    assert at == list(range(61))  # before each event has its second, and at the end


def test_waiting_for_others_does_not_put_off_the_next(measured):
    """Objectives that hold the interpreter, or other programs, take time of the clock."""
    assert measured([0.01], waits=30.0) == list(range(61))


def test_much_work_is_done_rarely(measured):
    at = measured([1.0])
    assert at == [0, 1, 21, 41, 60]


def test_it_moves_while_only_fast_values_come(capsys, always_drawn):
    solve(progress=True, executor=AtOnce())
    shown = bars(capsys.readouterr().err)
    assert len({fast for slow, fast, _ in shown if slow == 8}) > 3


def test_in_a_notebook_it_is_a_widget(monkeypatch, capfd):
    pytest.importorskip("ipywidgets")
    notebook = pytest.importorskip("tqdm.notebook")
    import tqdm.auto

    made: list[Any] = []

    class Bar(notebook.tqdm):
        def __init__(self, **options):
            super().__init__(**options, display=False)
            made.append(self)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    result = solve(progress=True, executor=AtOnce())
    (bar,) = made
    left, widget, right = bar.container.children
    assert (widget.value, widget.max, widget.bar_style) == (14, 14, "success")
    assert left.value == "slow:\u2007100%"
    assert f"fast {result.n_fast}/28, hypervolume " in right.value.replace("\u2007", " ")
    assert capfd.readouterr() == ("", "")
    solve(progress=False)
    assert len(made) == 1


SILENT = """
import sys
import tcsaea_torch as tc
problem = tc.Problem(
    fast=lambda x: float((x**2).sum()), slow=lambda x: float(((x - 1) ** 2).sum()),
    bounds=[[0.0, 0.0], [1.0, 1.0]], tau=2,
)
tc.minimize(problem, n_slow=4, strategy="random", progress=False)
assert "tqdm.auto" not in sys.modules
"""


def test_without_progress_nothing_is_printed_nor_imported():
    """In a process of its own: imports may print too."""
    done = subprocess.run(
        [sys.executable, "-c", SILENT], capture_output=True, text=True, check=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_an_error_closes_the_bar(capsys):
    def broken(optimizer, event):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(progress=True, callbacks=[broken])
    assert capsys.readouterr().err.endswith("\n")
