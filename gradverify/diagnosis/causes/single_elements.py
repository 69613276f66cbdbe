"""Single wrong entries, or all entries of a few elements, without a common pattern."""

from __future__ import annotations

from torch import Tensor

from gradverify.core.model.coordinates import total
from gradverify.diagnosis.block.entries import BlockEntries, has_factor, ratio_of
from gradverify.diagnosis.block.relation import factor_in_words, share_inside
from gradverify.diagnosis.block.structure import broadcast_along
from gradverify.diagnosis.naming.variables import Axis, block_along
from gradverify.diagnosis.naming.wording import differ_text, element_name, listed
from gradverify.evidence import Diagnosis, Evidence

SINGLE_ELEMENTS = "single-elements"
MAX_WRONG = 3  # wrong entries, or wrong elements, at most
RIGHT_PER_WRONG = 3  # right ones required per wrong one; beside a single wrong entry, one is enough
_RIGHT_BESIDE_ONE = 2  # right elements required beside a single wrong element
_MOSTLY = 0.9  # share of the nonzero entries of a wrong element that have to be wrong


def single_elements(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    """Detect at most three wrong entries beside many right ones, or at most three elements with all entries wrong."""
    return (
        _wrong_entries(evidence, seen)
        or _wrong_elements(evidence, seen, Axis.INPUT)
        or _wrong_elements(evidence, seen, Axis.OUTPUT)
    )


def is_confined_to_one_input(seen: BlockEntries) -> bool:
    """True if one element of the input has almost all of its entries wrong, and at least two others are right.

    A region of the outputs would then only select the outputs of this element.
    """
    wrong, right = _wrong_and_right(seen, Axis.INPUT)
    return _are_few(int(wrong.sum()), right, 1) and _mostly_wrong(seen, Axis.INPUT, wrong)


def _wrong_and_right(seen: BlockEntries, axis: Axis) -> tuple[Tensor, int]:
    """Mask of the elements with wrong entries, (k,), and the number of others with nonzero entries."""
    wrong = seen.wrong.any(1 - axis.value)
    return wrong, int((_nonzero(seen).any(1 - axis.value) & ~wrong).sum())


def _are_few(wrong: int, right: int, limit: int) -> bool:
    """True if `wrong` elements are at most `limit` and few compared with the `right` ones."""
    return 1 <= wrong <= limit and right >= (_RIGHT_BESIDE_ONE if wrong == 1 else RIGHT_PER_WRONG * wrong)


def _mostly_wrong(seen: BlockEntries, axis: Axis, wrong: Tensor) -> bool:
    return int(seen.wrong.sum()) >= _MOSTLY * int((_nonzero(seen) & broadcast_along(axis, wrong)).sum())


def _nonzero(seen: BlockEntries) -> Tensor:
    return (seen.claimed != 0) | ~seen.zero


def _wrong_entries(evidence: Evidence, seen: BlockEntries) -> Diagnosis | None:
    count = int(seen.wrong.sum())
    right = int((~seen.zero & ~seen.wrong).sum())
    if count > MAX_WRONG or right < (1 if count == 1 else RIGHT_PER_WRONG * count):
        return None
    wrong = seen.wrong.nonzero().tolist()
    words = [f"{element_name(evidence.of, row)} by {element_name(evidence.wrt, column)}" for row, column in wrong]
    text = f"{differ_text(count, seen.wrong.numel(), 'entries')}: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=1.0)


def _wrong_elements(evidence: Evidence, seen: BlockEntries, axis: Axis) -> Diagnosis | None:
    """Detect a few inputs with all entries wrong, or a few outputs with all entries wrong by one factor each."""
    wrong, right = _wrong_and_right(seen, axis)
    count = int(wrong.sum())
    if not _are_few(count, right, MAX_WRONG) or not _mostly_wrong(seen, axis, wrong):
        return None
    share = share_inside(seen, broadcast_along(axis, wrong))
    positions = wrong.nonzero().flatten().tolist()
    factor_texts = [_factor_text(seen, broadcast_along(axis, _one_hot(wrong, at))) for at in positions]
    if share is None or (axis is Axis.OUTPUT and "" in factor_texts):
        return None
    block, noun = block_along(evidence, axis), "elements" if axis is Axis.INPUT else "outputs"
    words = [f"{element_name(block, at)}{factor_text}" for at, factor_text in zip(positions, factor_texts, strict=True)]
    text = f"{differ_text(count, total(block.shape), noun)}, in all entries: {listed(words)}"
    return Diagnosis(cause=SINGLE_ELEMENTS, explanation=text, share=share)


def _factor_text(seen: BlockEntries, inside: Tensor) -> str:
    """Return ", where analytic = 1.3 × numeric" if one factor holds in all wrong entries `inside`, else ""."""
    ratio = ratio_of(seen, inside.expand_as(seen.wrong))
    if ratio is None or not has_factor(seen, inside.expand_as(seen.wrong), ratio.value):
        return ""
    return f", where analytic = {factor_in_words(ratio)[1]}" if ratio.value else ", where analytic = 0"


def _one_hot(coordinates: Tensor, position: int) -> Tensor:
    mask = coordinates.new_zeros(len(coordinates))
    mask[position] = True
    return mask
