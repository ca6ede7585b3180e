"""The only place where shapes, ranges and finiteness of users' input are checked.

Every `check_*` function returns the value in the form that the library uses, or
raises `InvalidInputError` naming the argument, what was expected and what came.
"""

import difflib
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
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


def _expected(name: str, expectation: str, value: object) -> InvalidInputError:
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
        raise _expected(name, expectation, value)
    if number < minimum or number > maximum or (exclusive and number == minimum):
        raise _expected(name, expectation, value)
    return number


def as_scalar(value: Any) -> float | None:
    """Return a real scalar as a float, or None if `value` is not one.

    Accepts Python and numpy numbers, and arrays or tensors of exactly one element.
    Booleans, strings and complex numbers are no scalars. Numbers beyond the range of
    double precision become infinite.
    """
    number = _as_number(value)
    if number is None:
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _as_number(value: Any) -> Any:
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
    number, approximate = _as_number(value), as_scalar(value)
    if number is None or approximate is None or not math.isfinite(approximate):
        raise _expected(name, expectation, value)
    if number != int(number) or (minimum is not None and number < minimum):
        raise _expected(name, expectation, value)
    return int(number)


def check_bool(name: str, value: Any) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, bool):
        raise _expected(name, "True or False", value)
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
        raise _expected(name, "callable", value)


def check_text(name: str, value: Any) -> str:
    """Return `value` if it is a string."""
    if not isinstance(value, str):
        raise _expected(name, "a string", value)
    return value


def check_path(name: str, value: Any) -> Path:
    """Return a path given as a string or `os.PathLike`."""
    if not isinstance(value, str | os.PathLike):
        raise _expected(name, "a path", value)
    return Path(value)


def check_instance(name: str, value: Any, kind: type) -> Any:
    """Return `value` if it is an object of a class."""
    if not isinstance(value, kind):
        raise _expected(name, f"a {kind.__name__}", value)
    return value


def check_pair(name: str, value: Any) -> tuple[Any, Any]:
    """Return the two members of a sequence."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise _expected(name, "a pair", value)
    return value[0], value[1]


def check_sequence(name: str, value: Any) -> tuple[Any, ...]:
    """Return the members of a sequence that has at least one, and is no text."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) == 0:
        raise _expected(name, "a sequence of at least one member", value)
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


def check_device(value: Any, *, allows_meta: bool = False) -> torch.device:
    """Return `value` as a usable torch device; None is the CPU.

    Args:
        value: What the user named.
        allows_meta: Whether torch's "meta" device, without numbers, will do.

    Raises:
        InvalidInputError: If the name is unknown or this machine has no such device.
    """
    try:
        device = torch.device("cpu" if value is None else value)
        if device.type == "meta" and not allows_meta:
            raise RuntimeError("it holds no numbers")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(
            f"device must name a device that is present here, got {value!r}: {reason}"
        ) from error
    return device


def check_dtype(value: Any) -> torch.dtype:
    """Return `value` if it is torch.float32 or torch.float64."""
    if not isinstance(value, torch.dtype) or value not in (torch.float32, torch.float64):
        raise InvalidInputError(f"dtype must be torch.float32 or torch.float64, got {value!r}")
    return value


def as_float_tensor(name: str, value: Any, *, allows_gaps: bool = False) -> Tensor:
    """Turn nested sequences, numpy arrays, DataFrames or tensors into float64 on the CPU.

    The result shares no memory with the argument.

    Args:
        name: Name of the argument, for the message.
        value: What was given.
        allows_gaps: Whether None, pandas' NA and masked entries become NaN.

    Raises:
        InvalidInputError: If it holds anything but real numbers.
    """
    if isinstance(value, Tensor):
        if value.is_complex() or value.dtype == torch.bool:
            raise _expected(name, "an array of real numbers", value)
        return value.detach().to(device="cpu", dtype=torch.float64, copy=True)
    try:
        array = _as_array(value)
        if array.dtype.kind == "O":
            for place, item in np.ndenumerate(array):
                if allows_gaps and (item is None or type(item).__name__ == "NAType"):
                    array[place] = math.nan
                elif _as_number(item) is None:
                    error = _expected(name, "an array of real numbers", value)
                    where = f", with {describe(item)} at {list(place)}" if place else ""
                    raise InvalidInputError(f"{error}{where}")
        elif array.dtype.kind not in "iuf" or _holds_bool(value):
            raise _expected(name, "an array of real numbers", value)
        return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _expected(name, "an array of real numbers", value) from error


def _as_array(value: Any) -> np.ndarray:
    """Return an array; one of objects is a copy, with None where it was masked."""
    if isinstance(value, np.ma.MaskedArray):
        array = value.data.astype(object)
        array[np.ma.getmaskarray(value)] = None
        return array
    array = np.asarray(_without_tensors(value))
    return array.copy() if array.dtype.kind == "O" else array


def _without_tensors(value: Any) -> Any:
    """Replace tensors in nested sequences by arrays, whatever their device."""
    if isinstance(value, list | tuple):
        return [_without_tensors(item) for item in value]
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _holds_bool(value: Any) -> bool:
    """Return whether nested sequences hold a bool, which numpy takes for a number."""
    if isinstance(value, list | tuple):
        return any(map(_holds_bool, value))
    return isinstance(value, bool) or getattr(value, "dtype", None) in (np.bool_, torch.bool)


def check_float_tensor(
    name: str, value: Any, shape: str, sizes: Sequence[int | None], *, batched: bool = False
) -> Tensor:
    """Return `value` if it is a floating-point tensor of some shape; values do not matter.

    It never waits for the device, so hot code can afford it.

    Args:
        name: Name of the argument, for the message.
        value: What was given.
        shape: The shape in words, such as "n x m".
        sizes: Its sizes; None matches any.
        batched: Whether more dimensions may come before.
    """
    is_float = isinstance(value, Tensor) and value.is_floating_point()
    found = tuple(value.shape) if is_float else ()
    n = len(sizes)
    is_long = len(found) >= n if batched else len(found) == n
    tail = found[len(found) - n :]
    if not (is_float and is_long) or any(
        wanted not in (None, size) for wanted, size in zip(sizes, tail, strict=True)
    ):
        raise _expected(name, f"a tensor {shape} of floats", value)
    return value


def check_matrix(name: str, value: Any, *, columns: int, finite: bool = True) -> Tensor:
    """Return `value` as a CPU float64 tensor `n x columns`.

    Raises:
        InvalidInputError: If the shape is wrong, or (with `finite`) at the first
            entry that is NaN or infinite, naming its row and column.
    """
    matrix = as_float_tensor(name, value)
    if matrix.ndim != 2 or matrix.shape[1] != columns:
        raise InvalidInputError(
            f"{name} must have shape (n, {columns}), got shape {tuple(matrix.shape)}"
        )
    if finite:
        bad = (~matrix.isfinite()).nonzero()
        if len(bad):
            row, column = (int(i) for i in bad[0])
            raise InvalidInputError(
                f"{name} must be finite, got {matrix[row, column].item()} "
                f"in row {row}, column {column}"
            )
    return matrix


def check_vector(name: str, value: Any, *, length: int, allows_gaps: bool = False) -> Tensor:
    """Return `value` as a CPU float64 tensor of shape (length,); NaN is allowed."""
    vector = as_float_tensor(name, value, allows_gaps=allows_gaps)
    if vector.shape == (length, 1):
        vector = vector.squeeze(-1)
    if vector.shape != (length,):
        raise InvalidInputError(
            f"{name} must have shape ({length},), got shape {tuple(vector.shape)}"
        )
    return vector


def check_column(name: str, value: Any, *, length: int) -> Tensor:
    """Return a column of a user's table as a CPU float64 tensor of shape (length,).

    NaN, None, pandas' NA and masked entries become NaN: not measured.

    Raises:
        InvalidInputError: If the shape is wrong, or at the first infinite entry.
    """
    column = check_vector(name, value, length=length, allows_gaps=True)
    infinite = column.isinf().nonzero()
    if len(infinite):
        row = int(infinite[0])
        raise InvalidInputError(f"{name} must not be infinite, got {column[row]} at {row}")
    return column


def check_bounds(value: Any) -> Tensor:
    """Return bounds as a CPU float64 tensor `2 x d`, lower row first.

    Equal lower and upper bounds make a fixed parameter.

    Raises:
        InvalidInputError: Naming the dimension whose bounds are reversed, not finite,
            or too far apart for double precision.
    """
    bounds = as_float_tensor("bounds", value)
    if bounds.ndim != 2 or bounds.shape[0] != 2 or bounds.shape[1] == 0:
        raise InvalidInputError(
            "bounds must have shape (2, d): a row of lower and a row of upper bounds, "
            f"got shape {tuple(bounds.shape)}"
        )
    for i, (low, high) in enumerate(bounds.T.tolist()):
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InvalidInputError(f"bounds must be finite, got ({low}, {high}) in dimension {i}")
        if low > high:
            raise InvalidInputError(
                f"bounds must have lower <= upper, got ({low}, {high}) in dimension {i}"
            )
        if not math.isfinite(high - low):
            raise InvalidInputError(
                f"bounds must be less than 1.8e308 apart, got ({low}, {high}) in dimension {i}"
            )
    return bounds


def check_names(name: str, value: Sequence[str] | None, *, length: int) -> tuple[str, ...]:
    """Return `length` distinct names; None gives x0, x1, ..."""
    if value is None:
        return tuple(f"x{i}" for i in range(length))
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _expected(name, f"a sequence of {length} distinct strings", value)
    names = tuple(value)
    if len(names) != length or not all(isinstance(n, str) and n for n in names):
        raise _expected(name, f"a sequence of {length} distinct strings", value)
    if len(set(names)) != length:
        repeated = next(n for n in names if names.count(n) > 1)
        raise InvalidInputError(f"{name} must be distinct, got {repeated!r} twice")
    reserved = next((n for n in names if n in RESERVED_NAMES), None)
    if reserved is not None:
        raise InvalidInputError(f"{name} must not use {reserved!r}, a column of result tables")
    return names
