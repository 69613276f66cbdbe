"""A triangular or banded mask that forward applies and backward does not: tril, triu, a causal mask, a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.relation import confined
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.region import chance
from gradverify.diagnosis.naming.wording import differ, part

MISSING_BAND = "missing-band"
_SIZE = 3  # of the dimensions of a band: of fewer, a triangle is an entry or two
_LIMIT = 0.05  # chance that as many places, picked blindly, are all those outside some band


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    """One index of every entry of a tensor."""

    places: Tensor  # (k,)
    size: int  # of the dimension
    words: str  # the index along dimension 0 of x


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Two indices of every entry of a block, and what they are called."""

    first: Tensor  # (m, 1) or (1, n)
    second: Tensor  # (m, 1) or (1, n)
    shape: tuple[int, int]
    words: tuple[str, str]  # "the index along dimension 0 of x"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    """A band of two indices."""

    outside: Tensor  # bool, broadcasts to (m, n)
    text: str  # wherever j > i, with i ...: tril(0) is missing


def missing_band(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Analytic ≠ 0 and numeric = 0 in every wrong entry, and these are all that lie outside a band of two indices."""
    extra = (seen.claimed != 0) & seen.zero & seen.wrong
    if not torch.equal(extra, seen.wrong):
        return None
    for pair in _pairs(evidence, seen.wrong.device):
        found = _outside(pair, seen, extra)
        share = None if found is None else confined(seen, found.outside)
        if found is not None and share is not None:
            count = differ(int(extra.sum()), int((extra | ~seen.zero).sum()), "entries")
            text = f"{count}; analytic ≠ 0 and numeric = 0 {found.text}{part(share)}"
            return Diagnosis(cause=MISSING_BAND, explanation=text, share=share)
    return None


def _pairs(evidence: Evidence, device: torch.device) -> Iterator[_Pair]:
    """Yield the pairs of dimensions that a mask may go by: of the input, of the output, of one and the other."""
    outputs, inputs = (list(_indices(block, device)) for block in (evidence.of, evidence.wrt))
    for found, across in ((inputs, 0), (outputs, 1)):
        for one, other in combinations(found, 2):
            if min(one.size, other.size) >= _SIZE:
                yield _pair(one, across, other, across)
    for theirs, mine in product(outputs, inputs):
        if theirs.size == mine.size >= _SIZE:
            yield _pair(theirs, 1, mine, 0)
    flat = [
        _Index(
            places=torch.arange(total(block.shape), device=device),
            size=total(block.shape),
            words=f"the place in {block.name}",
        )
        for block in (evidence.of, evidence.wrt)
    ]
    if flat[0].size == flat[1].size >= _SIZE:
        yield _pair(flat[0], 1, flat[1], 0)


def _pair(one: _Index, across: int, other: _Index, beside: int) -> _Pair:
    first, second = one.places.unsqueeze(across), other.places.unsqueeze(beside)
    return _Pair(first=first, second=second, shape=(one.size, other.size), words=(one.words, other.words))


def _indices(block: Block, device: torch.device) -> Iterator[_Index]:
    """Yield the index along each dimension of a tensor."""
    places = torch.arange(total(block.shape), device=device)
    for dimension, size in enumerate(block.shape):
        along = f" along dimension {dimension}" if len(block.shape) > 1 else ""
        index = places // total(block.shape[dimension + 1 :]) % size
        yield _Index(places=index, size=size, words=f"the index{along} of {block.name}")


def _outside(pair: _Pair, seen: Seen, extra: Tensor) -> _Band | None:
    """Return the band of the entries that are not zero, None where the wrong ones are not all outside, or by chance."""
    live, wrong = (_places(pair, entries) for entries in (~seen.zero, extra))
    if not bool(live.any()):
        return None
    offset = (
        torch.arange(pair.shape[1], device=extra.device) - torch.arange(pair.shape[0], device=extra.device)[:, None]
    )
    low, high = int(offset[live].min()), int(offset[live].max())
    outside = (offset < low) | (offset > high)
    if not torch.equal(outside, wrong) or (low == high and pair.first.shape != pair.second.shape):
        return None  # where each entry has its own place, what lies beside it is no band
    if chance(_alike(offset, int(outside.sum())), outside.numel(), int(outside.sum())) > _LIMIT:
        return None
    apart = pair.second - pair.first
    below, above = low > int(offset.min()), high < int(offset.max())
    ends = [f"j < i{_plus(low)}"] * below + [f"j > i{_plus(high)}"] * above
    mask = f"a band of width {high - low + 1}" if below and above else f"triu({low})" if below else f"tril({high})"
    text = f"wherever {' or '.join(ends)}, with i {pair.words[0]} and j {pair.words[1]}: {mask} is missing"
    return _Band(outside=(apart < low) | (apart > high), text=text)


def _alike(offset: Tensor, count: int) -> int:
    """Return how many bands leave so many places outside."""
    sizes = torch.bincount((offset - offset.min()).flatten()).tolist()
    inside = offset.numel() - count
    return sum(sum(sizes[at:end]) == inside for at in range(len(sizes)) for end in range(at + 1, len(sizes) + 1))


def _places(pair: _Pair, entries: Tensor) -> Tensor:
    """Return which combinations of the two indices hold such an entry, bool."""
    rows, columns = entries.nonzero(as_tuple=True)
    found = entries.new_zeros(pair.shape)
    first, second = (index.expand_as(entries)[rows, columns] for index in (pair.first, pair.second))
    found[first, second] = True
    return found


def _plus(distance: int) -> str:
    return "" if distance == 0 else f" {'+' if distance > 0 else '-'} {abs(distance)}"
