"""Slices of surrogates: curves, bands and units."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch import Problem, plotting
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import fit_kriging

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure


@dataclass
class Wave:
    """A surrogate of a known mean and variance, a batch of one."""

    batched: bool = True

    def predict(self, X):
        mean, variance = X[:, 0] + torch.sin(X[:, 1]), 0.01 * X[:, 0] ** 2
        self.seen = X
        return (mean[None], variance[None]) if self.batched else (mean.numpy(), variance.numpy())


class Posterior:
    def __init__(self, mean, variance):
        self.mean, self.variance = mean.unsqueeze(-1), variance.unsqueeze(-1)


class Modelled:
    """The same in BoTorch's form."""

    def posterior(self, X):
        return Posterior(*(value[0] for value in Wave().predict(X)))


def axes(n) -> Any:
    return Figure().subplots(1, n, squeeze=False)[0]


def slices(*arguments, **options) -> Any:
    return plotting.plot_slices(*arguments, **options)


@pytest.mark.parametrize("surrogate", [Wave(), Wave(batched=False), Modelled()])
def test_each_variable_has_a_panel_with_mean_and_band(surrogate):
    given = axes(2)
    drawn = slices(
        surrogate, [0.5, 1.0], bounds=[[0, -1], [2, 3]], names=["a", "b [mm]"], label="force [kN]",
        n_points=5, axes=given,
    )  # fmt: skip
    assert list(drawn) == list(given)
    first, second = drawn
    low, high, mean, center = (line.get_xydata() for line in first.lines)
    x = np.linspace(0, 2, 5)
    np.testing.assert_allclose(mean, np.stack([x, x + math.sin(1.0)], axis=-1))
    np.testing.assert_allclose(high[:, 1] - mean[:, 1], 1.959964 * 0.1 * x, rtol=1e-6)
    np.testing.assert_allclose(mean[:, 1] - low[:, 1], 1.959964 * 0.1 * x, rtol=1e-6)
    assert center[:, 0].tolist() == [0.5, 0.5]
    x = np.linspace(-1, 3, 5)
    np.testing.assert_allclose(
        second.lines[2].get_xydata(), np.stack([x, 0.5 + np.sin(x)], axis=-1)
    )
    assert [ax.get_xlabel() for ax in drawn] == ["a", "b [mm]"]
    assert first.get_ylabel() == "force [kN]"
    assert [t.get_text() for t in first.get_legend().get_texts()] == ["95 %", "mean"]


def user_problem():
    return Problem(
        fast=abs, slow=abs, bounds=[[10.0, 1, 5.0], [20.0, 4, 5.0]], tau=2, integers=[1],
        names=["width [mm]", "ribs", "fixed"], directions=("minimize", "maximize"),
        objective_names=("mass [kg]", "energy [kJ]"),
    )  # fmt: skip


def test_a_problem_gives_users_units_and_signs():
    problem, surrogate = user_problem(), Wave()
    drawn = slices(
        surrogate, [15.0, 2, 5.0], problem=problem, n_points=11, axes=axes(2)
    )  # fmt: skip
    width, ribs = drawn  # the fixed one has no panel
    x = np.linspace(10, 20, 11)
    u = (x - 10) / 10
    np.testing.assert_allclose(
        width.lines[2].get_xydata(), np.stack([x, -(u + math.sin(1 / 3))], axis=-1), rtol=1e-12
    )
    (container,) = ribs.containers
    assert container.lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert [ax.get_ylabel() for ax in drawn] == ["energy [kJ]"] * 2
    assert [ax.get_xlabel() for ax in drawn] == ["width [mm]", "ribs"]
    fast = slices(
        surrogate, [15.0, 2, 5.0], problem=problem, objective="fast", n_points=3, axes=axes(2)
    )
    assert fast[0].get_ylabel() == "mass [kg]"
    assert fast[0].lines[2].get_ydata()[-1] == pytest.approx(1 + math.sin(1 / 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kriging_runs_through_its_data(dtype):
    X = torch.tensor([[0.1, 0.5], [0.4, 0.5], [0.9, 0.5], [0.3, 0.1], [0.6, 0.9]], dtype=dtype)
    y = torch.sin(4 * X[:, 0]) + X[:, 1]
    gp = fit_kriging(X, y)
    for surrogate in (gp, gp.surrogate):
        ax = slices(surrogate, X[0], n_points=11, axes=axes(2))[0]
        low, high, mean = (line.get_ydata() for line in ax.lines[:3])
        for k, row in ((1, 0), (4, 1), (9, 2)):
            assert mean[k] == pytest.approx(float(y[row]), abs=1e-3)
            assert high[k] - low[k] < 0.05
        assert ax.get_ylabel() == "prediction"
        assert ax.get_xlabel() == "x0"


def test_pyplot_makes_panels_in_lines_of_four():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    drawn: Any = slices(Wave(), [0.5] * 6, n_points=2)
    try:
        assert plt.gcf() is drawn[0].figure
        assert [ax.get_subplotspec().get_geometry()[:2] for ax in drawn] == [(2, 4)] * 6
    finally:
        plt.close(drawn[0].figure)


def test_several_outputs_are_refused():
    class Two:
        def predict(self, X):
            return torch.stack([X[:, 0]] * 2), torch.ones(2, len(X))

    with pytest.raises(InvalidInputError, match=r"^surrogate must predict one value for each of 5"):
        slices(Two(), [0.5], n_points=5, axes=axes(1))
