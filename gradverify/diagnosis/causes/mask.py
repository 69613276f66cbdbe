"""Backward lets a gradient through where the derivative is zero."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gradverify.core.estimate.samples import BAR_FACTOR
from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.followed import believed
from gradverify.diagnosis.block.relation import confined, multiple_of_cotangent, named
from gradverify.diagnosis.block.seen import Seen, ratio_of, share_of
from gradverify.diagnosis.block.structure import is_elementwise, over
from gradverify.diagnosis.naming.described import Choose, described, elements
from gradverify.diagnosis.naming.variables import Axis
from gradverify.diagnosis.naming.wording import differ, part

MISSING_MASK = "missing-mask"
_NONE = 2.0  # error bars within which a derivative is none
_NOTHING = 1e-9  # of the largest derivative: zero
_SEVERAL = 2  # entries that are masked, and entries that agree on a factor


def missing_mask(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """The wrong entries are those of coordinates that the output does not depend on, here."""
    if bool((seen.wrong & ~seen.zero & (seen.claimed == 0)).any()) or not bool((seen.wrong & seen.zero).any()):
        return None
    if bool((seen.wrong & seen.zero & (seen.numeric.abs() > _NONE / BAR_FACTOR * seen.slack)).any()):
        return None  # smaller than would be noticed is not yet zero
    return _of_inputs(evidence, seen) or _of_outputs(evidence, seen) or _divided(seen) or _scaled(evidence, seen)


def _of_inputs(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    dead = seen.zero.all(0)
    wrong = seen.wrong.any(0) & dead
    share = confined(seen, over(Axis.INPUT, wrong)) if bool(wrong.any()) else None
    if share is None:
        return None
    relevant = ~seen.left_out.all(0)
    region = described(evidence, Axis.INPUT, wrong, relevant, _choose(seen, Axis.INPUT, wrong))
    claim = multiple_of_cotangent(evidence, seen, wrong)
    if not (region or torch.equal(dead, wrong)) or (bool(dead.all()) and claim is None):
        return None
    if int(seen.wrong.sum()) < 2 and not is_elementwise(evidence, seen):
        return None  # one wrong entry is a mask's only where the function works entry by entry
    count = differ(int(wrong.sum()), total(evidence.wrt.shape), "elements")
    region = region or elements(evidence, Axis.INPUT, wrong, relevant)
    text = f"{count}; analytic {f'= {claim}' if claim else '≠ 0'} where numeric = 0{_at(region)}{part(share)}"
    return Diagnosis(cause=MISSING_MASK, explanation=text, share=share)


def _of_outputs(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    dead = seen.zero.all(1)
    wrong = seen.wrong.any(1) & dead
    share = confined(seen, over(Axis.OUTPUT, wrong)) if bool(wrong.any()) else None
    if share is None or bool(dead.all()):
        return None
    region = described(evidence, Axis.OUTPUT, wrong, ~seen.left_out.all(1), _choose(seen, Axis.OUTPUT, wrong))
    complete = bool((seen.claimed != 0).any(1)[dead].all())
    if not complete or int(seen.wrong.sum()) < 2:
        return None
    count = differ(int(wrong.sum()), total(evidence.of.shape), "outputs")
    region = region or elements(evidence, Axis.OUTPUT, wrong, ~seen.left_out.all(1))
    text = f"{count}; analytic ≠ 0 where numeric = 0{_at(region)}{part(share)}"
    return Diagnosis(cause=MISSING_MASK, explanation=text, share=share)


def _divided(seen: Seen) -> Diagnosis | None:
    """Every output's gradient is divided among several inputs, as among the winner and the losers of a maximum."""
    live = seen.claimed != 0
    losers, count = int((live & seen.zero).sum()), live.sum(1, keepdim=True)
    if losers < _SEVERAL:
        return None
    equal = seen.numeric.sum(1, keepdim=True) / count.clamp(min=1)
    share = share_of(seen, torch.where(live, equal, 0.0))
    if share is None:
        return None
    counts = torch.unique(count[count > 0]).tolist()
    among = f"all {counts[0]}" if len(counts) == 1 else "all"
    text = f"numeric = 0 in {losers} of {int(live.sum())} entries where analytic ≠ 0: the gradient of each output is"
    text += f" divided among {among} of its inputs, also those that it does not depend on{part(share)}"
    return Diagnosis(cause=MISSING_MASK, explanation=text, share=share)


def _scaled(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All inputs that are cut off get a gradient, and that of the others is wrong by one factor."""
    dead = seen.zero.all(0)
    live = over(Axis.INPUT, ~dead).expand_as(seen.wrong) & ~seen.zero
    masked = bool(dead.any()) and bool(seen.wrong.any(0)[dead].all())
    ratio = ratio_of(seen, live) if masked and int(live.sum()) >= _SEVERAL else None
    if ratio is None:
        return None
    factor, words = named(ratio)
    share = share_of(seen, torch.where(over(Axis.INPUT, dead), seen.claimed, factor * seen.numeric), abs(factor))
    if share is None:
        return None
    claim, count = multiple_of_cotangent(evidence, seen, dead), int(dead.sum())
    choose = partial(believed, follows=partial(seen.follows, Axis.INPUT, dead, marks=_passes))
    region = described(evidence, Axis.INPUT, dead, ~seen.left_out.all(0), choose)
    text = f"analytic {f'= {claim}' if claim else '≠ 0'} in {count} of {total(evidence.wrt.shape)} elements where"
    text += f" numeric = 0{_at(region)}, and analytic = {words} elsewhere{part(share)}"
    return Diagnosis(cause=MISSING_MASK, explanation=text, share=share)


def _passes(claimed: Tensor, numeric: Tensor) -> Tensor:
    """Return True where a gradient passes and the derivative is zero, (m, n)."""
    return (claimed != 0) & (numeric.abs() <= _NOTHING * numeric.abs().max())


def _choose(seen: Seen, axis: Axis, wrong: Tensor) -> Choose:
    """Return what chooses the region that moves with the values, of these wrong coordinates (k,)."""
    return partial(believed, follows=partial(seen.follows, axis, wrong))


def _at(region: str) -> str:
    return f", at {region}" if region else ""
