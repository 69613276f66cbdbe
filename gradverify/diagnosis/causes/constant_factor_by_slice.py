"""One factor on all entries of some slices of a tensor; the other slices are right."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from gradverify.diagnosis.block.entries import (
    BlockEntries,
    contradicts_right,
    explained,
    has_factor,
    ratio_of,
)
from gradverify.diagnosis.block.relation import factor_in_words
from gradverify.diagnosis.block.structure import (
    AxisMasks,
    Slices,
    all_slices,
    axes_of,
    axis_masks,
    is_every_nth,
    is_run,
)
from gradverify.diagnosis.causes.constant_factor import CONSTANT_FACTOR, SIGN_FLIP
from gradverify.diagnosis.naming.region import chance, count_text
from gradverify.diagnosis.naming.variables import block_along, broadcast_along
from gradverify.evidence import Diagnosis, Evidence

_MAX_CHANCE = 0.1  # probability of equally regular random slices above which nothing is reported
_MIN_WRONG = 3  # wrong entries with the same factor


def factor_by_slice(seen: BlockEntries) -> Diagnosis | None:
    """Detect one factor on some slices that are consecutive, equally spaced, or at both ends of a dimension."""
    if int(seen.wrong.sum()) < _MIN_WRONG:
        return None
    ratio = ratio_of(seen, seen.wrong)
    if ratio is None or ratio.value == 0 or not has_factor(seen, seen.wrong, factor_in_words(ratio)[0]):
        return None
    factor, words = factor_in_words(ratio)
    for axis in axes_of(seen):
        coordinates = axis_masks(seen, axis)
        location = _regular_slices(seen.block, coordinates)
        if location is None:
            continue
        inside = broadcast_along(axis, coordinates.wrong)
        predicted = torch.where(inside, factor * seen.numeric, seen.numeric)
        if not contradicts_right(seen, predicted, abs(factor)):
            text = f"{count_text(axis, coordinates.wrong)}; analytic = {words} where {location}"
            return explained(seen, predicted, SIGN_FLIP if factor == -1.0 else CONSTANT_FACTOR, text, abs(factor))
    return None


def _regular_slices(evidence: Evidence, coordinates: AxisMasks) -> str | None:
    """Return a description of the wrong slices; None if they are not regular, or may be so by chance."""
    block = block_along(evidence, coordinates.axis)
    wrong, relevant = int(coordinates.wrong.sum()), int(coordinates.relevant.sum())
    if wrong == relevant:
        return None
    for slices in all_slices(block, coordinates):
        for placements, text in _descriptions(slices):
            if chance(placements * len(block.shape), relevant, wrong) <= _MAX_CHANCE:
                return text
    return None


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
