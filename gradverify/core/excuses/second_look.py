"""All excuses, applied to the mismatching entries one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.decide.context import JudgingContext, MeasuredProblem
from gradverify.core.decide.verdict import Code, Judged, Reason, agrees, decide
from gradverify.core.excuses.backward_rounding import excuse_grain, excuse_spread
from gradverify.core.excuses.context import Excuse, ExcuseContext
from gradverify.core.excuses.low_precision import excuse_coarse, excuse_doubled, excuse_unstable
from gradverify.core.excuses.oblique_kinks import excuse_oblique
from gradverify.core.excuses.quantised_steps import excuse_average, excuse_flights
from gradverify.core.excuses.slight_kinks import excuse_slight
from gradverify.core.model.magnitudes import any_set

_NOT_DETERMINED = (Code.UNDETERMINED, Code.UNDEFINED, Code.JUMP)


def excuse_spilt(trial: ExcuseContext, judged: Judged) -> Judged:
    """Make nan claims undetermined if the same input has a derivative that is not finite in another entry."""
    context, chosen = trial.context, trial.chosen
    claimed, column_of = context.claimed[chosen], context.column_groups.column_of[chosen]
    nan = (judged.code == Code.MISMATCH) & claimed.isnan()
    if not any_set(nan):
        return judged
    undetermined = torch.isin(judged.code, torch.tensor(_NOT_DETERMINED, dtype=torch.int8, device=column_of.device))
    source = (claimed.isinf() & undetermined) | (claimed.isnan() & (judged.code == Code.UNDEFINED))
    infinite = torch.zeros_like(context.sampled.point, dtype=torch.bool)
    infinite[column_of[source & (column_of >= 0)]] = True
    propagated = nan & infinite[column_of.clamp(min=0)]
    return decide(judged, [(propagated, Reason.NAN_PROPAGATED)])


# In order: each sees the mismatches that the previous ones have left.
EXCUSES: tuple[Excuse, ...] = (
    excuse_spilt,
    excuse_doubled,
    excuse_coarse,
    excuse_grain,
    excuse_flights,
    excuse_slight,
    excuse_oblique,
    excuse_spread,
    excuse_unstable,
    excuse_average,
)


def apply_excuses(
    context: JudgingContext, measured: MeasuredProblem, chosen: Tensor, judged: Judged, settings: Settings
) -> Judged:
    """Return the verdicts on these column groups; a mismatch stays if no excuse explains it."""
    trial = ExcuseContext(context=context, backward=measured.backward, chosen=chosen, seed=settings.seed)
    for excuse in EXCUSES:
        if agrees(judged) or not any_set(judged.code == Code.MISMATCH):
            break
        judged = excuse(trial, judged)
    return judged
