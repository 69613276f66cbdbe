"""One factor on all entries of some slices of a tensor, and none on the others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from gradverify.core.model.coordinates import total
from gradverify.core.whole.evidence import Diagnosis, Evidence
from gradverify.diagnosis.block.relation import named
from gradverify.diagnosis.block.seen import Seen, contradicts, follows, ratio_of, share_of
from gradverify.diagnosis.block.slices import Slices, in_step, slices_of
from gradverify.diagnosis.block.structure import Group, group, is_elementwise, over
from gradverify.diagnosis.causes.factor import CONSTANT_FACTOR, SIGN_FLIP
from gradverify.diagnosis.naming.region import chance
from gradverify.diagnosis.naming.variables import Axis, side
from gradverify.diagnosis.naming.wording import differ, part

_LIMIT = 0.1  # chance of places above which they say nothing
_SEVERAL = 3  # wrong entries that agree


def factor_by_place(evidence: Evidence, seen: Seen) -> Diagnosis | None:
    """All entries of some slices are wrong by one factor, and these lie in a row, in step, or at both ends."""
    if int(seen.wrong.sum()) < _SEVERAL:
        return None
    ratio = ratio_of(seen, seen.wrong)
    if ratio is None or ratio.value == 0 or not follows(seen, seen.wrong, named(ratio)[0]):
        return None
    factor, words = named(ratio)
    for axis in (Axis.INPUT,) if is_elementwise(evidence, seen) else (Axis.INPUT, Axis.OUTPUT):
        found = group(seen, axis)
        where = _where(evidence, found)
        if where is None:
            continue
        inside = over(axis, found.wrong)
        predicted = torch.where(inside, factor * seen.numeric, seen.numeric)
        share = share_of(seen, predicted, abs(factor))
        if share is not None and not contradicts(seen, predicted, abs(factor)):
            noun = "elements" if axis is Axis.INPUT else "outputs"
            count = differ(int(found.wrong.sum()), total(side(evidence, axis).shape), noun)
            text = f"{count}; analytic = {words} where {where}{part(share)}"
            return Diagnosis(cause=SIGN_FLIP if factor == -1.0 else CONSTANT_FACTOR, explanation=text, share=share)
    return None


def _where(evidence: Evidence, found: Group) -> str | None:
    """Return the wrong slices in words, None where there are none or a blind choice might be as regular."""
    block = side(evidence, found.axis)
    wrong, relevant = int(found.wrong.sum()), int(found.relevant.sum())
    if wrong == relevant:
        return None
    for dimension in range(len(block.shape)):
        slices = slices_of(block, dimension, found)
        for families, text in _ways(slices) if slices is not None else ():
            if chance(families * len(block.shape), relevant, wrong) <= _LIMIT:
                return text
    return None


def _ways(slices: Slices) -> Iterator[tuple[int, str]]:
    """Yield how the wrong slices may be told, and in how many places as many would be told alike."""
    at, size = sorted(slices.wrong), slices.size
    count, whole = len(at), len(slices.alive) == size  # places that hold nothing join others by coincidence
    if whole and at == list(range(at[0], at[0] + count)):
        yield size - count + 1, slices.where
    right = [place for place in range(size) if place not in slices.wrong]
    if whole and right[0] > 0 and right[-1] < size - 1 and right == list(range(right[0], right[0] + len(right))):
        yield count - 1, f"{slices.where}, at both ends"
    step = min((after - before for before, after in pairwise(at)), default=1)
    if count > 2 and step > 1 and in_step(slices, step):
        yield size, f"{slices.where}, one of each {step}"
