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

from gradverify.core.function.analytic import Reverse, row
from gradverify.core.function.answers import EVERYTHING, WORTH, answers
from gradverify.core.numeric.moves import Moves
from gradverify.core.ways.structure import Link, Structure, colours_of

_HELD = 2_000_000  # numbers held at a time
_APART = 1 << 16  # in all answers: with fewer, another call costs more than it saves


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Cotangents that tell the outputs of some links apart, which all reach the same outputs."""

    links: tuple[Link, ...]
    colours: Tensor  # (outputs of the links,) the cotangent that each of them belongs to, counted from zero
    count: int  # of cotangents

    @property
    def span(self) -> tuple[int, int]:
        """The coordinates of the inputs that the links come from, and of those in between."""
        places = [link.source.place for link in self.links]
        return min(place.start for place in places), max(place.stop for place in places)


def claimed_entries(backward: Reverse, structure: Structure) -> Tensor | None:
    """Return backward's claims for every entry that a move owns, (M, m), or None where single rows are no dearer."""
    outputs = structure.moves.owner.shape[1]
    if structure.moves.direct and len(structure.links) == 1:
        return row(backward, torch.ones(outputs, dtype=torch.float64)).unsqueeze(0)
    plans = _plans(structure)
    if sum(plan.count for plan in plans) >= outputs:
        return None
    claimed = torch.zeros_like(structure.moves.owner, dtype=torch.float64)
    for only, mine in _asked_apart(plans, len(structure.moves.colour)):
        _ask(backward, structure.moves, mine, only, claimed)
    return claimed


def _plans(structure: Structure) -> list[_Plan]:
    found: dict[tuple[int, bytes], _Plan] = {}
    for link in structure.links:
        if not link.moved:
            continue
        colours = _row_colours(link)
        key = link.target.start, colours.numpy().tobytes()
        if key in found:
            found[key] = replace(found[key], links=(*found[key].links, link))
        else:
            found[key] = _Plan(links=(link,), colours=colours, count=int(colours.max()) + 1)
    return list(found.values())


def _asked_apart(plans: Sequence[_Plan], inputs: int) -> list[tuple[slice, list[_Plan]]]:
    """Return the plans by the inputs that they are about, where it saves work to ask backward for those alone.

    `inputs` is how many numbers there are in an answer for all of them.
    """
    apart: dict[tuple[int, int], list[_Plan]] = {}
    for plan in plans:
        apart.setdefault(plan.span, []).append(plan)
    counts = [sum(plan.count for plan in mine) for mine in apart.values()]
    if min(counts, default=0) >= WORTH and sum(counts) * inputs >= _APART:
        return [(slice(*span), mine) for span, mine in apart.items()]
    return [(EVERYTHING, list(plans))]


def _ask(backward: Reverse, moves: Moves, plans: Sequence[_Plan], only: slice, claimed: Tensor) -> None:
    """Ask backward with the cotangents of some plans, and write what it says of the inputs asked for to `claimed`."""
    outputs, total = moves.owner.shape[1], sum(plan.count for plan in plans)
    every, most = torch.arange(outputs), max(1, _HELD // (outputs + len(moves.colour)))
    before = [0, *accumulate(plan.count for plan in plans)]
    for start in range(0, total, most):
        cotangents = torch.zeros(min(most, total - start), outputs, dtype=torch.float64)
        asked = [
            (plan, *_told(plan, first - start, len(cotangents))) for plan, first in zip(plans, before, strict=False)
        ]
        for _, place, colour in asked:
            cotangents[colour, every[place]] = 1.0
        found = answers(backward, cotangents, only)
        for plan, place, colour in asked:
            if len(colour):
                own = _on(claimed.device, place)
                _fill(claimed, moves, found, colour.to(claimed.device), own, plan.links, only.start or 0)


def _told(plan: _Plan, first: int, count: int) -> tuple[Tensor | slice, Tensor]:
    """Return the outputs that some of a plan's cotangents tell apart, and of each its number among those asked with.

    Of these there are `count`, of which the plan's begin at number `first`, which may be negative.
    """
    colour, place = plan.colours + first, plan.links[0].target.place
    if first >= 0 and first + plan.count <= count:
        return place, colour
    told = ((colour >= 0) & (colour < count)).nonzero().squeeze(1)
    return told + place.start, colour[told]


def _on(device: torch.device, place: Tensor | slice) -> Tensor | slice:
    return place if isinstance(place, slice) else place.to(device)


def _fill(
    claimed: Tensor,
    moves: Moves,
    found: Tensor,
    colour: Tensor,
    place: Tensor | slice,
    links: Sequence[Link],
    first: int,
) -> None:
    """Write vjps (colours, n) into the entries that they tell apart: those of their outputs and the links' inputs.

    The vjps' coordinates are counted from `first`.
    """
    start = colour * found.shape[1] - first
    for link in links:
        mine = moves.colour[link.source.place]
        own = slice(int(mine.min()), int(mine.max()) + 1)  # moves of other inputs have other numbers
        owner = moves.owner[own, place]
        spot = start + (owner if moves.full else owner.clamp(min=first))
        told = found.reshape(-1).index_select(0, spot.reshape(-1)).view(owner.shape)
        claimed[own, place] = told if moves.full else told.masked_fill_(owner < 0, 0.0)


def _row_colours(link: Link) -> Tensor:
    """Return a colour for every output of the link, such that outputs of one colour depend on no common input."""
    widths = list(link.target.shape)
    for window in link.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return colours_of(link.target, [max(1, width) for width in widths])
