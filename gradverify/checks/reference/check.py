"""GV701 to GV706, GV708: outputs and gradients are those of plain code, to the precision of the dtype.

The function runs in its own dtype, the reference in float64 at the same numbers. How far the two may be apart follows
from the inputs, the cotangents and the dtype (`error_model`), so there is no tolerance to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.contract.nodes import custom_nodes
from gradverify.checks.failures import not_dense, nothing_to_differentiate, skipped
from gradverify.checks.operators import opchecked
from gradverify.checks.random_numbers import are_used, seeded_states
from gradverify.checks.reference.causes import GRADIENT, with_causes
from gradverify.checks.reference.compare import Compared, compared_gradients, compared_outputs, within_tolerances
from gradverify.checks.reference.cotangents import Cotangent, cotangents_for
from gradverify.checks.reference.error_model import precision_of
from gradverify.checks.reference.evaluate import (
    as_plain_code,
    connected_outputs,
    evaluate_function,
    evaluate_reference,
    recorded_reference,
    with_wide_inputs,
)
from gradverify.checks.reference.findings import (
    agreement,
    excess,
    gradient_findings,
    limits,
    lost_findings,
    output_findings,
    result_of,
    unjudged_findings,
)
from gradverify.checks.reference.narrow import with_advice
from gradverify.checks.reference.outputs import incomparable, wrong_kind
from gradverify.checks.reference.own_gradient import wrong_gradient
from gradverify.checks.wording import entries_text
from gradverify.core.model.generators import own_seed
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record_all
from gradverify.deadline import keeping
from gradverify.errors import EvaluationError
from gradverify.evidence import Diagnose, undiagnosed
from gradverify.result import CheckResult, Finding, Verdict, worst

NAME = "reference"
_RANDOM = "function or reference draws random numbers, which are not the same in another precision"
_NONE = "there is no reference to compare with: `reference` names plain code for the same function"


def run(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare outputs and gradients with those of the problem's reference. Raises EvaluationError.

    Without a reference, the gradient of a hand-written Function is compared with torch's own derivative of its forward.
    Custom operators that forward calls are checked too.
    """
    found = compare(problem, settings, diagnose)
    if found.method is None:  # nothing was compared
        return found
    operators = opchecked(problem)
    wrong, message = operators.findings, found.message
    if wrong and not found.findings:
        message = wrong[0].message
    elif operators.passed and not wrong:
        message = f"{message}; torch.library.opcheck passes {', '.join(operators.passed)}"
    verdict = worst((found.verdict, *(finding.verdict for finding in wrong)))
    return replace(found, verdict=verdict, message=message, findings=(*found.findings, *wrong))


def compare(problem: Problem, settings: Settings, diagnose: Diagnose = undiagnosed) -> CheckResult:
    """Compare outputs and gradients as `run` does, and leave custom operators alone. Raises EvaluationError."""
    if not problem.primals:
        return nothing_to_differentiate(NAME, problem, "no input is a floating or complex tensor that requires grad")
    problem, tape, is_random = _recorded(problem, settings.seed)
    if not tape.outputs:
        return nothing_to_differentiate(NAME, problem, "forward returns no floating or complex tensor")
    reason = not_dense(tape.outputs)
    if reason:
        return skipped(NAME, problem, reason)
    if problem.reference is None:
        found = _against_own_forward(problem, tape, settings, diagnose)
    else:
        found = _against(problem, problem.reference, tape, settings, diagnose)
    return skipped(NAME, problem, _RANDOM) if is_random and _may_be_other_numbers(found) else found


def _may_be_other_numbers(found: CheckResult) -> bool:
    """True if other random numbers may be why the two differ: not if the outputs agree, and only gradients differ."""
    only_gradients = bool(found.findings) and all(finding.code == GRADIENT for finding in found.findings)
    return found.verdict is not Verdict.PASS and not only_gradients


def _recorded(problem: Problem, seed: int) -> tuple[Problem, Tape, bool]:
    """Return the problem, its record, and True if it or its reference draws random numbers: then both are seeded."""
    given = seed if problem.seed is None else problem.seed
    before = seeded_states(problem, given)
    tape = record_all(problem)
    is_random = are_used(problem, given, before)
    if not is_random and problem.reference is not None:
        reference = with_wide_inputs(replace(problem.reference, seed=problem.seed))
        before = seeded_states(problem, given)
        recorded_reference(reference)
        is_random = are_used(problem, given, before)
    if not is_random or problem.seed is not None:
        return problem, tape, is_random
    seeded = replace(problem, seed=own_seed(seed))
    return seeded, record_all(seeded), True


def _against_own_forward(problem: Problem, tape: Tape, settings: Settings, diagnose: Diagnose) -> CheckResult:
    """Compare with torch's own derivative of the forward; a skip if there is nothing to differentiate by itself."""
    if not custom_nodes(tape):
        return skipped(NAME, problem, _NONE)
    finer = replace(problem, function=problem.finer or problem.function)
    own = replace(as_plain_code(finer), name="torch's own derivative of its forward")
    try:
        if custom_nodes(recorded_reference(with_wide_inputs(own))):
            return skipped(NAME, problem, _NONE)  # some call of `apply` cannot be replaced
        found = _against(problem, own, tape, settings, diagnose)
    except EvaluationError as error:
        if error.stage != "reference":
            raise
        return skipped(NAME, problem, _NONE)
    if found.verdict is Verdict.ERROR:  # torch cannot differentiate the forward
        return skipped(NAME, problem, _NONE)
    return replace(found, message=f"{found.message}; no reference was given")


def _against(problem: Problem, reference: Problem, tape: Tape, settings: Settings, diagnose: Diagnose) -> CheckResult:
    reference = replace(reference, seed=problem.seed, deadline=problem.deadline)
    double = with_wide_inputs(reference)
    wide = recorded_reference(double)
    tensors = [*(primal.tensor for primal in problem.primals), *(output.tensor for output in tape.outputs)]
    tf32 = settings.tf32 and any(tensor.is_cuda for tensor in tensors)  # on the CPU, products are in full precision
    precision = precision_of([tensor.dtype for tensor in tensors], tf32=tf32)
    found = tuple(incomparable(tape, wide, reference.name, precision))
    if not found and (why := wrong_gradient(problem, double, precision, settings.seed)):
        text = f"{reference.name} has a wrong gradient of its own, and nothing can be compared with it: {why}"
        found = (Finding(code="GV703", verdict=Verdict.ERROR, message=text),)
    if found:
        return result_of(NAME, problem, found, found[0].message, ())
    connected = connected_outputs(tape)
    given = cotangents_for([tape.outputs[number].tensor for number in connected], settings.seed)
    own = evaluate_function(problem, tape, connected, given)
    theirs = evaluate_reference(problem, double, wide, connected, given, precision, settings.seed)
    outputs = compared_outputs(tape.outputs, [primal.tensor for primal in problem.primals], own, theirs, precision)
    gradients = compared_gradients(problem, [output.tensor for output in tape.outputs], own, theirs, precision)
    outputs = tuple(within_tolerances(each, settings.tolerances) for each in outputs)
    gradients = tuple(within_tolerances(each, settings.tolerances) for each in gradients)
    found = (
        *wrong_kind(problem, reference, tape),
        *with_advice(_worst_first(outputs, gradients, given, settings), outputs),
        *unjudged_findings(outputs, of_outputs=True),
        *unjudged_findings(gradients, of_outputs=False),
        *lost_findings(outputs, precision.name, of_outputs=True),
        *lost_findings(gradients, precision.name, of_outputs=False),
    )
    compared = (*outputs, *gradients)
    message = _summary(found, compared, reference.name, given)
    with keeping(result_of(NAME, problem, found, message, compared)):
        found = with_causes(found, problem, double, precision, settings.seed, diagnose)
    return result_of(NAME, problem, found, message, compared)


def _worst_first(
    outputs: Sequence[Compared], gradients: Sequence[Compared], given: Sequence[Cotangent], settings: Settings
) -> list[Finding]:
    """Return the findings: outputs before gradients, which follow from them, each with the largest errors first."""
    keep = settings.max_elements
    of_outputs = [finding for each in outputs for finding in output_findings(each, keep)]
    of_gradients = [finding for each in gradients for finding in gradient_findings(each, given, keep)]
    return [*sorted(of_outputs, key=excess), *sorted(of_gradients, key=excess)]


def _summary(found: Sequence[Finding], compared: Sequence[Compared], name: str, given: Sequence[Cotangent]) -> str:
    if not found:
        return agreement(compared, name, len(given))
    wrong = sum(int(each.wrong.sum()) for each in compared)
    total = sum(each.wrong.numel() for each in compared)
    if not wrong:
        return found[0].message
    return f"{wrong:,} of {entries_text(total)} {'differs' if wrong == 1 else 'differ'} from {name}{limits(compared)}"
