"""Search spaces of other tools as the box of a `Problem`, and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcsaea_torch.errors import ProtocolError
from tcsaea_torch.problem import Problem

Params = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Continuous:
    """Real numbers, or integers on a logarithmic scale, which are rounded."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    """Whether values are rounded to integers."""
    digits: int | None = None
    """Decimals that values are rounded to."""

    is_integer = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The dimension's bounds. An integer at an end has as much room as others."""
        if self.whole and self.high > self.low:
            return self.to_x(self.low - 0.5), self.to_x(self.high + 0.5)
        return self.to_x(self.low), self.to_x(self.high)

    def to_x(self, value: Any) -> float:
        """Return where a value lies."""
        return math.log(value) if self.log else float(value)

    def to_value(self, x: float) -> float | int:
        """Return the value to be used at x."""
        value = math.exp(x) if self.log else x
        if self.whole:
            return int(min(max(round(value), self.low), self.high))
        if self.digits is not None:
            value = round(value, self.digits)
        return float(min(max(value, self.low), self.high))


@dataclass(frozen=True, kw_only=True)
class Stepped:
    """Numbers low, low + step, ..., high; the box counts the steps."""

    name: str
    low: float
    high: float
    step: float

    is_integer = True

    @property
    def bounds(self) -> tuple[float, float]:
        """The dimension's bounds."""
        return 0.0, float(round((self.high - self.low) / self.step))

    def to_x(self, value: Any) -> float:
        """Return where a value lies."""
        x = (value - self.low) / self.step
        return float(round(x)) if abs(x - round(x)) < 1e-6 else x

    def to_value(self, x: float) -> float | int:
        """Return the value to be used at x: an integer if low, high and step are."""
        return min(self.low + round(x) * self.step, self.high)


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Choices in an order; the box counts them."""

    name: str
    choices: tuple[Any, ...]

    is_integer = True

    @property
    def bounds(self) -> tuple[float, float]:
        """The dimension's bounds."""
        return 0.0, float(len(self.choices) - 1)

    def to_x(self, value: Any) -> float:
        """Return where a value lies; outside if it is no choice."""
        return float(self.choices.index(value)) if value in self.choices else -1.0

    def to_value(self, x: float) -> Any:
        """Return the value to be used at x."""
        return self.choices[round(x)]


Variable = Continuous | Stepped | Levels
"""One dimension of the box: where values lie, and what lies at a place."""


@dataclass(frozen=True)
class Space:
    """The parameters that a strategy chooses."""

    variables: tuple[Variable, ...]

    def covers(self, params: Mapping[str, Any]) -> bool:
        """Return whether all parameters have a value."""
        return all(v.name in params for v in self.variables)

    def key(self, params: Mapping[str, Any]) -> tuple[float, ...]:
        """Return what is equal for equal parameters, and can be hashed."""
        return tuple(self.to_x(params).tolist())

    def to_x(self, params: Mapping[str, Any]) -> np.ndarray:
        """Return a point of the box."""
        return np.array([v.to_x(params[v.name]) for v in self.variables])

    def to_params(self, x: np.ndarray) -> Params:
        """Return the values to be used at a point of the box."""
        return {v.name: v.to_value(float(k)) for v, k in zip(self.variables, x, strict=True)}

    def problem(self, directions: Sequence[str], ref_point: Any = None) -> Problem:
        """Return the box as a problem of two objectives that take the same time."""
        bounds = np.array([v.bounds for v in self.variables]).T
        integers = [k for k, v in enumerate(self.variables) if v.is_integer]
        return Problem(
            fast=_by_others,
            slow=_by_others,
            bounds=bounds,
            tau=1,
            integers=integers,
            directions=tuple(directions),
            ref_point=ref_point,
        )


def _by_others(x: Any) -> float:
    raise ProtocolError("the objectives are evaluated elsewhere")
