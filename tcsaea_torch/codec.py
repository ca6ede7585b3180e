"""Events and configurations as strict JSON and raw bytes, and back.

What is read is checked and never executed: tensors are bytes with a dtype and a shape,
configurations are rebuilt from a fixed table of this library's own classes. Everything
that does not fit raises a ValueError, TypeError or KeyError; the journal says where.
"""

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from tcsaea_torch import strategies
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Asked, Attached, Event, Failed, HandedOut, Told, Withdrawn
from tcsaea_torch.evolution import RVEAConfig, Variation
from tcsaea_torch.models import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies import State
from tcsaea_torch.transfer import LinkConfig, SwarmConfig
from tcsaea_torch.types import Tensor

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip

_CONFIGURATIONS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        strategies.BroodInterleaving, strategies.FastFirst, strategies.HKRVEA, strategies.KRVEA,
        strategies.RandomSearch, strategies.SpeculativeInterleaving, strategies.TCEHVI,
        strategies.TCSAEA, strategies.TSAEA, strategies.TrSAEA, strategies.Waiting,
        BFGSOptions, FitConfig, LinkConfig, RVEAConfig, SwarmConfig, Variation,
    )
}  # fmt: skip
"""The only classes that reading makes objects of."""

_MAX_NUMEL = 2**48

Pieces = dict[str, bytes]
"""Bytes of the tensors of a strategy's state, by name."""


# ------------------------------------------------------------------ JSON


def dumps(value: Any) -> str:
    """Return a value as strict JSON in ASCII; NaN and infinities are written as objects."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Return what `dumps` wrote; lists come back as tuples."""
    return _rich(json.loads(text, parse_constant=_refuse_constant))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, tuple | list):
        return [_plain(member) for member in value]
    if isinstance(value, dict):
        return {_name(key): _plain(member) for key, member in value.items()}
    if is_dataclass(value) and type(value) is _CONFIGURATIONS.get(type(value).__name__):
        content = {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
        return {"class": type(value).__name__, "fields": content}
    raise InvalidInputError(f"a journal cannot hold {value!r} ({type(value).__name__})")


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInputError(f"a journal holds names that are strings, got {key!r}")
    return key


def _rich(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rich(member) for member in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"}:
        if value["float"] not in ("nan", "inf", "-inf"):
            raise ValueError(f"{value['float']!r} is no special float")
        return float(value["float"])
    content = {key: _rich(member) for key, member in value.items()}
    if content.keys() == {"class", "fields"}:
        return _CONFIGURATIONS[content["class"]](**content["fields"])
    return content


# ------------------------------------------------------------------ tensors


class _Writer:
    """Collects the bytes of tensors and returns how to find them."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def put(self, tensor: Tensor, data: bytes, before: bytes = b"") -> dict[str, Any]:
        """Store `data`, the bytes of a tensor, without what begins like the bytes before."""
        n_kept = _common_prefix(data, before)
        self._parts.append(data[n_kept:])
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _DTYPES:
            raise InvalidInputError(f"a journal cannot hold tensors of {tensor.dtype}")
        return {"dtype": dtype, "shape": list(tensor.shape), "kept": n_kept}

    def bytes(self) -> bytes:
        return b"".join(self._parts)


class _Reader:
    """Takes tensors from bytes in the order of writing."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def take(self, spec: Any, before: bytes = b"") -> tuple[Tensor, bytes]:
        """Return a tensor and its bytes."""
        if not isinstance(spec, dict) or spec.keys() != {"dtype", "shape", "kept"}:
            raise ValueError("the description of a tensor is broken")
        dtype = _DTYPES[spec["dtype"]]
        shape = [_count(n) for n in _tuple(spec["shape"])]
        n_kept, size = _count(spec["kept"]), math.prod(shape) * dtype.itemsize
        if math.prod(max(n, 1) for n in shape) > _MAX_NUMEL or len(shape) > 8:
            raise ValueError(f"shape {shape} is too large")
        end = self._position + size - n_kept
        if n_kept > min(size, len(before)) or end > len(self._data):
            raise ValueError("bytes of a tensor are missing")
        data = before[:n_kept] + self._data[self._position : end]
        self._position = end
        return _tensor(data, dtype, shape), data

    def close(self) -> None:
        """Check that nothing is left."""
        if self._position != len(self._data):
            raise ValueError("there are more bytes than tensors")


def _bytes(tensor: Tensor) -> bytes:
    # A copy: `contiguous` leaves a tensor of one element with the strides of what it was cut from.
    flat = tensor.detach().cpu().flatten().clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8).numpy().tobytes()


def _tensor(data: bytes, dtype: torch.dtype, shape: list[int]) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype)
    raw = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    if dtype is torch.bool and bool((raw > 1).any()):
        raise ValueError("a truth value is neither 0 nor 1")
    return raw.view(dtype).reshape(shape)


def _common_prefix(a: bytes, b: bytes) -> int:
    n = min(len(a), len(b))
    differs = np.frombuffer(a, np.uint8, n) != np.frombuffer(b, np.uint8, n)
    return int(differs.argmax()) if differs.any() else n


# ------------------------------------------------------------------ events


def encode(event: Event, before: Pieces) -> tuple[str, str, bytes, Pieces]:
    """Return an event's kind, its scalars as JSON, its tensors as bytes, and its state's.

    Args:
        event: The event.
        before: Bytes of the strategy's state before it. What a state's tensor has in
            common with the beginning of the one before is not written again: most
            tensors stay as they are or grow at their end.
    """
    writer, content, after = _Writer(), dict(vars(event)), before
    for name, value in content.items():
        if isinstance(value, Tensor):
            content[name] = writer.put(value, _bytes(value))
        elif name == "strategy_state":
            content[name], after = _encode_state(value, before, writer)
    return type(event).__name__, dumps(content), writer.bytes(), after


def _encode_state(
    state: State, before: Pieces, writer: _Writer
) -> tuple[list[tuple[str, Any]], Pieces]:
    content: list[tuple[str, Any]] = []
    after: Pieces = {}
    for key, value in state.items():
        if isinstance(value, Tensor):
            after[key] = _bytes(value)
            content.append((key, writer.put(value, after[key], before.get(key, b""))))
        elif isinstance(value, int | float | str):
            content.append((key, value))
        else:
            raise InvalidInputError(
                "a strategy's state must hold tensors, numbers and strings, "
                f"got {value!r} ({type(value).__name__}) as {key!r}"
            )
    return content, after


def decode(kind: str, scalars: str, data: bytes, before: Pieces) -> tuple[Event, Pieces]:
    """Return what `encode` wrote.

    Args:
        kind: Name of the event's class.
        scalars: Its JSON.
        data: Bytes of its tensors.
        before: Bytes of the strategy's state before it.
    """
    content, reader, after = loads(scalars), _Reader(data), before
    if not isinstance(content, dict):
        raise ValueError("an event is no object")
    for name, value in content.items():  # in the order of writing
        if name == "strategy_state":
            content[name], after = _decode_state(value, before, reader)
        elif isinstance(value, dict):
            content[name] = reader.take(value)[0]
    reader.close()
    _expect_fields(content, time=float)
    match kind:
        case "Asked":
            _expect_rows(content["X"], content["evaluation_mask"], torch.bool)
            if content["archive_mask"] is not None:
                _expect(content["archive_mask"], torch.bool, 2)
            _expect_fields(content, queued=bool)
            return Asked(**content), after
        case "Attached":
            _expect_rows(content["X"], content["Y"], torch.float64)
            return Attached(**content), after
        case "HandedOut":
            if any(type(id) is not int for id in _tuple(content["ids"])):
                raise ValueError("an id is no int")
            return HandedOut(**content), after
        case "Told":
            _expect_fields(content, id=int, value=float)
            return Told(**content), after
        case "Failed":
            _expect_fields(content, id=int, reason=str, retry=bool)
            return Failed(**content), after
        case "Withdrawn":
            _expect_fields(content, id=int)
            return Withdrawn(**content), after
    raise ValueError(f"{kind!r} is no kind of event")


def _decode_state(content: Any, before: Pieces, reader: _Reader) -> tuple[State, Pieces]:
    state: State = {}
    after: Pieces = {}
    for key, value in _tuple(content):
        if isinstance(value, dict):
            state[key], after[key] = reader.take(value, before.get(key, b""))
        elif isinstance(value, int | float | str):
            state[key] = value
        else:
            raise ValueError(f"the strategy's state is broken at {key!r}")
    return state, after


def _expect_rows(X: Any, columns: Any, dtype: torch.dtype) -> None:
    _expect(X, torch.float64)
    _expect(columns, dtype, 2)
    if len(X) != len(columns):
        raise ValueError("points and their columns differ in their rows")


def _expect(tensor: Any, dtype: torch.dtype, columns: int | None = None) -> None:
    if (
        not isinstance(tensor, Tensor)
        or tensor.ndim != 2
        or tensor.dtype is not dtype
        or columns not in (None, tensor.shape[-1])
    ):
        raise ValueError("a tensor has a wrong dtype or shape")


def _expect_fields(content: dict[str, Any], **kinds: type) -> None:
    for name, kind in kinds.items():
        if type(content[name]) is not kind:
            raise ValueError(f"{name} is no {kind.__name__}")


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _tuple(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise ValueError(f"{value!r} is no list")
    return value
