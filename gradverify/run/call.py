"""Arrange named inputs as the positional and keyword arguments of a call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradverify.case import TargetKind
from gradverify.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of one call."""

    names: tuple[str, ...]  # of the positional arguments
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def arrange(values: Mapping[str, Any], parameters: Sequence[inspect.Parameter] | None, kind: TargetKind) -> Call:
    """Return the call that passes these values to the parameters of the same names.

    Optional parameters without a value are left out, unless a later positional parameter has a value: then their
    defaults are passed, since `Function.apply` takes positional arguments only. Raises InputError.
    """
    if parameters is None:
        return Call(names=tuple(values), args=tuple(values.values()))
    positional = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    spread = next((parameter.name for parameter in parameters if parameter.kind is _SPREAD), None)
    entries = _positional(values, positional, needed=_last_given(values, positional, spread))
    entries += _spread(values, spread)
    kwargs = _keywords(values, parameters, {parameter.name for parameter in positional} | {spread or ""})
    if kwargs and kind is TargetKind.FUNCTION:
        raise InputError(f"apply takes no keyword arguments, but `{next(iter(kwargs))}` is one")
    return Call(names=tuple(name for name, _ in entries), args=tuple(value for _, value in entries), kwargs=kwargs)


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SPREAD = inspect.Parameter.VAR_POSITIONAL


def _last_given(values: Mapping[str, Any], positional: Sequence[inspect.Parameter], spread: str | None) -> int:
    """Return how many positional parameters must be passed: all of them if *args are passed after them."""
    if spread is not None and spread in values and not _is_empty(values[spread]):
        return len(positional)
    required = [
        number
        for number, parameter in enumerate(positional)
        if parameter.name in values or parameter.default is inspect.Parameter.empty
    ]
    return max(required, default=-1) + 1


def _is_empty(value: Any) -> bool:
    return isinstance(value, list | tuple) and not value


def _positional(
    values: Mapping[str, Any], positional: Sequence[inspect.Parameter], *, needed: int
) -> list[tuple[str, Any]]:
    entries = []
    for parameter in positional[:needed]:
        if parameter.name not in values and parameter.default is inspect.Parameter.empty:
            raise InputError(f"forward needs `{parameter.name}`")
        entries.append((parameter.name, values.get(parameter.name, parameter.default)))
    return entries


def _spread(values: Mapping[str, Any], name: str | None) -> list[tuple[str, Any]]:
    if name is None or name not in values:
        return []
    value = values[name]
    if not isinstance(value, list | tuple):
        return [(name, value)]
    return [(f"{name}[{number}]", entry) for number, entry in enumerate(value)]


def _keywords(values: Mapping[str, Any], parameters: Sequence[inspect.Parameter], taken: set[str]) -> dict[str, Any]:
    gathers = next((p.name for p in parameters if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    named = {parameter.name for parameter in parameters}
    kwargs = {name: value for name, value in values.items() if name not in taken and name != gathers}
    if gathers is not None and gathers in values:
        kwargs |= dict(values[gathers])
    elif gathers is None and (unknown := next((name for name in kwargs if name not in named), None)):
        raise InputError(f"forward has no parameter `{unknown}`")
    return kwargs
