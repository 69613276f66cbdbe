"""Correct values at wrong positions: transposed, shifted, reversed or permuted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.diagnosis.block.arrangement import (
    ZERO_LINE,
    Arrangement,
    plausible,
    rolls,
    share_of_arrangement,
    shifts,
    transpositions,
)
from gradverify.diagnosis.block.entries import BlockEntries, explained_share
from gradverify.diagnosis.block.permutation import permutations
from gradverify.diagnosis.naming.wording import share_text
from gradverify.evidence import Diagnosis, Evidence

TRANSPOSED, SHIFTED, PERMUTED = "transposed", "shifted", "permuted"


def transposed(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a transposed Jacobian, or two exchanged dimensions of a gradient or a cotangent."""
    rows, columns = seen.numeric.shape
    if rows == columns and rows > 1:
        share = explained_share(seen, seen.numeric.T) if not bool(seen.left_out.any()) else None
        if share is not None:
            text = f"analytic = numeric transposed: J·cotangent instead of cotangent·J{share_text(share)}"
            return Diagnosis(cause=TRANSPOSED, explanation=text, share=share)
    return _first_match(TRANSPOSED, seen, transpositions(evidence))


def shifted(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a shift by one index along a dimension, cyclic or with zeros filled in."""
    cyclic = (candidate for candidate in _of_several_lines(seen, rolls(evidence)) if is_shift(candidate))
    zero_filled = (
        candidate for candidate in _of_several_lines(seen, shifts(evidence)) if not _is_mostly_vacated(seen, candidate)
    )
    return _first_match(SHIFTED, seen, cyclic) or _first_match(SHIFTED, seen, zero_filled)


def is_shift(arrangement: Arrangement) -> bool:
    """True if the arrangement is a roll by one index."""
    return arrangement.distance == 1


def permuted(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect a claimed Jacobian that is the numeric one with its rows or columns in another order."""
    found = _first_match(PERMUTED, seen, _of_several_lines(seen, rolls(evidence)))
    return found if found is not None else _first_match(PERMUTED, seen, permutations(evidence, seen))


def _of_several_lines(seen: BlockEntries, candidates: Iterator[Arrangement]) -> Iterator[Arrangement]:
    """Yield candidates that permute several nonzero lines; a single line always matches some roll."""
    columns, rows = (_lines_with_entries(~seen.zero, axis) > 1 for axis in (0, 1))
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


def _lines_with_entries(entries: Tensor, axis: int) -> int:
    """Return the number of columns (axis 0) or rows (axis 1) with an entry set."""
    return int(entries.any(axis).sum())


def _first_match(cause: str, seen: BlockEntries, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    for arrangement in plausible(seen, candidates):
        share = share_of_arrangement(seen, arrangement)
        if share is not None:
            return Diagnosis(cause=cause, explanation=f"{arrangement.text}{share_text(share)}", share=share)
    return None
