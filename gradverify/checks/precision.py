"""GV602: in low precision, a gradient is as accurate as its dtype allows.

The reference is the function itself in float64, at the same numbers: torch's own derivative of its forward if there is
one, else its own backward. How far the two may be apart is the error model of the check `reference`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.contract.nodes import custom_nodes
from gradverify.checks.contract.noise import largest
from gradverify.checks.failures import evaluations, first_line, not_dense, nothing_to_differentiate, skipped
from gradverify.checks.reference.compare import Compared, compared_gradients, within_tolerances
from gradverify.checks.reference.cotangents import Cotangent, cotangents_for
from gradverify.checks.reference.error_model import precision_of
from gradverify.checks.reference.evaluate import (
    NUDGES,
    as_plain_code,
    connected_outputs,
    evaluate_exactly,
    evaluate_function,
    evaluate_reference,
)
from gradverify.checks.reference.findings import Other, excess, gradient_findings, unjudged_findings
from gradverify.core.forward.repeatable import in_double, made_repeatable
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes_from
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record, record_all
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Finding, Method, Verdict, worst

NAME = "precision"
_IN_FLOAT64 = Other(says="in float64")
_NARROW = {"float16", "bfloat16", "float32"}
_POINTS = 3  # at which an entry has to be wrong: at one alone it may be a tie or another branch
_ASIDE = 2.0**-6  # distance of the other points from the first, relative to each input
_NUDGES = (0, 1, NUDGES)  # by which an entry that seems wrong is explained: more are asked if fewer do not
_SAME = 2.0**-6  # relative to the largest entry: difference of two float64 derivatives that count as equal


def run(problem: Problem, settings: Settings) -> CheckResult:
    """Compare a backward in low precision with its derivative in float64. Raises EvaluationError."""
    if not problem.primals:
        return nothing_to_differentiate(NAME, problem, "no input is a floating or complex tensor that requires grad")
    dtypes = sorted({str(primal.tensor.dtype).removeprefix("torch.") for primal in problem.primals})
    if dtypes == ["float64"]:
        return skipped(NAME, problem, "float64 is what lower precision is held against: add float32 to `dtypes`")
    if not set(dtypes) <= _NARROW:
        reason = f"inputs in {', '.join(sorted(_NARROW))} are held against float64, found {' and '.join(dtypes)}"
        return skipped(NAME, problem, reason)
    tape = record(problem)
    reason = not_dense(tape.outputs)
    if not reason and not custom_nodes(tape):
        reason = "no hand-written Function here: torch's own derivatives are what others are measured by"
    if reason:
        return skipped(NAME, problem, reason)
    ready = made_repeatable(problem, tape, settings.seed)
    if ready is None or ready.problem.seed is not None:
        reason = "the forward draws random numbers, which are not the same in another precision"
        return skipped(NAME, problem, reason)
    sampled = in_double(ready).sampled
    if not sampled.backward_eps:
        reason = "forward does not take these inputs in float64, or computes something else there"
        return skipped(NAME, problem, reason)
    try:
        is_plain = _has_plain_derivative(problem, sampled.problem, settings)
    except EvaluationError as error:
        raised = f"{type(error.original).__name__}: {first_line(error.original)}"
        return skipped(NAME, problem, f"backward does not take these numbers in float64: {raised}")
    return _against_float64(problem, sampled.problem, is_plain, " and ".join(dtypes), settings)


def _against_float64(problem: Problem, wide: Problem, is_plain: bool, dtypes: str, settings: Settings) -> CheckResult:
    given, compared = _compared(problem, wide, is_plain, settings)
    compared = [within_tolerances(each, settings.tolerances) for each in compared]
    for number in range(1, _POINTS):
        if any(bool((each.wrong | each.unjudged).any()) for each in compared):
            aside = _moved(problem, number)
            tensors = [primal.tensor for primal in aside.primals]
            _, others = _compared(
                aside, _at([primal.name for primal in aside.primals], tensors, wide), is_plain, settings
            )
            tolerated = [within_tolerances(each, settings.tolerances) for each in others]
            compared = [_suspect_in_both(*pair) for pair in zip(compared, tolerated, strict=True)]
    found = sorted(_findings(compared, given, dtypes, settings), key=excess)
    found += (replace(each, code="GV602") for each in unjudged_findings(compared, of_outputs=False, other=_IN_FLOAT64))
    why = "; compared with backward in float64, since torch's own derivative of this forward is missing or another"
    return CheckResult(
        check=NAME,
        verdict=worst([finding.verdict for finding in found] or [Verdict.PASS]),
        message=found[0].message if found else f"as exact as {dtypes} can be{'' if is_plain else why}",
        method=Method.DENSE,
        entries=sum(each.wrong.numel() for each in compared),
        mismatched=sum(int(each.wrong.sum()) for each in compared),
        max_error=max((float(each.error.max()) for each in compared if each.error.numel()), default=0.0),
        evaluations=evaluations(problem),
        findings=tuple(found),
    )


def _compared(
    problem: Problem, wide: Problem, is_plain: bool, settings: Settings
) -> tuple[tuple[Cotangent, ...], list[Compared]]:
    """Return the cotangents and the comparison of the gradients at the problem's point; raises EvaluationError."""
    tape = record_all(problem)
    outputs, connected = [output.tensor for output in tape.outputs], connected_outputs(tape)
    given = cotangents_for([outputs[number] for number in connected], settings.seed)
    precision = precision_of([tensor.dtype for tensor in (*outputs, *(primal.tensor for primal in problem.primals))])
    own = evaluate_function(problem, tape, connected, given)
    right = as_plain_code(wide) if is_plain else _on_fresh_graphs(wide)
    found: Sequence[Compared] = ()
    for nudges in _NUDGES:
        noises = nudges if is_plain else 0  # backward's own rounding is what is judged
        taped = record_all(right)
        theirs = evaluate_reference(
            problem, right, taped, connected, given, precision, settings.seed, nudges=nudges, noises=noises
        )
        found = compared_gradients(problem, outputs, own, theirs, precision)
        if not any(bool((each.wrong | each.unjudged).any()) for each in found):
            break
    return given, list(found)


def _has_plain_derivative(problem: Problem, wide: Problem, settings: Settings) -> bool:
    """Return True if torch can differentiate the forward as plain code and finds what backward says in float64.

    Raises EvaluationError if backward raises there.
    """
    tape = record_all(wide)
    connected = connected_outputs(tape)
    given = cotangents_for([tape.outputs[number].tensor for number in connected], settings.seed)
    backwards = evaluate_exactly(problem, _on_fresh_graphs(wide), tape, connected, given)
    plain = as_plain_code(wide)
    try:
        taped = record_all(plain)
        if custom_nodes(taped):
            return False  # some call of `apply` cannot be replaced
        torchs = evaluate_exactly(problem, plain, taped, connected, given)
    except EvaluationError:
        return False
    one, other = torch.cat(backwards.gradients), torch.cat(torchs.gradients)
    return torch.allclose(one, other, rtol=0.0, atol=_SAME * largest(other), equal_nan=True)


def _on_fresh_graphs(wide: Problem) -> Problem:
    """Return the function in float64 with a new graph for each vjp: a hand-written backward may serve one only."""
    return replace(wide, fresh_graphs=True)


def _moved(problem: Problem, number: int) -> Problem:
    """Return the problem at a point close by, which its dtypes hold."""
    tensors = [primal.tensor for primal in problem.primals]
    point = flatten(tensors)
    point = point + random_magnitudes_from(_ASIDE * point.abs(), number)
    return _at([primal.name for primal in problem.primals], unflatten(point, tensors), problem)


def _at(names: Sequence[str], tensors: Sequence[Tensor], problem: Problem) -> Problem:
    """Return the problem at the values of these tensors, by the names of its primals, in its own dtypes."""
    values = dict(zip(names, tensors, strict=True))
    primals = [replace(each, tensor=values[each.name].to(each.tensor.dtype)) for each in problem.primals]
    return replace(problem, primals=tuple(primals))


def _suspect_in_both(one: Compared, other: Compared) -> Compared:
    """Return the first comparison, its entries wrong or unjudged only if the other does not find them right."""
    suspect = other.wrong | other.unjudged
    return replace(
        one,
        wrong=one.wrong & other.wrong,
        not_finite=one.not_finite & other.not_finite,
        unjudged=one.unjudged & suspect | one.wrong & other.unjudged,
    )


def _findings(
    compared: Sequence[Compared], given: Sequence[Cotangent], dtypes: str, settings: Settings
) -> Iterator[Finding]:
    for each in compared:
        for finding in gradient_findings(each, given, settings.max_elements, _IN_FLOAT64):
            message = f"worse than {dtypes} explains: {finding.message}"
            yield replace(finding, code="GV602", message=message)
