"""How a block is built, and which of its coordinates are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.region import Region
from gradverify.diagnosis.naming.variables import Axis

_ROW = 3  # coordinates in a row that are no coincidence
_SQUARE = 3  # rows of a matrix from which a triangle is told from a few entries


def _untold(region: Region) -> None:
    """Say nothing where nobody can be asked."""
    del region


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The coordinates along one axis, those of them that hold wrong entries, and those that could."""

    axis: Axis
    wrong: Tensor  # (k,) bool
    relevant: Tensor  # (k,) bool: with an entry other than zero, that would show
    follows: Callable[[Region], bool | None] = _untold  # see `followed`


def is_elementwise(evidence: Evidence, seen: Seen) -> bool:
    """Tell whether every output entry depends, and is claimed to depend, on the input entry at its own place alone."""
    if evidence.of.shape != evidence.wrt.shape:
        return False
    return all(_is_diagonal(entries) for entries in (seen.claimed != 0, ~seen.zero))


def group(seen: Seen, axis: Axis) -> Group:
    """Return the coordinates along an axis."""
    across = 1 - axis.value
    filled = ((seen.claimed != 0) | ~seen.zero) & _would_show(seen)
    wrong = seen.wrong.any(across)
    return Group(axis=axis, wrong=wrong, relevant=filled.any(across), follows=partial(seen.follows, axis, wrong))


def _would_show(seen: Seen) -> Tensor:
    """Tell which entries would be wrong if they were off by as much of their size as wrong ones are; (m, n)."""
    claimed, numeric = seen.claimed[seen.looks], seen.numeric[seen.looks]
    usual = float(((claimed - numeric).abs() / torch.maximum(claimed.abs(), numeric.abs())).median())
    size = torch.maximum(seen.claimed.abs(), seen.numeric.abs())
    return seen.wrong | (seen.slack <= usual * size)


def beside_diagonal(block: Block, group: Group) -> bool:
    """Tell whether the wrong coordinates are a triangle of square matrices, their diagonals, or all but those.

    Values say the same by coincidence there: the diagonal of a positive matrix holds its largest entries.
    """
    if len(block.shape) < 2 or block.shape[-1] != block.shape[-2] or block.shape[-1] < _SQUARE:
        return False
    wrong, relevant = group.wrong.reshape(block.shape), group.relevant.reshape(block.shape)
    whole = torch.ones(block.shape[-2:], dtype=torch.bool, device=wrong.device)
    places = [whole.triu(1), whole.tril(-1), whole.triu(), whole.tril()]
    places += [places[0] | places[1], places[2] & places[3]]
    return any(torch.equal(place & relevant, wrong) for place in places)


def in_a_row(block: Block, group: Group) -> bool:
    """Tell whether the wrong coordinates are some whole slices in a row, inside a dimension and not at its edge."""
    wrong, relevant = group.wrong.reshape(block.shape), group.relevant.reshape(block.shape)
    for dimension, size in enumerate(block.shape):
        others = tuple(place for place in range(len(block.shape)) if place != dimension)
        hit = wrong.any(others) if others else wrong
        along = [-1 if place == dimension else 1 for place in range(len(block.shape))]
        places = hit.nonzero().flatten().tolist()
        first, last = min(places, default=0), max(places, default=0)
        inside = first > 0 and last < size - 1 and last - first + 1 == len(places)
        if inside and int(wrong.sum()) >= _ROW and torch.equal(hit.reshape(along) & relevant, wrong):
            return True
    return False


def over(axis: Axis, coordinates: Tensor) -> Tensor:
    """Return the coordinates (k,) as something that broadcasts over a Jacobian along this axis."""
    return coordinates.unsqueeze(0) if axis is Axis.INPUT else coordinates.unsqueeze(1)


def on_diagonal(evidence: Evidence, values: Tensor) -> Tensor:
    """Return the (k, k) matrix, or for a single output the (1, k) row, whose own-place entries are `values` (k,)."""
    return values.unsqueeze(0) if total(evidence.of.shape) == 1 else torch.diag(values)


def _is_diagonal(entries: Tensor) -> bool:
    return int(entries.sum()) == int(entries.diagonal().sum())
