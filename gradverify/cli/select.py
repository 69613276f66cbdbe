"""Select cases by expression, name or id."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from gradverify.cli.expression import matcher


class Named(Protocol):
    """Anything with a case's id."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Named)


def matching(cases: Sequence[T], expression: str) -> tuple[T, ...]:
    """Return the cases that the expression of `-k` selects; a complete id selects that case alone."""
    if found := tuple(case for case in cases if case.id == expression.strip()):
        return found
    matches = matcher(expression)
    return tuple(case for case in cases if matches(case.id))


def named(cases: Sequence[T], name: str) -> tuple[T, ...]:
    """Return the case with this id; else the cases whose id contains `name`; else those that match it as a pattern."""
    whole = tuple(case for case in cases if case.id == name)
    inside = whole or tuple(case for case in cases if name in case.id)
    return inside or tuple(case for case in cases if fnmatchcase(case.id, name))


def with_ids(cases: Sequence[T], ids: Collection[str]) -> tuple[T, ...]:
    """Return the cases with these ids."""
    return tuple(case for case in cases if case.id in ids)


def hint_for(cases: Sequence[Named], name: str, most: int = 3) -> str:
    """Return a hint with up to `most` ids similar to `name`, best first, or with one example id."""
    ids = list(dict.fromkeys(case.id for case in cases))
    # ids share long endings such as cpu-float64: also compare without them
    parts = {part: identity for identity in reversed(ids) for part in (identity, identity.rpartition("/")[0])}
    found = difflib.get_close_matches(name, parts, n=2 * most, cutoff=0.4)
    close = list(dict.fromkeys(parts[part] for part in found))[:most]
    return f"near: {', '.join(close)}" if close else f"ids are like {ids[0]}"
