"""Objects that their class can make again, as the call that makes them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable
from typing import Any


def recipe_of(value: Any, plain: Callable[[Any], Any]) -> dict[str, Any] | None:
    """Return the class of an object and the arguments that make one like it, None if that cannot be told.

    These are members of an enumeration, dataclasses, and modules without submodules, whose constructors keep their
    arguments as attributes. `plain` returns a value that YAML has words for, or raises TypeError.
    """
    kind = type(value)
    if not _can_be_named(kind):
        return None
    try:
        arguments = _arguments(value, kind, plain)
    except (TypeError, ValueError):
        return None
    return {"factory": f"{kind.__module__}:{kind.__qualname__}", **({"args": arguments} if arguments else {})}


def _can_be_named(kind: type) -> bool:
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is kind and kind.__module__ not in ("__main__", "builtins")


def _arguments(value: Any, kind: type, plain: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments of the constructor. Raises TypeError or ValueError if they cannot be told."""
    if isinstance(value, enum.Enum):
        return {"value": plain(value.value)}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
    module = sys.modules["torch"].nn.Module
    if not isinstance(value, module) or any(True for _ in value.children()):
        raise TypeError
    if vars(module)["__init__"] is getattr(kind, "__init__"):  # noqa: B009
        return {}
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise TypeError
        try:
            given = plain(getattr(value, name))
        except (AttributeError, TypeError):
            if parameter.default is inspect.Parameter.empty:
                raise TypeError from None
            continue  # as the bias of a Linear, which is a parameter of the module by then
        if given != parameter.default:
            found[name] = given
    return found
