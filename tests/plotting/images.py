"""Pictures that are compared with stored ones. `python -m tests.plotting.images` stores them anew.

What counts is what is seen from some distance: mean brightness of tiles, so that other versions
of fonts and of anti-aliasing do no harm, and a missing curve, label or marker does.
"""

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread, imsave

from tcsaea_torch import plotting
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tests.plotting.runs import made

BASELINES = Path(__file__).parent / "baselines"
_DPI, _TILE = 60, 5
_PLACE = {"left": 0.15, "right": 0.97, "bottom": 0.14, "top": 0.9}
"""Of the axes: a layout by the size of texts would move all that is drawn."""


def _timeline(ax: Any) -> None:
    intervals = []
    for lane, worker, seconds in (
        ("fast", 0, 1.0),
        ("fast", 1, 1.5),
        ("slow", 0, 5.0),
        ("slow", 1, 4.0),
    ):
        for k in range(int(20 / seconds)):
            outcome = list(Outcome)[k % 4 if k % 5 == 3 or k % 7 == 2 else 0]
            intervals.append(
                Interval(
                    lane=Objective(lane),
                    worker=worker,
                    evaluation_id=0,
                    start=k * seconds,
                    end=(k + 1) * seconds,
                    outcome=outcome,
                )
            )
    plotting.plot_timeline(intervals, ax=ax, unit="hours")


def _convergence(ax: Any) -> None:
    for quality, name in ((1.0, "random"), (5.0, "tc-saea"), (20.0, "tc-ehvi")):
        plotting.plot_convergence(made(quality=quality), ax=ax, label=name)


def _igd(ax: Any) -> None:
    angles = np.linspace(0, math.pi / 2, 50)
    front = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    for quality, name in ((1.0, "random"), (20.0, "tc-ehvi")):
        result = made(quality=quality)
        plotting.plot_convergence(
            result, metric="igd", x="time", known_front=front, ax=ax, label=name
        )  # fmt: skip


def _front(ax: Any, ways: tuple[str, str] = ("minimize", "minimize")) -> None:
    angles = np.linspace(0, math.pi / 2, 80)
    result = made(ways, quality=10.0)
    front = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * result.problem.signs.numpy()
    other = made(ways, quality=0.0, strategy="random")
    plotting.plot_front(result, ax=ax, compare=other, known_front=front)


class _Surrogate:
    def predict(self, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = torch.sin(6 * X[:, 0]) + X[:, 1] ** 2
        return mean, 0.02 + (X - 0.5).square().sum(dim=-1)


def _slices(figure: Any) -> None:
    ax = figure.subplots(1, 2, gridspec_kw=_PLACE | {"wspace": 0.4})
    plotting.plot_slices(_Surrogate(), [0.3, 0.6], problem=made().problem, axes=ax)


DRAWINGS = {
    "front": _front,
    "front-maximized": lambda ax: _front(ax, ("maximize", "maximize")),
    "hypervolume": _convergence,
    "igd": _igd,
    "timeline": _timeline,
    "timeline-real": lambda ax: made().plot(ax, kind="timeline"),
    "transfer": lambda ax: made().plot(ax, kind="transfer"),
    "co-surrogate-error": lambda ax: made().plot(ax, kind="co-surrogate-error"),
}
NAMES = (*DRAWINGS, "slices")


def draw(name: str) -> np.ndarray:
    """Return a picture in matplotlib's own style, as brightness from 0 to 1."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        figure = Figure(figsize=(6.0, 4.0), dpi=_DPI)
        canvas = FigureCanvasAgg(figure)
        if name == "slices":
            _slices(figure)
        else:
            DRAWINGS[name](figure.subplots(gridspec_kw=_PLACE))
        canvas.draw()
        return _grey(np.asarray(canvas.buffer_rgba()) / 255.0)


def stored(name: str) -> np.ndarray:
    """Return the picture as it was when it was looked at."""
    return _grey(imread(BASELINES / f"{name}.png"))


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the root mean square difference of two pictures' tiles."""
    return float(np.sqrt(np.mean((_tiles(a) - _tiles(b)) ** 2)))


def _grey(image: np.ndarray) -> np.ndarray:
    """Return the luminance of a picture, as a printer in grey shows it."""
    return image if image.ndim == 2 else image[..., :3] @ [0.299, 0.587, 0.114]


def _tiles(image: np.ndarray) -> np.ndarray:
    """Return the mean brightness of tiles."""
    height, width = (size // _TILE * _TILE for size in image.shape)
    blocks = image[:height, :width].reshape(height // _TILE, _TILE, width // _TILE, _TILE)
    return blocks.mean(axis=(1, 3))


if __name__ == "__main__":
    for each in NAMES:
        imsave(BASELINES / f"{each}.png", draw(each), cmap="gray", vmin=0.0, vmax=1.0)
