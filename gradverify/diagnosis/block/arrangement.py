"""Rearrangements of the rows and columns of a Jacobian: transposed, rolled, reversed, shifted and permuted tensors.

A permutation is found by sorting a random weighted sum of each row or column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.entries import BlockEntries, Pattern
from gradverify.diagnosis.naming.wording import dimension_words, element_name, listed
from gradverify.diagnosis.tuning import EQUAL_ENTRIES
from gradverify.evidence import WrongBlock

_ZERO = -1  # in place of the position of an entry: zero comes there
_SHORT = 2  # entries: a roll of so short a dimension exchanges them, which is reported as reversed
_LONGEST_ROLL = 64  # places
_UNMATCHED = 0.25  # share of the rows that may have no equal

Arrangement = tuple[str, Pattern]  # the explanation, and which rows and columns are claimed in place of which

# From the positions of the entries of a tensor, in its shape, to moves of them: the words, and the position (or _ZERO)
# that comes to each place.
Moves = Callable[[Tensor], Iterator[tuple[str, Tensor]]]


def transpositions(places: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield exchanges of two of the last four dimensions."""
    for a, b in combinations(range(max(0, places.dim() - 4), places.dim()), 2):
        if min(places.shape[a], places.shape[b]) > 1:
            yield f"transposed: dimensions {a} and {b} are exchanged", places.transpose(a, b)


def shifts(places: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield cyclic shifts by one, along each dimension and of the tensor as a whole."""
    return _rolls(places, range(1, 2))


def rolls(places: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reversals and cyclic shifts by two or more places, along each dimension and of the tensor as a whole."""
    for along, dimensions, size in _directions(places):
        if size > 1:
            yield f"reversed{along}", places.flip(dimensions)
    yield from _rolls(places, range(2, _LONGEST_ROLL + 1))


def zero_filled_shifts(places: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield shifts by one along a dimension, with zeros shifted in."""
    for dimension, size in enumerate(places.shape):
        for by in (1, -1) if size > _SHORT else ():
            order = places.roll(by, dimension)
            order.select(dimension, 0 if by > 0 else -1).fill_(_ZERO)
            words = f"shifted by {by}{dimension_words(places.shape, dimension)}"
            yield f"{words}, with zeros in the place that is left", order


def _rolls(places: Tensor, distances: range) -> Iterator[tuple[str, Tensor]]:
    for along, dimensions, size in _directions(places):
        for by in distances if size > _SHORT else ():
            for signed in (by, -by) if 2 * by < size else (by,) if 2 * by == size else ():
                yield f"rolled by {signed}{along}", places.roll(signed, dimensions if len(dimensions) == 1 else ())


def _directions(places: Tensor) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield the words, the dimensions and the number of places of each dimension, and of the tensor as a whole."""
    for dimension, size in enumerate(places.shape):
        yield dimension_words(places.shape, dimension), (dimension,), size
    if places.dim() > 1:
        yield " as a whole", tuple(range(places.dim())), places.numel()


def arrangements(block: WrongBlock, moves: Moves) -> Iterator[Arrangement]:
    """Yield moves of the gradient, of the cotangent, and of the values that backward saved."""
    of, wrt = block.of, block.wrt
    for words, order in _flat_moves(wrt, moves, block.device):
        yield f"the gradient by {wrt.name} is {words}", _rearranged(block, None, order)
    for words, order in _flat_moves(of, moves, block.device):  # output k gets the cotangent of output order[k]
        to = (order != _ZERO).nonzero().squeeze(1)
        rows = torch.full_like(order, _ZERO).scatter_(0, order[to], to)  # claimed row order[k] is numeric row k
        yield f"the cotangent of {of.name} is taken {words}", _rearranged(block, rows, None)
    if of.shape == wrt.shape and moves is not zero_filled_shifts:
        for words, order in _flat_moves(wrt, moves, block.device):
            text = f"analytic is numeric of an input {words}: backward uses saved values {words}"
            yield text, _rearranged(block, order, order)


def _rearranged(block: WrongBlock, rows: Tensor | None, columns: Tensor | None) -> Pattern:
    """Return the pattern of a block with these of its rows (m,) and columns (n,) in place of its own."""
    coordinates = [
        None if order is None else torch.arange(along.start, along.stop, along.step, device=order.device)[order]
        for along, order in ((block.of, rows), (block.wrt, columns))
    ]
    factors = [None if order is None else (order != _ZERO).double() for order in (rows, columns)]
    return Pattern(rows=coordinates[0], columns=coordinates[1], by_row=factors[0], by_column=factors[1])


def _flat_moves(block: Block, moves: Moves, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Yield the moves of a block's entries, with the positions (k,) in flat order."""
    for words, order in moves(torch.arange(total(block.shape), device=device).reshape(block.shape)):
        yield words, order.reshape(-1)


def permutations(entries: BlockEntries) -> Iterator[Arrangement]:
    """Yield the permutation of columns, and the one of rows, that could turn the numeric block into the claimed one."""
    columns, rows = _matched(entries.claimed.T, entries.numeric.T), _matched(entries.claimed, entries.numeric)
    if columns is not None and (changes := _changes(entries.block.wrt, columns, entries.nonzero.any(0))):
        text = f"the gradients by {entries.block.wrt.name} are in another order: {listed(changes)}"
        yield text, _rearranged(entries.block, None, columns)
    if rows is not None and (changes := _changes(entries.block.of, rows, entries.nonzero.any(1))):
        text = f"the cotangents of {entries.block.of.name} are taken in another order: {listed(changes)}"
        yield text, _rearranged(entries.block, rows, None)


def _matched(claimed: Tensor, numeric: Tensor) -> Tensor | None:
    """Return for each row of `claimed` the index of a row of `numeric` that it may equal, each index once.

    Up to a quarter of the rows may have no equal, for example because an entry was not measured well; these are matched
    in the order of their sums. Returns None if more are left, or if every row equals the one at its own position.
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(claimed.shape[1], generator=generator, dtype=torch.float64).to(claimed.device) + 0.5
    claimed_sums, numeric_sums = claimed @ weights, numeric @ weights
    order, target = claimed_sums.argsort(stable=True), numeric_sums.argsort(stable=True)
    tolerance = EQUAL_ENTRIES * float((claimed.abs() @ weights).max())
    pairs = _paired(claimed_sums[order].tolist(), numeric_sums[target].tolist(), tolerance)
    if len(pairs) < (1 - _UNMATCHED) * len(order):
        return None
    here, there = ([*places, *sorted({*range(len(order))} - {*places})] for places in zip(*pairs, strict=True))
    match = torch.empty_like(order)
    match[order[here]] = target[there]
    return None if torch.equal(match, torch.arange(len(match), device=match.device)) else match


def _paired(first: Sequence[float], second: Sequence[float], tolerance: float) -> list[tuple[int, int]]:
    """Return the pairs of indices at which two ascending sequences have equal numbers, each index at most once."""
    pairs, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        if abs(first[i] - second[j]) <= tolerance:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif first[i] < second[j]:
            i += 1
        else:
            j += 1
    return pairs


def _changes(block: Block, order: Tensor, live: Tensor) -> list[str]:
    """Describe the elements that are in another place; elements that get a zero row or column are left out."""
    elsewhere = order != torch.arange(len(order), device=order.device)
    moved = (elsewhere & live[order]).nonzero().flatten().tolist()
    return [f"{element_name(block, to)} has what belongs to {element_name(block, int(order[to]))}" for to in moved]
