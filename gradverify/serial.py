"""Frozen values to plain JSON values and back; non-finite numbers travel as strings."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gradverify.errors import GradverifyError

T = TypeVar("T")

# JSON has words that Python keeps for itself: field name -> JSON name.
_JSON_NAMES = {"passed": "pass", "failed": "fail", "errors": "error", "skipped": "skip"}
_PLAIN = (str, int, bool)  # exactly these: a StrEnum is a str, too
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# Metadata of a field that reports of earlier versions lack; it has a default.
LATER: Mapping[str, bool] = {"later": True}


class ReportError(GradverifyError):
    """A report file does not have the shape that gradverify writes."""


def to_plain(value: object) -> Any:
    """Return `value` (dataclass, enum, tuple, mapping or scalar) as what `json.dumps` takes."""
    kind: type = type(value)
    if value is None or kind in _PLAIN:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _non_finite_name(value)
    if isinstance(value, StrEnum):
        return value.value
    if _is_dataclass(kind):
        return {name: to_plain(getattr(value, attribute)) for attribute, name in _names(kind)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(entry) for entry in value]
    return value


def from_plain(kind: type[T], plain: object) -> T:
    """Rebuild a dataclass of type `kind` from `to_plain`'s output; raises ReportError."""
    built: T = _build(kind, plain, kind.__name__)
    return built


def _build(kind: Any, plain: Any, path: str) -> Any:
    if is_dataclass(kind):
        return _build_dataclass(kind, plain, path)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _build_union(arguments, plain, path)
    if origin is tuple:
        if not isinstance(plain, list):
            raise ReportError(f"{path}: expected a list, found {type(plain).__name__}")
        return tuple(_build(arguments[0], entry, f"{path}[{number}]") for number, entry in enumerate(plain))
    return _build_scalar(kind, plain, path)


def _build_dataclass(kind: Any, plain: Any, path: str) -> Any:
    if not isinstance(plain, dict):
        raise ReportError(f"{path}: expected a mapping, found {type(plain).__name__}")
    values = {}
    for field, name, hint in _shape(kind):
        if name in plain:
            values[field.name] = _build(hint, plain[name], f"{path}.{name}")
        elif not field.metadata.get("later"):
            raise ReportError(f"{path}: `{name}` is missing")
    return kind(**values)


@cache
def _is_dataclass(kind: type) -> bool:
    """Return True for a dataclass; kept, since a report has few types and many values."""
    return is_dataclass(kind)


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """Return each field's name and its JSON name."""
    return tuple((field.name, _json_name(field.name)) for field in fields(kind))


@cache
def _shape(kind: Any) -> tuple[tuple[Field[Any], str, Any], ...]:
    """Return each field, its JSON name and type; resolving types is slow, and a report has many elements."""
    hints = get_type_hints(kind)
    return tuple((field, _json_name(field.name), hints[field.name]) for field in fields(kind))


def _build_union(choices: tuple[Any, ...], plain: Any, path: str) -> Any:
    if plain is None and type(None) in choices:
        return None
    (kind,) = (choice for choice in choices if choice is not type(None))
    return _build(kind, plain, path)


def _build_scalar(kind: Any, plain: Any, path: str) -> Any:
    if kind is float and isinstance(plain, str) and plain in _NON_FINITE:
        return _NON_FINITE[plain]
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    if issubclass(kind, StrEnum):
        if plain not in tuple(kind):
            raise ReportError(f"{path}: `{plain}` is not one of {', '.join(kind)}")
        return kind(plain)
    if type(plain) is not kind:
        raise ReportError(f"{path}: expected {kind.__name__}, found {type(plain).__name__}")
    return plain


def _json_name(name: str) -> str:
    return _JSON_NAMES.get(name, name)


def _non_finite_name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
