"""Comparison of all columns of the Jacobian, one by one or compressed, and tests of the sparsity pattern."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward, flat_vjp, jacobian
from gradverify.core.decide.columns import judge_all
from gradverify.core.decide.compare import SIGNIFICANT
from gradverify.core.decide.comparison import KEPT, Comparison, compare_verdicts
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, judging_context
from gradverify.core.decide.directional import SUM_ROUNDING, are_smooth, columns_do_not_add_up
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.column_groups import ColumnGroups, reduced_by_column, single_columns
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.forward.sampler import outputs_near
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import FEW_INPUTS
from gradverify.core.model.magnitudes import all_set, any_set, finite_size
from gradverify.core.strategy.single_step import sample_single_steps
from gradverify.core.strategy.sparsity import NUDGE, TensorPart, period_of
from gradverify.core.strategy.structure import Structure, claimed_entries, find_structure
from gradverify.core.tuning import EXAMINED, SUM_UNITS

_MOST_COLUMNS = 3_000  # input coordinates that are perturbed one by one
_WORTH = 0.7  # column groups per coordinate up to which a structure is preferred to single columns
_NUMBERS = 1 << 23  # in the points and outputs of all column groups, if random sums agree; see `compare_by_structure`
_MOST_AFTER_SUMS = 320  # column groups there, with six forwards each


def fits_dense_comparison(measured: MeasuredProblem) -> bool:
    """True if the Jacobian is small enough to be held densely, with its input coordinates perturbed one by one."""
    return measured.entries <= KEPT and measured.sampled.point.numel() <= _MOST_COLUMNS


def compare_densely(measured: MeasuredProblem) -> Comparison:
    """Compare every entry, column by column; raises EvaluationError."""
    sampled = measured.sampled
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(measured.backward).T.contiguous()
    context = judging_context(measured, column_groups, claimed)
    return compare_verdicts(context, _judged(context, measured.initial().stencil)[0])


def compare_by_structure(measured: MeasuredProblem, *, after_sums: bool = False) -> Comparison | None:
    """Compare by shared column groups and cotangents; None if no structure is found, or if it does not hold.

    With `after_sums`, random sums have agreed, and there may be more column groups. After sums that differ it is not
    worth trying: all entries may be wrong, and the thorough pass over each takes too many forwards. None for few inputs
    or no outputs too.
    """
    sampled, inputs, seed = measured.sampled, len(measured.sampled.point), measured.settings.seed
    most = _WORTH * inputs if fits_dense_comparison(measured) else EXAMINED
    if after_sums:
        most = min(_MOST_AFTER_SUMS, _NUMBERS // (inputs + len(sampled.value)))
    if inputs < FEW_INPUTS or not measured.entries or (after_sums and most <= EXAMINED):
        return None
    structure = find_structure(sampled, measured.lengths, seed, most)
    claimed = None if structure is None else claimed_entries(measured.backward, structure)
    if structure is None or claimed is None:
        return None
    if not claims_match_vjps(measured.backward, structure.column_groups, claimed, seed):
        return None
    return compare_column_groups(judging_context(measured, structure.column_groups, claimed), structure)


def compare_column_groups(context: JudgingContext, hypothesis: Structure | None) -> Comparison | None:
    """Compare the entries of all column groups; None if the forward contradicts the structure they come from.

    The structure is not tested if it is no `hypothesis`, or if a single step settled all groups without a mismatch:
    `sample_single_steps` has checked the sums along a random direction.
    """
    judged, is_settled = _judged(context, None)
    if hypothesis is not None and not is_settled:
        every = torch.arange(context.column_groups.count, device=judged.code.device)
        generator = torch.Generator().manual_seed(context.settings.seed + 2)
        differs = columns_do_not_add_up(context, every, judged, generator)
        if any_set(differs) or not _pattern_holds(context, judged, hypothesis):
            return None
    return compare_verdicts(context, judged)


def claims_match_vjps(backward: Backward, column_groups: ColumnGroups, claimed: Tensor, seed: int) -> bool:
    """True if the claimed entries (M, m), and no others, give the vjps of two random cotangents.

    Columns with a claim that is not finite are not tested. The second cotangent gives every row the same weight, so
    that a stray entry shows beside its own row even if other rows are much larger.
    """
    size = finite_size(claimed)
    weights = size.amax(dim=0) if len(size) > 1 else size[0]
    weights.masked_fill_(weights == 0, 1.0).reciprocal_()
    rounding = max(SUM_ROUNDING, SUM_UNITS * backward.problem.eps)
    if not _adds_up(column_groups, claimed, *backward.known_vjp, rounding):
        return False
    cotangent = random_magnitudes(weights, torch.Generator().manual_seed(seed + 1))
    return _adds_up(column_groups, claimed, cotangent, flat_vjp(backward, cotangent), rounding)


def _pattern_holds(context: JudgingContext, judged: Judged, structure: Structure) -> bool:
    """True if outputs stay bit for bit the same when coordinates outside their pattern are perturbed.

    Only needed if some outputs have entries that are not smooth: `columns_do_not_add_up` does not test those. All
    coordinates but the columns of such outputs are perturbed first, then those that `_halves` yields.
    """
    rough = ~are_smooth(judged)
    if not any_set(rough):
        return True
    generator = torch.Generator().manual_seed(context.settings.seed + 3)
    column_of = context.column_groups.column_of[:, rough]
    in_columns = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    in_columns[column_of[column_of >= 0]] = True
    sets = chain((~in_columns,), _halves(context, structure))
    return all(_others_unchanged(context, rough, moving, generator) for moving in sets)


def _adds_up(column_groups: ColumnGroups, claimed: Tensor, cotangent: Tensor, vjp: Tensor, rounding: float) -> bool:
    """True if the claims weighted by a cotangent (m,) add up to its vjp (n,) up to rounding, where finite."""
    terms = claimed * cotangent.to(claimed.device)
    off = (vjp - reduced_by_column(column_groups, terms, "sum")).abs_()
    size = reduced_by_column(column_groups, terms.abs_(), "sum")
    finite = size.isfinite()
    largest = size.masked_fill(~finite, 0.0).amax() if size.numel() else 0.0
    return all_set((off <= (size + SIGNIFICANT * largest).mul_(rounding)) | ~finite)


def _halves(context: JudgingContext, structure: Structure) -> Iterator[Tensor]:
    """Yield sets of coordinates, (n,) bool: half of the slices of a confined input dimension at a time."""
    widths: dict[tuple[TensorPart, int], int] = {}
    for pattern in structure.patterns:
        for dimension, window in enumerate(pattern.windows):
            if window is not None:
                place = (pattern.source, dimension)
                widths[place] = max(widths.get(place, 1), period_of(window))
    for (source, dimension), width in widths.items():
        size = source.shape[dimension]
        shape = [size if axis == dimension else 1 for axis in range(len(source.shape))]
        for slices in _separating_halves(size, width):
            mask = torch.zeros(context.sampled.point.shape, dtype=torch.bool)
            mask[source.coordinates] = slices.reshape(shape).expand(source.shape).reshape(-1)
            yield mask.to(context.sampled.point.device)


def _separating_halves(size: int, width: int) -> Iterator[Tensor]:
    """Yield sets of slices, (size,) bool: one at least has a given slice, and none of a window of `width` elsewhere.

    The slices are taken in blocks, of which a window touches one, or two neighbours. The blocks are numbered by a Gray
    code, in which neighbours differ in one bit. Any other block differs from both in some other bit, so that a set has
    it and neither of them. Slices in the same block as the window are separated from it if a block begins between them.
    """
    block = max(1, width - 1)
    for begin in sorted({0, block // 2}):
        number = (torch.arange(size) + begin) // block
        code = number ^ (number >> 1)
        for bit in range(int(number[-1]).bit_length()):
            one = (code >> bit) % 2 == 1
            yield from (one, ~one)


def _others_unchanged(context: JudgingContext, rough: Tensor, moving: Tensor, generator: torch.Generator) -> bool:
    """True if moving the coordinates `moving` (n,) either way changes no finite output without a column among them.

    It is not tried if all outputs in the mask `rough` (m,) have one.
    """
    sampled, column_of = context.sampled, context.column_groups.column_of
    reached = (moving[column_of.clamp(min=0)] & (column_of >= 0)).any(dim=0) | ~torch.isfinite(sampled.value)
    if all_set(reached | ~rough):
        return True
    displacement = torch.where(moving, random_magnitudes(context.lengths.step * NUDGE, generator), 0.0)
    return all(
        all_set(reached | (outputs_near(sampled, way) == sampled.value)) for way in (displacement, -displacement)
    )


def _judged(context: JudgingContext, stencil: Stencil | None) -> tuple[Judged, bool]:
    """Return the verdicts on all column groups, and True if single steps show that all entries match.

    `stencil` holds the samples at the first steps, if they were taken.
    """
    settled = sample_single_steps(context, only_cotangents=stencil is not None)
    all_match = settled is not None and len(settled[0]) == context.column_groups.count and not any_set(settled[1].doubt)
    return judge_all(context, stencil, settled), all_match
