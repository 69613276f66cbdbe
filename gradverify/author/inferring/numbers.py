"""Numbers and words that an argument of a name may be, the likeliest first. No torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_FLOATS: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("eps|epsilon|tol", (1e-5,)),
    ("p|prob|dropout|rate|smoothing", (0.25, 0.0)),
    ("momentum", (0.1,)),
    ("min|low|lower", (-1.0, 0.25)),
    ("max|high|upper|clip|clamp|threshold", (1.5, 0.5)),
)
_INTS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("dim|axis", (-1, 0, 1)),
    ("stride|groups|dilation", (1, 2)),
    ("padding", (0, 1)),
    ("kernel", (3, 2, 1)),
)
_WORDS = (("reduction|reduce", ("mean", "sum", "none")), ("mode", ("mean", "sum")), ("activation", ("relu", "tanh")))


def floats_for(name: str) -> tuple[float, ...]:
    """Return numbers for an argument of this name."""
    return _matching(name, _FLOATS) or (0.5, 1.5, 2.0)


def ints_for(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return whole numbers for an argument of this name: a size of the largest tensor may be meant."""
    return tuple(dict.fromkeys((*_matching(name, _INTS), 2, 1, sizes[-1], sizes[0], 0, -1, 3, 4)))


def words_for(name: str, compared: Sequence[Any]) -> tuple[str, ...]:
    """Return words for an argument of this name, those that the code compares it with first."""
    own = tuple(each for each in compared if isinstance(each, str))
    return tuple(dict.fromkeys((*own, *_matching(name, _WORDS)))) or ("mean", "none")


def _matching(name: str, table: Sequence[tuple[str, tuple[Any, ...]]]) -> tuple[Any, ...]:
    return next((values for words, values in table if re.search(f"(^|_)({words})($|_)", name.lower())), ())
