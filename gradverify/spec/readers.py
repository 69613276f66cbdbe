"""One plain value to one checked value: small functions that say in plain words what is wrong with it."""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gradverify.spec.limits import MAX_ERRORS
from gradverify.spec.node import Loc, Step
from gradverify.spec.scalar import UnreadableScalarError, resolve
from gradverify.spec.wording import found, meant_or_known, shortened

T = TypeVar("T")
Reader = Callable[[Any], T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One thing that is wrong with a value, or with a part of it."""

    at: Loc = ()  # the part
    on_key: bool = False  # the part's key is wrong, not its value
    problem: str
    hint: str = ""


class BadValueError(ValueError):
    """A value is not what its key stands for."""

    def __init__(self, *issues: Issue) -> None:
        self.issues = issues
        super().__init__("; ".join(issue.problem for issue in issues))


def bad(problem: str, hint: str = "") -> BadValueError:
    """Return an error about the value as a whole."""
    return BadValueError(Issue(problem=problem, hint=hint))


def expected(what: str, value: object, hint: str = "") -> BadValueError:
    """Return an error that says what was expected and what was found."""
    return bad(f"expected {what}, found {found(value)}", hint)


def text(value: Any) -> str:
    """Read text that is not empty."""
    if not isinstance(value, str):
        raise expected("text", value)
    if not value.strip():
        raise bad("expected text, found empty text")
    return value


def true_or_false(value: Any) -> bool:
    """Read a boolean."""
    if not isinstance(value, bool):
        hint = "write true or false" if str(value).lower() in ("yes", "no", "on", "off", "0", "1") else ""
        raise expected("true or false", value, hint)
    return value


def whole(value: Any) -> int:
    """Read a whole number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise expected("a whole number", value, _unquoted(value))
    return value


def signed(value: Any) -> int:
    """Read a whole number that 64 bits with a sign hold."""
    if whole(value) >= 2**63:
        raise bad(f"{value} does not fit in 64 bits with a sign")
    return int(value)


def number(value: Any) -> float:
    """Read a finite number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected("a number", value, _unquoted(value))
    if not math.isfinite(value):
        raise expected("a finite number", value)
    return float(value)


def whole_between(low: int, high: int) -> Reader[int]:
    """Return a reader of whole numbers from `low` to `high`."""

    def read(value: Any) -> int:
        if not low <= whole(value) <= high:
            raise bad(f"expected a whole number from {low} to {high}, found {value}")
        return int(value)

    return read


def not_negative(value: Any) -> float:
    """Read a number that is zero or positive."""
    if number(value) < 0:
        raise bad(f"must not be negative, found {value}")
    return float(value)


def positive(value: Any) -> float:
    """Read a number that is larger than zero."""
    if number(value) <= 0:
        raise bad(f"must be larger than 0, found {value}")
    return float(value)


def one_of(choices: Iterable[T]) -> Reader[T]:
    """Return a reader of names: the choices, or values of an enumeration."""
    named = {str(choice): choice for choice in choices}

    def read(value: Any) -> T:
        if not isinstance(value, str):
            raise expected(f"one of {', '.join(named)}", value)
        if value not in named:
            raise bad(f"`{shortened(value)}` is not known", meant_or_known(value, tuple(named)))
        return named[value]

    return read


def list_of(read: Reader[T], what: str) -> Reader[tuple[T, ...]]:
    """Return a reader of lists; `what` names their entries in the plural."""

    def read_list(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list):
            short = isinstance(value, str | int | float) and len(str(value)) < 20
            # in quotes it is a list in TOML, too
            hint = f"write [{json.dumps(value)}]" if short and _takes(read, value) else ""
            raise expected(f"a list of {what}", value, hint)
        return tuple(gather((index, read, entry) for index, entry in enumerate(value)).values())

    return read_list


def distinct_list_of(read: Reader[T], what: str) -> Reader[tuple[T, ...]]:
    """Return a reader of lists that are not empty and have no entry twice."""

    def read_list(value: Any) -> tuple[T, ...]:
        entries = list_of(read, what)(value)
        if not entries:
            raise bad("expected at least one, found an empty list")
        first: dict[T, int] = {}
        twice = tuple(index for index, entry in enumerate(entries) if first.setdefault(entry, index) != index)
        if twice:
            raise BadValueError(
                *(Issue(at=(index,), problem=f"{found(value[index])} is given twice") for index in twice)
            )
        return entries

    return read_list


def pair_of(read: Reader[T], what: str) -> Reader[tuple[T, T]]:
    """Return a reader of lists of two; `what` shows how they are written."""

    def read_pair(value: Any) -> tuple[T, T]:
        if not isinstance(value, list) or len(value) != 2:
            size = f" of {len(value)}" if isinstance(value, list) else ""
            raise bad(f"expected {what}, found {found(value)}{size}")
        first, second = gather((index, read, entry) for index, entry in enumerate(value)).values()
        return first, second

    return read_pair


def mapping_of_names(value: Any) -> dict[str, Any]:
    """Read a mapping whose keys are names of parameters."""
    if not isinstance(value, dict):
        raise expected("a mapping", value)
    wrong = [name for name in value if not name.isidentifier() or keyword.iskeyword(name)]
    if wrong:
        problem = "not a name that a parameter can have"
        raise BadValueError(*(Issue(at=(name,), on_key=True, problem=problem) for name in wrong))
    return value


def keyed(value: Any, readers: Mapping[str, Reader[Any]]) -> dict[str, Any]:
    """Read a mapping, each of its keys with its own reader."""
    if not isinstance(value, dict):
        raise expected("a mapping", value)
    return gather((key, readers.get(key, _unknown_key(key, tuple(readers))), entry) for key, entry in value.items())


def gather(parts: Iterable[tuple[Step, Reader[Any], Any]]) -> dict[Any, Any]:
    """Read every part, and raise what is wrong with all of them together."""
    values: dict[Step, Any] = {}
    issues: list[Issue] = []
    for step, read, value in parts:
        try:
            values[step] = read(value)
        except BadValueError as reason:
            issues += (replace(issue, at=(step, *issue.at)) for issue in reason.issues)
            if len(issues) > MAX_ERRORS:
                break
    if issues:
        raise BadValueError(*issues)
    return values


def plain_value(plain: Any) -> Any:
    """Read a value that is passed on as it is: anything without a mapping in it."""
    if isinstance(plain, dict):
        raise expected("a plain value", plain, "tensors stand in `inputs`, alone or in a list of their own")
    if isinstance(plain, list):
        gather((index, plain_value, entry) for index, entry in enumerate(plain))
    return plain


def _takes(read: Reader[Any], value: Any) -> bool:
    try:
        read(value)
    except BadValueError:
        return False
    return True


def _unquoted(value: Any) -> str:
    try:
        is_number = isinstance(value, str) and isinstance(resolve(value), int | float)
    except UnreadableScalarError:
        is_number = False
    return "write it without quotes" if is_number else ""


def _unknown_key(key: str, known: Sequence[str]) -> Reader[Any]:
    def read(_: Any) -> Any:
        raise BadValueError(Issue(on_key=True, problem="unknown key", hint=meant_or_known(key, known)))

    return read
