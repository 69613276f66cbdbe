"""Wrong derivative of one branch: the errors are confined to a region of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.entries import BlockEntries, Ratio
from gradverify.diagnosis.block.relation import confined_to_region, factor_in_words
from gradverify.diagnosis.block.structure import all_slices, axis_masks, group_of, is_every_nth, is_run
from gradverify.diagnosis.causes.single_elements import few_wrong
from gradverify.diagnosis.naming.region import AxisMasks, Region, regions
from gradverify.diagnosis.naming.variables import Axis, broadcast_along, is_sorted
from gradverify.diagnosis.tuning import CREDIBLE, EQUAL_FACTORS, NO_ACCIDENT
from gradverify.evidence import Diagnosis

WRONG_BRANCH = "wrong-branch"
_MAX_CHANCE = 0.25  # chance of a region above which it is not reported
_SHARP = 1e-3  # relative accuracy of an entry: one measured less accurately is not used for its ratio
_STEPS = (2, 3)  # strides of an index: every second, every third slice


def wrong_branch(seen: BlockEntries) -> Diagnosis | None:
    """Detect errors confined to a region of values, inside which one relation holds, or one factor on either side."""
    if few_wrong(seen, Axis.INPUT, 1) is not None:
        return None  # a region of the outputs would only select those of this one input
    return confined_to_region(seen, WRONG_BRANCH, regions_by_value) or _two_wrong_branches(seen)


def regions_by_value(group: AxisMasks) -> Iterator[Region]:
    """Yield the regions of values that hold exactly the wrong coordinates, unless by chance.

    The positions of the wrong coordinates may explain them as well. Then only the regions that still hold after the
    values changed places are yielded. Positions are ignored in two cases: a triangle, a diagonal or a run of slices if
    a variable is sorted by position, and every second or third slice if the region is a single value.
    """
    candidates = group.variables
    by_place = _is_triangle_or_diagonal(group) or _is_consecutive(group)
    position_explains = by_place and not any(is_sorted(variable.values) for variable in candidates)
    in_step = _is_every_second_or_third(group)
    for region in regions(group, candidates):
        by_position = position_explains or (in_step and not region.level)
        if region.coincidence <= _MAX_CHANCE and (not by_position or (group.region_test and group.region_test(region))):
            yield region


def _is_triangle_or_diagonal(group: AxisMasks) -> bool:
    """True if the wrong coordinates are a triangle or the diagonal of square matrices, or all off-diagonal ones.

    The last two dimensions are the matrices. A region of values may fit the same coordinates by coincidence: the
    largest entries of a positive definite matrix are often on its diagonal.
    """
    shape = group.block.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < NO_ACCIDENT:
        return False
    wrong, relevant = group.wrong.reshape(shape), group.relevant.reshape(shape)
    full = torch.ones(shape[-2:], dtype=torch.bool, device=wrong.device)
    masks = [full.triu(1), full.tril(-1), full.triu(), full.tril()]
    masks += [masks[0] | masks[1], masks[2] & masks[3]]
    return any(torch.equal(mask & relevant, wrong) for mask in masks)


def _is_consecutive(group: AxisMasks) -> bool:
    """True if the wrong coordinates are consecutive whole slices of a dimension, without its first and last."""
    inner = (each for each in all_slices(group) if min(each.wrong) > 0 and max(each.wrong) < each.size - 1)
    return int(group.wrong.sum()) >= NO_ACCIDENT and any(is_run(sorted(slices.wrong)) for slices in inner)


def _is_every_second_or_third(group: AxisMasks) -> bool:
    """True if the wrong coordinates are every second or third slice along a dimension, unlikely by chance."""
    steps = ((slices, step) for slices in all_slices(group) for step in _STEPS if slices.size >= 2 * step)
    return group.chance(sum(_STEPS)) <= CREDIBLE and any(is_every_nth(slices, step) for slices, step in steps)


def _two_wrong_branches(seen: BlockEntries) -> Diagnosis | None:
    """Detect errors in all nonzero entries, with one factor on either side of a threshold."""
    inputs = axis_masks(seen, Axis.INPUT)
    larger = None if bool((seen.nonzero & ~seen.wrong).any()) else _inputs_with_larger_factor(seen, inputs)
    if larger is None:
        return None
    for side in (larger, inputs.relevant & ~larger):
        inside = broadcast_along(Axis.INPUT, side)
        inner, outer = seen.ratio_in(inside), seen.ratio_in(~inside)
        if inner is None or outer is None:
            return None
        sided = group_of(seen, Axis.INPUT, side, inputs.relevant, marks=partial(_has_factor, inner.value))
        one_sided = (region for region in regions_by_value(sided) if region.one_sided)
        region = sided.accepted(one_sided)
        if region is not None:
            return _explained(seen, inside, region, inner, outer)
    return None


def _has_factor(factor: float, claimed: Tensor, numeric: Tensor) -> Tensor:
    """True where the claim is the derivative times a factor, (m, n)."""
    return (claimed - factor * numeric).abs() <= EQUAL_FACTORS * claimed.abs()


def _inputs_with_larger_factor(seen: BlockEntries, inputs: AxisMasks) -> Tensor | None:
    """Mask of the inputs with the larger of two factors, (n,); None unless there are exactly two."""
    accurate = seen.nonzero & (seen.slack <= _SHARP * seen.numeric.abs())
    first = accurate.long().argmax(0, keepdim=True)
    ratio = (seen.claimed.gather(0, first) / seen.numeric.gather(0, first)).squeeze(0)
    known = accurate.any(0) & inputs.relevant
    if not bool(known.any()) or not torch.equal(known, inputs.relevant):
        return None
    low, high = float(ratio[known].min()), float(ratio[known].max())
    sides = [known & ((ratio - value).abs() <= EQUAL_FACTORS * abs(value)) for value in (low, high)]
    two_factors = all(int(side.sum()) >= SEVERAL for side in sides) and not bool((sides[0] & sides[1]).any())
    return sides[1] if two_factors and torch.equal(sides[0] | sides[1], known) else None


def _explained(seen: BlockEntries, inside: Tensor, region: Region, inner: Ratio, outer: Ratio) -> Diagnosis | None:
    """Return the diagnosis of one ratio inside a region, a mask (1, n), and of another outside."""
    factors = [factor_in_words(ratio) for ratio in (inner, outer)]
    predicted = torch.where(inside, factors[0][0], factors[1][0]) * seen.numeric
    text = f"all elements differ; analytic = {factors[0][1]} where {region.text} and {factors[1][1]} elsewhere"
    swapped = abs(inner.value * outer.value - 1.0) <= EQUAL_FACTORS
    interpretation = ": one branch has the slope of the other" if swapped else ""
    return seen.explained(predicted, WRONG_BRANCH, text + interpretation, max(abs(factor) for factor, _ in factors))
