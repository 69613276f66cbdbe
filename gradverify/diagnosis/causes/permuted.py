"""Correct values at wrong positions: transposed, shifted, reversed or permuted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import filterfalse

import torch

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.magnitudes import all_set
from gradverify.diagnosis.block.arrangement import (
    Arrangement,
    Moves,
    arrangements,
    permutations,
    rolls,
    shifts,
    transpositions,
    zero_filled_shifts,
)
from gradverify.diagnosis.block.entries import BlockEntries, Pattern
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import RandomProjections, SampledLine, holds, transposed_sums
from gradverify.evidence import Diagnosis

TRANSPOSED, SHIFTED, PERMUTED = "transposed", "shifted", "permuted"
_TRANSPOSED = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
_SAME = 1e-4  # of the largest number: tolerance for two equal columns, or rows


def transposed(seen: BlockEntries) -> Diagnosis | None:
    """Detect a transposed Jacobian, or two exchanged dimensions of a gradient or a cotangent."""
    rows, columns = seen.numeric.shape
    square = rows == columns and rows > 1 and not bool(seen.left_out.any())
    found = seen.explained(seen.numeric.T, TRANSPOSED, _TRANSPOSED) if square else None
    return found or _first_match(TRANSPOSED, seen, arrangements(seen.block, transpositions))


def shifted(seen: BlockEntries) -> Diagnosis | None:
    """Detect a shift by one index along a dimension, cyclic or with zeros filled in."""
    cyclic, zero_filled = (_of_several_lines(seen, moves) for moves in (shifts, zero_filled_shifts))
    inside = filterfalse(partial(_is_mostly_vacated, seen), zero_filled)
    return _first_match(SHIFTED, seen, cyclic) or _first_match(SHIFTED, seen, inside)


def permuted(seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that is the numeric one with its rows or columns in another order."""
    rolled = _of_several_lines(seen, rolls)
    return _first_match(PERMUTED, seen, rolled) or _first_match(PERMUTED, seen, permutations(seen))


def _of_several_lines(seen: BlockEntries, moves: Moves) -> Iterator[Arrangement]:
    """Yield arrangements of several nonzero lines; a single line always matches some roll."""
    columns, rows = (int(seen.nonzero.any(across).sum()) > 1 for across in (0, 1))
    for text, pattern in arrangements(seen.block, moves):
        if (columns and pattern.columns is not None) or (rows and pattern.rows is not None):
            yield text, pattern


def _is_mostly_vacated(seen: BlockEntries, arrangement: Arrangement) -> bool:
    """True if at least half of the wrong entries lie where the shift fills in zeros: then only the edge is wrong."""
    vacated = torch.zeros_like(seen.wrong)
    for factors, dim in ((arrangement[1].by_row, 1), (arrangement[1].by_column, 0)):
        if factors is not None:
            vacated |= (factors == 0).unsqueeze(dim)
    return 2 * int((seen.wrong & vacated).sum()) >= int(seen.wrong.sum())


def _first_match(cause: str, seen: BlockEntries, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    if not seen.may_be_rearranged:  # of many arrangements, each takes as long as this
        return None
    several = _of_several_values(seen)  # otherwise saved values may fit in some order
    return first(
        diagnosed(cause, text, seen.agrees(pattern))
        for text, pattern in candidates
        if several or pattern.rows is None or pattern.columns is None
    )


def _of_several_values(seen: BlockEntries) -> bool:
    """True if the nonzero entries have at least three values: of two, as of a leaky ReLU, some order fits by chance."""
    values = seen.numeric[seen.nonzero]
    return bool(values.numel()) and len(torch.unique((values / (_SAME * values.abs().max())).round())) > 2


def rearranged_in_sums(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose exchanged dimensions of a gradient or a cotangent, a transposed Jacobian, a shift, or another order."""
    block, find = projections.block, partial(_first_in_sums, projections)
    return (
        find(TRANSPOSED, arrangements(block, transpositions))
        or _transposed_jacobian(projections)
        or find(SHIFTED, arrangements(block, shifts))
        or find(PERMUTED, arrangements(block, rolls))
    )


def _first_in_sums(projections: RandomProjections, cause: str, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    """Return the diagnosis of the first arrangement that fits the wrong columns, if any, and then the projections."""
    wrong = [(column, _allowed(projections, column)) for column in projections.columns if column.wrong]
    return first(
        diagnosed(cause, text, projections.agrees(pattern))
        for text, pattern in (candidates if wrong else ())
        if all(_fits(projections, pattern, column, allowed) for column, allowed in wrong)
    )


def _allowed(projections: RandomProjections, column: SampledLine) -> float:
    """Return how far a random sum over a column's entries, in any order, may be from a claimed one."""
    assert column.entries is not None
    bars = column.entries.bar[projections.block.of.coordinates].sum()
    return float(BAR_FACTOR * projections.weights.abs().max() * bars + _SAME * column.numeric.value.abs().max())


def _fits(projections: RandomProjections, pattern: Pattern, column: SampledLine, allowed: float) -> bool:
    """True if an arrangement turns a column into the claimed one, as far as its sums with the cotangents show."""
    assert column.entries is not None
    block, place = projections.block, column.position
    entries = column.entries.value[block.of.coordinates if pattern.rows is None else pattern.rows]
    if pattern.columns is not None:
        place = int((pattern.columns == block.wrt.start + block.wrt.step * place).nonzero())
    return all_set((projections.gradients[:, place] - projections.weights @ entries).abs() <= allowed)


def _transposed_jacobian(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a claimed Jacobian that is the transposed numeric one."""
    size = projections.weights.shape[1]
    if size == 1 or size != projections.displacements.shape[1] or not holds(projections, transposed_sums(projections)):
        return None
    return Diagnosis(cause=TRANSPOSED, explanation=_TRANSPOSED, share=1.0)
