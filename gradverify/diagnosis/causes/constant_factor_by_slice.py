"""One factor on all entries of some slices of a tensor; the other slices are right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from gradverify.diagnosis.block.entries import BlockEntries, contradicts_right, has_factor, ratio_of
from gradverify.diagnosis.block.relation import confined_along_axis, factor_in_words
from gradverify.diagnosis.block.structure import Slices, all_slices, axes_of, is_every_nth, is_run
from gradverify.diagnosis.causes.constant_factor import CONSTANT_FACTOR, SIGN_FLIP
from gradverify.diagnosis.naming.region import AxisMasks, Region
from gradverify.diagnosis.naming.variables import broadcast_along
from gradverify.evidence import Diagnosis

_MAX_CHANCE = 0.1  # probability of equally regular random slices above which nothing is reported
_MIN_WRONG = 3  # wrong entries with the same factor


def factor_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect one factor on some slices that are consecutive, equally spaced, or at both ends of a dimension."""
    ratio = ratio_of(seen, seen.wrong) if int(seen.wrong.sum()) >= _MIN_WRONG else None
    factor = 0.0 if ratio is None else factor_in_words(ratio)[0]
    if factor == 0.0 or not has_factor(seen, seen.wrong, factor):
        return None
    cause = SIGN_FLIP if factor == -1.0 else CONSTANT_FACTOR
    for axis in axes_of(seen):
        inside = broadcast_along(axis, seen.wrong.any(1 - axis.value))
        predicted = torch.where(inside, factor * seen.numeric, seen.numeric)
        found = confined_along_axis(seen, axis, cause, _regular_slices)
        if found is not None and not contradicts_right(seen, predicted, abs(factor)):
            return found
    return None


def _regular_slices(group: AxisMasks) -> Iterator[Region]:
    """Yield descriptions of the wrong slices if they are regular, and hardly so by chance."""
    for slices in all_slices(group):
        for placements, text in _descriptions(slices):
            likely = group.chance(placements * len(group.block.shape))
            if likely <= _MAX_CHANCE:
                yield Region(text=text, chance=likely)


def _descriptions(slices: Slices) -> Iterator[tuple[int, str]]:
    """Yield descriptions of the wrong slices, each with the number of placements that fit the same description."""
    wrong, size = sorted(slices.wrong), slices.size
    count, all_relevant = len(wrong), len(slices.relevant) == size  # slices of zeros could complete a pattern by chance
    if all_relevant and is_run(wrong):
        yield size - count + 1, slices.where
    right = [place for place in range(size) if place not in slices.wrong]
    if all_relevant and right[0] > 0 and right[-1] < size - 1 and is_run(right):
        yield count - 1, f"{slices.where}, at both ends"
    step = min((after - before for before, after in pairwise(wrong)), default=1)
    if count > 2 and step > 1 and is_every_nth(slices, step):
        yield size, f"{slices.where}, one of each {step}"
