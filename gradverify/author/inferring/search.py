"""Search for inputs by trying, the likeliest first, until forward and backward run, in a worker."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gradverify.author.inferring.attempt import Tried
from gradverify.author.inferring.choices import LEFT_OUT, Choice, Subject, choices_of, kinds_of
from gradverify.author.inferring.roles import Kind
from gradverify.author.inferring.sizes import BASES, TABLES, Shape

_RANKS = (2, 1, 3, 4, 5, 0)  # of the largest tensor, in the order of trying
_ROUNDS = (30, 300)  # tries of each number of dimensions and table of sizes
_MORE = 60  # tries after the first success, in search of one in which more inputs get a gradient
# What tensors hold where normal numbers lead to NaN: inside the domain of log, of asin, of a decomposition.
_VALUES: tuple[Mapping[str, Any], ...] = (
    {"uniform": [0.25, 2]},
    {"uniform": [-0.9, 0.9]},
    {"uniform": [0.1, 0.9]},
    {"uniform": [1.25, 3]},
    {"constraint": "positive_definite"},
)
_DIMENSIONS = re.compile(r"(\d)\s?-?\s?(?:D\b|dim)|unpack \(expected (\d)|got (\d)\)|expected (\d)\)", re.IGNORECASE)
Inputs = Mapping[str, Any]
Try = Callable[[Inputs, Mapping[str, int]], Tried]


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """Inputs at which forward and backward run."""

    inputs: Inputs  # with sizes by name
    table: Mapping[str, int]  # the sizes
    score: int
    fits: bool  # True if every gradient has the shape of its input
    is_whole: bool  # True if every tensor of numbers gets a gradient

    @property
    def has_dimensions(self) -> bool:
        """True if some tensor has dimensions."""
        return any(_dimensions(self.inputs).values())


@dataclass(slots=True, kw_only=True)
class Record:
    """What a search has seen. The fields change during the search."""

    best: Success | None = None
    rejected: Success | None = None  # the first with dimensions at which autograd refuses what backward returns
    tries: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    hints: list[int] = field(default_factory=list)  # numbers of dimensions that errors named


def search(subjects: Sequence[Subject], attempt: Try, record: Record) -> None:
    """Try inputs and keep the best in `record`. Raises OutOfTime."""
    most = _most(subjects)
    for limit in _ROUNDS:
        ranks = _ranks(subjects)
        for table in TABLES:
            pending = list(ranks)
            while pending:
                rank = next((hint for hint in record.hints if hint in pending), pending[0])
                pending.remove(rank)
                _search_at(subjects, BASES[rank], table, limit, most, attempt, record)
                if record.best is not None:
                    return


def unmakeable(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Return the parameters that must be something which cannot be made here."""
    return tuple(
        each
        for each in subjects
        if each.parameter.default is each.parameter.empty and set(kinds_of(each)) == {Kind.OBJECT}
    )


def _most(subjects: Sequence[Subject]) -> int:
    """Return the score that no inputs can exceed."""
    drawn = {Kind.TENSOR, Kind.WEIGHT, Kind.BIAS, Kind.TENSORS}
    return sum(each.has_gradient and bool(drawn & set(kinds_of(each))) for each in subjects)


def _ranks(subjects: Sequence[Subject]) -> Sequence[int]:
    known = [each.uses.rank for each in subjects if each.uses.rank in BASES]
    first = [rank for rank in sorted(set(known), key=known.index, reverse=True) if rank is not None]
    return tuple(dict.fromkeys((*sorted(first, reverse=True), *_RANKS)))


def _search_at(
    subjects: Sequence[Subject],
    base: Shape,
    table: Mapping[str, int],
    limit: int,
    most: int,
    attempt: Try,
    record: Record,
) -> None:
    """Try the likeliest combinations of choices with tensors of this shape and these sizes."""
    choices = [choices_of(each, base, table) for each in subjects]
    if not all(choices):
        return
    left = limit
    for combination in islice(_likeliest_first(choices), limit + _MORE):
        if left <= 0:
            return
        left -= 1
        given = {each.name: choice.value for each, choice in zip(subjects, combination, strict=True)}
        inputs = {name: value for name, value in given.items() if value is not LEFT_OUT}
        first = record.best is None
        _try_with_values(inputs, table, attempt, record)
        if record.best is not None:
            if record.best.score >= most and record.best.is_whole and record.best.fits:
                return
            left = _MORE if first else left


def _try_with_values(inputs: Inputs, table: Mapping[str, int], attempt: Try, record: Record) -> None:
    """Try inputs; where that leads to numbers that are not finite, others in the same shapes."""
    for values in ({}, *_VALUES):
        varied = {name: _with_values(value, values) for name, value in inputs.items()}
        tried = attempt(varied, table)
        record.tries += 1
        if tried.ran:
            record.best = _better(record.best, _success(varied, table, tried))
        if tried.rejected and record.rejected is None:
            refused = _success(varied, table, tried)
            record.rejected = refused if refused.has_dimensions else None
        if tried.why:
            record.errors[tried.why] += 1
            record.hints += (hint for hint in _hinted(tried.why) if hint not in record.hints)
        if tried.finite:
            return


def _success(inputs: Inputs, table: Mapping[str, int], tried: Tried) -> Success:
    return Success(inputs=inputs, table=table, score=tried.score, fits=tried.fits, is_whole=tried.without == 0)


def _better(best: Success | None, other: Success) -> Success:
    """Return the inputs that show more; if both show the same, those that forward need not broadcast.

    Those have more dimensions: with fewer in the other inputs, a sum that backward leaves to autograd would not show.
    """
    if best is None or other.score != best.score:
        return other if best is None or other.score > best.score else best
    before, after = (_dimensions(each.inputs) for each in (best, other))
    is_larger = all(after.get(name, 0) >= dimensions for name, dimensions in before.items())
    return other if other.fits and not best.fits and is_larger else best


def _dimensions(inputs: Inputs) -> dict[str, int]:
    """Return the number of dimensions of each input with a shape, the largest of those in a list."""
    shapes = {name: [each["shape"] for each in _tensors(value) if "shape" in each] for name, value in inputs.items()}
    return {name: max(map(len, found)) for name, found in shapes.items() if found}


def _tensors(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _with_values(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_with_values(each, values) for each in value]
    is_plain = isinstance(value, dict) and value.keys() == {"shape"}
    return {**value, **values} if is_plain else value


def _hinted(why: str) -> Iterator[int]:
    for match in _DIMENSIONS.findall(why):
        yield from (int(digit) for digit in match if digit and int(digit) in BASES)


def _likeliest_first(choices: Sequence[Sequence[Choice]]) -> Iterator[tuple[Choice, ...]]:
    """Yield combinations of one choice each, in the order of their total cost."""
    start = (0,) * len(choices)
    heap = [(sum(each[0].cost for each in choices), start)]
    seen = {start}
    while heap:
        _, places = heapq.heappop(heap)
        yield tuple(each[place] for each, place in zip(choices, places, strict=True))
        for number, place in enumerate(places):
            following = (*places[:number], place + 1, *places[number + 1 :])
            if place + 1 < len(choices[number]) and following not in seen:
                seen.add(following)
                total = sum(each[at].cost for each, at in zip(choices, following, strict=True))
                heapq.heappush(heap, (total, following))
