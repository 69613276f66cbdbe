"""Comparison of all columns of the Jacobian: one by one, or compressed by sparsity."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.batched_vjp import jacobian
from gradverify.core.decide.columns import is_complete, judge_all
from gradverify.core.decide.comparison import Comparison, compare_verdicts
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, Reconsider, judging_context
from gradverify.core.decide.subgradients import judge_subgradients
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.excuses.second_look import apply_excuses
from gradverify.core.strategy.affine_inputs import affine_column_groups
from gradverify.core.strategy.compressed_vjps import claimed_entries
from gradverify.core.strategy.structure import Structure
from gradverify.core.strategy.verify import (
    claims_match_vjps,
    compress,
    entries_match_directional_difference,
    mismatches_hold_alone,
    pattern_holds,
)

DENSE_ENTRIES_LIMIT = 4_000_000  # entries of a Jacobian that is compared densely
_MOST_COLUMNS = 3_000  # input coordinates that are perturbed one by one


def claims_by_structure(measured: MeasuredProblem, structure: Structure, settings: Settings) -> Tensor | None:
    """Return the claimed entries of a structure, (M, m); None if backward has other entries besides."""
    claimed = _claimed_entries(measured, structure)
    if claimed is None or not claims_match_vjps(measured.backward, structure.column_groups, claimed, settings.seed):
        return None
    return claimed


def compare_by_given_structure(
    measured: MeasuredProblem,
    structure: Structure,
    context: JudgingContext,
    stencil: Stencil | None,
    settings: Settings,
    reconsider: Reconsider,
    *,
    verified: bool = False,
) -> Comparison | None:
    """Compare all entries by this structure; None if the forward contradicts it.

    `stencil` holds the samples at the first steps, if they were taken. `verified` skips the tests of the structure.
    They are also skipped if the function is affine in all inputs: `affine_column_groups` has checked the sum along a
    random direction, as `entries_match_directional_difference` does, and no entry is a mismatch or a kink.
    """
    known = None if stencil is not None else affine_column_groups(context, settings.seed)
    first_verdicts = judge_all(context, stencil, known)
    judged = [(chosen, apply_excuses(context, measured, chosen, part, settings)) for chosen, part in first_verdicts]
    compressed = compress(structure.column_groups, [part for _, part in judged])
    seed = settings.seed
    if (
        verified
        or is_complete(context, known)
        or (
            entries_match_directional_difference(context, compressed, seed)
            and pattern_holds(context, compressed, structure, seed)
            and mismatches_hold_alone(context, compressed)
        )
    ):
        return compare_verdicts(context, judge_subgradients(context, judged, seed), settings, reconsider)
    return None


def fits_dense_comparison(measured: MeasuredProblem) -> bool:
    """True if the Jacobian is small enough to be held densely, with its input coordinates perturbed one by one."""
    return measured.entries <= DENSE_ENTRIES_LIMIT and measured.sampled.point.numel() <= _MOST_COLUMNS


def compare_densely(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare every entry, column by column; raises EvaluationError."""
    sampled = measured.sampled
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(measured.backward).T.contiguous()
    context = judging_context(sampled, measured.noise, measured.lengths, column_groups, claimed, settings)
    stencil = measured.initial.stencil
    first_verdicts = judge_all(
        context, stencil, None if stencil is not None else affine_column_groups(context, settings.seed)
    )
    judged = [(chosen, apply_excuses(context, measured, chosen, part, settings)) for chosen, part in first_verdicts]
    return compare_verdicts(context, judge_subgradients(context, judged, settings.seed), settings, reconsider)


def _claimed_entries(measured: MeasuredProblem, structure: Structure) -> Tensor | None:
    """Return the claimed entries of a structure, (M, m), from compressed vjps or, if those save nothing, single rows.

    None if there would be too many rows to hold.
    """
    claimed = claimed_entries(measured.backward, structure)
    if claimed is not None:
        return claimed
    if measured.entries > DENSE_ENTRIES_LIMIT:
        return None
    rows, column_of = jacobian(measured.backward), structure.column_groups.column_of
    return torch.where(column_of >= 0, rows.T.gather(0, column_of.clamp(min=0)), 0.0)
