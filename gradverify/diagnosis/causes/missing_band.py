"""Missing triangular or banded mask: tril, triu, a causal mask or a window that backward does not apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.structure import index_along
from gradverify.diagnosis.naming.region import chance
from gradverify.diagnosis.naming.variables import Axis, block_along, broadcast_along
from gradverify.diagnosis.naming.wording import diagnosed, differ_text, dimension_words
from gradverify.diagnosis.tuning import NO_ACCIDENT
from gradverify.evidence import Diagnosis, Evidence

MISSING_BAND = "missing-band"
_LIMIT = 0.05  # probability that random places are exactly the outside of some band


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """The index of every entry of a tensor along one dimension."""

    places: Tensor  # (m, 1) or (1, n)
    size: int  # of the dimension
    words: str  # the index along dimension 0 of x


def missing_band(seen: BlockEntries) -> Diagnosis | None:
    """Detect wrong entries with analytic ≠ 0 and numeric = 0 that are exactly the entries outside a band."""
    extra = (seen.claimed != 0) & seen.zero & seen.wrong
    if not torch.equal(extra, seen.wrong):
        return None
    count = differ_text(int(extra.sum()), int((extra | seen.nonzero).sum()), "entries")
    for first, second in _pairs(seen.block):
        band = _outside_band(first, second, seen)
        if band is not None:
            text = f"{count}; analytic ≠ 0 and numeric = 0 {band[1]}"
            return diagnosed(MISSING_BAND, text, seen.share_inside(band[0]))
    return None


def _pairs(evidence: Evidence) -> Iterator[tuple[_Index, _Index]]:
    """Yield pairs of indices that a mask may depend on: two of the input, two of the output, or one of each."""
    outputs, inputs = (list(_indices(evidence, axis)) for axis in (Axis.OUTPUT, Axis.INPUT))
    of_one_tensor = chain(combinations(inputs[:-1], 2), combinations(outputs[:-1], 2))
    of_both = chain(product(outputs[:-1], inputs[:-1]), [(outputs[-1], inputs[-1])])
    of_equal_size = (pair for pair in of_both if pair[0].size == pair[1].size)
    return (pair for pair in chain(of_one_tensor, of_equal_size) if min(each.size for each in pair) >= NO_ACCIDENT)


def _indices(evidence: Evidence, axis: Axis) -> Iterator[_Index]:
    """Yield the index along each dimension of the tensor along an axis, and at last the place in the whole tensor."""
    block = block_along(evidence, axis)
    for dimension, size in enumerate(block.shape):
        places = broadcast_along(axis, index_along(block.shape, dimension, evidence.device))
        words = f"the index{dimension_words(block.shape, dimension)} of {block.name}"
        yield _Index(places=places, size=size, words=words)
    size = total(block.shape)
    places = broadcast_along(axis, torch.arange(size, device=evidence.device))
    yield _Index(places=places, size=size, words=f"the place in {block.name}")


def _outside_band(first: _Index, second: _Index, seen: BlockEntries) -> tuple[Tensor, str] | None:
    """Return the mask of the entries outside the band of the nonzero ones, and the text of the condition.

    The mask is a bool tensor that broadcasts to (m, n). Returns None if the wrong entries are not exactly those outside
    the band, or may be so by chance.
    """
    nonzero, wrong = (_index_pairs(first, second, entries) for entries in (seen.nonzero, seen.wrong))
    if not bool(nonzero.any()):
        return None
    offset = torch.arange(second.size, device=wrong.device) - torch.arange(first.size, device=wrong.device)[:, None]
    low, high = int(offset[nonzero].min()), int(offset[nonzero].max())
    outside = (offset < low) | (offset > high)
    if not torch.equal(outside, wrong) or (low == high and first.places.shape != second.places.shape):
        return None  # one diagonal between output and input is elementwise dependence, not a mask
    if chance(_bands_with(offset, int(outside.sum())), outside.numel(), int(outside.sum())) > _LIMIT:
        return None
    distance = second.places - first.places
    below, above = low > int(offset.min()), high < int(offset.max())
    conditions = [f"j < i{_signed(low)}"] * below + [f"j > i{_signed(high)}"] * above
    mask = f"a band of width {high - low + 1}" if below and above else f"triu({low})" if below else f"tril({high})"
    text = f"wherever {' or '.join(conditions)}, with i {first.words} and j {second.words}: {mask} is missing"
    return (distance < low) | (distance > high), text


def _bands_with(offset: Tensor, count: int) -> int:
    """Return the number of bands with `count` places outside."""
    sizes = torch.bincount((offset - offset.min()).flatten()).tolist()
    inside = offset.numel() - count
    return sum(sum(sizes[at:end]) == inside for at in range(len(sizes)) for end in range(at + 1, len(sizes) + 1))


def _index_pairs(first: _Index, second: _Index, entries: Tensor) -> Tensor:
    """Mask of the combinations of two indices that occur among the entries, (size of first, size of second)."""
    rows, columns = entries.nonzero(as_tuple=True)
    found = entries.new_zeros(first.size, second.size)
    found[tuple(index.places.expand_as(entries)[rows, columns] for index in (first, second))] = True
    return found


def _signed(distance: int) -> str:
    return "" if distance == 0 else f" {'+' if distance > 0 else '-'} {abs(distance)}"
