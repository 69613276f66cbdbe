"""A problem to the subject that questions are put to."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.checks.contract.casts import casts_of
from gradverify.checks.contract.noise import loudness, with_noise
from gradverify.checks.contract.repeats import spread_of, spreads, steady
from gradverify.checks.contract.subject import Subject, subject_of
from gradverify.core.function.analytic import Reuse
from gradverify.core.function.problem import Problem


def subject_for(problem: Problem, settings: Settings) -> Subject | None:
    """Return the problem as a subject, None where there is nothing to ask or the forward is random.

    Its noise is not known yet, see `heard`. Raises EvaluationError.
    """
    if not problem.primals:
        return None
    ready = steady(problem, settings)
    if ready.reuse is Reuse.SHARED or not any(output.tensor.requires_grad for output in ready.tape.outputs):
        return None
    return subject_of(ready.problem, settings, ready.tape, ready.reuse)


def heard(subject: Subject) -> Subject:
    """Return the subject with the noise of its forward and backward, which costs a dozen of each."""
    casts = casts_of(subject)
    dtypes = casts.forward | casts.backward
    spread = spread_of(subject, spreads(subject))
    return with_noise(subject, loudness(subject, dtypes), spread, dtypes)
