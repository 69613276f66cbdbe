"""One try: a changed case is built, held against the rules, judged, and confirmed by a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch

from gradverify.case import Case
from gradverify.checks import gradcheck, gradgradcheck, precision
from gradverify.checks.contract import check as contract
from gradverify.checks.contract.uninitialised import poisoned_memory
from gradverify.checks.failures import first_line
from gradverify.checks.reference import check as reference
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import record, vjp_problem
from gradverify.errors import EvaluationError
from gradverify.exploration.change import Base, Rule
from gradverify.exploration.exercised.watch import watch
from gradverify.exploration.judge import Judged, Outcome, judge
from gradverify.exploration.legal import binary_inputs, why_not
from gradverify.exploration.slices import is_well_conditioned, uses_matrices
from gradverify.result import CheckResult, Verdict

SUMMED = "GV309"  # autograd sums a gradient, as wherever forward broadcasts a size of 1
_DOUBLE = ("float64", "complex128")
# Autograd rejects what backward returns, backward raises, or the reference has outputs of other shapes.
_REFUSED = ("GV312", "GV903", "GV706")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A changed case and what came of it."""

    case: Case
    problem: Problem | None  # None if it could not be built
    judged: Judged
    check: str  # the check that looks closer


def attempt(
    base: Base, case: Case, rules: Sequence[Rule] = (), *, asked: Sequence[str] = (), is_widened: bool = False
) -> Attempt:
    """Build and judge a changed case: by the contract only if it is among `asked`, or if backward overwrites.

    Where `precision` is among them, no other check is asked. `is_widened` is as in `Problem`. Raises OutOfTime.
    """
    check = checks_of(base.case)[0]
    try:
        problem = replace(base.tools.build(case), deadline=base.deadline, is_widened=is_widened)
        reason = _why_illegal(base, case, problem, rules)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # of the user's factories, or inputs that cannot be made
        return Attempt(case=case, problem=None, judged=_illegal(error), check=check)
    if reason:
        return Attempt(case=case, problem=problem, judged=Judged(outcome=Outcome.ILLEGAL, message=reason), check=check)
    judged = Judged(outcome=Outcome.RIGHT)
    for name in (precision.NAME,) if precision.NAME in asked else checks_of(base.case):
        if name == gradgradcheck.NAME and not judged.is_smooth:
            continue  # backward jumps at a kink: it has no derivative there
        if name == contract.NAME and not (name in asked or (judged.overwrites and not base.overwrites)):
            continue
        found = _judge(base, name, case, problem)
        judged = replace(
            found,
            outputs=max(judged.outputs, found.outputs),
            is_smooth=judged.is_smooth and found.is_smooth,
            overwrites=judged.overwrites or found.overwrites,
        )
        if judged.outcome is not Outcome.RIGHT:
            if judged.outcome is not Outcome.ILLEGAL and _is_near_singular(base, problem):
                judged = Judged(outcome=Outcome.ILLEGAL, message="a matrix is close to singular")
            return Attempt(case=case, problem=problem, judged=judged, check=name)
    return Attempt(case=case, problem=problem, judged=judged, check=check)


def confirmed(base: Base, found: Attempt) -> CheckResult | None:
    """Return the result of the check that looks closer if it fails, None if not, or by rounding. Raises OutOfTime."""
    result = looked_closer(base, found)
    return result if result is not None and result.verdict is Verdict.FAIL and not is_rounding(base, found) else None


def is_rounding(base: Base, found: Attempt) -> bool:
    """Return True if a gradient in low precision is right in a higher one, and passes `precision`.

    The higher one is that of the case as written, or double precision if the case is in that of the try.
    Nothing measures how much the derivative of backward may round: one that is right as written is taken for right.
    """
    by_differences = found.check in (gradcheck.NAME, gradgradcheck.NAME)
    if found.problem is None or not by_differences or found.case.dtype in _DOUBLE:
        return False
    double = "complex128" if found.case.dtype.startswith("complex") else "float64"
    dtype = double if found.case.dtype == base.case.dtype else base.case.dtype
    wide = attempt(base, replace(found.case, dtype=dtype), is_widened=True)
    is_suspect = wide.judged.outcome is Outcome.SUSPECT
    is_right = confirmed(base, wide) is None if is_suspect else wide.judged.outcome is Outcome.RIGHT
    if found.check == gradgradcheck.NAME:
        return is_right
    return is_right and base.tools.check(found.case, found.problem, precision.NAME).verdict is Verdict.PASS


def looked_closer(base: Base, found: Attempt) -> CheckResult | None:
    """Return the result of the check that looks closer, None without a problem. Raises OutOfTime."""
    if found.problem is None:
        return None
    if found.judged.result is not None:
        return found.judged.result
    with memory_of(found):
        return base.tools.check(found.case, found.problem, found.check)


def memory_of(found: Attempt) -> AbstractContextManager[None]:
    """Return the context in which a check sees the gradients that the try was judged by.

    Where they are not finite, uninitialised memory holds NaN again: zeros that happen to be there would hide it.
    """
    return poisoned_memory() if found.judged.not_finite else nullcontext()


def checks_of(case: Case) -> tuple[str, ...]:
    """Return the checks that tries are judged by, those that see most first: one at least that compares numbers."""
    known = (gradcheck.NAME, reference.NAME, gradgradcheck.NAME)
    found = tuple(name for name in known if name in case.checks) or (gradcheck.NAME,)
    return (*found, *(name for name in (precision.NAME, contract.NAME) if name in case.checks))


def codes(result: CheckResult) -> frozenset[str]:
    """Return the codes of the failing findings."""
    return frozenset(finding.code for finding in result.findings if finding.verdict is Verdict.FAIL)


def _why_illegal(base: Base, case: Case, problem: Problem, rules: Sequence[Rule]) -> str:
    """Return which rule the case breaks, "" if none; may raise."""
    declared = case.explore
    if not problem.primals:
        return "no input requires grad"
    binary = binary_inputs(base.case)
    if (declared.ranges or declared.indices or declared.sizes or declared.require or binary) and (
        reason := why_not(case, {**base.tools.defaults, **base.tools.arguments(case)}, binary)
    ):
        return reason
    return next((reason for rule in rules if (reason := rule(case, problem, base.tools))), "")


def _is_near_singular(base: Base, problem: Problem) -> bool:
    """Return True if an input is close to a singular matrix, and forward inverts or decomposes matrices."""
    try:
        _, seen = watch(lambda: record(problem), base.tools.functions)
    except EvaluationError:  # a random forward may raise now and then
        return False
    return uses_matrices(seen.operators) and not is_well_conditioned(problem)


def _judge(base: Base, check: str, case: Case, problem: Problem) -> Judged:
    if check == reference.NAME:
        return _against_reference(base, case, problem)
    if check == gradgradcheck.NAME:
        return _second_order(problem, case.seed)
    if check == contract.NAME:
        return _by_contract(base, case, problem)
    if check == precision.NAME:
        return _by_precision(base, case, problem)
    return judge(problem, case.seed, base.watching)


def broken_as_written(base: Base) -> frozenset[str]:
    """Return the codes of what the contract finds at the inputs as written."""
    try:
        problem = replace(base.tools.build(base.case), deadline=base.deadline)
        return codes(base.tools.check(base.case, problem, contract.NAME))
    except KeyboardInterrupt:
        raise
    except BaseException:  # of the user's factories
        return frozenset()


def _by_contract(base: Base, case: Case, problem: Problem) -> Judged:
    result = base.tools.check(case, problem, contract.NAME)
    return Judged(outcome=Outcome.SUSPECT if codes(result) - {SUMMED} else Outcome.RIGHT, result=result)


def _by_precision(base: Base, case: Case, problem: Problem) -> Judged:
    result = base.tools.check(case, problem, precision.NAME)
    return Judged(outcome=Outcome.SUSPECT if result.verdict is Verdict.FAIL else Outcome.RIGHT, result=result)


def _against_reference(base: Base, case: Case, problem: Problem) -> Judged:
    result = base.tools.check(case, problem, reference.NAME)
    refused = next((finding for finding in result.findings if finding.code in _REFUSED), None)
    if refused is not None:
        return Judged(outcome=Outcome.REFUSED, message=refused.message)
    if result.verdict is Verdict.FAIL:
        pairs = frozenset((finding.of or "", finding.wrt or "") for finding in result.findings)
        return Judged(outcome=Outcome.SUSPECT, pairs=pairs, result=result)
    raised = next((finding for finding in result.findings if finding.code in ("GV902", "GV704")), None)
    return Judged(outcome=Outcome.RIGHT if raised is None else Outcome.ILLEGAL)


def _second_order(problem: Problem, seed: int) -> Judged:
    """Judge the derivative of backward; a backward that cannot be differentiated is taken for right."""
    try:
        second = vjp_problem(problem, record(problem), seed)
    except EvaluationError:
        return Judged(outcome=Outcome.RIGHT)
    with torch.no_grad():
        found = judge(second, seed)
    return found if found.outcome is Outcome.SUSPECT else Judged(outcome=Outcome.RIGHT)


def _illegal(error: BaseException) -> Judged:
    return Judged(outcome=Outcome.ILLEGAL, message=first_line(error))


Fails = Callable[[Case], bool]


def entries(found: Attempt) -> int:
    """Return the number of entries of the Jacobian."""
    problem = found.problem
    return 0 if problem is None else found.judged.outputs * sum(primal.tensor.numel() for primal in problem.primals)


def suspect_like(base: Base, check: str, rules: Sequence[Rule]) -> Fails:
    """Return a function that tells whether a case keeps the rules and seems wrong to the check."""

    def fails(case: Case) -> bool:
        found = attempt(base, case, rules, asked=(check,))
        return found.judged.outcome is Outcome.SUSPECT and found.check == check

    return fails


def failing_like(base: Base, wanted: frozenset[str], check: str, rules: Sequence[Rule]) -> Fails:
    """Return a function that tells whether a case keeps the rules and fails the check with one of the codes wanted."""

    def fails(case: Case) -> bool:
        found = attempt(base, case, rules, asked=(check,))
        if found.judged.outcome is not Outcome.SUSPECT or found.check != check:
            return False
        result = confirmed(base, found)
        return result is not None and bool(codes(result) & wanted)

    return fails
