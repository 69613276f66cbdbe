"""The right numbers in the wrong places: transposed, rolled, reversed, permuted."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.arrangement import Arrangement, rolls, share_when, transpositions
from gradverify.diagnosis.block.permutation import permutations
from gradverify.diagnosis.block.seen import Seen, share_of
from gradverify.diagnosis.naming.wording import part

TRANSPOSED, PERMUTED = "transposed", "permuted"


def transposed(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Two dimensions of a gradient or a cotangent, or the two sides of the Jacobian, are exchanged."""
    rows, columns = seen.numeric.shape
    if rows == columns and rows > 1:
        share = share_of(seen, seen.numeric.T) if not bool(seen.left_out.any()) else None
        if share is not None:
            text = f"analytic = numeric transposed: J·cotangent instead of cotangent·J{part(share)}"
            return Diagnosis(cause=TRANSPOSED, explanation=text, share=share)
    return _first(TRANSPOSED, seen, transpositions(evidence))


def permuted(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The columns or the rows of the numeric Jacobian are all there, in another order."""
    # One line alone is always rolled by some number of places.
    columns, rows = (_held(~seen.zero, axis) > 1 for axis in (0, 1))
    several = (
        each for each in rolls(evidence) if (columns and each.columns is not None) or (rows and each.rows is not None)
    )
    found = _first(PERMUTED, seen, several)
    return found if found is not None else _first(PERMUTED, seen, permutations(evidence, seen))


def _held(entries: Tensor, axis: int) -> int:
    """Return how many columns, or rows of axis 1, have an entry."""
    return int(entries.any(axis).sum())


def _first(cause: str, seen: Seen, candidates: Iterator[Arrangement]) -> Diagnosis | None:
    for arrangement in candidates:
        share = share_when(seen, arrangement)
        if share is not None:
            return Diagnosis(cause=cause, explanation=f"{arrangement.text}{part(share)}", share=share)
    return None
