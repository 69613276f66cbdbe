"""Commands that take their options as values: a dataclass parameter stands for one option per field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def with_single_options(command: Callable[..., T]) -> Callable[..., T]:
    """Return the command for typer: the fields of its dataclass parameters become parameters of their own.

    The order is kept. No two fields may have one name.
    """
    hints = get_type_hints(command, include_extras=True)
    grouped: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters = [
        single for parameter in signature(command).parameters.values() for single in _singles(parameter, hints)
    ]

    @wraps(command)
    def called(**values: Any) -> T:
        options = {name: _value(kind, values) for name, kind in grouped.items()}
        return command(**values, **options)

    called.__signature__ = signature(command).replace(parameters=parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _singles(parameter: Parameter, hints: dict[str, Any]) -> Iterator[Parameter]:
    kind = hints[parameter.name]
    if not is_dataclass(kind):
        yield parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)
        return
    types = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name])


def _value(kind: Any, values: dict[str, Any]) -> Any:
    return kind(**{field.name: values.pop(field.name) for field in fields(kind) if field.name in values})
