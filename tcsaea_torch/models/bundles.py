"""Nested frozen dataclasses of tensors: indexed, mapped, and kept as the state of a module."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import torch

from tcsaea_torch.types import Tensor

_T = TypeVar("_T", bound="Indexed")


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
