"""Read numbers and names of modes from the user's code: values at which it may behave differently."""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

from gradverify.case import Case
from gradverify.exploration.change import Seen
from gradverify.exploration.exercised.functions import contents_of, with_called
from gradverify.exploration.exercised.user_code import code_of, nested
from gradverify.exploration.exercised.watched import Watched
from gradverify.exploration.inputs import plain_inputs

_MOST_DIMENSIONS = 6  # of a tensor
_LARGEST = 1e4  # of numbers that tensors are given as values
_LARGEST_INTEGER = 65_536  # of sizes of blocks and special values
_LARGE_SIZE = 16_384  # whole numbers above are rarely sizes of blocks
_SMALL_SIZE = 8  # whole numbers below are rarely sizes of blocks
_INDEXED = "aten.index"  # the operator of x[index]; those of other names take no negative index
_LONGEST_TEXT = 20  # characters of the name of a mode


def seen_in(case: Case, functions: Sequence[FunctionType], watched: Watched) -> Seen:
    """Return what the code of functions holds, and what it was seen to compare with, which comes first."""
    called = with_called(functions, in_other_files=True)
    constants = list(_constants(called))
    compared = [value for condition in watched.conditions for value in condition.constants]
    arguments = [value for value in plain_inputs(case, {}).values() if type(value) in (int, float)]
    reals = [value for value in (*arguments, *constants) if isinstance(value, float)]
    whole = [value for value in (*constants, *arguments) if type(value) is int and abs(value) <= _LARGEST_INTEGER]
    numbers = (value for value in (*compared, *reals, *arguments) if abs(value) <= _LARGEST)
    return Seen(
        numbers=tuple(dict.fromkeys(map(float, numbers))),
        integers=tuple(sorted(dict.fromkeys(whole), key=_is_rarely_a_block)),
        special=tuple(dict.fromkeys(_special(called, watched, arguments))),
        texts=tuple(dict.fromkeys(value for value in constants if isinstance(value, str))),
        tested_for_none=frozenset(_tested_for_none(called)),
        names_infinity=_names_infinity(called),
    )


def _is_rarely_a_block(number: int) -> bool:
    return 0 <= number < _SMALL_SIZE or number > _LARGE_SIZE


def _codes(function: FunctionType | CodeType) -> list[CodeType]:
    """Return the code of a function of `with_called`, and of the functions inside it."""
    code = code_of(function)
    assert code is not None, "with_called returns only what has code"
    return list(nested(code))


def _special(called: Sequence[FunctionType | CodeType], watched: Watched, arguments: Sequence[Any]) -> Iterator[int]:
    """Yield the negative whole numbers among arguments, defaults and globals, and those that the code compares with.

    So are those that are no dimensions counted from the end. What is compared with 0 may be negative, and so may a
    tensor of places in `x[places]`: -1 is.
    """
    compared = [value for condition in watched.conditions for value in condition.constants]
    others = list(arguments)
    for function in called:
        codes = _codes(function)
        compared += [value for code in codes for value in _compared(code)]
        written = _values(value for code in codes for value in code.co_consts)
        others += [value for value in written if isinstance(value, int) and value < -_MOST_DIMENSIONS]
        if isinstance(function, FunctionType):
            others += _held(function, codes)
    for value in (*others, *compared):
        if type(value) in (int, float) and -_LARGEST_INTEGER <= value < 0 and value == int(value):
            yield int(value)
    if 0 in compared or _INDEXED in watched.operators:
        yield -1


def _compared(code: CodeType) -> Iterator[Any]:
    """Yield the constants beside comparisons, and those in tuples that values are looked for in."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("SWAP", "COPY")]  # of `a < x < b`
    for before in zip(steps, steps[1:], steps[2:], strict=False):
        if before[2].opname in ("COMPARE_OP", "CONTAINS_OP"):
            yield from _values(step.argval for step in before[:2] if step.opname == "LOAD_CONST")


def _names_infinity(called: Sequence[FunctionType | CodeType]) -> bool:
    """Return True if `math.inf`, `torch.inf` or the text "inf", as in `float("inf")`, stands in the code."""
    codes = [each for function in called for each in _codes(function)]
    return any("inf" in (*each.co_names, *each.co_consts) for each in codes)


def _tested_for_none(called: Sequence[FunctionType | CodeType]) -> Iterator[str]:
    """Yield the local names that are compared with None by `is` or `is not`."""
    for code in (each for function in called for each in _codes(function)):
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for name, test, after in zip(steps, steps[1:], steps[2:], strict=False):
            is_test = test.opname.endswith("NONE") or (test.argval is None and after.opname == "IS_OP")
            if name.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) and is_test:
                yield name.argval[-1] if isinstance(name.argval, tuple) else name.argval


def _constants(called: Sequence[FunctionType | CodeType]) -> Iterator[Any]:
    """Yield the numbers and short texts in functions, in their globals and in their closures."""
    for function in called:
        codes = _codes(function)
        for code in codes:
            keywords = _keywords(code)
            yield from _values(value for place, value in enumerate(code.co_consts) if place not in keywords)
        if isinstance(function, FunctionType):
            yield from _held(function, codes)


def _keywords(code: CodeType) -> set[int | None]:
    """Return the places in `co_consts` of the names of keyword arguments in calls."""
    steps = list(dis.get_instructions(code))
    named = {step.arg for step in steps if step.opname == "KW_NAMES"}  # up to Python 3.12
    return named | {step.arg for step, after in pairwise(steps) if after.opname == "CALL_KW"}


def _held(function: FunctionType, codes: Sequence[CodeType]) -> Iterator[Any]:
    """Yield the numbers and short texts in the globals that a function names, in its defaults and its closure."""
    yield from _values(function.__globals__.get(name) for code in codes for name in code.co_names)
    yield from _values((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
    yield from _values(contents_of(function))


def _values(constants: Iterable[Any]) -> Iterator[Any]:
    """Yield the numbers and short texts among constants, and in the tuples among them."""
    for constant in constants:
        if isinstance(constant, tuple | frozenset):
            yield from _values(constant)
        elif type(constant) in (int, float) or _is_short_text(constant):
            yield constant


def _is_short_text(value: Any) -> bool:
    return isinstance(value, str) and value.isidentifier() and len(value) <= _LONGEST_TEXT
