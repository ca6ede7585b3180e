"""Curves of hypervolume and IGD: their numbers, computed in another way."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import plotting
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Record, Status
from tcsaea_torch.types import Objective
from tests.plotting.runs import N_INIT, N_PERIODS, SLOW_S, made
from tests.test_result import DIRECTIONS, make

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure


def curve(result, **options):
    axes: Any = Figure().add_subplot()
    assert plotting.plot_convergence(result, ax=axes, **options) is axes
    return axes, axes.lines[-1].get_xydata()


def volume(Y, point):
    """Return the area that minimised points dominate, by sweeping."""
    area, height = 0.0, point[1]
    for a, b in sorted(map(tuple, Y)):
        if a < point[0] and b < height:
            area += (point[0] - a) * (height - b)
            height = b
    return area


def known_after(result, n_slow):
    """Return the minimised complete points once n slow values have come, one after another."""
    Y = (result.Y * result.problem.signs).numpy()
    return Y[:n_slow]


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_hypervolume_over_slow_evaluations(directions):
    result: Any = made(directions)
    axes, points = curve(result)
    assert points[:, 0].tolist() == list(range(1, N_INIT + N_PERIODS + 1))
    expected = [volume(known_after(result, int(n)), (4.0, 4.0)) for n in points[:, 0]]
    np.testing.assert_allclose(points[:, 1], expected, rtol=1e-12)
    assert points[-1, 1] == pytest.approx(result.hypervolume())
    assert axes.get_xlabel() == "slow evaluations"
    shown = ", ".join(f"{v:g}" for v in result.ref_point.tolist())
    assert axes.get_ylabel() == f"hypervolume, reference point ({shown})"
    assert axes.lines[0].get_drawstyle() == "steps-post"


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_igd_over_time(directions):
    result = made(directions)
    angles = np.linspace(0, np.pi / 2, 20)
    front = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    signs = result.problem.signs.numpy()
    axes, points = curve(result, metric="igd", x="time", known_front=front * signs)
    hours = [(k + 1) * SLOW_S / 3600 for k in range(N_INIT + N_PERIODS)]
    np.testing.assert_allclose(points[:, 0], hours, rtol=1e-12)
    for n, value in enumerate(points[:, 1], start=1):
        Y = known_after(result, n)
        best = [y for y in Y if not any((z <= y).all() and (z < y).any() for z in Y)]
        distances = np.linalg.norm(front[:, None] - np.array(best)[None], axis=-1)
        assert value == pytest.approx(distances.min(axis=1).mean(), rel=1e-9)
    assert axes.get_xlabel() == "time since the start (hours)"
    assert axes.get_ylabel() == "inverted generational distance (IGD)"
    assert axes.get_yscale() == "log"


def test_a_point_counts_when_its_last_value_has_come():
    history = tuple(
        Record(
            id=i, point_id=p, objective=Objective(o), status=Status(s), asked_at=0.0, ended_at=t
        )
        for i, (p, o, s, t) in enumerate([
            (0, "slow", "done", 10.0), (0, "fast", "done", 40.0),
            (1, "slow", "failed", 20.0), (1, "fast", "done", 5.0), (1, "slow", "done", 30.0),
            (2, "slow", "failed", 50.0), (2, "fast", "done", 1.0), (2, "fast", "pending", math.nan),
        ])
    )  # fmt: skip
    nan = math.nan
    Y = torch.tensor([[1.0, 1.0], [2.0, 0.5], [0.0, nan], [3.0, 3.0]]).double()
    result = make(
        history=history, all_Y=Y, all_ids=torch.tensor([0, 1, 2, 9]),
        all_X=torch.zeros(4, 2).double(),
    )  # fmt: skip
    # The last point was attached, and known from the start. Below (4, 4) it has the area 1; then
    # (2, 0.5), which dominates it, 2 x 3.5; and (1, 1) 3 x 3, beyond which 2 x 0.5 remain.
    _, points = curve(result, ref_point=[4.0, 4.0])
    assert points.tolist() == [[0.0, 1.0], [3.0, 10.0], [4.0, 10.0]]
    axes, points = curve(result, x="time", ref_point=[4.0, 4.0])
    assert points.tolist() == [[0.0, 1.0], [30.0, 7.0], [40.0, 10.0], [50.0, 10.0]]
    assert axes.get_xlabel() == "time since the start (seconds)"


def test_virtual_time_is_that_of_the_clock():
    clock = tc.VirtualExecutor(time_slow=5.0, workers={"fast": 5})
    problem = tc.Problem(
        fast=lambda x: float((x**2).sum()), slow=lambda x: float(((x - 1) ** 2).sum()),
        bounds=[[0.0] * 2, [1.0] * 2], tau=5, ref_point=[3.0, 3.0],
    )  # fmt: skip
    result = tc.minimize(problem, n_slow=6, strategy="random", executor=clock, progress=False)
    axes, points = curve(result, x="time", timeline=clock.timeline, unit="hours")
    assert set(points[:, 0]) <= {5.0 * k for k in range(1, 7)}
    assert points[-1].tolist() == [30.0, pytest.approx(result.hypervolume())]
    assert axes.get_xlabel() == "virtual time (hours)"


def test_several_runs_on_the_same_axes_differ_in_grey_too():
    axes: Any = Figure().add_subplot()
    for k in range(3):
        plotting.plot_convergence(made(), ax=axes, label=f"run {k}")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "run 0",
        "run 1",
        "run 2",
    ]
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len({m for _, m, _ in looks}) == len({s for _, _, s in looks}) == 3


def test_nothing_measured_is_an_empty_curve():
    axes, points = curve(make(all_Y=torch.full((6, 2), math.nan).double()))
    assert len(points) == 0
    assert axes.get_legend().get_texts()[0].get_text() == "random"


def test_what_is_needed_and_not_known_is_named():
    with pytest.raises(InvalidInputError, match=r"^ref_point must be given"):
        plotting.plot_convergence(make(ref_point=None))
    with pytest.raises(InvalidInputError, match=r"^known_front must be given"):
        plotting.plot_convergence(made(), metric="igd")


def test_result_plot_draws_it():
    axes: Any = Figure().add_subplot()
    assert made().plot(axes, kind="convergence", x="time") is axes
    assert axes.get_xlabel() == "time since the start (hours)"
