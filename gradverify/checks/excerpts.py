"""The cause of an error in a block too large to be looked at whole, as excerpts of it show it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from gradverify.case import Settings
from gradverify.core.decide.context import as_judged
from gradverify.core.decide.verdict import Code
from gradverify.core.forward.repeatable import steady
from gradverify.core.jacobians import evidence, investigate, whole
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record
from gradverify.core.whole.evidence import Diagnose, Diagnosis
from gradverify.core.whole.excerpt import excerpts
from gradverify.core.whole.sums import Sums
from gradverify.errors import GradverifyError

_COUNT = 2  # excerpts that have to tell the same
# What sums over the whole block do not tell. What they do, they would have told, and is not true of all of it.
_TOLD = frozenset(
    {"straight-through", "missing-mask", "missing-factor", "wrong-branch", "wrong-axis", "missing-term", "wrong-point"}
)
_CALLS = 50  # samples for every evaluation that a search may take, at the worst: most go many to a call
_NEAR = 0.05  # relative, as far as a threshold may be off that lies between the numbers of an excerpt
_COUNTS = re.compile(r"[0-9][0-9,]* of [0-9][0-9,]*")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


def diagnosed_in_excerpts(sums: Sums, settings: Settings, diagnose: Diagnose) -> Diagnosis | None:
    """Return what all excerpts of a block tell alike, None where they do not, or there are none."""
    told: list[Diagnosis] = []
    try:
        for excerpt in excerpts(sums, _COUNT, _CALLS * settings.max_evaluations):
            found = _diagnosed(excerpt, sums, settings, diagnose)
            if found is None or found.cause not in _TOLD or (told and not _same(found, told[0])):
                return None
            told.append(found)
    except GradverifyError:  # what cannot be asked again gets no cause
        return None
    if not told:
        return None
    scope = "in an excerpt of this block, and in another"
    return replace(told[0], explanation=f"{told[0].explanation} ({scope})", share=min(each.share for each in told))


def _same(one: Diagnosis, other: Diagnosis) -> bool:
    """Tell whether two say the same, but for how many entries are concerned, and how exactly a number is known."""
    (words, numbers), (others, theirs) = (_read(each.explanation) for each in (one, other))
    return (one.cause, words) == (other.cause, others) and all(map(_near, numbers, theirs))


def _read(text: str) -> tuple[str, list[str]]:
    """Return a text without its numbers, and those of them that are no counts."""
    uncounted = _COUNTS.sub("", text)
    return _NUMBER.sub("#", uncounted), _NUMBER.findall(uncounted)


def _near(one: str, other: str) -> bool:
    """Tell whether two numbers are one: a whole one may be the place of something, and is to be the same."""
    return one == other or ("." in one + other and math.isclose(float(one), float(other), rel_tol=_NEAR))


def _diagnosed(problem: Problem, sums: Sums, settings: Settings, diagnose: Diagnose) -> Diagnosis | None:
    ready = steady(problem, record(problem), settings.seed)
    if ready is None:
        return None
    found = investigate(ready, settings, as_judged)
    everything = whole(found)
    groups = [
        group
        for group in found.comparison.groups
        if group.code is Code.MISMATCH and (group.of.name, group.wrt.name) == (sums.of.name, sums.wrt.name)
    ]
    if everything is None or not groups:
        return None
    return diagnose(evidence(found, everything, groups[0].of, groups[0].wrt))
