"""Which synthetic slow values may be believed."""

from typing import Literal

from tcsaea_torch.types import Bool, Float, Tensor

Interval = Literal["sd", "variance"]


def half_width(variance: Float[Tensor, "*batch n"], kind: Interval) -> Float[Tensor, "*batch n"]:
    """Return half the width of GP_s' confidence interval.

    Args:
        variance: GP_s' predictive variance.
        kind: "sd", the paper's Eq. (11), or "variance", as in the authors' released code.
    """
    return variance.sqrt() if kind == "sd" else variance


def is_believed(
    synthetic: Float[Tensor, "*batch n"],
    slow_mean: Float[Tensor, "*batch n"],
    width: Float[Tensor, "*batch n"],
) -> Bool[Tensor, "*batch n"]:
    """Return which synthetic values lie within mu_s +- width (Algorithm 1, line 17)."""
    return (synthetic - slow_mean).abs() < width
