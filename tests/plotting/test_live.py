"""The picture in a notebook that follows a run, in front of a display that is not there."""

import logging
import sys
import types

import pytest

from tcsaea_torch import Problem, minimize, plotting
from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.plotting import live
from tests.plotting.notebook import Notebook

pytest.importorskip("matplotlib")


@pytest.fixture
def notebook(monkeypatch):
    return enter(monkeypatch, Notebook())


def enter(monkeypatch, notebook):
    for name, module in notebook.modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return notebook


def solve(callback, **changes):
    problem = Problem(
        fast=lambda x: float((x**2).sum()), slow=lambda x: float(((x - 1) ** 2).sum()),
        bounds=[[0.0, 0.0], [1.0, 1.0]], tau=1, **changes,
    )  # fmt: skip
    return minimize(
        problem, n_slow=6, n_init=3, strategy="random", callbacks=[callback], progress=False
    )


def test_one_picture_is_shown_and_brought_up_to_date(notebook, monkeypatch):
    pictures = []
    monkeypatch.setattr(live, "_picture", lambda o: pictures.append(o.result()) or b"png")
    monkeypatch.setattr(live, "_SHARE", 1.0)
    result = solve(plotting.LivePlot(every=0.0))
    assert len(notebook.shown) == 1
    assert len(notebook.updates) == len(pictures) - 1 == 12 - 1
    assert vars(notebook.shown[0]) == {"data": b"png", "format": "png"}
    assert pictures[-1].status == "finished"
    assert len(pictures[-1].Y) == len(result.Y) == 6


def test_pictures_are_rare_and_the_last_one_is_complete(notebook, monkeypatch):
    pictures = []
    monkeypatch.setattr(live, "_picture", lambda o: pictures.append(o.result()) or b"png")
    solve(plotting.LivePlot(every=1000.0))
    assert len(pictures) == 2
    assert len(pictures[-1].Y) == 6


def test_drawing_takes_a_share_of_the_time_at_most(notebook, monkeypatch):
    clock, spent = [100.0], [0.0]
    monkeypatch.setattr(
        live, "time",
        types.SimpleNamespace(perf_counter=lambda: clock[0], thread_time=lambda: spent[0]),
    )  # fmt: skip

    def picture(_):
        spent[0] += 2.0
        return b"png"

    monkeypatch.setattr(live, "_picture", picture)
    callback, at = plotting.LivePlot(every=1.0), []

    def later(optimizer, event):
        n = len(notebook.shown) + len(notebook.updates)
        callback(optimizer, event)
        if len(notebook.shown) + len(notebook.updates) > n:
            at.append(clock[0])
        clock[0] += 1.0

    solve(later)
    assert at == [100.0, 108.0, 111.0]  # 2 s of 10 s; and at the end


def test_the_picture_is_a_png_of_both_panels(notebook):
    solve(plotting.LivePlot(every=1000.0))
    first, last = notebook.shown[0].data, notebook.updates[-1].data
    assert first.startswith(b"\x89PNG")
    assert last.startswith(b"\x89PNG")
    assert first != last


def test_what_cannot_be_drawn_does_not_end_a_run(notebook, monkeypatch, caplog):
    calls = []

    def broken(_):
        calls.append(1)
        raise ValueError("no font")

    monkeypatch.setattr(live, "_picture", broken)
    with caplog.at_level(logging.WARNING):
        assert solve(plotting.LivePlot(every=0.0)).status == "finished"
    assert len(calls) == 1
    assert "the live plot failed; the run goes on without it" in caplog.text
    assert "no font" in caplog.text


def test_pyplot_is_left_alone(notebook):
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()
    solve(plotting.LivePlot(every=1000.0))
    assert plt.get_fignums() == before


def test_without_ipython_it_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.core.getipython", None)
    with pytest.raises(
        MissingDependencyError, match=r"^a live plot needs a notebook .*plot\(\) at"
    ):
        plotting.LivePlot()


def test_outside_of_a_notebook_it_says_what_to_do(monkeypatch):
    enter(monkeypatch, Notebook(kernel=False))
    message = r"^LivePlot must be in a notebook, which this is not; elsewhere, leave LivePlot out"
    with pytest.raises(InvalidInputError, match=message):
        plotting.LivePlot()
