"""Checks of what a user passes to a GPyTorch kernel."""

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Tensor
from tcsaea_torch.validation import as_float_tensor, check_int, describe


def set_positive(kernel: Kernel, name: str, value: Tensor | float) -> None:
    """Write positive numbers to the raw parameter of this name."""
    constraint = getattr(kernel, f"raw_{name}_constraint")
    value = check_parameter(name, value, getattr(kernel, f"raw_{name}"))
    if not bool(((value > 0) & value.isfinite()).all()) or not constraint.check(value):
        raise InvalidInputError(
            f"{name} must be finite, > 0 and within {constraint}, got {value.tolist()}"
        )
    kernel.initialize(**{f"raw_{name}": constraint.inverse_transform(value)})


def check_constraint(name: str, value: Any) -> Interval:
    """Return a constraint, by default that of positive numbers."""
    if value is None:
        return Positive()
    if not isinstance(value, Interval):
        raise InvalidInputError(f"{name} must be a gpytorch constraint, got {describe(value)}")
    return value


def check_parameter(name: str, value: Any, raw: Tensor) -> Tensor:
    """Return numbers that can be written to a parameter, in its type and on its device."""
    numbers = value.detach() if isinstance(value, Tensor) else as_float_tensor(name, value)
    try:
        fits = numbers.numel() == raw.numel() or numbers.expand_as(raw) is not None
    except RuntimeError:
        fits = False
    if not fits:
        raise InvalidInputError(
            f"{name} must have shape {tuple(raw.shape)} or one that broadcasts to it, "
            f"got shape {tuple(numbers.shape)}"
        )
    return numbers.to(raw)


def check_batch_shape(value: Any) -> torch.Size:
    """Return a batch shape, by default an empty one."""
    if value is None:
        return torch.Size()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInputError(f"batch_shape must be a shape, got {describe(value)}")
    try:
        return torch.Size([check_int("batch_shape", size, minimum=0) for size in value])
    except InvalidInputError as error:
        raise InvalidInputError(f"batch_shape must be a shape, got {describe(value)}") from error


def check_active_dims(value: Any) -> tuple[int, ...] | None:
    """Return distinct columns, or None for all."""
    if value is None:
        return None
    given = value.tolist() if isinstance(value, Tensor) else value
    try:
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise InvalidInputError("no sequence")
        dims = tuple(check_int("active_dims", k, minimum=0) for k in given)
        if len(set(dims)) != len(dims) or not dims:
            raise InvalidInputError("repeated")
    except InvalidInputError as error:
        raise InvalidInputError(
            f"active_dims must be a sequence of distinct dimensions, got {describe(value)}"
        ) from error
    return dims
