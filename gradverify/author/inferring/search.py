"""Search for inputs by trying, the likeliest first, until forward and backward run, in a worker."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from gradverify.author.inferring.attempt import Refused, Tried
from gradverify.author.inferring.choices import LEFT_OUT, Choice, Subject, choices_of, kinds_of
from gradverify.author.inferring.found import Inputs, Proposal, Record, Success, better, tensors_in
from gradverify.author.inferring.roles import Kind
from gradverify.author.inferring.sizes import BASES, TABLES, Shape, sizes_of

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
_TYPE = re.compile(r"argument '(\w+)' (?:\(position \d+\) )?must be (bool|int|float|str)\b")  # as torch says it
_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
Try = Callable[[Inputs, Mapping[str, int]], Tried]


def search(subjects: Sequence[Subject], attempt: Try, record: Record) -> None:
    """Try inputs and keep the best in `record`. Raises OutOfTime.

    Inputs that are hardly those that were meant are kept while others are tried, for one round.
    """
    most = _most(subjects)
    for limit in _ROUNDS:
        ranks = _ranks(subjects)
        for table in TABLES:
            # Other sizes may mend idle inputs; other numbers of dimensions rarely do.
            idle = record.best.proposal.base if record.best is not None and record.best.is_idle else None
            pending = [rank for rank in ranks if idle in (None, BASES[rank])]
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
    choices = [_of_type(choices_of(each, base, table), record.types.get(each.name)) for each in subjects]
    if not all(choices):
        return
    left = limit if record.best is None or not record.best.is_idle else limit + _MORE
    for combination in _likeliest_first(choices):
        if left <= 0:
            return
        left -= 1
        before = record.best
        _try_with_values(_proposal(subjects, choices, combination, base, table), attempt, record)
        best = record.best
        if best is None:
            continue
        if best.is_meant and best.tried.score >= most and best.tried.shows_all:
            return
        if before is None or (best.is_likely, best.is_meant) > (before.is_likely, before.is_meant):
            left = _MORE


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
        _try_with_values(_proposal(subjects, choices, combination, base, table), attempt, distinct)
        found = distinct.best
        if found is None or not found.is_meant:
            continue
        if (found.tried.score, found.tried.fits) == (square.tried.score, square.tried.fits):
            record.best = found
            return


def _proposal(
    subjects: Sequence[Subject],
    choices: Sequence[Sequence[Choice]],
    combination: Sequence[Choice],
    base: Shape,
    table: Mapping[str, int],
) -> Proposal:
    given = {each.name: choice.value for each, choice in zip(subjects, combination, strict=True)}
    other = [choice for choice, every in zip(combination, choices, strict=True) if choice is not every[0]]
    return Proposal(
        inputs={name: value for name, value in given.items() if value is not LEFT_OUT},
        table=table,
        base=base,
        departs=any(choice.departs for choice in combination),
        guesses=sum(choice.guessed for choice in combination),
        has_other_number=any(isinstance(choice.value, int) for choice in other),
    )


def _form(value: Any) -> Any:
    """Return what a value has in common with those of other shapes that have as many dimensions."""
    if not isinstance(value, dict) or "shape" not in value:
        return value
    return len(value["shape"]), "integers" in value, "bernoulli" in value


def _try_with_values(proposal: Proposal, attempt: Try, record: Record) -> None:
    """Try inputs; where that raises or leads to numbers that are not finite, others in the same shapes.

    An input whose gradient autograd refuses for its shape is tried in that shape: backward tells what is meant. An
    error that other numbers did not get past is not tried with them again.
    """
    tried = _try(proposal, attempt, record)
    for _ in proposal.inputs:
        mended = _with_refused_shape(proposal, tried.refused)
        if mended is None:
            break
        proposal, tried = mended, _try(mended, attempt, record)
    names = [name for name, value in proposal.inputs.items() if any(map(_is_plain, tensors_in(value)))]
    obstacle = (re.sub(r"\d+", "", tried.why), tried.reached, *names)
    if not tried.by_numbers or not names or obstacle in record.stubborn:
        return
    furthest = tried.reached
    for values in _VALUES:
        varied = {name: _with_values(value, values, proposal.table) for name, value in proposal.inputs.items()}
        other = _try(replace(proposal, inputs=varied), attempt, record)
        if other.ran:
            return
        furthest = max(furthest, other.reached)
    if tried.raised and furthest == tried.reached:
        record.stubborn.add(obstacle)


def _try(proposal: Proposal, attempt: Try, record: Record) -> Tried:
    """Try inputs once and note what came of it."""
    tried = attempt(proposal.inputs, proposal.table)
    success = Success(proposal=proposal, tried=tried)
    record.tries += 1
    if tried.ran:
        record.best = better(record.best, success)
    if tried.rejected and tried.repeats and not tried.broadcast and record.rejected is None:
        record.rejected = success if success.has_dimensions else None
    if tried.why:
        record.errors[tried.why] += 1
        record.furthest[tried.why] = max(tried.reached, record.furthest.get(tried.why, tried.reached))
        record.types |= {name: _TYPES[word] for name, word in _TYPE.findall(tried.why)}
        record.hints += (hint for hint in _hinted(tried.why) if hint not in record.hints)
    return tried


def _with_refused_shape(proposal: Proposal, refused: Refused | None) -> Proposal | None:
    """Return inputs in which a tensor has the shape of its gradient that was refused; None if it is not known which."""
    tensors = [name for name, value in proposal.inputs.items() if any(map(_is_tensor, tensors_in(value)))]
    if refused is None or refused.number >= len(tensors):
        return None
    name = tensors[refused.number]
    value = proposal.inputs[name]
    if not _is_plain(value) or tuple(sizes_of(value["shape"], proposal.table)) != refused.shape:
        return None
    names = {proposal.table[size]: size for size in (*proposal.table, *proposal.base) if isinstance(size, str)}
    shape = tuple(names.get(size, size) for size in refused.of_gradient)
    return replace(proposal, inputs={**proposal.inputs, name: {**value, "shape": shape}})


def _is_tensor(value: Mapping[str, Any]) -> bool:
    return "shape" in value or "values" in value


def _with_values(value: Any, values: Mapping[str, Any], table: Mapping[str, int]) -> Any:
    if isinstance(value, list):
        return [_with_values(each, values, table) for each in value]
    if not _is_plain(value) or ("constraint" in values and not _is_square(sizes_of(value["shape"], table))):
        return value
    return {**value, **values}


def _is_square(sizes: Sequence[int]) -> bool:
    return len(sizes) > 1 and sizes[-1] == sizes[-2]


def _is_plain(value: Any) -> bool:
    """Return True for a tensor of normal numbers."""
    return isinstance(value, dict) and "shape" in value and value.keys() <= {"shape", "requires_grad"}


def _of_type(choices: Sequence[Choice], wanted: type | None) -> Sequence[Choice]:
    """Return the choices of a type, all if there are none."""
    return [choice for choice in choices if type(choice.value) is wanted] or choices


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
