"""Slices of a surrogate through a point, with its band."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.plotting.drawing import BLUE, RED, check_axes, objective_names, require_matplotlib
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Float, Objective, Tensor
from tcsaea_torch.validation import (
    check_bounds,
    check_choice,
    check_instance,
    check_int,
    check_names,
    check_text,
    check_vector,
    describe,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAND = 1.959963984540054
"""Half the width of the central 95 % of a normal distribution, in standard deviations."""

_MAX_COLUMNS = 4

Predict = Callable[[Tensor], tuple[Tensor, Tensor]]


def plot_slices(
    surrogate: Any,
    center: Any,
    *,
    problem: Problem | None = None,
    objective: str = "slow",
    bounds: Any = None,
    names: Sequence[str] | None = None,
    label: str | None = None,
    n_points: int = 101,
    axes: Any = None,
) -> "tuple[Axes, ...]":
    """Draw a surrogate along each variable through a point: mean and band of 95 %.

    Args:
        surrogate: Anything with `predict(X)`, which returns means and variances of `n x d`
            points, as this library's surrogates do; or a BoTorch model of one output.
        center: d numbers, the point; in the user's units if `problem` is given, else in those
            of the surrogate's inputs. A floating-point tensor decides the dtype and the device
            with which the surrogate is asked.
        problem: The problem, if the surrogate is of points in the unit cube and of minimised
            values, as those of strategies are; then all is drawn in the user's units.
        objective: Which of the problem's objectives it is of: "fast" or "slow".
        bounds: Without a problem, `2 x d`; None means the unit cube.
        names: Without a problem, a name for each variable.
        label: Name and unit of what is predicted; None: the problem's own.
        n_points: Points of each curve.
        axes: A sequence or array of matplotlib axes, one for each variable whose bounds differ;
            None makes a figure with pyplot.

    Returns:
        The axes, in the order of the variables.

    Raises:
        InvalidInputError: If an argument is wrong.
        MissingDependencyError: If matplotlib is not installed.
    """
    predict = _predictor(surrogate)
    column = Objective(check_choice("objective", objective, tuple(map(str, Objective)))).column
    like = center if isinstance(center, Tensor) and center.is_floating_point() else None
    name, sign = "prediction", 1.0
    if problem is None:
        d = _length(center) if bounds is None else check_bounds(bounds).shape[1]
        box = check_bounds([[0.0] * d, [1.0] * d] if bounds is None else bounds)
        shown, integers = check_names("names", names, length=d), ()
    else:
        check_instance("problem", problem, Problem)
        for argument, value in (("bounds", bounds), ("names", names)):
            if value is not None:
                raise InvalidInputError(f"{argument} must be None: the problem has its own")
        box, shown, integers = problem.bounds, problem.names or (), problem.integers
        name = objective_names(problem)[column]
        sign = float(problem.signs[column])
    point = check_vector("center", center, length=box.shape[1])
    if not point.isfinite().all():
        raise InvalidInputError(f"center must be finite, got {point.tolist()}")
    name = name if label is None else check_text("label", label)
    n = check_int("n_points", n_points, minimum=2)
    moving = [k for k in range(len(point)) if box[0, k] < box[1, k]]
    axes = _axes(axes, len(moving))
    for k, ax in zip(moving, axes, strict=True):
        x = torch.linspace(float(box[0, k]), float(box[1, k]), n, dtype=torch.float64)
        if k in integers:
            x = x.round().unique()
        X = point.repeat(len(x), 1)
        X[:, k] = x
        U = X if problem is None else problem.to_unit(X)
        mean, variance = predict(U if like is None else U.to(like))
        _draw(ax, x, sign * mean, variance.clamp_min(0.0).sqrt(), is_integer=k in integers)
        ax.axvline(float(point[k]), color="0.4", linewidth=0.8, linestyle=":")
        ax.set_xlabel(shown[k])
        ax.set_ylabel(name)
        room = 0.5 if k in integers else 0.0
        ax.set_xlim(float(box[0, k]) - room, float(box[1, k]) + room)
        ax.grid(visible=True, alpha=0.3)
    if axes:
        axes[0].legend()
    return axes


def _draw(
    ax: Any,
    x: Float[Tensor, " n"],
    mean: Float[Tensor, " n"],
    sd: Float[Tensor, " n"],
    *,
    is_integer: bool,
) -> None:
    low, high = mean - _BAND * sd, mean + _BAND * sd
    if is_integer:
        width = (_BAND * sd).numpy()
        ax.errorbar(x, mean, yerr=width, fmt="o", color=BLUE, capsize=3, label="mean, 95 %")
        return
    ax.fill_between(x, low, high, color=BLUE, alpha=0.2, linewidth=0, label="95 %")
    for edge in (low, high):
        ax.plot(x, edge, color=BLUE, linewidth=0.6, linestyle="--")
    ax.plot(x, mean, color=RED, label="mean")


def _length(center: Any) -> int:
    """Return how many numbers a point has; the check of the point says what is wrong with it."""
    try:
        return max(1, len(center))
    except TypeError:
        return 1


def _axes(given: Any, n: int) -> tuple[Any, ...]:
    """Return n axes: the given ones, or those of a new figure."""
    if given is None:
        require_matplotlib()
        import matplotlib.pyplot as plt

        columns = min(_MAX_COLUMNS, max(1, n))
        lines = max(1, math.ceil(n / columns))
        figure = plt.figure(figsize=(3.2 * columns, 2.6 * lines), layout="constrained")
        return tuple(figure.add_subplot(lines, columns, k + 1) for k in range(n))
    try:
        found = tuple(given.flat if hasattr(given, "flat") else given)
    except TypeError:
        found = ()
    if isinstance(given, str) or len(found) != n:
        raise InvalidInputError(f"axes must be {n} matplotlib axes, got {describe(given)}")
    return tuple(check_axes("axes", ax) for ax in found)


def _predictor(surrogate: Any) -> Predict:
    """Return a function that predicts means and variances of `n x d` points, on the CPU."""
    if callable(getattr(surrogate, "predict", None)):

        def ask(X: Tensor) -> tuple[Any, Any]:
            return surrogate.predict(X)
    elif callable(getattr(surrogate, "posterior", None)):

        def ask(X: Tensor) -> tuple[Any, Any]:
            posterior = surrogate.posterior(X)
            return posterior.mean, posterior.variance
    else:
        raise InvalidInputError(
            f"surrogate must have predict(X) or posterior(X), got {describe(surrogate)}"
        )

    @torch.no_grad()
    def predict(X: Tensor) -> tuple[Tensor, Tensor]:
        mean, variance = (torch.as_tensor(value) for value in ask(X))
        if mean.numel() != len(X) or variance.numel() != len(X):
            raise InvalidInputError(
                f"surrogate must predict one value for each of {len(X)} points, "
                f"got shapes {tuple(mean.shape)} and {tuple(variance.shape)}"
            )
        return tuple(value.detach().cpu().double().flatten() for value in (mean, variance))  # pyright: ignore

    return predict
