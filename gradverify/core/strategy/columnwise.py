"""All columns of the Jacobian compared: each alone, or compressed by sparsity."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.batched_vjp import jacobian
from gradverify.core.decide.columns import is_complete, judge_all
from gradverify.core.decide.comparison import Comparison, summarized
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, Reconsider, judging_context
from gradverify.core.decide.ties import judge_together
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.excuses.second_look import second_look
from gradverify.core.strategy.affine_inputs import affine_column_groups
from gradverify.core.strategy.compressed_vjps import claimed_entries
from gradverify.core.strategy.structure import Structure
from gradverify.core.strategy.verify import accusations_hold, claims_hold, compress, differences_hold, pattern_holds

LIMIT = 4_000_000  # entries of a Jacobian that is written down
_MOVES = 3_000  # coordinates that are moved one by one


def claims_under(measured: MeasuredProblem, structure: Structure, settings: Settings) -> Tensor | None:
    """Return the claims of the entries that moves own, None where they are not all there is."""
    claimed = _compressed(measured, structure)
    if claimed is None or not claims_hold(measured.backward, structure.column_groups, claimed, settings.seed):
        return None
    return claimed


def compared_under(
    measured: MeasuredProblem,
    structure: Structure,
    context: JudgingContext,
    stencil: Stencil | None,
    settings: Settings,
    reconsider: Reconsider,
    *,
    verified: bool = False,
) -> Comparison | None:
    """Compare by this structure, None where it does not hold, unless that is `verified`.

    `walk` is that of the first steps, where they have been taken. Where all moves are straight lines, these have been
    compressed up along a random direction, as `differences_hold` would ask, and nothing is accused or has a kink.
    """
    known = None if stencil is not None else affine_column_groups(context, settings.seed)
    looked = judge_all(context, stencil, known)
    judged = [(chosen, second_look(context, measured, chosen, part, settings)) for chosen, part in looked]
    compressed = compress(structure.column_groups, [part for _, part in judged])
    seed = settings.seed
    if (
        verified
        or is_complete(context, known)
        or (
            differences_hold(context, compressed, seed)
            and pattern_holds(context, compressed, structure, seed)
            and accusations_hold(context, compressed)
        )
    ):
        return summarized(context, judge_together(context, judged, seed), settings, reconsider)
    return None


def affordable(measured: MeasuredProblem) -> bool:
    """Tell whether the Jacobian is small enough to be written down, and its inputs to be moved one by one."""
    return measured.entries <= LIMIT and measured.sampled.point.numel() <= _MOVES


def compare_densely(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare every entry, column by column; raises EvaluationError."""
    sampled = measured.sampled
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(measured.backward).T.contiguous()
    context = judging_context(sampled, measured.noise, measured.lengths, column_groups, claimed, settings)
    stencil = measured.opening.stencil
    looked = judge_all(context, stencil, None if stencil is not None else affine_column_groups(context, settings.seed))
    judged = [(chosen, second_look(context, measured, chosen, part, settings)) for chosen, part in looked]
    return summarized(context, judge_together(context, judged, settings.seed), settings, reconsider)


def _compressed(measured: MeasuredProblem, structure: Structure) -> Tensor | None:
    """Return the claims of the entries that moves own, from shared cotangents or, where they save nothing, rows."""
    claimed = claimed_entries(measured.backward, structure)
    if claimed is not None:
        return claimed
    if measured.entries > LIMIT:
        return None
    rows, column_of = jacobian(measured.backward), structure.column_groups.column_of
    return torch.where(column_of >= 0, rows.T.gather(0, column_of.clamp(min=0)), 0.0)
