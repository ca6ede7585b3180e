"""What a co-surrogate foretold of the slow objective, and whether it was believed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.plotting.drawing import (
    BLACK,
    BLUE,
    RED,
    STYLES,
    axes_of,
    log_scale,
    objective_names,
)
from tcsaea_torch.result import Result
from tcsaea_torch.transfer.co_surrogate import synthetic_values
from tcsaea_torch.transfer.instance_selection import is_believed
from tcsaea_torch.types import Bool, Float, Objective, Tensor
from tcsaea_torch.validation import (
    as_float_tensor,
    check_instance,
    check_text,
    check_vector,
    describe,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAST, _SLOW = Objective.FAST.column, Objective.SLOW.column
_KEPT = ("born", "co_mean", "slow_mean", "width")
_WINDOW = 10
"""Errors in a moving mean."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Transfer:
    """Synthetic slow values of n points, and what the slow surrogate says there.

    Example:
        >>> told = Transfer(synthetic=[1.0, 2.0], mean=[1.1, 1.0], half_width=[0.2, 0.5])
        >>> told.accepted.tolist()
        [True, False]

    Raises:
        InvalidInputError: If a field is not as described below.
    """

    synthetic: Any
    """Synthetic slow values, n, in the user's units and signs like all others."""
    mean: Any
    """Means of the slow surrogate at the same points."""
    half_width: Any
    """Half the widths of its confidence intervals there, >= 0."""
    accepted: Any = None
    """Which of them were accepted; None: those within the interval."""
    measured: Any = None
    """Slow values that were measured there afterwards, NaN where none was; None: none."""

    def __post_init__(self) -> None:
        def keep(name: str, value: Tensor) -> None:
            object.__setattr__(self, name, value)

        synthetic = as_float_tensor("synthetic", self.synthetic)
        if synthetic.dim() != 1:
            raise InvalidInputError(
                f"synthetic must have shape (n,), got shape {tuple(synthetic.shape)}"
            )
        n = len(synthetic)
        keep("synthetic", synthetic)
        for name in ("mean", "half_width"):
            keep(name, check_vector(name, getattr(self, name), length=n))
        if (self.half_width < 0).any():
            raise InvalidInputError(f"half_width must be >= 0, got {self.half_width.min():g}")
        if self.accepted is None:
            keep("accepted", is_believed(self.synthetic, self.mean, self.half_width))
        else:
            keep("accepted", _flags("accepted", self.accepted, n))
        if self.measured is not None:
            keep("measured", check_vector("measured", self.measured, length=n, allows_gaps=True))

    @classmethod
    def of(cls, result: Result) -> "Transfer":
        """Return what a run of the TC-SAEA family foretold of its additional points.

        Each point has the value and the interval of the models of the period that proposed it.
        Values within the interval count as accepted, the strategy's own rule.

        Args:
            result: The run.

        Raises:
            InvalidInputError: If its strategy keeps no such values.
        """
        kept = _kept(result)
        Y = result.all_Y
        rows = (kept["born"] > 0) & ~Y[:, _FAST].isnan()
        signs = result.problem.signs
        synthetic = synthetic_values(Y[:, _FAST] * signs[_FAST], kept["co_mean"])
        return cls(
            synthetic=(synthetic * signs[_SLOW])[rows],
            mean=(kept["slow_mean"] * signs[_SLOW])[rows],
            half_width=kept["width"][rows],
            measured=Y[rows, _SLOW],
        )


def plot_transfer(transfer: Transfer | Result, ax: Any = None, label: str | None = None) -> "Axes":
    """Draw synthetic values against the slow surrogate's intervals, accepted and refused ones.

    A value on the diagonal is what the slow surrogate says itself. Bars are its intervals.

    Args:
        transfer: The values; or a run of the TC-SAEA family, see `Transfer.of`.
        ax: Matplotlib axes; None makes a figure with pyplot.
        label: Name and unit of the slow objective; None: the problem's own.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind, or the run keeps no such values.
        MissingDependencyError: If matplotlib is not installed.
    """
    name = "slow objective"
    if isinstance(transfer, Result):
        name = objective_names(transfer.problem)[_SLOW]
        transfer = Transfer.of(transfer)
    elif not isinstance(transfer, Transfer):
        raise InvalidInputError(f"transfer must be a Transfer or Result, got {describe(transfer)}")
    if label is not None:
        name = check_text("label", label)
    ax = axes_of(ax)
    ends = torch.cat([transfer.synthetic, transfer.mean])
    if len(ends):
        ax.axline((float(ends.min()),) * 2, slope=1.0, color="0.4", linewidth=0.8, linestyle="--")
    looks = (
        ("accepted", transfer.accepted, {"color": BLUE, "fmt": "o", "markersize": 4, "zorder": 3}),
        ("refused", ~transfer.accepted, {"color": RED, "fmt": "x", "markersize": 5, "zorder": 2}),
    )
    for what, rows, look in looks:
        if rows.any():
            columns = (transfer.mean, transfer.synthetic, transfer.half_width)
            mean, synthetic, width = (column[rows].numpy() for column in columns)
            ax.errorbar(
                mean, synthetic, xerr=width, elinewidth=0.7, alpha=0.8,
                label=f"{what}: {int(rows.sum())}", **look,
            )  # fmt: skip
    if transfer.measured is not None:
        rows = ~transfer.measured.isnan()
        if rows.any():
            x, y = transfer.mean[rows].numpy(), transfer.measured[rows].numpy()
            look = {"marker": "_", "color": BLACK, "s": 60, "zorder": 4}
            ax.scatter(x, y, label=f"measured afterwards: {int(rows.sum())}", **look)
    ax.set_xlabel(f"{name}: slow surrogate (bars: its interval)")
    ax.set_ylabel(f"{name}: synthetic value")
    ax.grid(visible=True, alpha=0.3)
    if len(ends):
        ax.legend()
    return ax


def plot_co_surrogate_error(
    errors: Result | Mapping[str, Any], ax: Any = None, label: str | None = None
) -> "Axes":
    """Draw how far predictions of slow values were from what was measured then.

    Of a run, these are the slow values of its proposed points, foretold before they were
    measured: by the fast value and the co-surrogate, and by the slow surrogate alone. Lines are
    root mean squares of the last ten.

    Args:
        errors: A run of the TC-SAEA family, or errors by what made them, in the order of the
            evaluations, such as `{"co-surrogate": [0.1, -0.2]}`.
        ax: Matplotlib axes; None makes a figure with pyplot.
        label: Name and unit of the slow objective; None: the problem's own.

    Returns:
        The axes.

    Raises:
        InvalidInputError: If an argument is of the wrong kind, or the run keeps no predictions.
        MissingDependencyError: If matplotlib is not installed.
    """
    name = "slow objective"
    if isinstance(errors, Result):
        name = objective_names(errors.problem)[_SLOW]
        errors = co_surrogate_errors(errors)
    elif not isinstance(errors, Mapping):
        raise InvalidInputError(f"errors must be a Result or a dict, got {describe(errors)}")
    if label is not None:
        name = check_text("label", label)
    lines = {}
    for key, given in errors.items():
        values = as_float_tensor(f"errors of {check_text('a key of errors', key)!r}", given)
        if values.dim() != 1 or not values.isfinite().all():
            raise InvalidInputError(f"errors of {key!r} must be finite numbers in a row")
        lines[key] = values
    ax = axes_of(ax)
    for k, (key, values) in enumerate(lines.items()):
        n, style = torch.arange(1, len(values) + 1), STYLES[k % len(STYLES)]
        look = {"marker": style["marker"], "color": style["color"], "linestyle": "none"}
        ax.plot(n, values.abs(), alpha=0.4, markersize=4, fillstyle="none", **look)
        ax.plot(
            n, _moving_rms(values), color=style["color"], linestyle=style["linestyle"], label=key
        )
    if any(bool((values != 0).any()) for values in lines.values()):
        log_scale(ax)
    ax.set_xlabel("slow evaluations of proposed points")
    ax.set_ylabel(f"|predicted - measured|: {name}")
    ax.grid(visible=True, alpha=0.3)
    if lines:
        ax.legend(title=f"root mean square of {_WINDOW}")
    return ax


def co_surrogate_errors(result: Result) -> dict[str, Float[Tensor, " k"]]:
    """Return errors of a run's predictions, in the order in which slow values came.

    Args:
        result: A run of the TC-SAEA family.

    Raises:
        InvalidInputError: If its strategy keeps no predictions.
    """
    kept = _kept(result)
    Y = result.all_Y * result.problem.signs
    rows = (kept["width"] > 0) & ~Y.isnan().any(dim=-1)  # 0: nothing was foretold
    synthetic = synthetic_values(Y[:, _FAST], kept["co_mean"])
    ended = {r.point_id: r.ended_at for r in result.history if r.objective is Objective.SLOW}
    times = torch.tensor([ended.get(i, 0.0) for i in result.all_ids.tolist()]).double()
    order = times[rows].argsort(stable=True)
    foretold = {"fast value + co-surrogate": synthetic, "slow surrogate": kept["slow_mean"]}
    sign = result.problem.signs[_SLOW]
    return {key: ((y - Y[:, _SLOW]) * sign)[rows][order] for key, y in foretold.items()}


def _kept(result: Result) -> dict[str, Float[Tensor, " n"]]:
    """Return what a strategy's state says of all points of a run; 0 where it says nothing."""
    check_instance("result", result, Result)
    columns, n = {}, 1 + max(result.all_ids.tolist(), default=-1)
    for name in _KEPT:
        value = result.strategy_state.get(name)
        if not isinstance(value, Tensor) or value.dim() != 2:
            raise InvalidInputError(
                f"result must be of a strategy that keeps synthetic values, such as tc-saea, "
                f"got one of {result.strategy!r}"
            )
        column = value[0].detach().cpu().double()
        n_missing = max(0, n - len(column))  # rows that were attached since
        columns[name] = torch.nn.functional.pad(column, (0, n_missing))[result.all_ids]
    return columns


def _flags(name: str, value: Any, n: int) -> Bool[Tensor, " n"]:
    """Return n truths, given in any form."""
    flags = np.array(value.cpu() if isinstance(value, Tensor) else value)
    if flags.shape != (n,) or (n and flags.dtype != bool):
        raise InvalidInputError(f"{name} must be {n} truths in a row, got {describe(value)}")
    return torch.from_numpy(flags.astype(bool))


def _moving_rms(values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the root mean square of each value and those before it, as many as there are."""
    total = torch.nn.functional.pad(values.square().cumsum(0), (1, 0))
    end = torch.arange(1, len(values) + 1)
    start = (end - _WINDOW).clamp_min(0)
    return ((total[end] - total[start]).clamp_min(0.0) / (end - start)).sqrt()
