"""Texts with placeholders for a design's values, such as {x0}, {thickness} or {layers:d}."""

import re
from collections.abc import Iterable, Mapping, Sequence
from string import Formatter

from tcsaea_torch.errors import InvalidInputError

_BY_INDEX = re.compile(r"x(0|[1-9][0-9]*)")
_OF_INTEGERS = tuple("bcdoxX")


def check_text_with_placeholders(name: str, text: str, names: Sequence[str] | None) -> int:
    """Return how many placeholders a text has, and refuse those that cannot be filled.

    Args:
        name: What the text is, for messages.
        text: The text, with the rules of Python's `str.format`.
        names: Names of the dimensions, if they are known.

    Raises:
        InvalidInputError: If braces do not match, or a placeholder has no meaning.
    """
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise InvalidInputError(
            f"{name} must have braces around placeholders only, and {{{{ or }}}} for a brace "
            f"itself, got {text!r}: {error}"
        ) from error
    n = 0
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        n += 1
        by_index = _BY_INDEX.fullmatch(field)
        within = by_index is not None and (names is None or int(by_index[1]) < len(names))
        if conversion or not (within or field in (names or ())):
            shown = f"{field}!{conversion}" if conversion else field
            raise InvalidInputError(
                f"{name} must have placeholders {_known(names)}, got {{{shown}}} in {text!r}"
            )
        try:
            as_text(1.0, spec or "")
        except ValueError as error:
            raise InvalidInputError(
                f"{name} must have formats of numbers, got {{{field}:{spec}}} in {text!r}: {error}"
            ) from error
    return n


def _known(names: Sequence[str] | None) -> str:
    if names is None:
        return "{x0}, {x1}, ... (others need names=)"
    return f"{{x0}} to {{x{len(names) - 1}}} or " + ", ".join(f"{{{name}}}" for name in names)


def values_by_name(x: Sequence[float], names: Sequence[str] | None) -> dict[str, float]:
    """Return what each placeholder stands for; names come before x0, x1, ..."""
    by_index = {f"x{i}": value for i, value in enumerate(x)}
    return by_index | dict(zip(names or (), x, strict=names is not None))


def as_text(value: float, spec: str) -> str:
    """Return a value as a text: all its digits without a format, an integer with one of those.

    Raises:
        ValueError: If a format for integers meets another number, or there is no such format.
    """
    if spec.endswith(_OF_INTEGERS):
        if not value.is_integer():
            raise ValueError(f"{value!r} is no integer")
        return format(int(value), spec)
    return format(value, spec) if spec else repr(value)


def filled(text: str, values: Mapping[str, float]) -> str:
    """Fill the placeholders of a text that was checked.

    Raises:
        InvalidInputError: If there are fewer values than the text needs, or a value is no
            integer where it has to be.
    """
    parts = []
    for literal, field, spec, _ in Formatter().parse(text):
        parts.append(literal)
        if field is not None:
            parts.append(_value_of(field, spec or "", values))
    return "".join(parts)


def _value_of(field: str, spec: str, values: Mapping[str, float]) -> str:
    if field not in values:
        raise InvalidInputError(
            f"placeholders must be of dimensions that x has, got {{{field}}} for "
            f"{', '.join(values)}"
        )
    try:
        return as_text(values[field], spec)
    except ValueError as error:
        raise InvalidInputError(
            f"a placeholder {{{field}:{spec}}} must get an integer (say Problem(integers=...)): "
            f"{error}"
        ) from error


def count_in_file(text: str, names: Iterable[str] | None) -> int:
    """Return how many placeholders the text of a file has."""
    return len(_pattern(names).findall(text))


def filled_file(text: str, values: Mapping[str, float], names: Iterable[str] | None) -> str:
    """Fill the placeholders in the text of a file, and leave all other braces as they are."""
    return _pattern(names).sub(lambda m: _value_of(m[1], (m[2] or "")[1:], values), text)


def _pattern(names: Iterable[str] | None) -> re.Pattern[str]:
    known = "|".join([_BY_INDEX.pattern.replace("(", "(?:"), *map(re.escape, names or ())])
    return re.compile(rf"\{{({known})(:[^{{}}\s]*)?\}}")
