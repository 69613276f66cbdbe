"""Rows that share no input: what backward claims of the entries that moves own, from a handful of vjps.

Output indices far enough apart to depend on no common input share a cotangent (Coleman & Moré, SIAM J. Numer. Anal.
20(1), 1983).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.function.analytic import Reverse, answers, row
from gradverify.core.numeric.moves import Moves
from gradverify.core.ways.structure import Link, Structure, colours_of

_HELD = 2_000_000  # numbers held at a time


def claimed_entries(backward: Reverse, structure: Structure) -> Tensor | None:
    """Return backward's claims for every entry that a move owns, (M, m), or None where single rows are no dearer."""
    outputs = structure.moves.owner.shape[1]
    if structure.moves.direct and len(structure.links) == 1:
        return row(backward, torch.ones(outputs, dtype=torch.float64)).unsqueeze(0)
    plans = [(link, cotangents) for link in structure.links if link.moved for cotangents in [_row_colours(link)]]
    distinct = {_key(link, colours): (link, colours) for link, colours in plans}
    if sum(int(colours.max()) + 1 for _, colours in distinct.values()) >= outputs:
        return None
    claimed = torch.zeros_like(structure.moves.owner, dtype=torch.float64)
    for key, (target_link, colours) in distinct.items():
        sharing = [link for link, own in plans if _key(link, own) == key]
        count = int(colours.max()) + 1
        for some in torch.split(torch.arange(count), max(1, _HELD // (outputs + len(structure.moves.colour)))):
            told = ((colours >= some[0]) & (colours <= some[-1])).nonzero().squeeze(1)
            place, colour = told + target_link.target.start, colours[told] - some[0]
            cotangents = torch.zeros(len(some), outputs, dtype=torch.float64)
            cotangents[colour, place] = 1.0
            found = answers(backward, cotangents)
            everything = len(told) == len(colours)
            _fill(
                claimed,
                structure.moves,
                found,
                colour.to(claimed.device),
                target_link.target.place if everything else place.to(claimed.device),
                sharing,
            )
    return claimed


def _fill(
    claimed: Tensor, moves: Moves, found: Tensor, colour: Tensor, place: Tensor | slice, links: Sequence[Link]
) -> None:
    """Write vjps (colours, n) into the entries that they tell apart: those of their outputs and the links' inputs."""
    for link in links:
        mine = moves.colour[link.source.place]
        own = slice(int(mine.min()), int(mine.max()) + 1)  # moves of other inputs have other numbers
        owner = moves.owner[own, place]
        told = torch.take(found, owner.clamp(min=0).add_(colour * found.shape[1]))
        claimed[own, place] = told.masked_fill_(owner < 0, 0.0)


def _key(link: Link, colours: Tensor) -> tuple[int, bytes]:
    return link.target.start, colours.numpy().tobytes()


def _row_colours(link: Link) -> Tensor:
    """Return a colour for every output of the link, such that outputs of one colour depend on no common input."""
    widths = list(link.target.shape)
    for window in link.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return colours_of(link.target, [max(1, width) for width in widths])
