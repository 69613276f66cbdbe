"""All excuses, applied to the mismatching entries one after the other."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gradverify.core.backward.vjps import fails_later
from gradverify.core.decide.context import Concerning, ExcuseContext, JudgingContext, MeasuredProblem
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.excuses.backward_rounding import excuse_backward_rounding
from gradverify.core.excuses.oblique_kinks import excuse_oblique
from gradverify.core.excuses.stairs import excuse_stairs
from gradverify.core.model.magnitudes import any_set

_Excuse = Callable[[ExcuseContext, Judged], Judged]  # verdicts (C, m) before and after; only mismatches change

# In order: each sees the mismatches that the previous ones have left.
EXCUSES: tuple[_Excuse, ...] = (excuse_backward_rounding, excuse_oblique, excuse_stairs)


def apply_excuses(
    measured: MeasuredProblem,
    seed: int,
    context: JudgingContext,
    chosen: Tensor,
    judged: Judged,
    concerning: Concerning = Concerning.EVERYTHING,
) -> Judged:
    """Return the verdicts on these column groups; a mismatch stays if no excuse of those concerned explains it.

    A graph whose vjps no longer repeat is marked as worn first, at the cost of a vjp: its mismatches do not count.
    """
    fails_later(measured.backward)
    trial = ExcuseContext(context=context, backward=measured.backward, chosen=chosen, seed=seed)
    parts = {Concerning.BACKWARD: (excuse_backward_rounding,), Concerning.STEPS: (excuse_stairs,)}
    for excuse in parts.get(concerning, EXCUSES):
        if any_set(judged.code == Code.MISMATCH):
            judged = excuse(trial, judged)
    return judged
