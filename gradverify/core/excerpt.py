"""Evidence for a diagnosis where the Jacobian is too large to be kept: all entries of a part of it."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.case import Settings
from gradverify.core.evidence import Evidence
from gradverify.core.ground import as_judged
from gradverify.core.jacobians import Investigation, evidence, investigate, whole
from gradverify.core.slab import slab_of
from gradverify.core.steady import steady
from gradverify.core.tally import Entries
from gradverify.core.tape import record
from gradverify.errors import GradverifyError
from gradverify.result import Method

_MOST = 500_000  # entries looked at: patterns are found as surely in them as in more
_ONE_BY_ONE = 10_000  # where they have no structure, so that each column is a move
_MANY = 4  # wrong columns, of those that a search named, from which on there may be a pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A part of a wrong block, with all entries of it."""

    evidence: Evidence
    text: str  # where it lies: x[0:30]


def excerpt(found: Investigation, group: Entries, settings: Settings) -> Excerpt | None:
    """Return all entries of some slices of a wrong block, None where there are no such slices with an error in them."""
    searched = found.method is Method.PROBED
    if searched and len(set(group.input.tolist())) < _MANY:
        return None
    most = _ONE_BY_ONE if searched else _MOST
    part = slab_of(found.sampled, group.of, group.wrt, group.output.tolist(), group.input.tolist(), most)
    if part is None:
        return None
    try:
        ready = steady(part.problem, record(part.problem), settings.seed)
        if ready is None:
            return None
        its = investigate(ready, settings, as_judged)
    except GradverifyError:  # what cannot be looked at again gets no cause
        return None
    everything = whole(its)
    if everything is None or not bool(everything.wrong.any()) or len(its.sampled.outputs) > 1:
        return None
    (of,) = its.sampled.outputs
    wrt = next(block for block in its.sampled.inputs if block.name == group.wrt.name)
    return Excerpt(evidence=evidence(its, everything, of, wrt), text=part.text)
