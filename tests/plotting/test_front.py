"""Pictures of fronts: what is drawn, where, and how it is labelled."""

import sys
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch import plotting, problems
from tcsaea_torch.errors import MissingDependencyError
from tests.test_result import DIRECTIONS, NAN, make, problem

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.image import imread


def draw(result, **options) -> Any:
    axes = Figure().add_subplot()
    assert plotting.plot_front(result, ax=axes, **options) is axes
    return axes


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


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
    assert texts(axes) == ["random: 3 non-dominated", "dominated: 1", "fast value only: 1"]


def test_names_and_units_of_objectives_are_on_the_axes():
    names = ("mass [kg]", "energy [kJ]")
    p = problem(directions=("minimize", "maximize"), objective_names=names)
    axes = draw(make(problem=p))
    assert axes.get_xlabel() == "mass [kg] (minimized)"
    assert axes.get_ylabel() == "energy [kJ] (maximized)"


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_fast_values_alone_are_ticks_along_the_axis(directions):
    result = make(directions)
    axes = draw(result)
    (ticks,) = axes.collections
    assert ticks.get_offsets()[:, 0].tolist() == [9.0 * float(result.problem.signs[0])]
    at = ticks.get_offset_transform().transform(ticks.get_offsets())
    assert 0 <= axes.transAxes.inverted().transform(at)[0, 1] < 0.05  # whatever the limits are
    assert axes.get_xlim()[0] < ticks.get_offsets()[0, 0] < axes.get_xlim()[1]
    low, high = axes.get_ylim()
    lowest, highest = float(result.Y[:, 1].min()), float(result.Y[:, 1].max())
    assert low <= lowest < highest <= high < low + 3 * (highest - lowest)


def test_the_known_front_is_the_given_one_or_a_test_problems():
    given = [[0.0, 5.0], [1.0, 0.0]]
    axes = draw(make(), known_front=given)
    assert axes.collections[1].get_offsets().tolist() == given
    assert texts(axes)[-1] == "known front"
    dtlz2 = problems.get("dtlz2")
    axes = draw(make(problem=dtlz2, all_X=torch.zeros(6, dtlz2.d).double()))
    truth = axes.collections[1].get_offsets()
    assert len(truth) > 100
    np.testing.assert_allclose((np.asarray(truth) ** 2).sum(axis=1), 1.0, rtol=1e-6)


def test_another_result_is_drawn_behind():
    mine = make(strategy="mine")
    other = make(strategy="other", all_Y=torch.tensor([[1.0, 2.0]] * 5 + [[3.0, NAN]]).double())
    axes = draw(mine, compare=other)
    assert len(axes.lines) == 6
    assert axes.lines[0].get_xydata().tolist() == other.Y.tolist()
    assert axes.lines[3].get_xydata().tolist() == mine.Y.tolist()
    assert axes.lines[0].get_color() != axes.lines[3].get_color()
    assert axes.lines[0].get_marker() != axes.lines[3].get_marker()
    assert texts(axes)[:2] == ["other: 1 non-dominated", "mine: 3 non-dominated"]
    assert axes.lines[2].get_linestyle() != axes.lines[5].get_linestyle()


def test_nothing_measured_gives_empty_axes():
    axes = draw(make(all_Y=torch.full((6, 2), NAN).double()))
    assert [len(line.get_xydata()) for line in axes.lines] == [0, 0, 0]
    assert texts(axes) == ["random: 0 non-dominated"]


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
