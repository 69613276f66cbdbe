"""A few entries are wrong, for themselves."""

from __future__ import annotations

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.relation import confined, named
from gradverify.diagnosis.block.seen import Seen, follows, ratio_of
from gradverify.diagnosis.block.structure import over
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import differ, listed, place

SINGLE_ELEMENTS = "single-elements"
FEW = 3
RIGHT = 3  # that are right, for each that is wrong; beside one wrong entry, one
_BESIDE_ONE = 2  # elements that are right, whose entries are many
_MOST = 0.9  # of the entries of a wrong element are wrong


def single_elements(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """At most three entries are wrong and many more right, or all entries of as few elements of a tensor."""
    return _entries(evidence, seen) or _elements(evidence, seen, Axis.INPUT) or _elements(evidence, seen, Axis.OUTPUT)


def is_of_one_input(seen: Seen) -> bool:
    """Tell whether all entries of one element of the input are wrong, and those of many others right.

    Whatever its outputs have in common, such as that they are this very element, says no more.
    """
    wrong, right = _wrong_and_right(seen, Axis.INPUT)
    return _are_few(int(wrong.sum()), right, 1) and _are_most(seen, Axis.INPUT, wrong)


def _wrong_and_right(seen: Seen, axis: Axis) -> tuple[Tensor, int]:
    """Return which elements of a tensor have wrong entries, (k,) bool, and how many others have entries but zeros."""
    wrong = seen.wrong.any(1 - axis.value)
    return wrong, int((_filled(seen).any(1 - axis.value) & ~wrong).sum())


def _are_few(wrong: int, right: int, most: int) -> bool:
    """Tell whether so many wrong elements are few beside the right ones: of a few in all, one beside two."""
    return 1 <= wrong <= most and right >= (_BESIDE_ONE if wrong == 1 else RIGHT * wrong)


def _are_most(seen: Seen, axis: Axis, wrong: Tensor) -> bool:
    return int(seen.wrong.sum()) >= _MOST * int((_filled(seen) & over(axis, wrong)).sum())


def _filled(seen: Seen) -> Tensor:
    return (seen.claimed != 0) | ~seen.zero


def _entries(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    count = int(seen.wrong.sum())
    right = int((~seen.zero & ~seen.wrong).sum())
    if count > FEW or right < (1 if count == 1 else RIGHT * count):
        return None
    wrong = seen.wrong.nonzero().tolist()
    words = [f"{place(evidence.of, row)} by {place(evidence.wrt, column)}" for row, column in wrong]
    text = f"{differ(count, seen.wrong.numel(), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _elements(evidence: Evidence, seen: Seen, axis: Axis) -> Diagnosis | None:
    """The whole gradient by a few inputs is wrong, or by one factor each all that comes back from a few outputs."""
    wrong, right = _wrong_and_right(seen, axis)
    count = int(wrong.sum())
    if not _are_few(count, right, FEW) or not _are_most(seen, axis, wrong):
        return None
    share = confined(seen, over(axis, wrong))
    places = wrong.nonzero().flatten().tolist()
    said = [_said(seen, over(axis, _alone(wrong, at))) for at in places]
    if share is None or (axis is Axis.OUTPUT and "" in said):
        return None
    block, noun = side(evidence, axis), "elements" if axis is Axis.INPUT else "outputs"
    words = [f"{place(block, at)}{holds}" for at, holds in zip(places, said, strict=True)]
    text = f"{differ(count, total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=share)


def _said(seen: Seen, inside: Tensor) -> str:
    """Return ", where analytic = 1.3 × numeric" if one factor holds in all entries of an element."""
    ratio = ratio_of(seen, inside.expand_as(seen.wrong))
    if ratio is None or not follows(seen, inside.expand_as(seen.wrong), ratio.value):
        return ""
    return f", where analytic = {named(ratio)[1]}" if ratio.value else ", where analytic = 0"


def _alone(coordinates: Tensor, at: int) -> Tensor:
    alone = coordinates.new_zeros(len(coordinates))
    alone[at] = True
    return alone
