"""Errors confined to some inputs or outputs of a large block: a region of values, an edge, or a missing mask."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from gradverify.core.model.coordinates import Block
from gradverify.core.tuning import SEVERAL
from gradverify.diagnosis.block.relation import related
from gradverify.diagnosis.block.structure import index_along
from gradverify.diagnosis.causes.boundary_tile import BOUNDARY_TILE, regions_at_edges
from gradverify.diagnosis.causes.missing_mask import MISSING_MASK, unmasked_text
from gradverify.diagnosis.causes.wrong_branch import WRONG_BRANCH, regions_by_value
from gradverify.diagnosis.naming.region import AxisMasks, region_text
from gradverify.diagnosis.naming.variables import Axis, block_along, variables
from gradverify.diagnosis.naming.wording import diagnosed, first
from gradverify.diagnosis.projections.sums import RandomProjections, SampledLine, holds, line, sums_over
from gradverify.evidence import Diagnosis

_TILES = (4, 8, 16, 32, 64, 128, 256)  # tile sizes that are tried
_CHANGES = 2  # from right to wrong or back along an order, at most: a region has one or two boundaries
_TRIES = 4  # coordinates with the same key, until one is clearly right or wrong

_IsWrong = Callable[[Tensor], bool]  # from a mask (k,) to whether its coordinates are wrong


def confined_to_places(projections: RandomProjections) -> Diagnosis | None:
    """Diagnose wrong entries that are all those of some inputs, or of some outputs, and satisfy one relation."""
    groups = (group for axis in (Axis.INPUT, Axis.OUTPUT) for group in _groups(projections, axis))
    return first(_explained(projections, group) for group in groups)


def _explained(projections: RandomProjections, group: AxisMasks) -> Diagnosis | None:
    """Return the diagnosis of a group by its positions, by its values, or as masked; None if none applies."""
    by_place = next(iter(regions_at_edges(group)), None)
    region = by_place or next(iter(regions_by_value(group)), None)
    all_masked = not bool((_silent(projections, group.axis) & ~group.wrong).any())  # no right coordinate may be masked
    if region is None and not all_masked:
        return None
    part, count = sums_over(projections, group.axis, group.wrong), group.count
    multiple = projections.multiple_of_cotangent(group.wrong) if group.axis is Axis.INPUT else None
    if holds(projections, part.numeric, torch.zeros_like(part.claimed)):
        where = region_text(replace(group, relevant=torch.ones_like(group.wrong)))
        text = unmasked_text(count, multiple, where)
        return diagnosed(MISSING_MASK, text, part.share(None)) if where or all_masked else None
    if region is None:
        return None
    cause = WRONG_BRANCH if by_place is None else BOUNDARY_TILE
    return related(cause, count, region.text, part.share, part.ratio(), multiple)


def _silent(projections: RandomProjections, axis: Axis) -> Tensor:
    """Mask of inputs whose gradients are all zero, or of outputs whose slopes are all zero within their error bars."""
    if axis is Axis.INPUT:
        return (projections.gradients == 0).all(0)
    at = projections.block.of.coordinates
    return torch.stack([found.value[at].abs() <= found.bar[at] for found in projections.slopes]).all(0)


def _groups(projections: RandomProjections, axis: Axis) -> Iterator[AxisMasks]:
    """Yield the set of wrong coordinates along an axis if it is known, else one guess for every order of them."""
    block, silent = projections.block, _silent(projections, axis)
    if block.wrong_places_complete:
        known = block.wrong_entries.inputs if axis is Axis.INPUT else block.wrong_entries.outputs
        wrong = torch.zeros_like(silent).index_fill(0, known.to(block.device), True)
        if int(wrong.sum()) >= SEVERAL and bool((~wrong & ~silent).any()):
            yield AxisMasks(evidence=block, axis=axis, wrong=wrong, relevant=wrong | ~silent)
        return
    sample: Sequence[SampledLine] = projections.columns if axis is Axis.INPUT else projections.rows
    if not any(each.wrong for each in sample) or not any(each.right for each in sample):
        return
    for keys in _orders(block_along(block, axis), projections, axis):
        guess = _contiguous(keys, sample, partial(_is_wrong, projections, axis, silent))
        if guess is not None and int(guess.sum()) >= SEVERAL:
            yield AxisMasks(evidence=block, axis=axis, wrong=guess, relevant=guess | ~silent)


def _orders(block: Block, projections: RandomProjections, axis: Axis) -> Iterator[Tensor]:
    """Yield sort keys (k,) by which the wrong coordinates may be contiguous: values, indices, positions in a tile."""
    for variable in variables(projections.block, axis):
        yield variable.values
    for dimension in reversed(range(len(block.shape))):
        index, size = index_along(block.shape, dimension, projections.block.device), block.shape[dimension]
        if size > 1:
            yield index.double()
        for tile in _TILES:
            if 2 * tile <= size:
                yield (index % tile).double()


def _contiguous(keys: Tensor, sample: Sequence[SampledLine], is_wrong: _IsWrong) -> Tensor | None:
    """Return the mask (k,) of wrong coordinates, assuming that these, or the right ones, are contiguous by `keys` (k,).

    Returns None if the sample contradicts this. Each boundary is found by bisection between a right and a wrong
    coordinate; a step costs one column or row, or a few.
    """
    known = sorted((float(keys[each.position]), each.wrong) for each in sample if each.wrong or each.right)
    if any(first[0] == second[0] and first[1] != second[1] for first, second in pairwise(known)):
        return None
    changes = [(below, above) for below, above in pairwise(known) if below[1] != above[1]]
    if not 1 <= len(changes) <= _CHANGES:
        return None
    wrong = torch.full_like(keys, known[0][1], dtype=torch.bool)
    for below, above in changes:
        wrong = torch.where(keys >= _boundary(keys, below, above, is_wrong), above[1], wrong)
    return wrong


def _boundary(keys: Tensor, below: tuple[float, bool], above: tuple[float, bool], is_wrong: _IsWrong) -> float:
    """Return the smallest key beyond `below` whose coordinates are wrong, or right, like `above`; both (key, wrong)."""
    candidates: list[float] = torch.unique(keys[(keys > below[0]) & (keys <= above[0])]).tolist()
    known = len(candidates) - 1  # the key of `above`
    return candidates[bisect_left(candidates, True, hi=known, key=lambda key: is_wrong(keys == key) == above[1])]


def _is_wrong(projections: RandomProjections, axis: Axis, silent: Tensor, here: Tensor) -> bool:
    """True if coordinates in a mask (k,) are wrong: the first that is clear says it, of a few that are tried."""
    preferred = here & ~silent  # a silent coordinate may be wrong too, but its error may not show
    places = (preferred if bool(preferred.any()) else here).nonzero().flatten().tolist()
    tried = (line(projections, axis, place) for place in places[:: max(1, len(places) // _TRIES)][:_TRIES])
    return next((found.wrong for found in tried if found.wrong or found.right), False)
