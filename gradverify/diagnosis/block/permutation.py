"""Permutations of rows or columns, found by sorting a random weighted sum of each row or column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.arrangement import Arrangement
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.naming.wording import element_name, listed
from gradverify.evidence import Evidence

_UNMATCHED = 0.25  # share of the rows that may have no equal
_SAME = 1e-6  # of the largest sum: tolerance for two sums of equal rows


def permutations(evidence: Evidence, entries: BlockEntries) -> Iterator[Arrangement]:
    """Yield the permutation of columns, and the one of rows, that could turn the numeric block into the claimed one."""
    columns, rows = _matched(entries.claimed.T, entries.numeric.T), _matched(entries.claimed, entries.numeric)
    if columns is not None and (changes := _changes(evidence.wrt, columns, ~entries.zero.all(0))):
        text = f"the gradients by {evidence.wrt.name} are in another order: {listed(changes)}"
        yield Arrangement(rows=None, columns=columns, text=text)
    if rows is not None and (changes := _changes(evidence.of, rows, ~entries.zero.all(1))):
        text = f"the cotangents of {evidence.of.name} are taken in another order: {listed(changes)}"
        yield Arrangement(rows=rows, columns=None, text=text)


def _matched(claimed: Tensor, numeric: Tensor) -> Tensor | None:
    """Return for each row of `claimed` the index of a row of `numeric` that it may equal, each index once.

    Up to a quarter of the rows may have no equal, for example because an entry was not measured well; these are matched
    in the order of their sums. Returns None if more are left, or if every row equals the one at its own position.
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(claimed.shape[1], generator=generator, dtype=torch.float64).to(claimed.device) + 0.5
    claimed_sums, numeric_sums = claimed @ weights, numeric @ weights
    order, target = claimed_sums.argsort(stable=True), numeric_sums.argsort(stable=True)
    tolerance = _SAME * float((claimed.abs() @ weights).max())
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
