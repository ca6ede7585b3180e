"""Pictures of timelines, on a virtual clock and in real time."""

from typing import Any

import numpy as np
import pytest

from tcsaea_torch import plotting
from tcsaea_torch.events import Record, Status
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tests.test_result import make

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure


def interval(lane, worker, start, end, outcome="done"):
    return Interval(
        lane=Objective(lane), worker=worker, evaluation_id=0, start=start, end=end,
        outcome=Outcome(outcome),
    )  # fmt: skip


def bars(axes):
    """Return (left, right, bottom, top) of all bars by the label of their colour."""
    found = {}
    for collection in axes.collections:
        boxes = [path.get_extents() for path in collection.get_paths()]
        found[collection.get_label()] = sorted((b.x0, b.x1, b.y0, b.y1) for b in boxes)
    return found


def test_a_timeline_has_a_row_for_each_worker_and_a_bar_for_each_evaluation():
    intervals = [
        interval("slow", 0, 0.0, 5.0),
        interval("fast", 0, 0.0, 1.0),
        interval("fast", 0, 1.0, 2.5, "failed"),
        interval("slow", 2, 3.0, 7.0, "timed out"),
        interval("slow", 0, 5.0, 6.0, "lost"),
    ]
    axes: Any = Figure().add_subplot()
    assert plotting.plot_timeline(intervals, ax=axes, unit="hours") is axes
    assert bars(axes) == {
        "done: 2": [(0.0, 1.0, -0.4, 0.4), (0.0, 5.0, 0.6, 1.4)],
        "failed: 1": [(1.0, 2.5, -0.4, 0.4)],
        "timed out: 1": [(3.0, 7.0, 1.6, 2.4)],
        "lost: 1": [(5.0, 6.0, 0.6, 1.4)],
    }
    assert [text.get_text() for text in axes.get_yticklabels()] == ["fast 0", "slow 0", "slow 2"]
    assert axes.get_xlabel() == "virtual time (hours)"
    assert axes.get_ylabel() == "worker"
    assert axes.get_xlim() == (0.0, 7.0)
    assert axes.get_ylim() == (2.5, -0.5)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == list(bars(axes))
    colors = {tuple(c.get_facecolor()[0]) for c in axes.collections}
    assert len(colors) == 4


def test_colours_of_a_timeline_differ_in_lightness():
    """So they do for the colour-blind, and in grey."""
    axes: Any = Figure().add_subplot()
    kinds = enumerate(map(str, Outcome))
    plotting.plot_timeline([interval("fast", k, 0.0, 1.0, o) for k, o in kinds], ax=axes)
    luminance = sorted(
        float(c.get_facecolor()[0][:3] @ [0.2126, 0.7152, 0.0722]) for c in axes.collections
    )
    assert np.diff(luminance).min() > 0.05
    assert axes.get_xlabel() == "virtual time"


def test_many_workers_are_counted_not_named():
    axes: Any = Figure().add_subplot()
    workers = [("fast", k) for k in range(10)] + [("slow", k) for k in range(30)]
    plotting.plot_timeline([interval(lane, k, 0.0, 1.0) for lane, k in workers], ax=axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["fast: 10", "slow: 30"]
    assert axes.get_yticks().tolist() == [4.5, 24.5]
    assert len(bars(axes)["done: 40"]) == 40


def test_a_timeline_of_nothing_is_empty():
    axes: Any = Figure().add_subplot()
    plotting.plot_timeline([], ax=axes)
    assert len(axes.collections) == 0
    assert axes.get_legend() is None


def record(id, objective, asked, ended, status="done"):
    return Record(
        id=id, point_id=0, objective=Objective(objective), status=Status(status),
        asked_at=1e9 + asked, ended_at=1e9 + ended,
    )  # fmt: skip


def test_a_result_shows_what_was_under_way_in_real_time():
    history = (
        record(0, "slow", 0.0, 7200.0),
        record(1, "fast", 0.0, 1800.0),
        record(2, "fast", 900.0, 3600.0, "failed"),
        record(3, "fast", 1800.0, 2700.0),  # in the row that is free again
        record(4, "slow", 3600.0, 5400.0),
        record(5, "slow", 5000.0, float("nan"), "pending"),
        record(6, "slow", 5000.0, 6000.0, "withdrawn"),
    )
    axes: Any = Figure().add_subplot()
    assert plotting.plot_timeline(make(history=history), ax=axes) is axes
    assert axes.get_xlabel() == "time since the start (hours)"
    assert axes.get_ylabel() == "evaluations under way"
    assert [text.get_text() for text in axes.get_yticklabels()] == [
        "fast 0", "fast 1", "slow 0", "slow 1",
    ]  # fmt: skip
    assert bars(axes) == {
        "done: 4": [
            (0.0, 0.5, -0.4, 0.4), (0.0, 2.0, 1.6, 2.4), (0.5, 0.75, -0.4, 0.4),
            (1.0, 1.5, 2.6, 3.4),
        ],
        "failed: 1": [(0.25, 1.0, 0.6, 1.4)],
    }  # fmt: skip
    assert axes.get_xlim() == (0.0, 2.0)


def test_a_result_of_nothing_is_an_empty_timeline():
    axes: Any = Figure().add_subplot()
    make().plot(axes, kind="timeline")
    assert len(axes.collections) == 0
    assert axes.get_xlabel() == "time since the start (seconds)"


def test_what_needs_attention_is_hatched():
    axes: Any = Figure().add_subplot()
    kinds = enumerate(map(str, Outcome))
    plotting.plot_timeline([interval("fast", k, 0.0, 1.0, o) for k, o in kinds], ax=axes)
    hatches = {c.get_label().split(":")[0]: c.get_hatch() for c in axes.collections}
    assert hatches.pop("done") is None
    assert len(set(hatches.values())) == len(hatches) == 3
