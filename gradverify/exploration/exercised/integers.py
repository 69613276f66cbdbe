"""Whole numbers in the user's code that may be sizes of blocks or special values."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

from gradverify.exploration.exercised.user_code import code_of, function_of, nested

_SIZES = range(2, 4097)
_MOST = 4096  # magnitude of a special value
_LOADS = {"LOAD_CONST", "LOAD_SMALL_INT"}


def integers_in(functions: Sequence[FunctionType | CodeType]) -> tuple[int, ...]:
    """Return, ascending, the integers of this code that are worth trying.

    These are the constants between 2 and 4,096, also among the defaults of parameters and the globals that are read,
    and the small constants that something is compared with, such as -100. Functions of the same file that are called
    by name are looked into.
    """
    found: set[int] = set()
    for function in with_called(functions):
        code = code_of(function)
        assert code is not None, "with_called returns only what has code"
        for each in nested(code):
            found.update(value for value in _whole(each.co_consts) if value in _SIZES)
            found.update(value for value in _compared(each) if abs(value) <= _MOST)
        if isinstance(function, FunctionType):
            defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
            found.update(value for value in _whole(defaults) if abs(value) <= _MOST and value not in (-1, 0, 1))
            read = [function.__globals__.get(name) for each in nested(code) for name in each.co_names]
            found.update(value for value in _whole(read) if value in _SIZES)
    return tuple(sorted(found))


def with_called(functions: Sequence[Any]) -> list[FunctionType | CodeType]:
    """Return the functions and those of the same file that they call by a global name, each once."""
    pending = [function_of(function) or code_of(function) for function in functions]
    found: dict[int, FunctionType | CodeType] = {}
    while pending:
        function = pending.pop(0)
        code = code_of(function)
        if function is None or code is None or id(code) in found:
            continue
        found[id(code)] = function
        if isinstance(function, FunctionType):
            names = {name: None for each in nested(code) for name in each.co_names}
            called = [function_of(function.__globals__.get(name)) for name in names]
            pending += [each for each in called if each and each.__code__.co_filename == code.co_filename]
    return list(found.values())


def _whole(values: Iterable[Any]) -> Iterator[int]:
    """Yield the integers among values and in the tuples among them."""
    for value in values:
        if type(value) is int:
            yield value
        elif isinstance(value, tuple | frozenset):
            yield from _whole(value)


@lru_cache(maxsize=1024)
def _compared(code: CodeType) -> frozenset[int]:
    """Return the integer constants that are an operand of a comparison."""
    found: set[int] = set()
    instructions = list(dis.get_instructions(code))
    for number, instruction in enumerate(instructions):
        if instruction.opname == "COMPARE_OP":
            before = instructions[max(0, number - 2) : number]
            found.update(_whole(each.argval for each in before if each.opname in _LOADS))
    return frozenset(found)
