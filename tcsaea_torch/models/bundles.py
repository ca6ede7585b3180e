"""Nested frozen dataclasses of tensors: indexed, mapped, kept in flat dicts and in modules."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Tensor

_T = TypeVar("_T", bound="Indexed")
_B = TypeVar("_B")


class Indexed:
    """Gives a dataclass of tensors indexing along their common leading dimension.

    Names and None stay as they are.
    """

    def __getitem__(self: _T, index: Tensor | int | slice) -> _T:
        """Return the selected batch members."""
        bundle: Any = self
        values = {f.name: getattr(self, f.name) for f in fields(bundle)}
        return type(self)(
            **{k: v if v is None or isinstance(v, str) else v[index] for k, v in values.items()}
        )


def map_tensors(value: Any, fn: Any) -> Any:
    """Apply `fn` to all tensors in nested frozen dataclasses."""
    if isinstance(value, Tensor):
        return fn(value)
    if hasattr(value, "__dataclass_fields__"):
        fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
        return type(value)(**{name: map_tensors(v, fn) for name, v in fields.items()})
    return value


def flatten(bundle: Any, prefix: str) -> dict[str, Tensor | str]:
    """Return the tensors and names of a dataclass, as entries of a strategy's flat state.

    Args:
        bundle: A dataclass whose fields are tensors, None, names, or such dataclasses.
        prefix: Before the names of the fields: "link" makes "link.theta". None has no entry.
    """
    found: dict[str, Tensor | str] = {}
    for field in fields(bundle):
        value, key = getattr(bundle, field.name), f"{prefix}.{field.name}"
        if is_dataclass(value):
            found |= flatten(value, key)
        elif value is not None:
            found[key] = value
    return found


def restore(cls: type[_B], state: Mapping[str, Any], prefix: str) -> _B:
    """Return the dataclass that `flatten` put into the state under this prefix.

    Args:
        cls: Its class.
        state: The state; other entries do not matter.
        prefix: As it was.

    Raises:
        InvalidInputError: If an entry is missing.
    """
    hints, values = get_type_hints(cls), {}
    for field in fields(cls):  # pyright: ignore[reportArgumentType]
        key, hint = f"{prefix}.{field.name}", hints[field.name]
        kinds = get_args(hint) or (hint,)
        inner = next((kind for kind in kinds if is_dataclass(kind)), None)
        is_there = key in state or any(name.startswith(f"{key}.") for name in state)
        if is_there:
            values[field.name] = state[key] if inner is None else restore(inner, state, key)  # pyright: ignore[reportArgumentType]
        elif type(None) in kinds:
            values[field.name] = None
        else:
            raise InvalidInputError(f"the state must have {key!r} of {cls.__name__}, got none")
    return cls(**values)


class TensorStore(torch.nn.Module):
    """Keeps a dataclass of tensors as persistent buffers.

    So it follows `to`, is part of the state dict, and is copied and pickled with the
    module that owns it.

    Args:
        bundle: A dataclass whose fields are tensors, None, names, or such dataclasses.
            Names are no part of the state.
    """

    def __init__(self, bundle: Any) -> None:
        super().__init__()
        self.kind = type(bundle)
        self.names: dict[str, str] = {}
        for field in fields(bundle):
            value = getattr(bundle, field.name)
            if is_dataclass(value):
                self.add_module(field.name, TensorStore(value))
            elif isinstance(value, str):
                self.names[field.name] = value
            else:
                self.register_buffer(field.name, value)

    def read(self) -> Any:
        """Return the dataclass."""
        parts = {name: child.read() for name, child in self._modules.items()}  # pyright: ignore
        return self.kind(**self._buffers, **self.names, **parts)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Tensors of our own: those at hand may be expanded, or belong to another model too.
        # In the layout of the new ones, on which the rounding of products depends.
        for name, buffer in self._buffers.items():
            new = state_dict.get(prefix + name)
            if buffer is not None and new is not None and new.shape == buffer.shape:
                self._buffers[name] = torch.empty_like(
                    new, dtype=buffer.dtype, device=buffer.device
                )
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
