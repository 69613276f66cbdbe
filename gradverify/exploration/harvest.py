"""Read numbers and names of modes from the user's code: values at which it may behave differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from gradverify.case import Case
from gradverify.exploration.change import Seen
from gradverify.exploration.inputs import plain_inputs

_LARGEST = 1e4  # of numbers that tensors are given as values
_LARGEST_INTEGER = 4096  # of block sizes
_LONGEST_TEXT = 20  # characters of the name of a mode


def seen_in(
    case: Case, functions: Iterable[Any], compared: Iterable[float] = (), operators: frozenset[str] = frozenset()
) -> Seen:
    """Return what the code of functions contains; numbers that it was seen to compare with come first."""
    constants = [value for function in functions for value in _constants(function)]
    floats = [value for value in constants if isinstance(value, float)]
    whole = [value for value in constants if type(value) is int]
    arguments = [value for value in plain_inputs(case, {}).values() if type(value) in (int, float)]
    candidates = (*compared, *(value for value in arguments if type(value) is float), *floats, *arguments)
    return Seen(
        numbers=tuple(dict.fromkeys(float(value) for value in candidates if abs(value) <= _LARGEST)),
        integers=tuple(dict.fromkeys(value for value in whole if abs(value) <= _LARGEST_INTEGER)),
        texts=tuple(dict.fromkeys(value for value in constants if isinstance(value, str))),
        operators=operators,
    )


def _constants(function: Any) -> Iterator[Any]:
    """Yield the numbers and short texts in a function's code, and in the globals and closures that it names."""
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        return
    yield from _of_code(code)
    named = [function.__globals__.get(name) for name in _names(code)]
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    yield from (value for value in (*named, *cells, *(function.__defaults__ or ())) if _is_value(value))


def _of_code(code: CodeType) -> Iterator[Any]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        elif isinstance(constant, tuple | frozenset):
            yield from (entry for entry in constant if _is_value(entry))
        elif _is_value(constant):
            yield constant


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_value(value: Any) -> bool:
    if isinstance(value, str):
        return value.isidentifier() and len(value) <= _LONGEST_TEXT
    return type(value) in (int, float)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
