"""Comparison by sparsity: columns that share no output are perturbed together, if the detected structure holds."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.core.decide.comparison import Comparison
from gradverify.core.decide.context import MeasuredProblem, Reconsider, judging_context
from gradverify.core.forward.batching import seconds
from gradverify.core.strategy.columnwise import claims_by_structure, compare_by_given_structure, fits_dense_comparison
from gradverify.core.strategy.elementwise import compare_elementwise
from gradverify.core.strategy.structure import find_structure

_SECONDS, _SAMPLES = (
    2.0,
    6,
)  # time for all column groups, and forwards for each, one at a time; see `compare_after_sums`
_MOST_GROUPS = 64  # column groups up to which a structure is preferred to random sums
_NUMBERS = 1 << 23  # in the points and outputs of all column groups, if random sums agree; see `compare_after_sums`


def compare_by_structure(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared column groups and cotangents; None if no structure is found, or if it does not hold."""
    compared = compare_elementwise(measured, settings, reconsider)
    if compared is not None:
        return compared
    return _compared(measured, settings, reconsider, None if fits_dense_comparison(measured) else _MOST_GROUPS)


def compare_after_sums(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare single entries after random sums have agreed, by a structure that may have more column groups.

    None if no structure is found, if it does not hold, or if it would take too long. If the sums differ this is not
    worth trying: all entries may be wrong, and the thorough pass over each takes too long.
    """
    sampled = measured.sampled
    most_groups = _NUMBERS // (len(sampled.point) + len(sampled.value))
    if most_groups <= _MOST_GROUPS:
        return None
    most_groups = min(most_groups, int(_SECONDS / (_SAMPLES * seconds(sampled))))
    return _compared(measured, settings, reconsider, most_groups) if most_groups > _MOST_GROUPS else None


def _compared(
    measured: MeasuredProblem, settings: Settings, reconsider: Reconsider, most_groups: int | None
) -> Comparison | None:
    """Compare by a detected structure of at most `most_groups` column groups."""
    structure = find_structure(measured.sampled, measured.lengths, settings.seed, most_groups)
    if structure is None:
        return None
    claimed = claims_by_structure(measured, structure, settings)
    if claimed is None:
        return None
    context = judging_context(
        measured.sampled, measured.noise, measured.lengths, structure.column_groups, claimed, settings
    )
    return compare_by_given_structure(measured, structure, context, None, settings, reconsider)
