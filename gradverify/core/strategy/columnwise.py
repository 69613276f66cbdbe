"""Comparison of all columns of the Jacobian: one by one, or compressed by sparsity."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.batched_vjp import jacobian
from gradverify.core.decide.columns import judge_all
from gradverify.core.decide.comparison import KEPT, Comparison, compare_verdicts
from gradverify.core.decide.context import JudgingContext, MeasuredProblem, Reconsider, judging_context
from gradverify.core.decide.verdict import Parts, stacked
from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.excuses.second_look import apply_excuses
from gradverify.core.model.magnitudes import any_set
from gradverify.core.strategy.compressed_vjps import claimed_entries
from gradverify.core.strategy.single_step import sample_single_steps
from gradverify.core.strategy.structure import Structure, find_structure
from gradverify.core.strategy.verify import (
    claims_match_vjps,
    entries_match_directional_difference,
    pattern_holds,
)

_MOST_COLUMNS = 3_000  # input coordinates that are perturbed one by one
_WORTH = 0.7  # column groups per coordinate up to which a structure is preferred to single columns
_MOST_GROUPS = 64  # column groups up to which a structure is preferred to random sums
_NUMBERS = 1 << 23  # in the points and outputs of all column groups, if random sums agree; see `compare_after_sums`
_MOST_AFTER_SUMS = 320  # column groups there, with six forwards each


def fits_dense_comparison(measured: MeasuredProblem) -> bool:
    """True if the Jacobian is small enough to be held densely, with its input coordinates perturbed one by one."""
    return measured.entries <= KEPT and measured.sampled.point.numel() <= _MOST_COLUMNS


def compare_densely(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison:
    """Compare every entry, column by column; raises EvaluationError."""
    sampled = measured.sampled
    column_groups = single_columns(sampled.point.numel(), sampled.value.numel(), sampled.point.device)
    claimed = jacobian(measured.backward).T.contiguous()
    context = judging_context(sampled, measured.noise, measured.lengths, column_groups, claimed, settings)
    parts, _ = _judged(measured, context, measured.initial.stencil, settings)
    return compare_verdicts(context, parts, settings, reconsider)


def compare_by_structure(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared column groups and cotangents; None if no structure is found, or if it does not hold."""
    most = _WORTH * measured.sampled.point.numel() if fits_dense_comparison(measured) else _MOST_GROUPS
    return _by_structure(measured, settings, reconsider, most)


def compare_after_sums(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare single entries after random sums have agreed, by a structure that may have more column groups.

    None if no structure is found, if it does not hold, or if it would take too many forwards. If the sums differ this
    is not worth trying: all entries may be wrong, and the thorough pass over each takes too many.
    """
    sampled = measured.sampled
    most = min(_MOST_AFTER_SUMS, _NUMBERS // (len(sampled.point) + len(sampled.value)))
    return _by_structure(measured, settings, reconsider, most) if most > _MOST_GROUPS else None


def compare_claims(
    measured: MeasuredProblem, structure: Structure, claimed: Tensor, settings: Settings, reconsider: Reconsider
) -> Comparison | None:
    """Compare the claimed entries (M, m) of a structure; None if the forward contradicts it."""
    groups = structure.column_groups
    context = judging_context(measured.sampled, measured.noise, measured.lengths, groups, claimed, settings)
    return compare_column_groups(measured, context, structure, settings, reconsider)


def compare_column_groups(
    measured: MeasuredProblem,
    context: JudgingContext,
    hypothesis: Structure | None,
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison | None:
    """Compare the entries of all column groups; None if the forward contradicts the structure they come from.

    The structure is not tested if it is no `hypothesis`, or if a single step settled all groups without a mismatch:
    `sample_single_steps` has checked the sums along a random direction, as `entries_match_directional_difference` does.
    """
    parts, is_settled = _judged(measured, context, None, settings)
    if hypothesis is not None and not is_settled:
        judged, seed = stacked([part for _, part in parts]), settings.seed
        if not (
            entries_match_directional_difference(context, judged, seed)
            and pattern_holds(context, judged, hypothesis, seed)
        ):
            return None
    return compare_verdicts(context, parts, settings, reconsider)


def _by_structure(
    measured: MeasuredProblem, settings: Settings, reconsider: Reconsider, most_groups: float
) -> Comparison | None:
    """Compare by a detected structure of at most `most_groups` column groups."""
    structure = find_structure(measured.sampled, measured.lengths, settings.seed, most_groups)
    claimed = None if structure is None else claimed_entries(measured.backward, structure)
    if structure is None or claimed is None:
        return None
    if not claims_match_vjps(measured.backward, structure.column_groups, claimed, settings.seed):
        return None
    return compare_claims(measured, structure, claimed, settings, reconsider)


def _judged(
    measured: MeasuredProblem, context: JudgingContext, stencil: Stencil | None, settings: Settings
) -> tuple[Parts, bool]:
    """Return the verdicts on all column groups, and True if single steps show that all entries match.

    `stencil` holds the samples at the first steps, if they were taken.
    """
    settled = sample_single_steps(context, settings.seed, only_cotangents=stencil is not None)
    all_match = settled is not None and len(settled[0]) == context.column_groups.count and not any_set(settled[1].doubt)
    return judge_all(context, partial(apply_excuses, measured, settings.seed), stencil, settled), all_match
