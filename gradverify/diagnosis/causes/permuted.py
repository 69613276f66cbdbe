"""Correct values at wrong positions: transposed, shifted, reversed or permuted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.coordinates import Block
from gradverify.diagnosis.block.arrangement import (
    ZERO_LINE,
    Arrangement,
    permutations,
    plausible,
    rolls,
    share_of_arrangement,
    shifts,
    transpositions,
)
from gradverify.diagnosis.block.entries import BlockEntries, Pattern, explained
from gradverify.diagnosis.naming.wording import diagnosed
from gradverify.diagnosis.projections.sampled_lines import SampledLines
from gradverify.diagnosis.projections.sums import RandomProjections, holds, transposed_sums
from gradverify.evidence import Diagnosis

TRANSPOSED, SHIFTED, PERMUTED = "transposed", "shifted", "permuted"
_TRANSPOSED = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
_SAME = 1e-4  # of the largest number: tolerance for two equal columns, or rows
_PAIRS = 4  # columns, or rows, that must be found in another place before an order is tried
_TRIED, _NEAR = 24, 2  # orders of rows and columns at once, which no sample can reject: number tried, distance at most


def transposed(seen: BlockEntries) -> Diagnosis | None:
    """Detect a transposed Jacobian, or two exchanged dimensions of a gradient or a cotangent."""
    rows, columns = seen.numeric.shape
    if rows == columns and rows > 1:
        found = explained(seen, seen.numeric.T, TRANSPOSED, _TRANSPOSED) if not bool(seen.left_out.any()) else None
        if found is not None:
            return found
    return _first_match(TRANSPOSED, seen, transpositions(seen.block))


def shifted(seen: BlockEntries) -> Diagnosis | None:
    """Detect a shift by one index along a dimension, cyclic or with zeros filled in."""
    cyclic = (candidate for candidate in _of_several_lines(seen, rolls(seen.block)) if is_shift(candidate))
    zero_filled = (
        candidate
        for candidate in _of_several_lines(seen, shifts(seen.block))
        if not _is_mostly_vacated(seen, candidate)
    )
    return _first_match(SHIFTED, seen, cyclic) or _first_match(SHIFTED, seen, zero_filled)


def is_shift(arrangement: Arrangement) -> bool:
    """True if the arrangement is a roll by one index."""
    return arrangement.distance == 1


def permuted(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that is the numeric one with its rows or columns in another order."""
    found = _first_match(PERMUTED, seen, _of_several_lines(seen, rolls(seen.block)))
    return found if found is not None else _first_match(PERMUTED, seen, permutations(seen))


def _of_several_lines(seen: BlockEntries, candidates: Iterator[Arrangement]) -> Iterator[Arrangement]:
    """Yield candidates that permute several nonzero lines; a single line always matches some roll."""
    columns, rows = (int(seen.nonzero.any(across).sum()) > 1 for across in (0, 1))
    for candidate in candidates:
        if (columns and candidate.columns is not None) or (rows and candidate.rows is not None):
            yield candidate


def _is_mostly_vacated(seen: BlockEntries, arrangement: Arrangement) -> bool:
    """True if at least half of the wrong entries lie where the shift fills in zeros: then only the edge is wrong."""
    vacated = torch.zeros_like(seen.wrong)
    for order, dim in ((arrangement.rows, 1), (arrangement.columns, 0)):
        if order is not None:
            vacated |= (order == ZERO_LINE).unsqueeze(dim)
    return 2 * int((seen.wrong & vacated).sum()) >= int(seen.wrong.sum())


def _first_match(cause: str, seen: BlockEntries, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    telling = _of_several_values(seen)
    for arrangement in plausible(seen, candidates):
        of_saved_values = arrangement.rows is not None and arrangement.columns is not None
        share = share_of_arrangement(seen, arrangement) if telling or not of_saved_values else None
        if share is not None:
            return diagnosed(cause, arrangement.text, share)
    return None


def _of_several_values(seen: BlockEntries) -> bool:
    """True if the nonzero entries have at least three values: of two, as of a leaky ReLU, some order fits by chance."""
    values = seen.numeric[~seen.zero & seen.numeric.isfinite()]
    return bool(values.numel()) and len(torch.unique((values / (_SAME * values.abs().max())).round())) > 2


def rearranged_in_sums(look: SampledLines) -> Diagnosis | None:
    """Diagnose exchanged dimensions of a gradient or a cotangent, a transposed Jacobian, a shift, or another order."""
    block, find = look.projections.block, partial(_first_in_sums, look, _found_columns(look), _found_rows(look))
    return (
        find(TRANSPOSED, transpositions(block))
        or _transposed_jacobian(look.projections)
        or find(SHIFTED, filter(is_shift, rolls(block)))
        or find(PERMUTED, filterfalse(is_shift, rolls(block)))
    )


def _first_in_sums(
    look: SampledLines,
    columns: Sequence[tuple[int, int]],
    rows: Sequence[tuple[int, int]],
    cause: str,
    candidates: Iterator[Arrangement],
) -> Diagnosis | None:
    """Return the diagnosis of the first arrangement that fits the sample and then the projections.

    `columns` and `rows` are pairs of claimed and numeric ones that are equal.
    """
    tried = 0
    for arrangement in candidates:
        if arrangement.rows is None or arrangement.columns is None:
            pairs = columns if arrangement.rows is None else rows
            order = arrangement.columns if arrangement.rows is None else arrangement.rows
            assert order is not None
            plausible = len(pairs) >= _PAIRS and all(int(order[claimed]) == numeric for claimed, numeric in pairs)
        else:
            plausible = arrangement.distance <= _NEAR and tried < _TRIED
            plausible = plausible and _fits_columns(look, arrangement.rows, arrangement.columns)
            tried += plausible
        if plausible and _explains(look.projections, arrangement):
            return Diagnosis(cause=cause, explanation=arrangement.text, share=1.0)
    return None


def _fits_columns(look: SampledLines, rows: Tensor, columns: Tensor) -> bool:
    """True unless a sampled column shows that claimed entry (o, i) is not numeric entry (rows[o], columns[i])."""
    of, wrt = look.projections.block.of, look.projections.block.wrt
    weights, claimed = look.projections.cotangents[:, of.coordinates], look.projections.vjps[:, wrt.coordinates]
    for column in look.columns:
        here = (columns == column.position).nonzero().squeeze(1)
        if column.entries is None or not len(here):
            continue
        values, bars = (each[of.coordinates][rows] for each in (column.entries.value, column.entries.bar))
        allowed = BAR_FACTOR * weights.abs() @ bars + _SAME * column.numeric.abs().max()
        if bool(((claimed[:, here[0]] - weights @ values).abs() > allowed).any()):
            return False
    return True


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
    return first_direction.agrees(pattern) is not None and projections.agrees(pattern) is not None


def _coordinates(block: Block, order: Tensor | None) -> Tensor | None:
    return None if order is None else block.start + block.step * order


def _found_columns(look: SampledLines) -> list[tuple[int, int]]:
    """Return (claimed column, equal numeric column) for each sampled column that equals exactly one claimed column."""
    claimed = look.projections.vjps[:, look.projections.block.wrt.coordinates]
    return [
        (place, column.position)
        for column in look.columns
        for place in _only_equal(column.numeric, claimed, column.bar.unsqueeze(1))
    ]


def _found_rows(look: SampledLines) -> list[tuple[int, int]]:
    """Return (claimed row, equal numeric row) for each sampled row that equals exactly one numeric row."""
    at = look.projections.block.of.coordinates
    numeric = torch.stack([found.value[at] for found in look.projections.slopes])  # (L, p)
    bar = torch.stack([found.bar[at] for found in look.projections.slopes])
    return [(row.position, place) for row in look.rows for place in _only_equal(row.claimed, numeric, bar)]


def _only_equal(values: Tensor, candidates: Tensor, bar: Tensor) -> list[int]:
    """Return the only one of the candidates (k, N) that equals nonzero `values` (k,) within `bar`; [] otherwise."""
    near = (candidates - values.unsqueeze(1)).abs() <= BAR_FACTOR * bar + _SAME * values.abs().max()
    places: list[int] = near.all(0).nonzero().flatten().tolist()
    return places if len(places) == 1 and bool((values != 0).any()) else []


def _transposed_jacobian(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a claimed Jacobian that is the transposed numeric one."""
    of, wrt = projections.block.of, projections.block.wrt
    sizes = [len(range(*block.coordinates.indices(block.stop))) for block in (of, wrt)]
    if sizes[0] != sizes[1] or sizes[0] == 1 or not holds(projections, transposed_sums(projections)):
        return None
    return Diagnosis(cause=TRANSPOSED, explanation=_TRANSPOSED, share=1.0)
