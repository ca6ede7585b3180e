"""Checks of single values: numbers, texts, choices, options, names."""

import difflib
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tcsaea_torch.errors import InvalidInputError

RESERVED_NAMES = frozenset(
    ("id", "point_id", "objective", "status", "value", "reason", "fast", "slow", "on_front")
)
"""Columns of result tables, which no variable may be called."""


def describe(value: object) -> str:
    """Say what a value is, short enough for an error message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{type(value).__name__} of shape {shape}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def expected(name: str, expectation: str, value: object) -> InvalidInputError:
    """Return the error that names an argument, what was expected and what came."""
    return InvalidInputError(f"{name} must be {expectation}, got {describe(value)}")


def check_real(
    name: str,
    value: Any,
    *,
    minimum: float = -math.inf,
    maximum: float = math.inf,
    exclusive: bool = False,
) -> float:
    """Return `value` as a finite float within [minimum, maximum].

    Args:
        name: Name of the argument, for the message.
        value: Any real scalar: Python, numpy, or a tensor of one element.
        minimum: Smallest allowed value.
        maximum: Largest allowed value.
        exclusive: Whether `minimum` itself is excluded.

    Raises:
        InvalidInputError: If it is no real number, not finite, or out of range.
    """
    expectation = "a finite real number"
    if minimum > -math.inf:
        expectation += f" {'>' if exclusive else '>='} {minimum:g}"
    if maximum < math.inf:
        expectation += f" and <= {maximum:g}" if minimum > -math.inf else f" <= {maximum:g}"
    number = as_scalar(value)
    if number is None or not math.isfinite(number):
        raise expected(name, expectation, value)
    if number < minimum or number > maximum or (exclusive and number == minimum):
        raise expected(name, expectation, value)
    return number


def as_scalar(value: Any) -> float | None:
    """Return a real scalar as a float, or None if `value` is not one.

    Accepts Python and numpy numbers, and arrays or tensors of exactly one element.
    Booleans, strings and complex numbers are no scalars. Numbers beyond the range of
    double precision become infinite.
    """
    number = as_number(value)
    if number is None:
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def as_number(value: Any) -> Any:
    """Return a real number with all its digits, out of an array of one element; or None."""
    size = getattr(value, "numel", None)
    n = size() if callable(size) else getattr(value, "size", None)
    if n == 1 and callable(getattr(value, "item", None)):
        value = value.item()
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    return value if is_number else None


def check_int(name: str, value: Any, *, minimum: int | None = None) -> int:
    """Return `value` as an int of at least `minimum`; floats with a fraction are refused."""
    expectation = "an integer" + (f" >= {minimum}" if minimum is not None else "")
    number, approximate = as_number(value), as_scalar(value)
    if number is None or approximate is None or not math.isfinite(approximate):
        raise expected(name, expectation, value)
    if number != int(number) or (minimum is not None and number < minimum):
        raise expected(name, expectation, value)
    return int(number)


def check_bool(name: str, value: Any) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, bool):
        raise expected(name, "True or False", value)
    return value


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value` if it is one of `choices`; else suggest the nearest name."""
    known = sorted(choices)
    if isinstance(value, str) and value in known:
        return value
    near = difflib.get_close_matches(str(value).lower(), known, n=1, cutoff=0.5)
    hint = f"; did you mean {str(near[0])!r}?" if near else ""
    raise InvalidInputError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")


def check_callable(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise expected(name, "callable", value)


def check_text(name: str, value: Any) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise expected(name, "a string", value)
    return value


def check_path(name: str, value: Any) -> Path:
    """Return a path given as a string or `os.PathLike`."""
    if not isinstance(value, str | os.PathLike):
        raise expected(name, "a path", value)
    return Path(value)


def check_instance(name: str, value: Any, kind: type) -> Any:
    """Return `value` if it is an object of a class."""
    if not isinstance(value, kind):
        raise expected(name, f"a {kind.__name__}", value)
    return value


def check_pair(name: str, value: Any) -> tuple[Any, Any]:
    """Return the two members of a sequence."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise expected(name, "a pair", value)
    return value[0], value[1]


def check_optional_pair(name: str, value: Any) -> tuple[float | None, float | None]:
    """Return two real numbers, of which each may be None."""
    first, second = (None if v is None else check_real(name, v) for v in check_pair(name, value))
    return first, second


def check_sequence(name: str, value: Any) -> tuple[Any, ...]:
    """Return the members of a sequence that has at least one, and is no text."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) == 0:
        raise expected(name, "a sequence of at least one member", value)
    return tuple(value)


def check_options(name: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse options that a factory does not know, and suggest the nearest it does.

    Args:
        name: What the options are for, for the message.
        factory: What is to be called as `factory(**options)`.
        options: The options.
    """
    signature = inspect.signature(factory)
    if all(p.kind is not p.VAR_KEYWORD for p in signature.parameters.values()):
        for option in options:
            check_choice(f"options of {name}", option, signature.parameters)
    try:
        signature.bind(**options)
    except TypeError as error:
        raise InvalidInputError(f"options of {name} must be complete: {error}") from error


def keep_checked(config: object, check: Callable[..., Any], *names: str, **limits: Any) -> None:
    """Check fields of a frozen dataclass and keep the forms that the check returns.

    Args:
        config: The dataclass, in its `__post_init__`.
        check: A `check_*` function.
        *names: Fields.
        **limits: Passed on to the check.
    """
    for name in names:
        object.__setattr__(config, name, check(name, getattr(config, name), **limits))


def check_names(name: str, value: Sequence[str] | None, *, length: int) -> tuple[str, ...]:
    """Return `length` distinct names; None gives x0, x1, ..."""
    if value is None:
        return tuple(f"x{i}" for i in range(length))
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise expected(name, f"a sequence of {length} distinct strings", value)
    names = tuple(value)
    if len(names) != length or not all(isinstance(n, str) and n for n in names):
        raise expected(name, f"a sequence of {length} distinct strings", value)
    if len(set(names)) != length:
        repeated = next(n for n in names if names.count(n) > 1)
        raise InvalidInputError(f"{name} must be distinct, got {repeated!r} twice")
    reserved = next((n for n in names if n in RESERVED_NAMES), None)
    if reserved is not None:
        raise InvalidInputError(f"{name} must not use {reserved!r}, a column of result tables")
    return names
