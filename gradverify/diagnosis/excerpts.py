"""The cause of an error in a block too large to be examined whole, from excerpts of it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from gradverify.diagnosis.block.shifted_problem import evidence_in
from gradverify.diagnosis.projections.excerpt import excerpts
from gradverify.errors import GradverifyError
from gradverify.evidence import Diagnose, Diagnosis, LargeBlock

_COUNT = 2  # excerpts that have to agree
# Causes that sums over the whole block cannot show. They would have shown any other cause that is true of all of it.
_ONLY_IN_EXCERPTS = frozenset(
    {"straight-through", "missing-mask", "missing-factor", "wrong-branch", "wrong-axis", "missing-term", "wrong-point"}
)
_CALLS = 5  # samples per allowed evaluation: many share a call with others
_NEAR = 0.05  # largest relative difference of thresholds, which lie between the numbers of an excerpt
_COUNTS = re.compile(r"[0-9][0-9,]* of [0-9][0-9,]*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


def diagnosed_in_excerpts(sums: LargeBlock, diagnose: Diagnose) -> Diagnosis | None:
    """Return the cause that all excerpts of a block have in common; None if they differ or there are none."""
    diagnoses: list[Diagnosis] = []
    try:
        for excerpt in excerpts(sums, _COUNT, _CALLS * sums.settings.max_evaluations):
            evidence = evidence_in(excerpt, sums.of.name, sums.wrt.name, sums.settings)
            found = None if evidence is None else diagnose(evidence)
            if found is None or found.cause not in _ONLY_IN_EXCERPTS or (diagnoses and not _same(found, diagnoses[0])):
                return None
            diagnoses.append(found)
    except GradverifyError:  # no cause if an excerpt cannot be evaluated
        return None
    if not diagnoses:
        return None
    scope = "in an excerpt of this block, and in another"
    return replace(
        diagnoses[0], explanation=f"{diagnoses[0].explanation} ({scope})", share=min(each.share for each in diagnoses)
    )


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    """True if both give the same explanation, apart from counts of entries and the accuracy of numbers."""
    (words, numbers), (others, theirs) = (_template(each.explanation) for each in (one, other))
    return (one.cause, words) == (other.cause, others) and all(map(_near, numbers, theirs))


def _template(text: str) -> tuple[str, list[str]]:
    """Return a text with its numbers replaced, and those of the numbers that are not counts."""
    uncounted = _COUNTS.sub("", text)
    return _NUMBER.sub("#", uncounted), _NUMBER.findall(uncounted)


def _near(one: str, other: str) -> bool:
    """True if two numbers agree. Whole numbers must be equal: they may be indices."""
    return one == other or ("." in one + other and math.isclose(float(one), float(other), rel_tol=_NEAR))
