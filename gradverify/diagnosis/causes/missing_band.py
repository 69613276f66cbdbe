"""Missing triangular or banded mask: tril, triu, a causal mask or a window that backward does not apply."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.relation import share_inside
from gradverify.diagnosis.naming.region import chance
from gradverify.diagnosis.naming.wording import differ_text, share_text
from gradverify.evidence import Diagnosis, Evidence

MISSING_BAND = "missing-band"
_MIN_SIZE = 3  # entries along both dimensions: a triangle of a smaller matrix is a single entry
_LIMIT = 0.05  # probability that random places are exactly the outside of some band


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """The index of every entry of a tensor along one dimension."""

    places: Tensor  # (k,)
    size: int  # of the dimension
    words: str  # the index along dimension 0 of x


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two indices of every entry of a block, with their names."""

    first: Tensor  # (m, 1) or (1, n)
    second: Tensor  # (m, 1) or (1, n)
    shape: tuple[int, int]
    words: tuple[str, str]  # "the index along dimension 0 of x"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    """A band of two indices."""

    outside: Tensor  # bool, broadcasts to (m, n)
    text: str  # wherever j > i, with i ...: tril(0) is missing


def missing_band(seen: BlockEntries) -> Diagnosis | None:
    """Detect wrong entries with analytic ≠ 0 and numeric = 0 that are exactly the entries outside a band."""
    evidence = seen.block
    extra = (seen.claimed != 0) & seen.zero & seen.wrong
    if not torch.equal(extra, seen.wrong):
        return None
    for pair in _pairs(evidence, seen.wrong.device):
        band = _band_of(pair, seen, extra)
        share = None if band is None else share_inside(seen, band.outside)
        if band is not None and share is not None:
            count = differ_text(int(extra.sum()), int((extra | ~seen.zero).sum()), "entries")
            text = f"{count}; analytic ≠ 0 and numeric = 0 {band.text}{share_text(share)}"
            return Diagnosis(cause=MISSING_BAND, explanation=text, share=share)
    return None


def _pairs(evidence: Evidence, device: torch.device) -> Iterator[_Pair]:
    """Yield pairs of indices that a mask may depend on: two of the input, two of the output, or one of each."""
    outputs, inputs = (list(_indices(block, device)) for block in (evidence.of, evidence.wrt))
    for indices, dim in ((inputs, 0), (outputs, 1)):
        for first, second in combinations(indices, 2):
            if min(first.size, second.size) >= _MIN_SIZE:
                yield _pair(first, dim, second, dim)
    for output_index, input_index in product(outputs, inputs):
        if output_index.size == input_index.size >= _MIN_SIZE:
            yield _pair(output_index, 1, input_index, 0)
    flat = [
        _Index(
            places=torch.arange(total(block.shape), device=device),
            size=total(block.shape),
            words=f"the place in {block.name}",
        )
        for block in (evidence.of, evidence.wrt)
    ]
    if flat[0].size == flat[1].size >= _MIN_SIZE:
        yield _pair(flat[0], 1, flat[1], 0)


def _pair(first_index: _Index, first_dim: int, second_index: _Index, second_dim: int) -> _Pair:
    first, second = first_index.places.unsqueeze(first_dim), second_index.places.unsqueeze(second_dim)
    return _Pair(
        first=first,
        second=second,
        shape=(first_index.size, second_index.size),
        words=(first_index.words, second_index.words),
    )


def _indices(block: Block, device: torch.device) -> Iterator[_Index]:
    """Yield the index along each dimension of a tensor."""
    places = torch.arange(total(block.shape), device=device)
    for dimension, size in enumerate(block.shape):
        along = f" along dimension {dimension}" if len(block.shape) > 1 else ""
        index = places // total(block.shape[dimension + 1 :]) % size
        yield _Index(places=index, size=size, words=f"the index{along} of {block.name}")


def _band_of(pair: _Pair, seen: BlockEntries, extra: Tensor) -> _Band | None:
    """Return the band of the nonzero entries; None if the wrong ones are not exactly its outside, or by chance."""
    nonzero, wrong = (_index_pairs(pair, entries) for entries in (~seen.zero, extra))
    if not bool(nonzero.any()):
        return None
    offset = (
        torch.arange(pair.shape[1], device=extra.device) - torch.arange(pair.shape[0], device=extra.device)[:, None]
    )
    low, high = int(offset[nonzero].min()), int(offset[nonzero].max())
    outside = (offset < low) | (offset > high)
    if not torch.equal(outside, wrong) or (low == high and pair.first.shape != pair.second.shape):
        return None  # one diagonal between output and input is elementwise dependence, not a mask
    if chance(_bands_with(offset, int(outside.sum())), outside.numel(), int(outside.sum())) > _LIMIT:
        return None
    distance = pair.second - pair.first
    below, above = low > int(offset.min()), high < int(offset.max())
    conditions = [f"j < i{_signed(low)}"] * below + [f"j > i{_signed(high)}"] * above
    mask = f"a band of width {high - low + 1}" if below and above else f"triu({low})" if below else f"tril({high})"
    text = f"wherever {' or '.join(conditions)}, with i {pair.words[0]} and j {pair.words[1]}: {mask} is missing"
    return _Band(outside=(distance < low) | (distance > high), text=text)


def _bands_with(offset: Tensor, count: int) -> int:
    """Return the number of bands with `count` places outside."""
    sizes = torch.bincount((offset - offset.min()).flatten()).tolist()
    inside = offset.numel() - count
    return sum(sum(sizes[at:end]) == inside for at in range(len(sizes)) for end in range(at + 1, len(sizes) + 1))


def _index_pairs(pair: _Pair, entries: Tensor) -> Tensor:
    """Mask of the combinations of the two indices that occur among the entries; `pair.shape`."""
    rows, columns = entries.nonzero(as_tuple=True)
    found = entries.new_zeros(pair.shape)
    first, second = (index.expand_as(entries)[rows, columns] for index in (pair.first, pair.second))
    found[first, second] = True
    return found


def _signed(distance: int) -> str:
    return "" if distance == 0 else f" {'+' if distance > 0 else '-'} {abs(distance)}"
