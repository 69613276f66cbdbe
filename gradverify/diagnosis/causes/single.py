"""Single wrong entries, or all entries of a few elements, without a common pattern."""

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
FEW = 3  # wrong entries, or wrong elements, at most
RIGHT = 3  # right ones required per wrong one; beside a single wrong entry, one is enough
_RIGHT_BESIDE_ONE = 2  # right elements required beside a single wrong element
_MOSTLY = 0.9  # share of the nonzero entries of a wrong element that have to be wrong


def single_elements(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """Detect at most three wrong entries beside many right ones, or at most three elements with all entries wrong."""
    return (
        _wrong_entries(evidence, seen)
        or _wrong_elements(evidence, seen, Axis.INPUT)
        or _wrong_elements(evidence, seen, Axis.OUTPUT)
    )


def is_of_one_input(seen: Seen) -> bool:
    """True if one element of the input has almost all of its entries wrong, and at least two others are right.

    A region of the outputs would then only select the outputs of this element.
    """
    wrong, right = _wrong_and_right(seen, Axis.INPUT)
    return _are_few(int(wrong.sum()), right, 1) and _mostly_wrong(seen, Axis.INPUT, wrong)


def _wrong_and_right(seen: Seen, axis: Axis) -> tuple[Tensor, int]:
    """Mask of the elements with wrong entries, (k,), and the number of others with nonzero entries."""
    wrong = seen.wrong.any(1 - axis.value)
    return wrong, int((_nonzero(seen).any(1 - axis.value) & ~wrong).sum())


def _are_few(wrong: int, right: int, limit: int) -> bool:
    """True if `wrong` elements are at most `limit` and few compared with the `right` ones."""
    return 1 <= wrong <= limit and right >= (_RIGHT_BESIDE_ONE if wrong == 1 else RIGHT * wrong)


def _mostly_wrong(seen: Seen, axis: Axis, wrong: Tensor) -> bool:
    return int(seen.wrong.sum()) >= _MOSTLY * int((_nonzero(seen) & over(axis, wrong)).sum())


def _nonzero(seen: Seen) -> Tensor:
    return (seen.claimed != 0) | ~seen.zero


def _wrong_entries(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    count = int(seen.wrong.sum())
    right = int((~seen.zero & ~seen.wrong).sum())
    if count > FEW or right < (1 if count == 1 else RIGHT * count):
        return None
    wrong = seen.wrong.nonzero().tolist()
    words = [f"{place(evidence.of, row)} by {place(evidence.wrt, column)}" for row, column in wrong]
    text = f"{differ(count, seen.wrong.numel(), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _wrong_elements(evidence: Evidence, seen: Seen, axis: Axis) -> Diagnosis | None:
    """Detect a few inputs with all entries wrong, or a few outputs with all entries wrong by one factor each."""
    wrong, right = _wrong_and_right(seen, axis)
    count = int(wrong.sum())
    if not _are_few(count, right, FEW) or not _mostly_wrong(seen, axis, wrong):
        return None
    share = confined(seen, over(axis, wrong))
    positions = wrong.nonzero().flatten().tolist()
    factor_texts = [_factor_text(seen, over(axis, _one_hot(wrong, at))) for at in positions]
    if share is None or (axis is Axis.OUTPUT and "" in factor_texts):
        return None
    block, noun = side(evidence, axis), "elements" if axis is Axis.INPUT else "outputs"
    words = [f"{place(block, at)}{factor_text}" for at, factor_text in zip(positions, factor_texts, strict=True)]
    text = f"{differ(count, total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=share)


def _factor_text(seen: Seen, inside: Tensor) -> str:
    """Return ", where analytic = 1.3 × numeric" if one factor holds in all wrong entries `inside`, else ""."""
    ratio = ratio_of(seen, inside.expand_as(seen.wrong))
    if ratio is None or not follows(seen, inside.expand_as(seen.wrong), ratio.value):
        return ""
    return f", where analytic = {named(ratio)[1]}" if ratio.value else ", where analytic = 0"


def _one_hot(coordinates: Tensor, position: int) -> Tensor:
    mask = coordinates.new_zeros(len(coordinates))
    mask[position] = True
    return mask
