"""Objects that forward takes and that can be made from their class alone: a member of an enum, or all defaults."""

from __future__ import annotations

import inspect
from contextlib import suppress
from enum import Enum
from typing import Any, get_type_hints

_PLAIN = (bool, int, float, str)  # what YAML has a word for


def annotated_class(function: Any, parameter: inspect.Parameter) -> type | None:
    """Return the class that a parameter of forward is annotated with, None if it is none, or has no such name."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        forward = getattr(function, "forward", function)
        with suppress(Exception):  # a name that exists for type checkers only
            annotation = get_type_hints(forward).get(parameter.name)
    return annotation if isinstance(annotation, type) else None


def factory_of(found: type | None) -> dict[str, Any] | None:
    """Return what a spec has for an object of a class, None if it cannot be imported or needs arguments.

    The first member stands for an enum.
    """
    if found is None or found.__module__ in ("builtins", "__main__") or "<locals>" in found.__qualname__:
        return None
    if found.__module__.partition(".")[0] == "torch":
        return None
    factory = {"factory": f"{found.__module__}:{found.__qualname__}"}
    if issubclass(found, Enum):
        first = next(iter(found), None)
        return {**factory, "args": {"value": first.value}} if first and isinstance(first.value, _PLAIN) else None
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty and each.kind not in optional]
    return None if needed or inspect.isabstract(found) else factory
