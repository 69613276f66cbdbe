"""The right numbers in the wrong places: transposed, shifted, reversed, permuted."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.arrangement import NOTHING, Arrangement, rolls, share_when, shifts, transpositions
from gradverify.diagnosis.block.permutation import permutations
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.wording import part

TRANSPOSED, SHIFTED, PERMUTED = "transposed", "shifted", "permuted"


def transposed(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Two dimensions of a gradient or a cotangent, or the two sides of the Jacobian, are exchanged."""
    rows, columns = seen.numeric.shape
    if rows == columns and rows > 1:
        share = share_of(seen, seen.numeric.T) if not bool(seen.left_out.any()) else None
        if share is not None:
            text = f"analytic = numeric transposed: J·cotangent instead of cotangent·J{part(share)}"
            return Diagnosis(cause=TRANSPOSED, explanation=text, share=share)
    return _first(TRANSPOSED, seen, transpositions(evidence))


def shifted(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All numbers are one place away along a dimension from where they belong; the last goes round, or is lost."""
    around = (each for each in _of_several(seen, rolls(evidence)) if is_shift(each))
    filled = (each for each in _of_several(seen, shifts(evidence)) if not _is_edge(seen, each))
    return _first(SHIFTED, seen, around) or _first(SHIFTED, seen, filled)


def is_shift(arrangement: Arrangement) -> bool:
    """Tell whether a roll is by a single place, as where an index is off by one."""
    return arrangement.far == 1


def permuted(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The columns or the rows of the numeric Jacobian are all there, in another order."""
    found = _first(PERMUTED, seen, _of_several(seen, rolls(evidence)))
    return found if found is not None else _first(PERMUTED, seen, permutations(evidence, seen))


def _of_several(seen: Seen, candidates: Iterator[Arrangement]) -> Iterator[Arrangement]:
    """Yield those that move several lines: one alone is always rolled by some number of places."""
    columns, rows = (_held(~seen.zero, axis) > 1 for axis in (0, 1))
    for each in candidates:
        if (columns and each.columns is not None) or (rows and each.rows is not None):
            yield each


def _is_edge(seen: Seen, arrangement: Arrangement) -> bool:
    """Tell whether as many wrong entries lie in the place that a shift leaves as elsewhere: then that is the fault."""
    left = torch.zeros_like(seen.wrong)
    for order, dim in ((arrangement.rows, 1), (arrangement.columns, 0)):
        if order is not None:
            left |= (order == NOTHING).unsqueeze(dim)
    return 2 * int((seen.wrong & left).sum()) >= int(seen.wrong.sum())


def _held(entries: Tensor, axis: int) -> int:
    """Return how many columns, or rows of axis 1, have an entry."""
    return int(entries.any(axis).sum())


def _first(cause: str, seen: Seen, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    for arrangement in candidates:
        share = share_when(seen, arrangement)
        if share is not None:
            return Diagnosis(cause=cause, explanation=f"{arrangement.text}{part(share)}", share=share)
    return None
