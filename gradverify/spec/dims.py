"""Named sizes: the key `dims`, and the sizes in shapes that are expressions of them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradverify.formula import Formula, FormulaError, evaluate, names_of, parse
from gradverify.spec.array import size
from gradverify.spec.forms import SIZED
from gradverify.spec.limits import MAX_DIMENSIONS, MAX_DIMS
from gradverify.spec.node import Node
from gradverify.spec.readers import BadValueError, Issue, bad, expected, gather
from gradverify.spec.scalar import UnreadableScalarError, resolve
from gradverify.spec.wording import meant_or_known, misspelt, shortened

_NAME = re.compile(r"[^\W\d]\w*")


def dims(value: Any) -> dict[str, int]:
    """Read a mapping of names to sizes."""
    if not isinstance(value, dict):
        raise expected("a mapping of names to sizes", value)
    if len(value) > MAX_DIMS:
        raise bad(f"at most {MAX_DIMS} named sizes, found {len(value)}")
    problem = "not a name that an expression can use"
    wrong = [name for name in value if not name.isidentifier() or keyword.iskeyword(name)]
    issues = [Issue(at=(name,), on_key=True, problem=problem) for name in wrong]
    try:
        sizes = gather((name, size, entry) for name, entry in value.items())
    except BadValueError as reason:
        raise BadValueError(*issues, *reason.issues) from None
    if issues:
        raise BadValueError(*issues)
    return sizes


def readable_dims(value: Any) -> dict[str, int] | None:
    """Return what `dims` reads, None where something is wrong with it."""
    try:
        return dims(value)
    except BadValueError:
        return None


def is_expression(entry: Any) -> bool:
    """Return whether an entry of a shape is text other than a number in quotes."""
    try:
        return isinstance(entry, str) and bool(entry.strip()) and isinstance(resolve(entry), str)
    except UnreadableScalarError:
        return False


def is_sized(plain: Any) -> bool:
    """Return whether an input, or a tensor in a list of them, has a size that is an expression."""
    if isinstance(plain, list):
        return bool(plain) and isinstance(plain[0], dict) and any(map(is_sized, plain))
    return isinstance(plain, dict) and any(map(is_expression, _entries(plain)))


def with_sizes(plain: dict[str, Any], key: str, known: Mapping[str, int]) -> tuple[dict[str, Any], tuple[Issue, ...]]:
    """Return a mapping with the expressions in the list under `key` evaluated, and what is wrong with them.

    The size 1 stands in for an expression without a value, so that the other entries can be read. Expressions beyond
    the number of dimensions that a tensor can have stay text.
    """
    if not isinstance(plain.get(key), list) or not any(map(is_expression, plain[key])):
        return plain, ()
    sizes: list[Any] = []
    issues: list[Issue] = []
    for index, entry in enumerate(plain[key]):
        try:
            evaluated = index < MAX_DIMENSIONS and is_expression(entry)
            sizes.append(_sized(entry, key, known) if evaluated else entry)
        except BadValueError as reason:
            sizes.append(1)
            issues += (Issue(at=(key, index), problem=issue.problem, hint=issue.hint) for issue in reason.issues)
    return {**plain, key: sizes}, tuple(issues)


def sizes_as_written(plain: Mapping[str, Any], key: str) -> tuple[int | str, ...] | None:
    """Return the list under `key` if it has an expression in it, else None."""
    entries = plain.get(key)
    return tuple(entries) if isinstance(entries, list) and any(map(is_expression, entries)) else None


def size_of(written: str, known: Mapping[str, int]) -> int:
    """Return the whole number that an expression of the `known` sizes is worth; raises BadValueError."""
    formula = readable(written)
    issues = tuple(_unknown(name, known) for name in names_of(formula) if name not in known)
    if issues:
        raise BadValueError(*issues)
    try:
        value = evaluate(formula, known)
    except FormulaError as reason:
        raise bad(f"`{shortened(written)}` has no value: {reason.message}", values_of(formula, known)) from None
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "write // in place of /" if isinstance(value, float) and "/" in written else ""
        raise bad(f"`{shortened(written)}` is {value}, and a size is a whole number", hint)
    return value


def _sized(written: str, key: str, known: Mapping[str, int]) -> int:
    value = size_of(written, known)
    if value < 0 and key == "shape":
        problem = f"`{shortened(written)}` is {value}, and a size must not be negative"
        raise bad(problem, values_of(readable(written), known))
    return value


def readable(written: str) -> Formula:
    """Return an expression; raises BadValueError."""
    try:
        return parse(written)
    except FormulaError as reason:
        problem = f"`{shortened(written)}` cannot be read: {reason.message}"
        raise bad(problem, f"at character {reason.column}" if reason.column > 1 else "") from None


def values_of(formula: Formula, known: Mapping[str, int]) -> str:
    """Return a hint with the sizes that an expression names."""
    return ", ".join(f"{shortened(name)} is {known[name]}" for name in names_of(formula) if name in known)


def unused_dims(cases: Sequence[Node]) -> Iterator[tuple[Node, Issue]]:
    """Yield an issue for each size that no case of a document uses, with the first case that has it."""
    first: dict[str, Node] = {}
    used: set[str] = set()
    for case in cases:
        known = readable_dims(case.plain.get("dims")) if case.plain.get("dims") else None
        names = _used_names(case.plain) if known else ()
        for name in known or {}:
            first.setdefault(name, case)
        used |= {name for name in known or {} if name in names or misspelt(name, names, tuple(known or {}))}
    for name, case in first.items():
        if name not in used:
            hint = "sizes are used by name in `shape` and `size`"
            yield case, Issue(at=("dims", name), on_key=True, problem="nothing uses this size", hint=hint)


def _used_names(plain: Mapping[str, Any]) -> dict[str, None]:
    """Return every name in the expressions of a case, each once."""
    inputs = (part for entry in _mapping(plain.get("inputs")).values() for part in _tensors(entry))
    texts = [entry for part in inputs for entry in _entries(part) if is_expression(entry)]
    explore = _mapping(plain.get("explore"))
    ranges = map(_mapping, _mapping(explore.get("indices")).values())
    texts += (text for text in (explore.get("require"), *(entry.get("below") for entry in ranges)))
    return dict.fromkeys(name for text in texts if isinstance(text, str) for name in _NAME.findall(text))


def _tensors(plain: Any) -> list[dict[str, Any]]:
    return [entry for entry in (plain if isinstance(plain, list) else [plain]) if isinstance(entry, dict)]


def _entries(plain: Mapping[str, Any]) -> list[Any]:
    """Return the entries of a shape or size."""
    return [entry for key in SIZED if isinstance(plain.get(key), list) for entry in plain[key]]


def _mapping(plain: Any) -> dict[str, Any]:
    return plain if isinstance(plain, dict) else {}


def _unknown(name: str, known: Mapping[str, int]) -> Issue:
    hint = meant_or_known(name, tuple(known)) if known else f"name it above: `dims: {{{shortened(name)}: 4}}`"
    return Issue(problem=f"there is no size `{shortened(name)}`", hint=hint)
