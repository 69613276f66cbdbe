"""Correct values at wrong positions: transposed, shifted, reversed or permuted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import filterfalse

import torch

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.magnitudes import all_set
from gradverify.diagnosis.block.arrangement import (
    ZERO_LINE,
    Arrangement,
    Moves,
    arrangements,
    first_explaining,
    permutations,
    rolls,
    shifts,
    transpositions,
    zero_filled_shifts,
)
from gradverify.diagnosis.block.entries import BlockEntries, Pattern, explained
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import RandomProjections, SampledLine, holds, transposed_sums
from gradverify.evidence import Diagnosis, LargeBlock

TRANSPOSED, SHIFTED, PERMUTED = "transposed", "shifted", "permuted"
_TRANSPOSED = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
_SAME = 1e-4  # of the largest number: tolerance for two equal columns, or rows


def transposed(seen: BlockEntries) -> Diagnosis | None:
    """Detect a transposed Jacobian, or two exchanged dimensions of a gradient or a cotangent."""
    rows, columns = seen.numeric.shape
    square = rows == columns and rows > 1 and not bool(seen.left_out.any())
    found = explained(seen, seen.numeric.T, TRANSPOSED, _TRANSPOSED) if square else None
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
    for candidate in arrangements(seen.block, moves):
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
    if not _of_several_values(seen):  # then saved values may fit in some order
        candidates = (each for each in candidates if each.rows is None or each.columns is None)
    return first_explaining(seen, cause, candidates)


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
        diagnosed(cause, each.text, projections.agrees(_pattern(projections.block, each)))
        for each in (candidates if wrong else ())
        if all(_fits(projections, each, column, allowed) for column, allowed in wrong)
    )


def _allowed(projections: RandomProjections, column: SampledLine) -> float:
    """Return how far a random sum over a column's entries, in any order, may be from a claimed one."""
    assert column.entries is not None
    bars = column.entries.bar[projections.block.of.coordinates].sum()
    return float(BAR_FACTOR * projections.weights.abs().max() * bars + _SAME * column.numeric.value.abs().max())


def _pattern(block: LargeBlock, arrangement: Arrangement) -> Pattern:
    """Return the rows and columns of an arrangement as coordinates of all outputs and inputs."""
    rows, columns = (
        None if order is None else along.start + along.step * order
        for along, order in ((block.of, arrangement.rows), (block.wrt, arrangement.columns))
    )
    return Pattern(rows=rows, columns=columns)


def _fits(projections: RandomProjections, arrangement: Arrangement, column: SampledLine, allowed: float) -> bool:
    """True if an arrangement turns a column into the claimed one, as far as its sums with the cotangents show."""
    assert column.entries is not None
    rows, columns, entries = arrangement.rows, arrangement.columns, column.entries.value
    entries = entries[projections.block.of.coordinates]
    entries = entries if rows is None else entries[rows]
    position = column.position if columns is None else int((columns == column.position).nonzero())
    return all_set((projections.gradients[:, position] - projections.weights @ entries).abs() <= allowed)


def _transposed_jacobian(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose a claimed Jacobian that is the transposed numeric one."""
    size = projections.weights.shape[1]
    if size == 1 or size != projections.displacements.shape[1] or not holds(projections, transposed_sums(projections)):
        return None
    return Diagnosis(cause=TRANSPOSED, explanation=_TRANSPOSED, share=1.0)
