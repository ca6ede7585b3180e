"""Checks of arrays and tensors: what they hold, their shapes, where they lie."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.validation.values import as_number, describe, expected


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
            raise expected(name, "an array of real numbers", value)
        return value.detach().to(device="cpu", dtype=torch.float64, copy=True)
    try:
        array = _as_array(value)
        if array.dtype.kind == "O":
            for place, item in np.ndenumerate(array):
                if allows_gaps and (item is None or type(item).__name__ == "NAType"):
                    array[place] = math.nan
                elif as_number(item) is None:
                    error = expected(name, "an array of real numbers", value)
                    where = f", with {describe(item)} at {list(place)}" if place else ""
                    raise InvalidInputError(f"{error}{where}")
        elif array.dtype.kind not in "iuf" or _holds_bool(value):
            raise expected(name, "an array of real numbers", value)
        return torch.from_numpy(np.array(array, dtype=np.float64, order="C"))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise expected(name, "an array of real numbers", value) from error


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
        raise expected(name, f"a tensor {shape} of floats", value)
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
