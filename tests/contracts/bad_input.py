"""Rows of the table of bad input: what is called, which argument is wrong, and how.

A row says what the message must hold besides the argument's name: what was expected and
what came. The generators below give every wrong kind that applies to an argument.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError

NAN, INF = math.nan, math.inf


@dataclass(frozen=True, kw_only=True)
class Row:
    """One bad value of one argument."""

    callee: str
    """Name of the `Callee`."""
    parameter: str
    kind: str
    value: Any
    expected: str
    """Text that says what was expected."""
    came: str
    """Text that says what came."""
    named: str
    """How the message names the argument."""
    error: type[Exception]
    others: dict[str, Any]
    """Other arguments than the callee's good ones."""

    @property
    def id(self) -> str:
        return f"{self.callee}-{self.parameter}-{self.kind}"


@dataclass(frozen=True, kw_only=True)
class Callee:
    """A public callable, and arguments with which it works."""

    function: Callable[..., Any]
    """Its signature says which parameters there are."""
    good: Callable[[], dict[str, Any]]
    """Fresh good arguments."""
    prepare: Callable[[], Callable[..., Any]] | None = None
    """Makes the object whose method is called; None: the function is called as it is."""
    rows: list[Row] = field(default_factory=list)
    exempt: dict[str, str] = field(default_factory=dict)
    """Parameters without a bad value, and why."""

    def call(self, **changes: Any) -> Any:
        function = self.function if self.prepare is None else self.prepare()
        return function(**{**self.good(), **changes})


CALLEES: dict[str, Callee] = {}


def callee(
    name: str,
    function: Callable[..., Any],
    good: Callable[[], dict[str, Any]],
    prepare: Callable[[], Callable[..., Any]] | None = None,
    exempt: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Put a public callable into the table."""
    assert name not in CALLEES
    CALLEES[name] = Callee(function=function, good=good, prepare=prepare, exempt=dict(exempt))


def bad(
    callees: str,
    parameter: str,
    kinds: Iterable[tuple[Any, ...]],
    *,
    named: str | None = None,
    error: type[Exception] = InvalidInputError,
    **others: Any,
) -> None:
    """Add rows (kind, value, expected) or (kind, value, expected, came) to some callees."""
    kinds = tuple(kinds)
    for name in callees.split():
        for kind, value, expected, *rest in kinds:
            row = Row(
                callee=name, parameter=parameter, kind=kind, value=value, expected=expected,
                came=rest[0] if rest else what(value), named=named or parameter,
                error=error, others=others,
            )  # fmt: skip
            CALLEES[name].rows.append(row)


def what(value: Any) -> str:
    """Return the part of a message that must say what a value is."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"shape {tuple(shape)}"
    return repr(value)[:50]


def says(row: Row, message: str) -> bool:
    """Return whether a message names the argument, what was expected and what came."""
    named = re.search(rf"(?<!\w){re.escape(row.named)}(?!\w)", message)
    return named is not None and row.expected in message and row.came in message


# ---------------------------------------------------------------- kinds of wrong values

Kinds = Iterator[tuple[Any, ...]]


def scalars(expected: str, *, optional: bool = False) -> Kinds:
    """What is no real number at all, or not finite."""
    yield "text", "3", expected
    yield "bool", True, expected
    yield "complex", 2j, expected
    yield "list", [1.0], expected
    yield "several", np.array([1.0, 2.0]), expected
    yield "tensor-of-bool", torch.tensor(True), expected
    yield "nan", NAN, expected
    yield "inf", INF, expected
    yield "minus-inf", -INF, expected
    if not optional:
        yield "none", None, expected


def reals(
    low: float | None = None,
    high: float | None = None,
    *,
    exclusive: bool = False,
    optional: bool = False,
) -> Kinds:
    """What is no finite number from low to high."""
    yield from scalars("a finite real number", optional=optional)
    yield "beyond-double", 10**400, "a finite real number", "1000"
    if low is not None:
        sign = ">" if exclusive else ">="
        yield "too-small", low if exclusive else low - 1e-6, f"{sign} {low:g}"
    if high is not None:
        yield "too-large", high + 1e-6, f"<= {high:g}"


def integers(low: int | None = None, *, optional: bool = False) -> Kinds:
    """What is no integer of at least low."""
    expected = "an integer" if low is None else f"an integer >= {low}"
    yield from scalars(expected, optional=optional)
    yield "fraction", 2.5, expected
    if low is not None:
        yield "too-small", low - 1, expected


def booleans() -> Kinds:
    """What is neither True nor False."""
    for kind, value in {"int": 1, "none": None, "text": "yes", "float": 0.0}.items():
        yield kind, value, "True or False"


def choices(names: Iterable[str], near: str, nearest: str, *, optional: bool = False) -> Kinds:
    """What is none of some names; `near` is close to `nearest`."""
    expected = "one of " + ", ".join(sorted(names))
    yield "misspelt", near, f"did you mean {nearest!r}?"
    yield "upper-case", nearest.upper(), f"did you mean {nearest!r}?"
    yield "unknown", "zzz", expected
    yield "number", 3, expected
    yield "list", [nearest], expected
    if not optional:
        yield "none", None, expected


def callables() -> Kinds:
    """What cannot be called."""
    for kind, value in {"text": "f", "none": None, "number": 3}.items():
        yield kind, value, "callable"


def objects(expected: str, *, optional: bool = False) -> Kinds:
    """What is no object of the right class."""
    yield "text", "best", expected
    yield "number", 3, expected
    yield "dict", {"n": 1}, expected
    if not optional:
        yield "none", None, expected


def devices() -> Kinds:
    """Devices that do not exist, here or at all."""
    expected = "a device that is present here"
    yield "unknown", "nonsense", expected
    yield "missing", "cuda:99", expected
    yield "empty", "meta", expected
    yield "without-module", "hpu", expected
    yield "float", 1.5, expected
    yield "negative", -1, expected
    yield "list", ["cpu"], expected
    if not torch.cuda.is_available():
        yield "no-cuda", "cuda", expected


def dtypes() -> Kinds:
    """What is neither float32 nor float64."""
    expected = "torch.float32 or torch.float64"
    for value in (torch.float16, torch.int64, torch.complex64, "float64", float, np.float64, None):
        yield str(value), value, expected
    yield "array", np.zeros(2), expected, "array"


def arrays(
    example: Any, expected: str = "array of real numbers", *, optional: bool = False
) -> Kinds:
    """What holds anything but real numbers; `example` is a good nested list."""
    flat = np.array(example, dtype=float)
    yield "text", "0.5", expected
    yield "text-inside", flat.astype(str).tolist(), expected, "got"
    yield "complex", flat + 1j, expected
    yield "bool", flat.astype(bool), expected
    yield "tensor-of-bool", torch.from_numpy(flat).bool(), expected
    yield "complex-tensor", torch.from_numpy(flat) + 1j, expected
    yield "objects", np.full(flat.shape, object()), expected, "object"
    yield "dict", {"a": 1}, expected
    mixed = flat.astype(object)
    mixed.flat[-1] = True
    yield "one-bool", mixed.tolist(), expected, "True"
    if not optional:
        yield "none", None, expected


def tensors(columns: int) -> Kinds:
    """What is no float tensor `n x columns`."""
    expected = "a tensor"
    yield "list", [[1.0] * columns], expected
    yield "numpy", np.ones((2, columns)), expected
    yield "text", "1", expected
    yield "none", None, expected
    yield "integers", torch.ones(2, columns).long(), expected, "torch.int64"
    yield "bool", torch.ones(2, columns).bool(), expected, "torch.bool"
    yield "complex", torch.ones(2, columns) * 1j, expected, "torch.complex64"
