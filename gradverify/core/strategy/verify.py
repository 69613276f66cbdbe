"""Tests of a sparsity pattern: compressed columns and vjps against random combinations of columns and rows."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gradverify.core.backward.batched_vjp import SUM_UNITS
from gradverify.core.backward.vjps import Backward, row
from gradverify.core.decide.compare import SIGNIFICANT
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.directional_sums import are_smooth, columns_do_not_add_up
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import ColumnGroups, sum_by_column
from gradverify.core.estimate.directional import SUM_ROUNDING
from gradverify.core.forward.sampler import outputs_near
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.strategy.sparsity import NUDGE
from gradverify.core.strategy.structure import Structure


def claims_match_vjps(backward: Backward, column_groups: ColumnGroups, claimed: Tensor, seed: int) -> bool:
    """True if the claimed entries (M, m), and no others, give the vjps of two random cotangents.

    Columns with a claim that is not finite are not tested. The second cotangent gives every row the same weight, so
    that a stray entry shows beside its own row even if other rows are much larger.
    """
    size = claimed.abs().nan_to_num_(0.0, 0.0, 0.0)
    weights = size.amax(dim=0) if len(size) > 1 else size[0]
    weights.masked_fill_(weights == 0, 1.0).reciprocal_()
    rounding = max(
        SUM_ROUNDING, SUM_UNITS * max(torch.finfo(primal.tensor.dtype).eps for primal in backward.problem.primals)
    )
    if not _adds_up(column_groups, claimed, *backward.known_vjp, rounding):
        return False
    cotangent = random_magnitudes(weights, torch.Generator().manual_seed(seed + 1))
    return _adds_up(column_groups, claimed, cotangent, row(backward, cotangent), rounding)


def entries_match_directional_difference(context: JudgingContext, judged: Judged, seed: int) -> bool:
    """True if the measured entries, and no others, give the directional difference along a random direction."""
    every = torch.arange(context.column_groups.count, device=judged.code.device)
    return not any_set(columns_do_not_add_up(context, every, judged, torch.Generator().manual_seed(seed + 2)))


def pattern_holds(context: JudgingContext, judged: Judged, structure: Structure, seed: int) -> bool:
    """True if outputs stay bit for bit the same when coordinates outside their pattern are perturbed.

    Only needed if some outputs have entries that are not smooth: `entries_match_directional_difference` does not test
    those. All coordinates but the columns of such outputs are perturbed first. Then, dimension by dimension and for
    every bit, the slices whose number has it set, and those whose number has not, so that every pair of slices is
    separated once.
    """
    rough = ~are_smooth(judged)
    if not any_set(rough):
        return True
    generator = torch.Generator().manual_seed(seed + 3)
    column_of = context.column_groups.column_of[:, rough]
    in_columns = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    in_columns[column_of[column_of >= 0]] = True
    return all(_others_unchanged(context, moving, generator) for moving in (~in_columns, *_halves(context, structure)))


def _adds_up(column_groups: ColumnGroups, claimed: Tensor, cotangent: Tensor, vjp: Tensor, rounding: float) -> bool:
    """True if the claims weighted by a cotangent (m,) add up to its vjp (n,) up to rounding, where finite."""
    terms = claimed * cotangent.to(claimed.device)
    off = (vjp - sum_by_column(column_groups, terms)).abs_()
    size = sum_by_column(column_groups, terms.abs_())
    finite = size.isfinite()
    largest = size.masked_fill(~finite, 0.0).amax() if size.numel() else 0.0
    return all_set((off <= (size + SIGNIFICANT * largest).mul_(rounding)) | ~finite)


def _halves(context: JudgingContext, structure: Structure) -> Iterator[Tensor]:
    """Yield sets of coordinates, (n,) bool: half of the slices of a confined input dimension at a time."""
    confined = dict.fromkeys(
        (link.source, dimension)
        for link in structure.patterns
        for dimension, window in enumerate(link.windows)
        if window is not None
    )
    for source, dimension in confined:
        size = source.shape[dimension]
        shape = [size if axis == dimension else 1 for axis in range(len(source.shape))]
        for bit in range((size - 1).bit_length()):
            for value in (0, 1):
                slices = (torch.arange(size) >> bit) % 2 == value
                mask = torch.zeros(context.sampled.point.shape, dtype=torch.bool)
                mask[source.coordinates] = slices.reshape(shape).expand(source.shape).reshape(-1)
                yield mask.to(context.sampled.point.device)


def _others_unchanged(context: JudgingContext, moving: Tensor, generator: torch.Generator) -> bool:
    """True if perturbing the coordinates `moving` (n,) changes no finite output that has no column among them."""
    displacement = random_magnitudes(context.lengths.step * NUDGE, generator)
    values = outputs_near(context.sampled, torch.where(moving, displacement, 0.0))
    reached = (moving[context.column_groups.column_of.clamp(min=0)] & (context.column_groups.column_of >= 0)).any(dim=0)
    return all_set(reached | (values == context.sampled.value) | ~torch.isfinite(context.sampled.value))
