"""What `contract` asks of a Function, asked of the hand-written Functions that its backward calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.contract import backward_writes, cotangent_layouts, input_layouts, state
from gradverify.checks.contract.build import subject_for, with_measured_noise
from gradverify.checks.contract.check import without_consequences
from gradverify.checks.contract.nodes import class_of, custom_nodes
from gradverify.checks.contract.subject import Subject
from gradverify.core.forward.repeatable import Repeatable
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict

_QUESTIONS = (cotangent_layouts.findings, backward_writes.findings, input_layouts.findings, state.findings)


def functions_called(first: Repeatable, second: Repeatable) -> list[str]:
    """Return the names of the hand-written Functions that backward calls, other than itself.

    `first` is the problem, `second` that of its vjp.
    """
    own = {class_of(node) for node in custom_nodes(first.tape)}
    return sorted({class_of(node).__name__ for node in custom_nodes(second.tape) if class_of(node) not in own})


def broken_promises(second: Repeatable, called: Sequence[str], settings: Settings) -> Iterator[Finding]:
    """Yield a fail for each promise that the derivative of the Functions `called` by backward does not keep.

    `second` is the problem of the vjp.
    """
    try:
        subject = subject_for(second.problem, settings)
        if isinstance(subject, str) or not _failures(subject):
            return
        failures = _failures(with_measured_noise(subject))  # it may have been noise
    except EvaluationError:
        return
    for failure in without_consequences(failures):
        place = f"in {' or '.join(called)}, which backward calls, or in backward itself"
        yield replace(failure, message=f"{failure.message} ({place})")


def _failures(subject: Subject) -> list[Finding]:
    found = (finding for question in _QUESTIONS for finding in question(subject))
    return [finding for finding in found if finding.verdict is Verdict.FAIL]
