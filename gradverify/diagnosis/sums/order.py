"""The right numbers in the wrong places: guessed from some columns and rows, held against sums over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import Block
from gradverify.core.whole.evidence import Diagnosis
from gradverify.core.whole.patterns import Pattern, exchanged, explains, holds
from gradverify.core.whole.sums import Asked
from gradverify.diagnosis.block.arrangement import Arrangement, rolls, transpositions
from gradverify.diagnosis.causes.arranged import PERMUTED, SHIFTED, TRANSPOSED, is_shift
from gradverify.diagnosis.sums.look import Look

_SAME = 1e-4  # relative: what two columns, or rows, of the same numbers differ by at most
_PAIRS = 4  # columns, or rows, that are found in another place before there may be an order
_TRIED, _NEAR = 24, 2  # orders of both sides, of which few columns say nothing: how many, and places moved by


def transposed(look: Look) -> Diagnosis | None:
    """Two dimensions of a gradient or a cotangent, or the two sides of the Jacobian, are exchanged."""
    sums = look.asked.sums
    found = _first(TRANSPOSED, look, transpositions(sums))
    return found if found is not None else _sides(look.asked)


def shifted(look: Look) -> Diagnosis | None:
    """All numbers are one place away along a dimension from where they belong, and the last goes round."""
    return _first(SHIFTED, look, filter(is_shift, rolls(look.asked.sums)))


def permuted(look: Look) -> Diagnosis | None:
    """The columns or the rows of the derivative are all there, in another order."""
    return _first(PERMUTED, look, rolls(look.asked.sums))


def _first(cause: str, look: Look, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    asked = look.asked
    columns, rows = _found_columns(look), _found_rows(look)
    both = 0
    for arrangement in candidates:
        if arrangement.rows is None or arrangement.columns is None:
            pairs = columns if arrangement.rows is None else rows
            order = arrangement.columns if arrangement.rows is None else arrangement.rows
            assert order is not None
            plausible = len(pairs) >= _PAIRS and all(int(order[to]) == at for to, at in pairs)
        else:
            plausible = arrangement.far <= _NEAR and both < _TRIED
            both += plausible
        if plausible and _explains(asked, arrangement):
            return Diagnosis(cause=cause, explanation=arrangement.text, share=1.0)
    return None


def _explains(asked: Asked, arrangement: Arrangement) -> bool:
    pattern = Pattern(
        rows=_coordinates(asked.sums.of, arrangement.rows), columns=_coordinates(asked.sums.wrt, arrangement.columns)
    )
    one = replace(
        asked,
        directions=asked.directions[:1],
        slopes=asked.slopes[:1],
        claimed=asked.claimed[:, :1],
        rounding=asked.rounding[:, :1],
        typical=asked.typical[:, :1],
    )
    return explains(one, pattern) and explains(asked, pattern)


def _coordinates(block: Block, order: Tensor | None) -> Tensor | None:
    return None if order is None else block.start + block.step * order


def _found_columns(look: Look) -> list[tuple[int, int]]:
    """Return where the columns that were looked at are claimed: of which input, and of which it is the derivative."""
    claimed = look.asked.answers[:, look.asked.sums.wrt.coordinates]
    live = [column for column in look.columns if bool((column.sums != 0).any())]
    return list(_pairs([(column.place, Estimate(value=column.sums, bar=column.bar)) for column in live], claimed))


def _found_rows(look: Look) -> list[tuple[int, int]]:
    """Return which output is claimed in place of those whose rows were looked at."""
    at = look.asked.sums.of.coordinates
    numeric = torch.stack([found.value[at] for found in look.asked.slopes])  # (L, p)
    bar = torch.stack([found.bar[at] for found in look.asked.slopes])
    pairs = []
    for row in look.rows:
        near = (numeric - row.claimed.unsqueeze(1)).abs() <= BAR_FACTOR * bar + _SAME * row.claimed.abs().max()
        places = near.all(0).nonzero().flatten()
        if len(places) == 1 and bool((row.claimed != 0).any()):
            pairs.append((row.place, int(places)))
    return pairs


def _pairs(known: list[tuple[int, Estimate]], claimed: Tensor) -> Iterator[tuple[int, int]]:
    for place, numeric in known:
        slack = BAR_FACTOR * numeric.bar + _SAME * numeric.value.abs().max()
        near = (claimed - numeric.value.unsqueeze(1)).abs() <= slack.unsqueeze(1)
        places = near.all(0).nonzero().flatten()
        if len(places) == 1:
            yield int(places), place


def _sides(asked: Asked) -> Diagnosis | None:
    """What is claimed is the transposed Jacobian."""
    of, wrt = asked.sums.of, asked.sums.wrt
    sizes = [len(range(*block.coordinates.indices(block.stop))) for block in (of, wrt)]
    if sizes[0] != sizes[1] or sizes[0] == 1 or not holds(asked, exchanged(asked)):
        return None
    text = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
    return Diagnosis(cause=TRANSPOSED, explanation=text, share=1.0)
