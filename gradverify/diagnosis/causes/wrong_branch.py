"""Wrong derivative of one branch: the errors are confined to a region of values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gradverify.diagnosis.block.entries import BlockEntries, Ratio, explained, ratio_of
from gradverify.diagnosis.block.relation import confined_to_region, factor_in_words
from gradverify.diagnosis.block.structure import (
    axis_masks,
    group_of,
    is_consecutive,
    is_every_second_or_third,
    is_triangle_or_diagonal,
)
from gradverify.diagnosis.causes.single_elements import is_confined_to_one_input
from gradverify.diagnosis.naming.region import AxisMasks, Region, regions
from gradverify.diagnosis.naming.variables import Axis, broadcast_along, is_sorted
from gradverify.evidence import Diagnosis

WRONG_BRANCH = "wrong-branch"
_MAX_CHANCE = 0.25  # chance of a region above which it is not reported
_SAME = 1e-5  # relative spread of ratios that count as one factor
_SHARP = 1e-3  # relative accuracy of an entry: one measured less accurately is not used for its ratio
_MIN_INPUTS = 2  # inputs on each side of the threshold


def wrong_branch(seen: BlockEntries) -> Diagnosis | None:
    """Detect errors confined to a region of values, inside which one relation holds, or one factor on either side."""
    if is_confined_to_one_input(seen):
        return None
    return confined_to_region(seen, WRONG_BRANCH, regions_by_value) or _two_wrong_branches(seen)


def regions_by_value(group: AxisMasks) -> Iterator[Region]:
    """Yield the regions of values that hold exactly the wrong coordinates, unless by chance.

    The positions of the wrong coordinates may explain them as well. Then only the regions that still hold after the
    values changed places are yielded. Positions are ignored in two cases: a triangle, a diagonal or a run of slices if
    a variable is sorted by position, and every second or third slice if the region is a single value.
    """
    candidates = group.variables
    by_place = is_triangle_or_diagonal(group) or is_consecutive(group)
    position_explains = by_place and not any(is_sorted(variable.values) for variable in candidates)
    in_step = is_every_second_or_third(group)
    for region in regions(group, candidates):
        by_position = position_explains or (in_step and not region.level)
        if region.coincidence <= _MAX_CHANCE and (not by_position or (group.region_test and group.region_test(region))):
            yield region


def _two_wrong_branches(seen: BlockEntries) -> Diagnosis | None:
    """Detect errors in all nonzero entries, with one factor on either side of a threshold."""
    inputs = axis_masks(seen, Axis.INPUT)
    larger = None if bool((seen.nonzero & ~seen.wrong).any()) else _inputs_with_larger_factor(seen, inputs)
    if larger is None:
        return None
    for side in (larger, inputs.relevant & ~larger):
        inside = broadcast_along(Axis.INPUT, side)
        inner, outer = ratio_of(seen, inside), ratio_of(seen, ~inside)
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
    return (claimed - factor * numeric).abs() <= _SAME * claimed.abs()


def _inputs_with_larger_factor(seen: BlockEntries, inputs: AxisMasks) -> Tensor | None:
    """Mask of the inputs with the larger of two factors, (n,); None unless there are exactly two."""
    accurate = seen.nonzero & (seen.slack <= _SHARP * seen.numeric.abs())
    first = accurate.long().argmax(0, keepdim=True)
    ratio = (seen.claimed.gather(0, first) / seen.numeric.gather(0, first)).squeeze(0)
    known = accurate.any(0) & inputs.relevant
    if not bool(known.any()) or not torch.equal(known, inputs.relevant):
        return None
    low, high = float(ratio[known].min()), float(ratio[known].max())
    sides = [known & ((ratio - value).abs() <= _SAME * abs(value)) for value in (low, high)]
    two_factors = all(int(side.sum()) >= _MIN_INPUTS for side in sides) and not bool((sides[0] & sides[1]).any())
    return sides[1] if two_factors and torch.equal(sides[0] | sides[1], known) else None


def _explained(seen: BlockEntries, inside: Tensor, region: Region, inner: Ratio, outer: Ratio) -> Diagnosis | None:
    """Return the diagnosis of one ratio inside a region, a mask (1, n), and of another outside."""
    factors = [factor_in_words(ratio) for ratio in (inner, outer)]
    predicted = torch.where(inside, factors[0][0], factors[1][0]) * seen.numeric
    text = f"all elements differ; analytic = {factors[0][1]} where {region.text} and {factors[1][1]} elsewhere"
    swapped = abs(inner.value * outer.value - 1.0) <= _SAME
    interpretation = ": one branch has the slope of the other" if swapped else ""
    return explained(seen, predicted, WRONG_BRANCH, text + interpretation, max(abs(factor) for factor, _ in factors))
