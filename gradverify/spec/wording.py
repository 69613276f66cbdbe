"""Words for error messages: what was found, which name was meant, and nothing a terminal would obey."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from math import isfinite
from pathlib import PurePath

from gradverify.case import SHORT_DTYPES

_LONGEST = 60  # characters of a value that a message repeats
_MOST_NAMES = 12  # names that a hint lists


def visible(text: str) -> str:
    """Return `text` with every character that does not print (escape sequences, line breaks) written as its code."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shortened(text: str) -> str:
    """Return `text` as `visible` does, cut where a line would become unreadable."""
    return visible(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")


def found(value: object) -> str:
    """Return what a plain YAML value is, in words."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the whole number {value}"
    if isinstance(value, float):
        return f"the number {value!r}" if isfinite(value) else f"the number .{value}".replace(".-", "-.")
    if isinstance(value, str):
        return f"text '{shortened(value)}'"
    return "a mapping" if isinstance(value, dict) else "a list"


def listed(names: Iterable[str]) -> str:
    """Return the names with commas between them, cut after the first dozen."""
    shown = [shortened(name) for name in names]
    rest = len(shown) - _MOST_NAMES
    return ", ".join(shown[:_MOST_NAMES]) + (f" and {rest} more" if rest > 0 else "")


def meant(name: str, known: Sequence[str]) -> str:
    """Return a hint with the known name that is nearest to `name`, or "" where none is near."""
    short = SHORT_DTYPES.get(name, "")
    near = [short] if short in known else get_close_matches(name[:_LONGEST], known, n=1, cutoff=0.6)
    return f"did you mean `{shortened(near[0])}`?" if near else ""


def meant_file(name: str, paths: Mapping[str, str]) -> str:
    """Return a hint as `meant` does, with the path of the name meant; that two files end alike makes them no nearer."""
    by_stem = {PurePath(known).stem: path for known, path in paths.items()}
    near = get_close_matches(PurePath(name).stem[:_LONGEST], by_stem, n=1, cutoff=0.6)
    return f"did you mean `{shortened(by_stem[near[0]])}`?" if near else ""


def misspelt(name: str, keys: Iterable[str], known: Sequence[str]) -> bool:
    """Return whether one of the keys that are not known is nearest to `name`."""
    return any(meant(key, known) == f"did you mean `{name}`?" for key in islice(keys, 100) if key not in known)


def shown(number: float) -> str:
    """Return a number as it was written: whole ones without a decimal point."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def meant_or_known(name: str, known: Sequence[str]) -> str:
    """Return a hint with the nearest known name, or else with all of them."""
    return meant(name, known) or (f"known: {listed(known)}" if known else "")
