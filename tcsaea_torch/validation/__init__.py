"""The only place where shapes, ranges and finiteness of users' input are checked.

Every `check_*` function returns the value in the form that the library uses, or
raises `InvalidInputError` naming the argument, what was expected and what came.
"""

from tcsaea_torch.validation.arrays import (
    as_float_tensor,
    check_bounds,
    check_column,
    check_device,
    check_dtype,
    check_float_tensor,
    check_matrix,
    check_vector,
)
from tcsaea_torch.validation.values import (
    RESERVED_NAMES,
    as_scalar,
    check_bool,
    check_callable,
    check_choice,
    check_instance,
    check_int,
    check_names,
    check_optional_pair,
    check_options,
    check_pair,
    check_path,
    check_real,
    check_sequence,
    check_text,
    describe,
    keep_checked,
)

__all__ = [
    "RESERVED_NAMES",
    "as_float_tensor",
    "as_scalar",
    "check_bool",
    "check_bounds",
    "check_callable",
    "check_choice",
    "check_column",
    "check_device",
    "check_dtype",
    "check_float_tensor",
    "check_instance",
    "check_int",
    "check_matrix",
    "check_names",
    "check_optional_pair",
    "check_options",
    "check_pair",
    "check_path",
    "check_real",
    "check_sequence",
    "check_text",
    "check_vector",
    "describe",
    "keep_checked",
]
