"""Compressed vjps: one cotangent for all outputs that depend on no common input.

Outputs whose rows have no column in common get one colour and share one cotangent (Coleman & Moré, SIAM J. Numer.
Anal. 20(1), 1983). A few vjps then give all claimed entries of a sparse Jacobian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import EVERYTHING, MIN_BATCHED, jacobian, many_vjps
from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.comparison import KEPT
from gradverify.core.estimate.column_groups import ColumnGroups
from gradverify.core.model.memory import AT_ONCE, HELD
from gradverify.core.strategy.sparsity import InputOutputPattern
from gradverify.core.strategy.structure import Structure, colours_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowColouring:
    """Links with the colours of their outputs. Outputs of one colour share a cotangent."""

    links: tuple[tuple[InputOutputPattern, Tensor], ...]  # with the colour of each output of the link's target
    count: int  # number of colours, which is the number of cotangents
    only: slice  # input coordinates that the vjps are needed for


def claimed_entries(backward: Backward, structure: Structure) -> Tensor | None:
    """Return the claimed entries of a structure, (M, m).

    They come from single rows if compressed vjps would be no fewer; None if there would be too many to hold.
    """
    column_of, inputs = structure.column_groups.column_of, len(structure.column_groups.colour)
    outputs = column_of.shape[1]
    whole = _colouring([link for link in structure.patterns if link.changed], EVERYTHING)
    if whole.count >= outputs:
        if inputs * outputs > KEPT:
            return None
        return torch.where(column_of >= 0, jacobian(backward).T.gather(0, column_of.clamp(min=0)), 0.0)
    claimed = torch.zeros_like(column_of, dtype=torch.float64)
    for colouring in _by_input(whole, inputs):
        _write_entries(backward, structure.column_groups, colouring, claimed)
    return claimed


def _colouring(links: Sequence[InputOutputPattern], only: slice) -> _RowColouring:
    """Return the colouring of some links; those to one output that have equal colours share them."""
    known: dict[tuple[int, bytes], Tensor] = {}
    coloured, count = [], 0
    for link in links:
        own = _row_colours(link)
        key = link.target.start, own.numpy().tobytes()
        if key not in known:
            known[key] = own + count
            count += int(own.max()) + 1
        coloured.append((link, known[key]))
    return _RowColouring(links=tuple(coloured), count=count, only=only)


def _by_input(whole: _RowColouring, inputs: int) -> list[_RowColouring]:
    """Return a colouring for every input, with vjps for this input only; just `whole` if that saves too little.

    `inputs` is the number of input coordinates, which is the length of a full vjp.
    """
    grouped = groupby([link for link, _ in whole.links], key=attrgetter("source"))
    found = [_colouring(list(own), source.coordinates) for source, own in grouped]
    fewest = min((colouring.count for colouring in found), default=0)
    shared = whole.count < sum(colouring.count for colouring in found)
    return [whole] if shared or fewest < MIN_BATCHED or whole.count * inputs < AT_ONCE else found


def _write_entries(backward: Backward, column_groups: ColumnGroups, colouring: _RowColouring, claimed: Tensor) -> None:
    """Write the entries of a colouring's links to `claimed` (M, m)."""
    outputs, first = column_groups.column_of.shape[1], colouring.only.start or 0
    height = max(1, HELD // (outputs + len(column_groups.colour)))
    for start in range(0, colouring.count, height):
        cotangents = torch.zeros(min(height, colouring.count - start), outputs, dtype=torch.float64)
        covered = [(link, *_covered(colour - start, len(cotangents))) for link, colour in colouring.links]
        for link, place, colour in covered:
            cotangents[colour, link.target.start + place] = 1.0
        vjps = many_vjps(backward, cotangents, colouring.only)
        for link, place, colour in covered:
            groups = column_groups.colour[link.source.coordinates]
            rows = slice(int(groups.min()), int(groups.max()) + 1)  # column groups of one input are consecutive
            places = link.target.start + place.to(vjps.device)
            column_of = column_groups.column_of[rows, places]
            position = colour.to(vjps.device) * vjps.shape[1] + column_of.sub(first).clamp_(min=0)
            entries = vjps.reshape(-1).index_select(0, position.reshape(-1)).view(column_of.shape)
            claimed[rows, places] = entries.masked_fill_(column_of < 0, 0.0)


def _covered(colour: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the places of the colours from 0 to `count`, and these colours."""
    place = ((colour >= 0) & (colour < count)).nonzero().squeeze(1)
    return place, colour[place]


def _row_colours(link: InputOutputPattern) -> Tensor:
    """Return a colour for every output of the link, from 0; outputs of one colour depend on no common input."""
    widths = list(link.target.shape)
    for window in link.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return colours_of(link.target, [max(1, width) for width in widths])
