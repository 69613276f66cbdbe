"""Build the Subject of a Problem, for the checks outside of this folder."""

from __future__ import annotations

from gradverify.case import Settings
from gradverify.checks.contract.casts import casts_of
from gradverify.checks.contract.noise import measured_noise, with_noise
from gradverify.checks.contract.repeats import repeatable_forward, repeated_gradients, rounding_spread
from gradverify.checks.contract.subject import Subject, subject_of
from gradverify.checks.failures import not_dense
from gradverify.core.backward.vjps import Reuse
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record

_NOTHING = "nothing to differentiate, or a forward that does not repeat"


def subject_for(problem: Problem, settings: Settings) -> Subject | str:
    """Return the problem as a subject, or the reason why it has none, such as a random forward.

    The subject's noise is 0 until `with_noise` sets it. Raises EvaluationError.
    """
    reason = not_dense(record(problem).outputs) if problem.primals else _NOTHING
    if reason:
        return reason
    ready = repeatable_forward(problem, settings)
    if ready.reuse is Reuse.SHARED or not any(output.tensor.requires_grad for output in ready.tape.outputs):
        return _NOTHING
    return subject_of(ready.problem, settings, ready.tape, ready.reuse)


def with_measured_noise(subject: Subject) -> Subject:
    """Return the subject with its measured noise level; costs about a dozen forwards and backwards."""
    casts = casts_of(subject)
    dtypes = casts.forward | casts.backward
    spread = rounding_spread(subject, repeated_gradients(subject))
    return with_noise(subject, measured_noise(subject, dtypes), spread, dtypes)
