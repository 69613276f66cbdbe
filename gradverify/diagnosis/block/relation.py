"""What holds inside a region of wrong entries: the claims are zero, numeric by a factor, or the cotangent by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

import torch

from gradverify.core.tuning import SMALL_PART
from gradverify.diagnosis.block.entries import BlockEntries, Ratio
from gradverify.diagnosis.block.structure import axes_of, axis_masks
from gradverify.diagnosis.naming.constants import known_constant, multiple_in_words, short_number
from gradverify.diagnosis.naming.region import AxisMasks, Region
from gradverify.diagnosis.naming.variables import Axis, broadcast_along
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.tuning import EQUAL_ENTRIES
from gradverify.evidence import Diagnosis

_BY_CHANCE = 1e-3  # largest chance of a coincidence for a region in which no relation is known

Regions = Callable[[AxisMasks], Iterable[Region]]
_Share = Callable[[float | None], float | None]  # from a factor, or None for any error, to the share that it explains


def confined_to_region(entries: BlockEntries, cause: str, regions: Regions) -> Diagnosis | None:
    """Return the diagnosis of the first of the regions, of inputs or else of outputs, that explains the error.

    Returns None if there is none. Outputs are not tried if the block is elementwise.
    """
    return first(confined_along_axis(entries, axis, cause, regions) for axis in axes_of(entries))


def confined_along_axis(entries: BlockEntries, axis: Axis, cause: str, regions: Regions) -> Diagnosis | None:
    """Return the diagnosis of the first of the regions of the coordinates along an axis; None if there is none.

    It says which relation holds in the region, if one is known.
    """
    coordinates = axis_masks(entries, axis)
    if int(coordinates.wrong.sum()) < 2 or not bool((coordinates.relevant & ~coordinates.wrong).any()):
        return None
    region = coordinates.accepted(regions(coordinates))
    if region is None:
        return None
    inside = broadcast_along(axis, coordinates.wrong).expand_as(entries.wrong)
    share, count = partial(entries.share_inside, inside), coordinates.count
    ratio = entries.ratio_in(inside) if int((inside & entries.nonzero).sum()) > 1 else None
    found = related(cause, count, region.text, share, ratio, entries.multiple_of_cotangent(inside.all(0)))
    if found is not None:
        return found
    doubtful = max(coordinates.chance(1), region.chance**2) > _BY_CHANCE or _fades_out(entries, coordinates)
    return diagnosed(cause, f"{count}, exactly where {region.text}", None if doubtful else share(None))


def _fades_out(entries: BlockEntries, coordinates: AxisMasks) -> bool:
    """True if the errors of some wrong coordinate are hardly larger than what is allowed.

    Then others may seem right because theirs are a little smaller, and no region ends there.
    """
    times_allowed = (entries.claimed - entries.numeric).abs() / entries.allowed
    largest = times_allowed.nan_to_num(0.0, torch.inf).amax(coordinates.axis.across)
    return bool((largest[coordinates.wrong] < 1 / SMALL_PART).any())


def related(
    cause: str, count: str, where: str, share: _Share, ratio: Ratio | None, multiple: str | None
) -> Diagnosis | None:
    """Return the diagnosis of the first relation that holds in a region: a factor, or a multiple of the cotangent.

    `share` returns what is explained if the entries of the region alone are wrong, by a factor; None for any error.
    `ratio` is a typical one of claimed / numeric inside, 0 if all claims are zero, and `multiple` is the text of a
    multiple of the cotangent.
    """
    possible: list[tuple[float | None, str]] = []
    if ratio is not None and math.isfinite(ratio.value):
        possible.append(factor_in_words(ratio))
    if multiple is not None:
        possible.append((None, multiple))
    texts = ((f"{count}; analytic = {words} where {where}", factor) for factor, words in possible)
    return first(diagnosed(cause, text, share(factor)) for text, factor in texts)


def claims_in_words(multiple: str | None) -> str:
    """Return "analytic = 3 × cotangent", or "analytic ≠ 0" if no multiple is known."""
    return f"analytic = {multiple}" if multiple else "analytic ≠ 0"


def factor_in_words(ratio: Ratio) -> tuple[float, str]:
    """Return the factor, rounded to a known constant if it is one, and the text of factor × numeric, "0" for zero."""
    if ratio.value == 0:
        return 0.0, "0"
    known = known_constant(ratio.value, ratio.accuracy) or short_number(ratio.value, ratio.accuracy)
    if known is not None:
        return math.copysign(known.value, ratio.value), f"{'-' if ratio.value < 0 else ''}{known.text} × numeric"
    factor = -1.0 if abs(ratio.value + 1.0) <= EQUAL_ENTRIES else ratio.value
    return factor, multiple_in_words(factor, "numeric", ratio.accuracy)
