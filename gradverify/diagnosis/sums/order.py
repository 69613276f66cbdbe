"""Rearranged Jacobians: guessed from a sample of columns and rows, tested by projections of all entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.arrangement import Arrangement, rolls, transpositions
from gradverify.diagnosis.causes.permuted import PERMUTED, SHIFTED, TRANSPOSED, is_shift
from gradverify.diagnosis.projections.patterns import Pattern, explains, holds, transposed_sums
from gradverify.diagnosis.projections.sums import RandomProjections
from gradverify.diagnosis.sums.sampled_lines import SampledLines
from gradverify.evidence import Diagnosis

_SAME = 1e-4  # of the largest number: tolerance for two equal columns, or rows
_PAIRS = 4  # columns, or rows, that must be found in another place before an order is tried
_TRIED, _NEAR = 24, 2  # orders of rows and columns at once, which no sample can reject: number tried, distance at most


def transposed(look: SampledLines) -> Diagnosis | None:
    """Diagnose two exchanged dimensions of a gradient or a cotangent, or a transposed Jacobian."""
    sums = look.projections.block
    found = _first(TRANSPOSED, look, transpositions(sums))
    return found if found is not None else _transposed_jacobian(look.projections)


def shifted(look: SampledLines) -> Diagnosis | None:
    """Diagnose a cyclic shift by one place along a dimension."""
    return _first(SHIFTED, look, filter(is_shift, rolls(look.projections.block)))


def permuted(look: SampledLines) -> Diagnosis | None:
    """Diagnose a roll or a reversal of the gradient, of the cotangent, or of the saved tensor."""
    return _first(PERMUTED, look, rolls(look.projections.block))


def _first(cause: str, look: SampledLines, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    """Return the diagnosis of the first arrangement that fits the sample and then the projections."""
    projections = look.projections
    columns, rows = _found_columns(look), _found_rows(look)
    tried = 0
    for arrangement in candidates:
        if arrangement.rows is None or arrangement.columns is None:
            pairs = columns if arrangement.rows is None else rows
            order = arrangement.columns if arrangement.rows is None else arrangement.rows
            assert order is not None
            plausible = len(pairs) >= _PAIRS and all(int(order[claimed]) == numeric for claimed, numeric in pairs)
        else:
            plausible = arrangement.distance <= _NEAR and tried < _TRIED
            tried += plausible
        if plausible and _explains(projections, arrangement):
            return Diagnosis(cause=cause, explanation=arrangement.text, share=1.0)
    return None


def _explains(projections: RandomProjections, arrangement: Arrangement) -> bool:
    """True if the projections agree with the arrangement; the first direction is tested alone, to save forwards."""
    pattern = Pattern(
        rows=_coordinates(projections.block.of, arrangement.rows),
        columns=_coordinates(projections.block.wrt, arrangement.columns),
    )
    first_direction = replace(
        projections,
        directions=projections.directions[:1],
        slopes=projections.slopes[:1],
        claimed=projections.claimed[:, :1],
        rounding=projections.rounding[:, :1],
        error_size=projections.error_size[:, :1],
    )
    return explains(first_direction, pattern) and explains(projections, pattern)


def _coordinates(block: Block, order: Tensor | None) -> Tensor | None:
    return None if order is None else block.start + block.step * order


def _found_columns(look: SampledLines) -> list[tuple[int, int]]:
    """Return (claimed column, equal numeric column) for each sampled column that equals exactly one claimed column."""
    claimed = look.projections.vjps[:, look.projections.block.wrt.coordinates]
    nonzero = [column for column in look.columns if bool((column.numeric != 0).any())]
    return list(
        _pairs([(column.position, Estimate(value=column.numeric, bar=column.bar)) for column in nonzero], claimed)
    )


def _found_rows(look: SampledLines) -> list[tuple[int, int]]:
    """Return (claimed row, equal numeric row) for each sampled row that equals exactly one numeric row."""
    at = look.projections.block.of.coordinates
    numeric = torch.stack([found.value[at] for found in look.projections.slopes])  # (L, p)
    bar = torch.stack([found.bar[at] for found in look.projections.slopes])
    pairs = []
    for row in look.rows:
        near = (numeric - row.claimed.unsqueeze(1)).abs() <= BAR_FACTOR * bar + _SAME * row.claimed.abs().max()
        places = near.all(0).nonzero().flatten()
        if len(places) == 1 and bool((row.claimed != 0).any()):
            pairs.append((row.position, int(places)))
    return pairs


def _pairs(known: list[tuple[int, Estimate]], claimed: Tensor) -> Iterator[tuple[int, int]]:
    """Yield (claimed column, numeric column) for each known numeric column that equals exactly one of `claimed`."""
    for place, numeric in known:
        tolerance = BAR_FACTOR * numeric.bar + _SAME * numeric.value.abs().max()
        near = (claimed - numeric.value.unsqueeze(1)).abs() <= tolerance.unsqueeze(1)
        places = near.all(0).nonzero().flatten()
        if len(places) == 1:
            yield int(places), place


def _transposed_jacobian(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a claimed Jacobian that is the transposed numeric one."""
    of, wrt = projections.block.of, projections.block.wrt
    sizes = [len(range(*block.coordinates.indices(block.stop))) for block in (of, wrt)]
    if sizes[0] != sizes[1] or sizes[0] == 1 or not holds(projections, transposed_sums(projections)):
        return None
    text = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
    return Diagnosis(cause=TRANSPOSED, explanation=text, share=1.0)
