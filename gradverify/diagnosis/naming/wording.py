"""Texts that several causes share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context

from gradverify.core.model.coordinates import Block, unravel
from gradverify.evidence import Diagnosis

_WHOLE = 0.9995  # a share that would be printed as 100.0 %, and is omitted
_SINGULAR = {"elements": "element", "entries": "entry", "outputs": "output"}
NAMED = 3  # entries, elements or items of a longer list that are written out


def diagnosed(cause: str, text: str, share: float | None) -> Diagnosis | None:
    """Return the diagnosis of a pattern that explains this share of the error, and says so; None without a share."""
    return None if share is None else Diagnosis(cause=cause, explanation=f"{text}{share_text(share)}", share=share)


def diagnosed_everywhere(cause: str, pattern: str, share: float | None, meaning: str = "") -> Diagnosis | None:
    """Return the diagnosis of a pattern of all entries, followed by what it means; None without a share."""
    if share is None:
        return None
    where = " in every entry" if share >= _WHOLE else share_text(share)
    return Diagnosis(cause=cause, explanation=f"{pattern}{where}{meaning}", share=share)


def first(found: Iterable[Diagnosis | None]) -> Diagnosis | None:
    """Return the first diagnosis, None if there is none; those after it are not computed."""
    return next(filter(None, found), None)


def share_text(share: float) -> str:
    """Return the share in brackets, or "" if it is the whole error."""
    return "" if share >= _WHOLE else f" ({100 * share:.1f} % of the error)"


def element_name(block: Block, position: int) -> str:
    """Return a tensor's entry at a flat index as Python would write it: "x[1, 5]"."""
    index = unravel(position, block.shape)
    return f"{block.name}[{', '.join(map(str, index))}]" if index else block.name


def listed(words: Sequence[str]) -> str:
    """Return "a", "a and b", or "a, b and c"; for more than four words, the first three and "and 2 more"."""
    if len(words) > NAMED + 1:
        return f"{', '.join(words[:NAMED])} and {len(words) - NAMED} more"
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def differ_text(wrong: int, total: int, noun: str) -> str:
    """Return "3 of 5 elements differ", or "the only element differs"; a `total` of 1 needs a `noun` in _SINGULAR."""
    if total == 1:
        return f"the only {_SINGULAR[noun]} differs"
    return f"{wrong} of {total} {noun} {'differs' if wrong == 1 else 'differ'}"


def rounded_up(value: float) -> str:
    """Return a positive number rounded up to one significant digit: "4e-06" for 3.2e-6."""
    return f"{float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(repr(value))):.1g}"


def dimensions_text(dimensions: Iterable[int]) -> str:
    """Return "dimension 1" or "dimensions 0 and 1"."""
    numbers = list(map(str, dimensions))
    return f"dimension{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def dimension_words(shape: Sequence[int], dimension: int) -> str:
    """Return " along dimension 1", or "" for a vector."""
    return f" along dimension {dimension}" if len(shape) > 1 else ""
