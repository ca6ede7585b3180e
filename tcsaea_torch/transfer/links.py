"""Links: how the slow objective may follow from the fast one, at points where that is known.

A link turns a pair of values (f, s) into a target t that a model can learn over x, and a
prediction of t at a point with known f back into one of s:

    difference       t = s - f                          s = f + t
    log ratio        t = ln((s + o) / (f + o))          s = (f + o) exp(t) - o
    angle            t = atan2(s, f)                    s = f tan(t)
    autoregressive   t = s, learned over (x, f)         s = t

Ratios and angles need values >= 0: they are taken of values above a lower bound, in units of
their means. Where f is small against s they say nothing: f tan(t) and (f + o) exp(t) are then
the product of something small, and something large that is hardly known.
"""

import math
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch

from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.types import Bool, Float, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_real,
    check_sequence,
    keep_checked,
)

LinkName = Literal["difference", "ratio", "angle", "autoregressive"]
LINK_NAMES: tuple[LinkName, ...] = ("difference", "ratio", "angle", "autoregressive")

LARGEST_RATIO = 20.0
"""Largest s / f, in units of their means, that a log ratio may tell: it has a pole at f = 0,
near which a model's variance promises too much."""

LARGEST_TANGENT = 100.0
"""The same for an angle, which has no pole there."""

LARGEST_ERROR = 0.5
"""Largest relative standard deviation of s / f that is taken for small."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scales(Indexed):
    """What links know of the values of `b` runs."""

    low: Float[Tensor, "*batch 2"]
    """No (fast, slow) value lies below."""
    unit: Float[Tensor, "*batch 2"]
    """Means of what lies above, > 0."""
    first: Float[Tensor, "*batch"]
    """Smallest fast value."""
    span: Float[Tensor, "*batch"]
    """From there to the largest one, > 0."""

    @classmethod
    def of(
        cls,
        Y: Float[Tensor, "b n 2"],
        live: Bool[Tensor, "b n"],
        lower_bound: Float[Tensor, "*#b 2"] | None,
    ) -> "Scales":
        """Take the scales of living rows; None, or -inf, for the bound means 0."""
        low = torch.zeros_like(Y[:, 0]) if lower_bound is None else lower_bound.expand(len(Y), 2)
        low = low.masked_fill(low.isneginf(), 0.0)
        known = live.unsqueeze(-1)
        above = torch.where(known, Y - low.unsqueeze(-2), 0.0).clamp_min(0.0)
        # Not the median: values that are nearly always 0 would lie far above it.
        unit = above.sum(dim=-2) / known.sum(dim=-2).clamp_min(1)
        fast = Y[..., 0]
        first = torch.where(live, fast, torch.inf).amin(dim=-1)
        first = torch.where(first < torch.inf, first, 0.0)
        span = torch.where(live, fast - first.unsqueeze(-1), 0.0).amax(dim=-1)
        return cls(
            low=low,
            unit=torch.where(unit > 0, unit, 1.0),
            first=first,
            span=torch.where(span > 0, span, 1.0),
        )

    def scale(self, y: Float[Tensor, "*batch n"], column: int) -> Float[Tensor, "*batch n"]:
        """Return values above the bound, in units of their mean."""
        return (y - self.low[..., column, None]) / self.unit[..., column, None]

    def unscale_slow(self, s: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Return slow values and their variances in the objective's units."""
        unit = self.unit[..., 1, None]
        return self.low[..., 1, None] + unit * s, unit.square() * variance

    def input(self, y_fast: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """Return fast values as an input of a model: from 0 to 1 where they were known."""
        return (y_fast - self.first.unsqueeze(-1)) / self.span.unsqueeze(-1)


def lower_bounds(
    Y: Float[Tensor, "b n 2"],
    observed: Bool[Tensor, "b n 2"],
    given: tuple[float | None, float | None],
) -> Float[Tensor, "b 2"]:
    """Return below what no (fast, slow) value lies; -inf where that is not known.

    Args:
        Y: Values.
        observed: Which of them were measured: these count more than what was said of them.
        given: What was said of each objective; None: nothing.
    """
    least = torch.where(observed, Y, torch.inf).amin(dim=1)
    said = Y.new_tensor([-torch.inf if bound is None else bound for bound in given])
    return torch.minimum(least, said)


@runtime_checkable
class Link(Protocol):
    """One way from the fast to the slow objective."""

    needs_bound: bool
    """Whether values must not lie below the lower bound."""
    uses_fast: bool
    """Whether the fast value is an input of the model."""

    def target(self, f: Tensor, s: Tensor, scales: Scales) -> Tensor:
        """Return what the model learns, `b x n`."""
        ...

    def slow(self, t: Tensor, v: Tensor, f: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
        """Return slow values and their variances from predictions of t; inf: it cannot say."""
        ...


@dataclass(frozen=True)
class Difference:
    """The paper's co-surrogate, Eq. (9) and (10)."""

    needs_bound = uses_fast = False

    def target(self, f: Tensor, s: Tensor, scales: Scales) -> Tensor:
        """See `Link`."""
        return s - f

    def slow(self, t: Tensor, v: Tensor, f: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
        """See `Link`."""
        return f + t, v


@dataclass(frozen=True)
class Autoregressive:
    """The slow objective over (x, f), after Kennedy and O'Hagan (2000)."""

    needs_bound, uses_fast = False, True

    def target(self, f: Tensor, s: Tensor, scales: Scales) -> Tensor:
        """See `Link`."""
        return s

    def slow(self, t: Tensor, v: Tensor, f: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
        """See `Link`."""
        return t, v


@dataclass(frozen=True)
class LogRatio:
    """The logarithm of the ratio of both objectives, each raised by a small offset."""

    offset: float
    needs_bound, uses_fast = True, False

    def target(self, f: Tensor, s: Tensor, scales: Scales) -> Tensor:
        """See `Link`."""
        f, s = (scales.scale(y, j).clamp_min(0.0) + self.offset for j, y in enumerate((f, s)))
        return (s / f).log()

    def slow(self, t: Tensor, v: Tensor, f: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
        """See `Link`."""
        f = scales.scale(f, 0)
        ratio = t.exp()
        # E (e^z - 1)^2 of z ~ N(0, v): around the median, which is what is predicted.
        square = torch.expm1(2.0 * v) - 2.0 * torch.expm1(0.5 * v)
        raised = (f + self.offset) * ratio
        s = (raised - self.offset).clamp_min(0.0)
        says = (s <= LARGEST_RATIO * f) & (ratio <= LARGEST_RATIO) & (square <= LARGEST_ERROR**2)
        return _where_known(s, raised.square() * square, says & (f >= 0), scales)


@dataclass(frozen=True)
class Angle:
    """The angle of (f, s): a ratio that stays finite at either end."""

    needs_bound, uses_fast = True, False

    def target(self, f: Tensor, s: Tensor, scales: Scales) -> Tensor:
        """See `Link`."""
        return torch.atan2(scales.scale(s, 1).clamp_min(0.0), scales.scale(f, 0).clamp_min(0.0))

    def slow(self, t: Tensor, v: Tensor, f: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
        """See `Link`."""
        f = scales.scale(f, 0)
        steep = torch.tan(t.clamp(0.0, 0.5 * math.pi - 1e-6))
        slope = 1.0 + steep.square()
        # Relative to 1 + s / f: an error of a small s is small.
        says = slope.square() * v <= (LARGEST_ERROR * (1.0 + steep)).square()
        says = says & (steep <= LARGEST_TANGENT) & (f >= 0)
        return _where_known(f * steep, (f * slope).square() * v, says, scales)


def _where_known(
    s: Tensor, variance: Tensor, says: Tensor, scales: Scales
) -> tuple[Tensor, Tensor]:
    """Return scaled predictions in the objective's units; inf where they are ill-posed."""
    s, variance = scales.unscale_slow(s, variance)
    return torch.where(says, s, scales.low[..., 1, None]), variance.masked_fill(~says, torch.inf)


def slow_by_choice(
    ways: tuple[Link, ...], choice: Tensor, t: Tensor, v: Tensor, y_fast: Tensor, scales: Scales
) -> tuple[Tensor, Tensor]:
    """Return slow values and variances by each run's own link; 0 and inf where there is none."""
    mean, variance = torch.zeros_like(t), torch.full_like(t, torch.inf)
    for k, way in enumerate(ways):
        is_chosen = (choice == k).unsqueeze(-1)
        new_mean, new_variance = way.slow(t, v, y_fast, scales)
        mean = torch.where(is_chosen, new_mean, mean)
        variance = torch.where(is_chosen, new_variance, variance)
    return mean, variance


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Which links are tried, and when one is used.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    links: tuple[LinkName, ...] = LINK_NAMES
    """Those that are tried."""
    ratio_offsets: tuple[float, ...] = (1e-3,)
    """What is added to both objectives, in units of their means, before a ratio is taken; each
    makes a link of its own."""
    kriging: FitConfig = FitConfig(
        kernel="additive", nugget="fit", starts=(5.0,), options=BFGSOptions(max_evaluations=60)
    )
    """How their models are fitted. Links are simple functions: more starts take longer, and find
    the same."""
    margin: float = 0.2
    """By how much the mean of log |error| must be below that of the slow model."""
    confidence: float = 2.0
    """By how many standard errors it must lie below this margin."""
    largest_square: float = 1.0
    """Largest trimmed mean square of the errors, relative to that of the slow model."""
    trimmed: float = 0.05
    """Share of the largest errors that this leaves out."""
    n_folds: int = 4
    """Of the cross-validation that confirms a choice."""
    min_rows: int = 10
    """With fewer rows that have both values, none is used."""
    belief: float = 4.0
    """How far a link may be away from the slow model, in standard deviations; see `believe`."""

    def __post_init__(self) -> None:
        keep_checked(self, check_sequence, "links", "ratio_offsets")
        for name in self.links:
            check_choice("links", name, LINK_NAMES)
        for offset in self.ratio_offsets:
            check_real("ratio_offsets", offset, minimum=0.0, exclusive=True)
        check_instance("kriging", self.kriging, FitConfig)
        check_real("margin", self.margin, minimum=0.0)
        check_real("confidence", self.confidence, minimum=0.0)
        check_real("largest_square", self.largest_square, minimum=0.0, exclusive=True)
        check_real("trimmed", self.trimmed, minimum=0.0, maximum=0.5)
        check_int("n_folds", self.n_folds, minimum=2)
        check_int("min_rows", self.min_rows, minimum=2)
        check_real("belief", self.belief, minimum=0.0, exclusive=True)

    def ways(self) -> tuple[Link, ...]:
        """Return the links that are tried."""
        found: list[Link] = []
        for name in self.links:
            match name:
                case "difference":
                    found.append(Difference())
                case "ratio":
                    found.extend(LogRatio(offset) for offset in self.ratio_offsets)
                case "angle":
                    found.append(Angle())
                case "autoregressive":
                    found.append(Autoregressive())
        return tuple(found)
