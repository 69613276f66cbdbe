"""Columns that share no output are moved together, if the sparsity that was found holds."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.core.decide.comparison import Comparison
from gradverify.core.decide.context import MeasuredProblem, Reconsider, judging_context
from gradverify.core.forward.batching import seconds
from gradverify.core.strategy.columnwise import affordable, claims_under, compared_under
from gradverify.core.strategy.elementwise import compare_entry_by_entry
from gradverify.core.strategy.structure import find_structure

_SECONDS, _SAMPLES = 2.0, 6  # that they may take, if each is sampled so often, one at a time
_DEAREST = 64  # moves that are made where the alternative is to probe
_NUMBERS = 1 << 23  # in the inputs and outputs of all moves: where sums agree, there may be so many of them


def compare_by_structure(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by shared moves and cotangents; None where there is no structure, or it does not hold."""
    compared = compare_entry_by_entry(measured, settings, reconsider)
    if compared is not None:
        return compared
    return _compared(measured, settings, reconsider, None if affordable(measured) else _DEAREST)


def compare_closely(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare entry by entry what sums agree about, by a structure of more moves, as long as these are small together.

    None where there is none, it does not hold, or would take too long. Where sums are off, this would too: all entries
    may be wrong, and each be looked at closely.
    """
    sampled = measured.sampled
    most = _NUMBERS // (len(sampled.point) + len(sampled.value))
    if most <= _DEAREST:
        return None
    most = min(most, int(_SECONDS / (_SAMPLES * seconds(sampled))))
    return _compared(measured, settings, reconsider, most) if most > _DEAREST else None


def _compared(
    measured: MeasuredProblem, settings: Settings, reconsider: Reconsider, most: int | None
) -> Comparison | None:
    structure = find_structure(measured.sampled, measured.lengths, settings.seed, most)
    if structure is None:
        return None
    claimed = claims_under(measured, structure, settings)
    if claimed is None:
        return None
    context = judging_context(
        measured.sampled, measured.noise, measured.lengths, structure.column_groups, claimed, settings
    )
    return compared_under(measured, structure, context, None, settings, reconsider)
