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
    base: Shape  # of the largest tensor
    score: int
    fits: bool  # True if every gradient has the shape of its input
    is_whole: bool  # True if every tensor of numbers gets a gradient
    broadcast: bool  # True if an output has more dimensions than every input
    departs: bool  # True if some default is not kept

    @property
    def is_doubtful(self) -> bool:
        """True if a gradient does not fit and forward broadcast its inputs: nobody may have meant these shapes."""
        return self.broadcast and not self.fits

    @property
    def is_meant(self) -> bool:
        """True if other numbers of dimensions need not be tried."""
        return not self.is_doubtful and not self.departs

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
    """Try inputs and keep the best in `record`. Raises OutOfTime.

    Inputs that are hardly those that were meant are kept while others are tried, for one round.
    """
    most = _most(subjects)
    for limit in _ROUNDS:
        ranks = _ranks(subjects)
        for table in TABLES:
            pending = list(ranks)
            while pending:
                rank = next((hint for hint in record.hints if hint in pending), pending[0])
                pending.remove(rank)
                _search_at(subjects, BASES[rank], table, limit, most, attempt, record)
                if record.best is not None and record.best.is_meant:
                    _try_distinct_sizes(subjects, BASES[rank], record.best, attempt, record)
                    return
        if record.best is not None and not record.best.is_doubtful:
            return


def unmakeable(subjects: Sequence[Subject]) -> tuple[Subject, ...]:
    """Return the parameters that must be something which cannot be made here."""
    return tuple(
        each
        for each in subjects
        if each.parameter.default is each.parameter.empty and set(kinds_of(each)) == {Kind.OBJECT} and not each.made_by
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
        first = record.best is None or not record.best.is_meant
        departs = any(choice.departs for choice in combination)
        _try_with_values(inputs, base, table, attempt, record, departs=departs)
        if record.best is not None and record.best.is_meant:
            if record.best.score >= most and record.best.is_whole and record.best.fits:
                return
            left = _MORE if first else left


def _try_distinct_sizes(
    subjects: Sequence[Subject], base: Shape, square: Success, attempt: Try, record: Record
) -> None:
    """Try inputs like those that ran where sizes are equal: a transposed gradient does not show there."""
    if len(set(square.table.values())) == len(square.table):
        return
    table = TABLES[0]
    wanted = {name: _form(value) for name, value in square.inputs.items()}
    choices = [
        [choice for choice in choices_of(each, base, table) if _form(choice.value) == wanted.get(each.name, LEFT_OUT)]
        for each in subjects
    ]
    distinct = Record()
    for combination in islice(_likeliest_first(choices), _MORE if all(choices) else 0):
        given = {each.name: choice.value for each, choice in zip(subjects, combination, strict=True)}
        inputs = {name: value for name, value in given.items() if value is not LEFT_OUT}
        _try_with_values(inputs, base, table, attempt, distinct, departs=square.departs)
        found = distinct.best
        if found is not None and (found.score, found.fits) == (square.score, square.fits) and found.is_meant:
            record.best = found
            return


def _form(value: Any) -> Any:
    """Return what a value has in common with those of other shapes that have as many dimensions."""
    if not isinstance(value, dict) or "shape" not in value:
        return value
    return len(value["shape"]), "integers" in value, "bernoulli" in value


def _try_with_values(
    inputs: Inputs, base: Shape, table: Mapping[str, int], attempt: Try, record: Record, *, departs: bool
) -> None:
    """Try inputs; where that leads to numbers that are not finite, others in the same shapes."""
    for values in ({}, *_VALUES):
        varied = {name: _with_values(value, values) for name, value in inputs.items()}
        tried = attempt(varied, table)
        record.tries += 1
        success = Success(
            inputs=varied,
            table=table,
            base=base,
            score=tried.score,
            fits=tried.fits,
            is_whole=tried.without == 0,
            broadcast=tried.broadcast,
            departs=departs,
        )
        if tried.ran:
            record.best = _better(record.best, success)
        if tried.rejected and not tried.broadcast and record.rejected is None:
            record.rejected = success if success.has_dimensions else None
        if tried.why:
            record.errors[tried.why] += 1
            record.hints += (hint for hint in _hinted(tried.why) if hint not in record.hints)
        if tried.finite:
            return


def _better(best: Success | None, other: Success) -> Success:
    """Return the inputs that were more likely meant, else those that show more, else those that need no broadcasting.

    The latter have more dimensions: with fewer in the other inputs, a sum that backward leaves to autograd would not
    show. Of two sizes, the first tried stays unless the other is more likely meant.
    """
    if best is None:
        return other
    one, two = ((not each.is_doubtful, not each.departs) for each in (best, other))
    if one != two:
        return other if two > one else best
    if (other.base, other.table) != (best.base, best.table):
        return best
    if other.score != best.score:
        return other if other.score > best.score else best
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
    return {**value, **values} if _is_plain(value) else value


def _is_plain(value: Any) -> bool:
    """Return True for a tensor of normal numbers."""
    return isinstance(value, dict) and "shape" in value and value.keys() <= {"shape", "requires_grad"}


def _hinted(why: str) -> Iterator[int]:
    for match in _DIMENSIONS.findall(why):
        yield from (int(digit) for digit in match if digit and int(digit) in BASES)


def _likeliest_first(choices: Sequence[Sequence[Choice]]) -> Iterator[tuple[Choice, ...]]:
    """Yield combinations of one choice each: the likeliest, those of tensors that are alike, the rest by total cost."""
    first = [tuple(each[0] for each in choices), *_alike(choices)]
    yield from first
    yield from (each for each in _by_cost(choices) if each not in first)


def _alike(choices: Sequence[Sequence[Choice]]) -> list[tuple[Choice, ...]]:
    """Return combinations in which several tensors have the same shape, the likeliest of any first.

    Four tensors with an entry for each channel are as likely as one, and their costs add up.
    """
    tensors = [number for number, each in enumerate(choices) if _is_plain(each[0].value)][1:]
    found: dict[Shape, dict[int, Choice]] = {}
    for number in tensors:
        for choice in choices[number]:
            if _is_plain(choice.value):
                found.setdefault(choice.value["shape"], {})[number] = choice
    several = [each for each in found.values() if len(each) > 1]
    several.sort(key=lambda each: min(choice.cost - choices[number][0].cost for number, choice in each.items()))
    return [tuple(each.get(number, some[0]) for number, some in enumerate(choices)) for each in several]


def _by_cost(choices: Sequence[Sequence[Choice]]) -> Iterator[tuple[Choice, ...]]:
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
