"""A second look at accusations before they are raised: everything that may explain them, one after the other."""

from __future__ import annotations

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.excuses.average import excuse_average
from gradverify.core.excuses.coarse import excuse_coarse
from gradverify.core.excuses.doubled import excuse_doubled
from gradverify.core.excuses.flight import excuse_flights
from gradverify.core.excuses.grain import excuse_grain
from gradverify.core.excuses.oblique import excuse_oblique
from gradverify.core.excuses.slight import excuse_slight
from gradverify.core.excuses.spilt import excuse_spilt
from gradverify.core.excuses.spread import excuse_spread
from gradverify.core.excuses.trial import Excuse, Trial
from gradverify.core.excuses.unstable import excuse_unstable
from gradverify.core.function.flags import any_set
from gradverify.core.judging.bench import Bench
from gradverify.core.judging.compare import Code, Judged, agrees
from gradverify.core.judging.ground import Ground

# Each is asked about what those before it have left accused.
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


def second_look(at: Bench, ground: Ground, chosen: Tensor, judged: Judged, settings: Settings) -> Judged:
    """Return the verdicts on these moves with the accusations that nothing explains."""
    trial = Trial(at=at, backward=ground.backward, chosen=chosen, seed=settings.seed)
    for excuse in EXCUSES:
        if agrees(judged) or not any_set(judged.code == Code.MISMATCH):
            break
        judged = excuse(trial, judged)
    return judged
