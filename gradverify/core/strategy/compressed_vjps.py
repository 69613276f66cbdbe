"""Rows that share no input: what backward claims of the entries that moves own, from a handful of vjps.

Output indices far enough apart to depend on no common input share a cotangent (Coleman & Moré, SIAM J. Numer. Anal.
20(1), 1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import EVERYTHING, WORTH, answers
from gradverify.core.backward.vjps import Backward, row
from gradverify.core.estimate.column_groups import ColumnGroups
from gradverify.core.strategy.structure import InputOutputPattern, Structure, colours_of

_HELD = 2_000_000  # numbers held at a time
_APART = 1 << 16  # in all answers: with fewer, another call costs more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowColouring:
    """Cotangents that tell the outputs of some links apart, which all reach the same outputs."""

    links: tuple[InputOutputPattern, ...]
    colours: Tensor  # (outputs of the links,) the cotangent that each of them belongs to, counted from zero
    count: int  # of cotangents

    @property
    def span(self) -> tuple[int, int]:
        """The coordinates of the inputs that the links come from, and of those in between."""
        places = [link.source.place for link in self.links]
        return min(place.start for place in places), max(place.stop for place in places)


def claimed_entries(backward: Backward, structure: Structure) -> Tensor | None:
    """Return backward's claims for every entry that a move owns, (M, m), or None where single rows are no dearer."""
    outputs = structure.column_groups.column_of.shape[1]
    if structure.column_groups.direct and len(structure.links) == 1:
        return row(backward, torch.ones(outputs, dtype=torch.float64)).unsqueeze(0)
    colourings = _row_colourings(structure)
    if sum(colouring.count for colouring in colourings) >= outputs:
        return None
    claimed = torch.zeros_like(structure.column_groups.column_of, dtype=torch.float64)
    for only, mine in _asked_apart(colourings, len(structure.column_groups.colour)):
        _ask(backward, structure.column_groups, mine, only, claimed)
    return claimed


def _row_colourings(structure: Structure) -> list[_RowColouring]:
    found: dict[tuple[int, bytes], _RowColouring] = {}
    for link in structure.links:
        if not link.moved:
            continue
        colours = _row_colours(link)
        key = link.target.start, colours.numpy().tobytes()
        if key in found:
            found[key] = replace(found[key], links=(*found[key].links, link))
        else:
            found[key] = _RowColouring(links=(link,), colours=colours, count=int(colours.max()) + 1)
    return list(found.values())


def _asked_apart(colourings: Sequence[_RowColouring], inputs: int) -> list[tuple[slice, list[_RowColouring]]]:
    """Return the plans by the inputs that they are about, where it saves work to ask backward for those alone.

    `inputs` is how many numbers there are in an answer for all of them.
    """
    apart: dict[tuple[int, int], list[_RowColouring]] = {}
    for colouring in colourings:
        apart.setdefault(colouring.span, []).append(colouring)
    counts = [sum(colouring.count for colouring in mine) for mine in apart.values()]
    if min(counts, default=0) >= WORTH and sum(counts) * inputs >= _APART:
        return [(slice(*span), mine) for span, mine in apart.items()]
    return [(EVERYTHING, list(colourings))]


def _ask(
    backward: Backward, column_groups: ColumnGroups, colourings: Sequence[_RowColouring], only: slice, claimed: Tensor
) -> None:
    """Ask backward with the cotangents of some plans, and write what it says of the inputs asked for to `claimed`."""
    outputs, total = column_groups.column_of.shape[1], sum(colouring.count for colouring in colourings)
    every, most = torch.arange(outputs), max(1, _HELD // (outputs + len(column_groups.colour)))
    before = [0, *accumulate(colouring.count for colouring in colourings)]
    for start in range(0, total, most):
        cotangents = torch.zeros(min(most, total - start), outputs, dtype=torch.float64)
        asked = [
            (colouring, *_told(colouring, first - start, len(cotangents)))
            for colouring, first in zip(colourings, before, strict=False)
        ]
        for _, place, colour in asked:
            cotangents[colour, every[place]] = 1.0
        found = answers(backward, cotangents, only)
        for colouring, place, colour in asked:
            if len(colour):
                own = _on(claimed.device, place)
                _fill(claimed, column_groups, found, colour.to(claimed.device), own, colouring.links, only.start or 0)


def _told(colouring: _RowColouring, first: int, count: int) -> tuple[Tensor | slice, Tensor]:
    """Return the outputs that some of a plan's cotangents tell apart, and of each its number among those asked with.

    Of these there are `count`, of which the plan's begin at number `first`, which may be negative.
    """
    colour, place = colouring.colours + first, colouring.links[0].target.place
    if first >= 0 and first + colouring.count <= count:
        return place, colour
    told = ((colour >= 0) & (colour < count)).nonzero().squeeze(1)
    return told + place.start, colour[told]


def _on(device: torch.device, place: Tensor | slice) -> Tensor | slice:
    return place if isinstance(place, slice) else place.to(device)


def _fill(
    claimed: Tensor,
    column_groups: ColumnGroups,
    found: Tensor,
    colour: Tensor,
    place: Tensor | slice,
    links: Sequence[InputOutputPattern],
    first: int,
) -> None:
    """Write vjps (colours, n) into the entries that they tell apart: those of their outputs and the links' inputs.

    The vjps' coordinates are counted from `first`.
    """
    start = colour * found.shape[1] - first
    for link in links:
        mine = column_groups.colour[link.source.place]
        own = slice(int(mine.min()), int(mine.max()) + 1)  # moves of other inputs have other numbers
        column_of = column_groups.column_of[own, place]
        spot = start + (column_of if column_groups.full else column_of.clamp(min=first))
        told = found.reshape(-1).index_select(0, spot.reshape(-1)).view(column_of.shape)
        claimed[own, place] = told if column_groups.full else told.masked_fill_(column_of < 0, 0.0)


def _row_colours(link: InputOutputPattern) -> Tensor:
    """Return a colour for every output of the link, such that outputs of one colour depend on no common input."""
    widths = list(link.target.shape)
    for window in link.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return colours_of(link.target, [max(1, width) for width in widths])
