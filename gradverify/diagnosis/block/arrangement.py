"""Ways to rearrange the rows and columns of a Jacobian that correspond to an operation on a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block, total
from gradverify.core.whole.evidence import Site
from gradverify.diagnosis.block.seen import Seen, resembles, share_of, spoils

NOTHING = -1  # in place of a row or column: zeros
_SHORT = 2  # entries of which a shift is an exchange
_FAR = 64  # places that something is rolled by, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Claimed entry (o, i) is the numeric entry (rows[o], columns[i]), or 0 where one is NOTHING."""

    rows: Tensor | None  # (m,), None: in order
    columns: Tensor | None  # (n,)
    text: str
    far: int = 0  # places that something is rolled by


def share_when(seen: Seen, arrangement: Arrangement) -> float | None:
    """Return the share that a rearrangement explains, after a look at a few entries; None where it is not enough."""
    if not _plausible(seen, arrangement):
        return None
    predicted = _taken(_taken(seen.numeric, arrangement.rows, 0), arrangement.columns, 1)
    return share_of(seen, predicted)


def transpositions(evidence: Site) -> Iterator[Arrangement]:
    """Yield exchanges of two dimensions: of the gradient, of the cotangent, of both."""
    of, wrt = evidence.of, evidence.wrt
    gradients = dict(_exchanges(wrt, evidence.device))
    cotangents = dict(_exchanges(of, evidence.device))
    for (a, b), columns in gradients.items():
        text = f"the gradient by {wrt.name} is transposed: dimensions {a} and {b} are exchanged"
        yield Arrangement(rows=None, columns=columns, text=text)
    for (a, b), rows in cotangents.items():
        text = f"the cotangent of {of.name} is taken transposed: dimensions {a} and {b} are exchanged"
        yield Arrangement(rows=rows, columns=None, text=text)
    for (a, b), columns in gradients.items():
        if (a, b) in cotangents and (of.shape[a], of.shape[b]) == (wrt.shape[a], wrt.shape[b]):
            text = f"cotangent and gradient are transposed: dimensions {a} and {b} are exchanged in both"
            yield Arrangement(rows=cotangents[a, b], columns=columns, text=text)


def rolls(evidence: Site) -> Iterator[Arrangement]:
    """Yield cyclic shifts and reversals: of the gradient, of the cotangent, of what was saved."""
    of, wrt = evidence.of, evidence.wrt
    gradients, cotangents = dict(_shifts(wrt, evidence)), dict(_shifts(of, evidence))
    for words, (far, columns) in gradients.items():
        yield Arrangement(rows=None, columns=columns, far=far, text=f"the gradient by {wrt.name} is {words}")
    for words, (far, rows) in cotangents.items():
        there = rows.argsort()  # where the row of each output goes is the inverse of where its cotangent is from
        yield Arrangement(rows=there, columns=None, far=far, text=f"the cotangent of {of.name} is taken {words}")
    if of.shape == wrt.shape:
        for words, (far, columns) in gradients.items():
            text = f"analytic is numeric of an input {words}: backward uses saved values {words}"
            yield Arrangement(rows=columns, columns=columns, far=far, text=text)


def shifts(evidence: Site) -> Iterator[Arrangement]:
    """Yield shifts by one along a dimension that leave zeros behind: of the gradient, and of the cotangent."""
    for block, words in ((evidence.wrt, "the gradient by {} is"), (evidence.of, "the cotangent of {} is taken")):
        places = torch.arange(total(block.shape), device=evidence.device).reshape(block.shape)
        for dimension, size in enumerate(block.shape):
            for by in (1, -1) if size > _SHORT else ():
                onward = by if block is evidence.wrt else -by  # a row goes where its cotangent is from
                order = places.roll(onward, dimension)
                order.select(dimension, 0 if onward > 0 else -1).fill_(NOTHING)
                along = f" along dimension {dimension}" if len(block.shape) > 1 else ""
                text = f"{words.format(block.name)} shifted by {by}{along}, with zeros in the place that is left"
                rows, columns = (order.reshape(-1) if block is each else None for each in (evidence.of, evidence.wrt))
                yield Arrangement(rows=rows, columns=columns, far=1, text=text)


def _exchanges(block: Block, device: torch.device) -> Iterator[tuple[tuple[int, int], Tensor]]:
    places = torch.arange(total(block.shape), device=device).reshape(block.shape)
    last = range(max(0, len(block.shape) - 4), len(block.shape))
    for a, b in combinations(last, 2):
        if block.shape[a] > 1 and block.shape[b] > 1:
            yield (a, b), places.transpose(a, b).reshape(-1)


def _shifts(block: Block, evidence: Site) -> Iterator[tuple[str, tuple[int, Tensor]]]:
    places = torch.arange(total(block.shape), device=evidence.device).reshape(block.shape)
    for dimension, size in enumerate(block.shape):
        along = f" along dimension {dimension}" if len(block.shape) > 1 else ""
        for by in _distances(size):
            yield f"rolled by {by}{along}", (abs(by), places.roll(by, dimension).reshape(-1))
        if size > 1:
            yield f"reversed{along}", (0, places.flip(dimension).reshape(-1))
    if len(block.shape) > 1:
        yield "reversed as a whole", (0, places.reshape(-1).flip(0))
        for by in _distances(places.numel()):
            yield f"rolled by {by} as a whole", (abs(by), places.reshape(-1).roll(by))


def _distances(size: int) -> Iterator[int]:
    """Yield the places that so many entries may be rolled by; two of them are exchanged, and called reversed."""
    if size <= _SHORT:
        return
    for by in range(1, min(size // 2, _FAR) + 1):
        yield by
        if 2 * by != size:
            yield -by


def _plausible(seen: Seen, arrangement: Arrangement) -> bool:
    return resembles(seen, _expected(seen, arrangement, seen.looks)) and not spoils(
        seen, _expected(seen, arrangement, seen.right)
    )


def _expected(seen: Seen, arrangement: Arrangement, places: tuple[Tensor, Tensor]) -> Tensor:
    """Return what the arrangement expects at some places (k,)."""
    rows, columns = (
        each if order is None else order[each]
        for order, each in zip((arrangement.rows, arrangement.columns), places, strict=True)
    )
    found = seen.numeric[rows.clamp(min=0), columns.clamp(min=0)]
    return found.masked_fill((rows == NOTHING) | (columns == NOTHING), 0.0)


def _taken(entries: Tensor, order: Tensor | None, dim: int) -> Tensor:
    """Return the rows, or columns, in this order."""
    if order is None:
        return entries
    taken = entries.index_select(dim, order.clamp(min=0))
    return taken.masked_fill((order == NOTHING).unsqueeze(1 - dim), 0.0)
