"""Permutations of rows or columns, found by sorting one number per row or column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Evidence
from gradverify.diagnosis.block.arrangement import Arrangement
from gradverify.diagnosis.block.seen import Seen
from gradverify.diagnosis.naming.wording import listed, place

_LEFT_OVER = 0.25  # share of the rows
_SAME = 1e-6  # relative to the largest: what two sums of the same numbers may differ by


def permutations(evidence: Evidence, seen: Seen) -> Iterator[Arrangement]:
    """Yield the permutation of inputs and the one of outputs that could make the claimed Jacobian of the numeric."""
    columns, rows = _matched(seen.claimed.T, seen.numeric.T), _matched(seen.claimed, seen.numeric)
    if columns is not None and (moves := _moves(evidence.wrt, columns, ~seen.zero.all(0))):
        text = f"the gradients by {evidence.wrt.name} are in another order: {listed(moves)}"
        yield Arrangement(rows=None, columns=columns, text=text)
    if rows is not None and (moves := _moves(evidence.of, rows, ~seen.zero.all(1))):
        text = f"the cotangents of {evidence.of.name} are taken in another order: {listed(moves)}"
        yield Arrangement(rows=rows, columns=None, text=text)


def _matched(claimed: Tensor, numeric: Tensor) -> Tensor | None:
    """Return for each row of `claimed` a row of `numeric` that it may equal, each used once; None if there are none.

    Some may be left over on both sides, as those of which an entry was not judged, or roughly: these are each other's
    in the order of their numbers.
    """
    generator = torch.Generator().manual_seed(0)
    weights = torch.rand(claimed.shape[1], generator=generator, dtype=torch.float64).to(claimed.device) + 0.5
    keys, wanted = claimed @ weights, numeric @ weights
    order, target = keys.argsort(stable=True), wanted.argsort(stable=True)
    slack = _SAME * float((claimed.abs() @ weights).max())
    pairs = _paired(keys[order].tolist(), wanted[target].tolist(), slack)
    if len(pairs) < (1 - _LEFT_OVER) * len(order):
        return None
    here, there = ([*places, *sorted({*range(len(order))} - {*places})] for places in zip(*pairs, strict=True))
    found = torch.empty_like(order)
    found[order[here]] = target[there]
    return None if torch.equal(found, torch.arange(len(found), device=found.device)) else found


def _paired(first: Sequence[float], second: Sequence[float], slack: float) -> list[tuple[int, int]]:
    """Return the places in two ascending sequences of numbers that are the same."""
    pairs, one, other = [], 0, 0
    while one < len(first) and other < len(second):
        if abs(first[one] - second[other]) <= slack:
            pairs.append((one, other))
            one, other = one + 1, other + 1
        elif first[one] < second[other]:
            one += 1
        else:
            other += 1
    return pairs


def _moves(block: Block, order: Tensor, live: Tensor) -> list[str]:
    """Say what is moved where; zeros that change places are not worth a word."""
    elsewhere = order != torch.arange(len(order), device=order.device)
    moved = (elsewhere & live[order]).nonzero().flatten().tolist()
    return [f"{place(block, to)} has what belongs to {place(block, int(order[to]))}" for to in moved]
