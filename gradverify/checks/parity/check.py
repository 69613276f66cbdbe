"""GV707: outputs and gradients on another device are those on the CPU, in the same dtype.

The same function gets the same numbers on both devices. How far the two may be apart is the error model of the check
`reference`, with the function on the CPU as the reference: its conditioning and its own rounding are measured by moving
inputs and cotangents to neighbouring numbers of the dtype. No float64 is needed, and so no plain code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gradverify.case import Settings
from gradverify.checks.failures import first_line, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.parity.alike import CODE, same_inputs, unlike, with_calls_of
from gradverify.checks.parity.neighbours import evaluated_on_cpu, moved_to, on_the_cpu
from gradverify.checks.random_numbers import are_used, seeded_states
from gradverify.checks.reference.compare import Compared, compared_gradients, compared_outputs, within_tolerances
from gradverify.checks.reference.cotangents import Cotangent, cotangents_for
from gradverify.checks.reference.error_model import precision_of
from gradverify.checks.reference.evaluate import connected_outputs, evaluate_function
from gradverify.checks.reference.findings import (
    Other,
    agreement,
    excess,
    gradient_findings,
    limits,
    output_findings,
    result_of,
    unjudged_findings,
)
from gradverify.checks.wording import entries_text
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record_all
from gradverify.errors import EvaluationError
from gradverify.result import Against, CheckResult, Finding

NAME = "parity"
_ON_CPU = Other(says="on the CPU", against=Against.CPU)
_IS_CPU = "the CPU is what other devices are compared with: add one to `devices`, such as cuda"
_OTHER_INPUTS = "the inputs are other numbers on the CPU, so there is nothing to compare"
_RANDOM = "the forward draws random numbers, which are not the same on another device"


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare outputs and gradients on the problem's device with those on the CPU. Raises EvaluationError."""
    if not problem.primals:
        return nothing_to_differentiate(NAME, problem, "no input is a floating or complex tensor that requires grad")
    if problem.on_cpu is None or all(primal.tensor.is_cpu for primal in problem.primals):
        return skipped(NAME, problem, _IS_CPU)
    on_cpu = with_calls_of(problem, problem.on_cpu)
    if not same_inputs(problem, on_cpu):
        return skipped(NAME, problem, _OTHER_INPUTS)
    before = seeded_states(problem, settings.seed)
    tape = record_all(problem)
    if problem.seed is not None or are_used(problem, settings.seed, before):
        return skipped(NAME, problem, _RANDOM)
    if not tape.outputs:
        return nothing_to_differentiate(NAME, problem, "forward returns no floating or complex tensor")
    reason = not_dense(tape.outputs)
    if reason:
        return skipped(NAME, problem, reason)
    try:
        taped = record_all(on_cpu)
    except EvaluationError as error:
        return skipped(NAME, problem, _does_not_run(error))
    found = tuple(unlike(tape, taped, _device(problem)))
    if found:
        return result_of(NAME, problem, found, found[0].message, ())
    return _compared(problem, on_cpu, tape, taped, settings)


def _does_not_run(error: EvaluationError) -> str:
    return f"{error.stage} does not run on the CPU: {type(error.original).__name__}: {first_line(error.original)}"


def _compared(problem: Problem, on_cpu: Problem, tape: Tape, taped: Tape, settings: Settings) -> CheckResult:
    outputs, connected = [output.tensor for output in tape.outputs], connected_outputs(tape)
    tensors = [*(primal.tensor for primal in problem.primals), *outputs]
    precision = precision_of(
        [tensor.dtype for tensor in tensors], tf32=settings.tf32 and any(tensor.is_cuda for tensor in tensors)
    )
    given = cotangents_for([taped.outputs[number].tensor for number in connected], settings.seed)
    there = [moved_to([outputs[number] for number in connected], each) for each in given]
    own = on_the_cpu(evaluate_function(problem, tape, connected, there))
    try:
        theirs = evaluated_on_cpu(on_cpu, taped, connected, given, precision, settings.seed)
    except EvaluationError as error:
        return skipped(NAME, problem, _does_not_run(error))
    of_outputs = compared_outputs(taped.outputs, [each.tensor for each in on_cpu.primals], own, theirs, precision)
    of_gradients = compared_gradients(on_cpu, [each.tensor for each in taped.outputs], own, theirs, precision)
    of_outputs = tuple(within_tolerances(_of_two(each), settings.tolerances) for each in of_outputs)
    of_gradients = tuple(within_tolerances(_of_two(each), settings.tolerances) for each in of_gradients)
    found = tuple(_findings(of_outputs, of_gradients, given, _device(problem), settings))
    compared = (*of_outputs, *of_gradients)
    return result_of(NAME, problem, found, _summary(found, compared, len(given)), compared)


def _of_two(found: Compared) -> Compared:
    """Return the comparison with twice the error allowed: both devices may be off by what one may be."""
    return replace(
        found,
        allowed=2 * found.allowed,
        wrong=found.wrong & (found.error > 2 * found.allowed),
        entry_limit=2 * found.entry_limit,
        factor_limit=2 * found.factor_limit,
    )


def _findings(
    outputs: Sequence[Compared],
    gradients: Sequence[Compared],
    given: Sequence[Cotangent],
    device: str,
    settings: Settings,
) -> Iterator[Finding]:
    keep = settings.max_elements
    of_outputs = [finding for each in outputs for finding in output_findings(each, keep, _ON_CPU)]
    of_gradients = [finding for each in gradients for finding in gradient_findings(each, given, keep, _ON_CPU)]
    for finding in (
        *sorted(of_outputs, key=excess),
        *sorted(of_gradients, key=excess),
        *unjudged_findings(outputs, of_outputs=True, other=_ON_CPU),
        *unjudged_findings(gradients, of_outputs=False, other=_ON_CPU),
    ):
        yield replace(finding, code=CODE, message=f"on {device}, {finding.message}")


def _summary(found: Sequence[Finding], compared: Sequence[Compared], cotangents: int) -> str:
    if not found:
        return agreement(compared, "those on the CPU", cotangents)
    wrong = sum(int(each.wrong.sum()) for each in compared)
    total = sum(each.wrong.numel() for each in compared)
    if not wrong:
        return found[0].message
    differ = "differs from that" if wrong == 1 else "differ from those"
    return f"{wrong:,} of {entries_text(total)} {differ} on the CPU{limits(compared)}"


def _device(problem: Problem) -> str:
    """Return the device of the first input that is not on the CPU."""
    return next(str(primal.tensor.device) for primal in problem.primals if not primal.tensor.is_cpu)
