"""Compressed vjps: one cotangent for all outputs that depend on no common input.

Outputs whose rows have no column in common get one colour and share one cotangent (Coleman & Moré, SIAM J. Numer.
Anal. 20(1), 1983). A few vjps then give all claimed entries of a sparse Jacobian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import EVERYTHING, MIN_BATCHED, many_vjps
from gradverify.core.backward.vjps import Backward, row
from gradverify.core.estimate.column_groups import ColumnGroups
from gradverify.core.model.memory import AT_ONCE, HELD
from gradverify.core.strategy.sparsity import InputOutputPattern
from gradverify.core.strategy.structure import Structure, colours_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowColouring:
    """The colouring of the rows of one output tensor, for the links to it that have this colouring."""

    links: tuple[InputOutputPattern, ...]
    colours: Tensor  # (outputs of the tensor,) the colour of each output, from 0
    count: int  # number of colours, which is the number of cotangents

    @property
    def span(self) -> tuple[int, int]:
        """First and last + 1 of the input coordinates from the first of the links' inputs to the last."""
        places = [link.source.coordinates for link in self.links]
        return min(place.start for place in places), max(place.stop for place in places)


def claimed_entries(backward: Backward, structure: Structure) -> Tensor | None:
    """Return the claimed entries of a structure, (M, m); None if single rows cost no more vjps."""
    outputs = structure.column_groups.column_of.shape[1]
    if structure.column_groups.elementwise and len(structure.patterns) == 1:
        return row(backward, torch.ones(outputs, dtype=torch.float64)).unsqueeze(0)
    colourings = _row_colourings(structure)
    if sum(colouring.count for colouring in colourings) >= outputs:
        return None
    claimed = torch.zeros_like(structure.column_groups.column_of, dtype=torch.float64)
    for only, group in _grouped_by_inputs(colourings, len(structure.column_groups.colour)):
        _write_entries(backward, structure.column_groups, group, only, claimed)
    return claimed


def _row_colourings(structure: Structure) -> list[_RowColouring]:
    """Return the row colourings of a structure; links to one output that have equal colours share one."""
    found: dict[tuple[int, bytes], _RowColouring] = {}
    for link in structure.patterns:
        if not link.changed:
            continue
        colours = _row_colours(link)
        key = link.target.start, colours.numpy().tobytes()
        if key in found:
            found[key] = replace(found[key], links=(*found[key].links, link))
        else:
            found[key] = _RowColouring(links=(link,), colours=colours, count=int(colours.max()) + 1)
    return list(found.values())


def _grouped_by_inputs(colourings: Sequence[_RowColouring], inputs: int) -> list[tuple[slice, list[_RowColouring]]]:
    """Return the colourings grouped by the input coordinates that backward is called for.

    They are all in one group, for all inputs, if a backward call for some inputs only saves too little. `inputs` is the
    number of input coordinates, which is the length of a full vjp.
    """
    by_span: dict[tuple[int, int], list[_RowColouring]] = {}
    for colouring in colourings:
        by_span.setdefault(colouring.span, []).append(colouring)
    counts = [sum(colouring.count for colouring in group) for group in by_span.values()]
    if min(counts, default=0) >= MIN_BATCHED and sum(counts) * inputs >= AT_ONCE:
        return [(slice(*span), group) for span, group in by_span.items()]
    return [(EVERYTHING, list(colourings))]


def _write_entries(
    backward: Backward, column_groups: ColumnGroups, colourings: Sequence[_RowColouring], only: slice, claimed: Tensor
) -> None:
    """Write the entries of some colourings to `claimed` (M, m), from vjps for the input coordinates in `only`."""
    outputs, total = column_groups.column_of.shape[1], sum(colouring.count for colouring in colourings)
    every_output, height = torch.arange(outputs), max(1, HELD // (outputs + len(column_groups.colour)))
    firsts = [0, *accumulate(colouring.count for colouring in colourings)]
    for start in range(0, total, height):
        cotangents = torch.zeros(min(height, total - start), outputs, dtype=torch.float64)
        covered = [
            (colouring, *_covered(colouring, first - start, len(cotangents)))
            for colouring, first in zip(colourings, firsts, strict=False)
        ]
        for _, place, colour in covered:
            cotangents[colour, every_output[place]] = 1.0
        vjps = many_vjps(backward, cotangents, only)
        for colouring, place, colour in covered:
            if len(colour):
                outputs_here = _on_device(claimed.device, place)
                _fill(
                    claimed,
                    column_groups,
                    vjps,
                    colour.to(claimed.device),
                    outputs_here,
                    colouring.links,
                    only.start or 0,
                )


def _covered(colouring: _RowColouring, first: int, count: int) -> tuple[Tensor | slice, Tensor]:
    """Return the outputs of a colouring that a batch of cotangents covers, and the cotangent's place in it for each.

    The batch has `count` cotangents. Those of the colouring start at place `first`, which is negative if the batch
    before it holds some of them.
    """
    colour, place = colouring.colours + first, colouring.links[0].target.coordinates
    if first >= 0 and first + colouring.count <= count:
        return place, colour
    covered = ((colour >= 0) & (colour < count)).nonzero().squeeze(1)
    return covered + place.start, colour[covered]


def _on_device(device: torch.device, place: Tensor | slice) -> Tensor | slice:
    return place if isinstance(place, slice) else place.to(device)


def _fill(
    claimed: Tensor,
    column_groups: ColumnGroups,
    vjps: Tensor,
    colour: Tensor,
    place: Tensor | slice,
    links: Sequence[InputOutputPattern],
    first: int,
) -> None:
    """Write the entries of some outputs and of the links' inputs to `claimed`, from compressed vjps (colours, n).

    `place` are the outputs and `colour` the vjp of each. The first coordinate of a vjp is input coordinate `first`.
    """
    start = colour * vjps.shape[1] - first
    for link in links:
        groups = column_groups.colour[link.source.coordinates]
        rows = slice(int(groups.min()), int(groups.max()) + 1)  # column groups of one input are consecutive
        column_of = column_groups.column_of[rows, place]
        position = start + (column_of if column_groups.complete else column_of.clamp(min=first))
        entries = vjps.reshape(-1).index_select(0, position.reshape(-1)).view(column_of.shape)
        claimed[rows, place] = entries if column_groups.complete else entries.masked_fill_(column_of < 0, 0.0)


def _row_colours(link: InputOutputPattern) -> Tensor:
    """Return a colour for every output of the link, from 0; outputs of one colour depend on no common input."""
    widths = list(link.target.shape)
    for window in link.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return colours_of(link.target, [max(1, width) for width in widths])
