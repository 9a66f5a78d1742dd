# SPDX-License-Identifier: Apache-2.0
"""Nouns as strict JSON and back, driven by their type hints.

Written JSON is strict: a float that is not finite becomes the text `NaN`, `Infinity` or
`-Infinity`. Read JSON may be less strict: the bare words, numbers such as `1e400`, and any usual
spelling in text are taken, so that an alarming value never vanishes. Null means missing, never 0.
Integers are exact at any size; a reader in another language needs at least 64 bits for them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import reprlib
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import Any, TypeVar

from truestep.errors import RecordError
from truestep.record import SCHEMA_VERSION, Record

T = TypeVar("T")

_SPELLINGS = {
    **dict.fromkeys(("nan", "+nan", "-nan"), math.nan),
    **dict.fromkeys(("infinity", "+infinity", "inf", "+inf"), math.inf),
    **dict.fromkeys(("-infinity", "-inf"), -math.inf),
}
_NOT_TEXT = re.compile("[\udc80-\udcff]")


def to_plain(obj: Any) -> dict[str, Any]:
    """A noun as a dict of text, numbers, booleans, None, lists and dicts: strict JSON throughout.

    Raises:
        RecordError: Something in it is no noun and no plain data.
    """
    if not _is_noun(obj):
        raise RecordError(f"to_plain needs a dataclass, got {_shown(obj)}. Pass a noun.")
    plain: dict[str, Any] = _plain(obj, type(obj).__name__)
    return plain


def dumps(obj: Any) -> str:
    """A noun, or plain data, as one line of strict ASCII JSON with sorted keys.

    Raises:
        RecordError: It holds something that is no plain data, refers to itself, or has an integer
            of thousands of digits.
    """
    try:
        plain = _plain(obj, type(obj).__name__)
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (RecursionError, ValueError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"data must fit strict JSON, got: {error}. Store less of it.") from error


def loads(text: str | bytes) -> Any:
    r"""Plain data from JSON as others write it.

    Takes NaN, Infinity, numbers too large for a float (infinite), a byte order mark, and bytes
    that are not UTF-8 (as `\xNN`). Of two equal keys the last wins.

    Raises:
        RecordError: It is not JSON, is nested too deeply, or has an integer of thousands of digits.
    """
    if isinstance(text, bytes):
        text = _NOT_TEXT.sub(
            lambda found: f"\\\\x{ord(found[0]) - 0xDC00:02x}",
            text.decode("utf-8", "surrogateescape"),
        )
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except (RecursionError, ValueError) as error:
        raise RecordError(
            f"text must be JSON, got {_shown(text)} ({error}). Restore it from a copy."
        ) from error


def record_from(data: Any) -> Record:
    """The record that plain data describes. Unknown fields are left out.

    Raises:
        RecordError: The schema is newer than this version, or a field does not hold what it must.
    """
    if not isinstance(data, Mapping):
        raise _wrong("record", "an object", data)
    version = data.get("schema_version")
    if type(version) is not int or version < 1:
        raise _wrong("schema_version", "a positive integer", version)
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"schema_version must be at most {SCHEMA_VERSION}, got {version}. "
            "Upgrade truestep to read records of a newer version."
        )
    return from_plain(Record, data)


def from_plain(cls: type[T], data: Any) -> T:
    """The noun of type `cls` that plain data describes.

    Fields that `cls` does not have are ignored; fields that are missing take their default. An
    entry of a mapping that is null is missing. Text that spells a number that is not finite is
    that number wherever a number may stand.

    Raises:
        RecordError: A field is of the wrong type, lacks a value, or breaks a rule of the noun. The
            message names the path of the field.

    Guarantees:
        `from_plain(type(noun), loads(dumps(noun)))` equals the noun, NaN apart, and has the same
        `dumps`; the text fields of a `float | str` must not spell a number that is not finite.
    """
    noun: T = _read_noun(cls, data, "")
    return noun


_AS_IT_IS = frozenset({type(None), bool, int, str})


def _is_noun(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _shown(value: Any) -> str:
    return "null" if value is None else reprlib.repr(value)


def _wrong(path: str, must: str, value: Any) -> RecordError:
    return RecordError(
        f"{path or 'data'} must be {must}, got {_shown(value)}. "
        "Leave this entry out, or write it again with this version."
    )


@dataclasses.dataclass(slots=True)
class _At:
    """Where a value stands, put into words only when it is wrong: most are right."""

    parent: _At | str
    step: str | int

    def __str__(self) -> str:
        is_number = isinstance(self.step, int)
        return f"{self.parent}[{self.step}]" if is_number else f"{self.parent}.{self.step}"


def _plain(value: Any, path: _At | str) -> Any:
    """Plain data of anything that nouns are made of."""
    if type(value) in _AS_IT_IS:
        return value
    if isinstance(value, Enum):
        return _plain(value.value, path)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _plain_float(value)
    return _plain_container(value, path)


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return float(value)
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain_container(value: Any, path: _At | str) -> Any:
    if _is_noun(value):
        names = _field_names(typing.cast("Hashable", type(value)))
        return {name: _plain(getattr(value, name), _At(path, name)) for name in names}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _wrong(f"a key of {path}", "text", key)
        return {str(key): _plain(item, _At(path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, _At(path, i)) for i, item in enumerate(value)]
    raise _wrong(str(path), "a noun or plain data", value)


@functools.cache
def _field_names(cls: Hashable) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(typing.cast("type", cls)))


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _read(hint: Any, value: Any, path: str) -> Any:
    """The value at `path`, as the type hint asks for it."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(hint), value, path)
    if origin is tuple:
        return _read_tuple(typing.get_args(hint), value, path)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(typing.get_args(hint), value, path)
    if dataclasses.is_dataclass(hint):
        return _read_noun(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _read_member(hint, value, path)
    return _SCALARS[hint](value, path)


def _read_noun(cls: Any, data: Any, path: str) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(path, f"an object ({cls.__name__})", data)
    hints, values = _hints(cls), {}
    for field in dataclasses.fields(cls):
        inner = f"{path}.{field.name}" if path else field.name
        if field.name in data:
            values[field.name] = _read(hints[field.name], data[field.name], inner)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecordError(
                f"{inner} must be given, got nothing. Leave this entry out, or write it again."
            )
    try:
        return cls(**values)
    except ValueError as error:
        raise RecordError(f"{path or cls.__name__} breaks a rule of its noun: {error}") from error


def _read_union(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    alternatives = [hint for hint in hints if hint is not types.NoneType]
    if value is None and len(alternatives) < len(hints):
        return None
    if len(alternatives) == 1:
        return _read(alternatives[0], value, path)
    for hint in alternatives:
        try:
            return _read(hint, value, path)
        except RecordError:
            continue
    raise _wrong(path, " or ".join(_NAMES.get(hint, str(hint)) for hint in alternatives), value)


def _read_tuple(hints: tuple[Any, ...], value: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _wrong(path, "a list", value)
    if hints[-1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(value) != len(hints):
        raise _wrong(path, f"a list of {len(hints)}", value)
    pairs = zip(hints, value, strict=True)
    return tuple(_read(hint, item, f"{path}[{i}]") for i, (hint, item) in enumerate(pairs))


def _read_mapping(hints: tuple[Any, ...], value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(path, "an object", value)
    present = ((key, item) for key, item in value.items() if item is not None)
    return {_read_text(key, path): _read(hints[1], item, f"{path}.{key}") for key, item in present}


def _read_member(cls: type[Enum], value: Any, path: str) -> Enum:
    try:
        return cls(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in cls)
        raise _wrong(path, f"one of: {known}", value) from None


def _read_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, _NAMES[str], value)
    return value


def _read_bool(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(path, _NAMES[bool], value)
    return value


def _read_integer(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(path, _NAMES[int], value)
    return value


def _read_number(value: Any, path: str) -> float:
    if isinstance(value, str) and value.strip().lower() in _SPELLINGS:
        return _SPELLINGS[value.strip().lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(path, _NAMES[float], value)
    try:
        float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return value


_NAMES = {str: "text", bool: "true or false", int: "an integer", float: "a number"}
_SCALARS: dict[Any, Callable[[Any, str], Any]] = {
    str: _read_text,
    bool: _read_bool,
    int: _read_integer,
    float: _read_number,
}
