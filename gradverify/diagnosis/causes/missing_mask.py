"""Missing mask: the gradient is nonzero where the derivative is zero."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.entries import BlockEntries
from gradverify.diagnosis.block.relation import claims_in_words, factor_in_words
from gradverify.diagnosis.block.structure import group_of
from gradverify.diagnosis.naming.region import elements_text, region_text
from gradverify.diagnosis.naming.variables import Axis, broadcast_along
from gradverify.diagnosis.naming.wording import diagnosed
from gradverify.diagnosis.tuning import NEGLIGIBLE
from gradverify.evidence import Diagnosis

MISSING_MASK = "missing-mask"
_BARS = 2.0  # error bars within which a derivative counts as zero
_MIN_INPUTS = 6  # inputs in total: a random mask of so many is rarely the inverse


def missing_mask(seen: BlockEntries) -> Diagnosis | None:
    """Detect nonzero claims where the derivative is zero at this point, or a mask that is inverted."""
    return _unmasked(seen) or _inverted_mask(seen)


def _unmasked(seen: BlockEntries) -> Diagnosis | None:
    """Detect nonzero claims for inputs or outputs whose derivative is zero at this point."""
    if bool((seen.wrong & seen.nonzero & (seen.claimed == 0)).any()) or not bool((seen.wrong & seen.zero).any()):
        return None
    if bool((seen.wrong & seen.zero & (seen.numeric.abs() > _BARS / BAR_FACTOR * seen.slack)).any()):
        return None  # small, but larger than its error bars
    return _along(seen, Axis.INPUT) or _along(seen, Axis.OUTPUT) or _divided(seen) or _scaled(seen)


def _along(seen: BlockEntries, axis: Axis) -> Diagnosis | None:
    """Detect nonzero claims for all inputs, or all outputs, of a region or with a zero derivative."""
    zero = seen.zero.all(axis.across)
    wrong = seen.wrong.any(axis.across) & zero
    share = seen.share_inside(broadcast_along(axis, wrong)) if bool(wrong.any()) else None
    if share is None or (int(seen.wrong.sum()) < 2 and not seen.is_elementwise):
        return None  # a single wrong entry suggests a mask only in an elementwise function
    group = group_of(seen, axis, wrong, ~seen.left_out.all(axis.across))
    region = region_text(group)
    multiple = seen.multiple_of_cotangent(wrong) if axis is Axis.INPUT else None
    if not (region or torch.equal(zero, wrong)) or (bool(zero.all()) and multiple is None):
        return None
    region = region or elements_text(group)
    return diagnosed(MISSING_MASK, unmasked_text(group.count, multiple, region), share)


def unmasked_text(count: str, multiple: str | None, region: str) -> str:
    """Return the explanation of a missing mask in a region, "" if it is not known."""
    return f"{count}; {claims_in_words(multiple)} where numeric = 0{_at(region)}"


def _divided(seen: BlockEntries) -> Diagnosis | None:
    """Detect gradients divided equally among several inputs, for example among all candidates of a maximum."""
    nonzero = seen.claimed != 0
    masked, count = int((nonzero & seen.zero).sum()), nonzero.sum(1, keepdim=True)
    if masked < SEVERAL:
        return None
    equal_share = seen.numeric.sum(1, keepdim=True) / count.clamp(min=1)
    counts = torch.unique(count[count > 0]).tolist()
    among = f"all {counts[0]}" if len(counts) == 1 else "all"
    text = f"numeric = 0 in {masked} of {int(nonzero.sum())} entries where analytic ≠ 0: the gradient of each output is"
    text += f" divided among {among} of its inputs, also those that it does not depend on"
    return seen.explained(torch.where(nonzero, equal_share, 0.0), MISSING_MASK, text)


def _scaled(seen: BlockEntries) -> Diagnosis | None:
    """Detect gradients for all inputs with a zero derivative, and one factor on the gradients of all others."""
    zero_columns = seen.zero.all(0)
    all_wrong = bool(zero_columns.any()) and bool(seen.wrong.any(0)[zero_columns].all())
    ratio = seen.ratio_in(seen.nonzero) if all_wrong and int(seen.nonzero.sum()) >= SEVERAL else None
    if ratio is None:
        return None
    factor, words = factor_in_words(ratio)
    predicted = torch.where(broadcast_along(Axis.INPUT, zero_columns), seen.claimed, factor * seen.numeric)
    share = seen.explained_share(predicted, abs(factor))
    if share is None:
        return None
    region = region_text(group_of(seen, Axis.INPUT, zero_columns, ~seen.left_out.all(0), marks=_is_unmasked))
    multiple, count = seen.multiple_of_cotangent(zero_columns), int(zero_columns.sum())
    text = f"{claims_in_words(multiple)} in {count} of {len(zero_columns)} elements where"
    text += f" numeric = 0{_at(region)}, and analytic = {words} elsewhere"
    return diagnosed(MISSING_MASK, text, share)


def _is_unmasked(claimed: Tensor, numeric: Tensor) -> Tensor:
    """True where the claim is nonzero and the derivative is zero, (m, n)."""
    return (claimed != 0) & (numeric.abs() <= NEGLIGIBLE * numeric.abs().max())


def _at(region: str) -> str:
    return f", at {region}" if region else ""


def _inverted_mask(seen: BlockEntries) -> Diagnosis | None:
    """Detect an input tensor of which each element has a nonzero gradient or a nonzero derivative, but not both."""
    claimed, nonzero = (seen.claimed != 0).any(0), seen.nonzero.any(0)
    size, count = len(nonzero), int(nonzero.sum())
    if bool(seen.left_out.any()) or not bool(seen.wrong.any(0).all()) or not torch.equal(claimed, ~nonzero):
        return None
    if size < _MIN_INPUTS or min(count, size - count) < SEVERAL:
        return None
    text = f"all elements differ; analytic = 0 in {count} of {size} elements and numeric = 0 in the others"
    return Diagnosis(cause=MISSING_MASK, explanation=f"{text}: the mask is inverted", share=1.0)
