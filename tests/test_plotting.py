"""Pictures: what is drawn, where, and how it is labelled."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch import plotting
from tcsaea_torch.errors import MissingDependencyError
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tests.test_result import DIRECTIONS, NAN, make

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.image import imread


def draw(result, **options) -> Any:
    axes = Figure().add_subplot()
    assert plotting.plot_front(result, ax=axes, **options) is axes
    return axes


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_all_complete_points_the_front_and_its_edge_are_drawn(directions):
    result = make(directions)
    points, front, edge = draw(result).lines
    assert points.get_xydata().tolist() == result.Y.tolist()
    by_fast = sorted(result.pareto_Y.tolist())
    assert front.get_xydata().tolist() == by_fast
    assert edge.get_xydata().tolist() == by_fast
    assert points.get_linestyle() == front.get_linestyle() == "None"
    assert points.get_alpha() < 1
    assert edge.get_linestyle() == "-"


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_the_edge_bounds_what_the_front_attains(directions):
    result = make(directions)
    edge = draw(result).lines[2]
    x, y = edge.get_xydata().T
    style = edge.get_drawstyle()
    signs = result.problem.signs.numpy()
    assert len(x) == 3
    for k in range(2):
        middle = (x[k] + x[k + 1]) / 2
        height = {"steps-post": y[k], "steps-pre": y[k + 1]}[style]
        # The best second value among the points that are at least as good in the first.
        reached = result.Y.numpy()[result.Y.numpy()[:, 0] * signs[0] <= middle * signs[0]]
        assert height * signs[1] == (reached[:, 1] * signs[1]).min()


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_labels_say_what_is_shown(directions):
    axes = draw(make(directions))
    assert axes.get_xlabel() == f"fast objective ({directions[0]}d)"
    assert axes.get_ylabel() == f"slow objective ({directions[1]}d)"
    assert axes.get_title() == "5 slow and 6 fast evaluations"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "random: 3 non-dominated"
    ]


def test_another_result_is_drawn_behind():
    mine = make(strategy="mine")
    other = make(strategy="other", all_Y=torch.tensor([[1.0, 2.0]] * 5 + [[3.0, NAN]]).double())
    axes = draw(mine, compare=other)
    assert len(axes.lines) == 6
    assert axes.lines[0].get_xydata().tolist() == other.Y.tolist()
    assert axes.lines[3].get_xydata().tolist() == mine.Y.tolist()
    assert axes.lines[0].get_color() != axes.lines[3].get_color()
    assert axes.lines[0].get_marker() != axes.lines[3].get_marker()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["other: 1 non-dominated", "mine: 3 non-dominated"]


def test_nothing_measured_gives_empty_axes():
    axes = draw(make(all_Y=torch.full((6, 2), NAN).double()))
    assert [len(line.get_xydata()) for line in axes.lines] == [0, 0, 0]
    assert axes.get_legend().get_texts()[0].get_text() == "random: 0 non-dominated"


def test_without_axes_pyplot_makes_them():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    axes: Any = plotting.plot_front(make())
    try:
        assert plt.gcf() is axes.figure
        assert len(axes.lines) == 3
    finally:
        plt.close(axes.figure)


def test_save_front_writes_a_picture(tmp_path):
    path = tmp_path / "front.png"
    plotting.save_front(make(), path)
    image: Any = imread(path)
    assert image.shape[:2] == (750, 1050)
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 10
    with_other = tmp_path / "both.png"
    plotting.save_front(make(), with_other, compare=make(strategy="other"))
    assert not np.array_equal(imread(with_other), image)


@pytest.mark.parametrize(
    ("ending", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_ending_decides_the_format(tmp_path, ending, magic):
    path = tmp_path / f"front.{ending}"
    plotting.save_front(make(), str(path))
    assert path.read_bytes().startswith(magic)


def test_saving_makes_no_window(tmp_path):
    plt = pytest.importorskip("matplotlib.pyplot")
    before = plt.get_fignums()
    plotting.save_front(make(), tmp_path / "front.png")
    assert plt.get_fignums() == before


def test_pictures_need_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for picture in (
        lambda: plotting.plot_front(make()),
        lambda: make().plot(),
        lambda: plotting.plot_timeline([]),
        lambda: plotting.save_front(make(), tmp_path / "front.png"),
    ):
        with pytest.raises(MissingDependencyError, match=r"^plots need matplotlib: pip install "):
            picture()
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ timelines


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
