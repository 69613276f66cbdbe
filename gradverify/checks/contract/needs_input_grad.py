"""GV404: an input's gradient does not depend on which other inputs require one."""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.checks.contract.forward_run import same_outputs
from gradverify.checks.contract.subject import Subject, gradients_of, graph_with_leaves
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_NOT_DIFFERENTIATED = "does not require grad"  # in torch's message
_MAX_INPUTS = 6  # largest number of inputs tested alone, and left out one by one


def findings(subject: Subject) -> Iterator[Finding]:
    """GV404: gradients are the same if one input alone requires grad, and if all but one do."""
    count = len(subject.primals)
    if count < 2:
        return
    every = range(count)
    chosen: list[tuple[int, ...]] = []
    chosen += [(number,) for number in every][:_MAX_INPUTS]
    if count > 2:
        chosen += [tuple(other for other in every if other != number) for number in every][:_MAX_INPUTS]
    reported: set[str | None] = set()
    for wanted in chosen:
        for finding in _compared(subject, wanted):
            if finding.wrt not in reported:
                reported.add(finding.wrt)
                yield finding


def _compared(subject: Subject, wanted: tuple[int, ...]) -> Iterator[Finding]:
    names = ", ".join(subject.primals[number].name for number in wanted)
    condition = f"only {names} {'needs' if len(wanted) == 1 else 'need'} a gradient"
    try:
        tape = graph_with_leaves(subject, [primal.tensor for primal in subject.primals], wanted)
        if not same_outputs(subject, tape, subject.tape):
            return
        got = gradients_of(subject, tape, subject.cotangents)
    except EvaluationError as error:
        if error.stage == "forward" and _is_of_autograd(error.original):
            return
        yield failure("GV404", f"{raised(error)}, where {condition}")
        return
    expected = tuple(subject.gradients[number] for number in wanted)
    claim = f"backward answers differently where {condition}"
    yield from mismatches(subject, "GV404", claim, got, expected, numbers=wanted)


def _is_of_autograd(error: BaseException) -> bool:
    """True if torch raised since forward itself takes a gradient by an input that needs none here."""
    return isinstance(error, RuntimeError) and _NOT_DIFFERENTIATED in str(error)
