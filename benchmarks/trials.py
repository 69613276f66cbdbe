"""Run gradcheck, ours and torch's, on planted faults and classify the outcome."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from benchmarks.faults import Fault, Plan
from benchmarks.planting import claimed_jacobian, planted
from benchmarks.record import Row, Standing, judged_row
from benchmarks.subject import Subject, result_of
from gradverify.case import Tolerances
from gradverify.core.decide.compare import relative_tolerance
from gradverify.core.model.coordinates import Block
from gradverify.core.model.problem import Problem, call, fresh
from gradverify.result import CheckResult, ElementVerdict, Verdict

CHANGES_NOTHING = 1e-9  # relative to the entry: a smaller difference is no fault
ROUNDING = 1e-11  # relative to the smaller of the largest entries of row and column: a smaller difference is no fault
LIMIT_COVERS = 1e-4  # relative to the same: the detection limit holds for entries above this


class Outcome(StrEnum):
    """Outcomes of a planted fault."""

    CAUGHT = "caught"
    MISSED = "missed"
    ELSEWHERE = "elsewhere"  # failed, but the wrong entry is not named
    UNDER_LIMIT = "under limit"  # passed, and the error is below the printed detection limit
    BELOW = "within rtol"  # passed, and the largest relative error is within rtol
    INCONCLUSIVE = "inconclusive"


STANDINGS = {
    Outcome.CAUGHT: Standing.RIGHT,
    Outcome.MISSED: Standing.MISSED,
    Outcome.ELSEWHERE: Standing.MISSED,
    Outcome.UNDER_LIMIT: Standing.BELOW_LIMIT,
    Outcome.BELOW: Standing.BELOW_LIMIT,
    Outcome.INCONCLUSIVE: Standing.INCONCLUSIVE,
}


class Mode(StrEnum):
    """Modes of torch's gradcheck: every entry, or one random projection."""

    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One planted fault and its verdicts."""

    subject: str
    kind: str
    scale: float | None
    size: float  # largest relative error of an entry
    outcome: Outcome
    row: Row  # its note describes a fault that was not caught
    slow: Verdict  # of torch's gradcheck; SKIP if it fails the right function too
    fast: Verdict


def attempt(subject: Subject, fault: Fault, seed: int, asked: frozenset[Mode]) -> Trial | None:
    """Return the trial of the fault; None if it cannot occur or changes nothing. `asked` are the modes of torch's."""
    generator = torch.Generator().manual_seed(seed)
    plan = fault.plant(subject, generator)
    if plan is None:
        return None
    errors = _relative_errors(subject, plan)
    size = float(errors.max())
    if size == 0:
        return None
    problem = planted(subject.problem, subject.kept, plan.claim)
    result = result_of("gradcheck", problem, seed)
    outcome = _outcome(subject, plan, errors, result)
    return Trial(
        subject=subject.name,
        kind=fault.kind,
        scale=fault.scale,
        size=size,
        outcome=outcome,
        row=_row(subject, fault, plan, outcome, result),
        slow=torch_verdict(problem, Mode.SLOW) if Mode.SLOW in asked else Verdict.SKIP,
        fast=torch_verdict(problem, Mode.FAST) if Mode.FAST in asked else Verdict.SKIP,
    )


def torch_verdict(problem: Problem, mode: Mode) -> Verdict:
    """Return the verdict of torch's gradcheck with its defaults; ERROR if it raises anything but GradcheckError."""
    inputs = tuple(fresh(primal.tensor).requires_grad_() for primal in problem.primals)

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(output.tensor for output in call(problem, [tensor.clone() for tensor in tensors]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.autograd.gradcheck(function, inputs, fast_mode=mode is Mode.FAST)
        except GradcheckError:
            return Verdict.FAIL
        except Exception:
            return Verdict.ERROR
    return Verdict.PASS


def seconds(task: Callable[[], object]) -> float:
    """Return the time of the faster of two runs, in seconds."""
    found = []
    for _ in range(2):
        begin = time.perf_counter()
        task()
        found.append(time.perf_counter() - begin)
    return min(found)


def _relative_errors(subject: Subject, plan: Plan) -> Tensor:
    """Return the relative errors of the entries, (m, n); 0 where negligible, or where several derivatives are right."""
    right = subject.jacobian
    wrong = claimed_jacobian(plan.claim, len(right))
    errors, larger = (wrong - right).abs(), torch.maximum(wrong.abs(), right.abs())
    real = subject.defined & (errors > CHANGES_NOTHING * larger) & (errors > ROUNDING * _row_column_size(right))
    return torch.where(real, errors / larger, 0.0)


def _row_column_size(jacobian: Tensor) -> Tensor:
    """Return for each entry the smaller of the largest magnitudes in its row and in its column, (m, n)."""
    return torch.minimum(jacobian.abs().amax(0, keepdim=True), jacobian.abs().amax(1, keepdim=True))


def _outcome(subject: Subject, plan: Plan, errors: Tensor, result: CheckResult) -> Outcome:
    if result.verdict is Verdict.FAIL:
        named = plan.element is None or _verdict_of_entry(subject, plan.element, result) is ElementVerdict.MISMATCH
        return Outcome.CAUGHT if named else Outcome.ELSEWHERE
    if result.verdict is not Verdict.PASS:
        return Outcome.INCONCLUSIVE
    dtypes = {primal.tensor.dtype for primal in subject.problem.primals}
    if float(errors.max()) <= 1.1 * relative_tolerance(Tolerances(), dtypes):
        return Outcome.BELOW
    limit = result.detection_limit
    under = limit is not None and _covered_by_limit(subject, plan, errors) <= limit
    return Outcome.UNDER_LIMIT if under else Outcome.MISSED


def _covered_by_limit(subject: Subject, plan: Plan, errors: Tensor) -> float:
    """Return the largest relative error of the entries for which the detection limit holds."""
    wrong = claimed_jacobian(plan.claim, len(subject.jacobian))
    size = torch.maximum(wrong.abs(), subject.jacobian.abs())
    return float(torch.where(size > LIMIT_COVERS * _row_column_size(wrong), errors, 0.0).max())


def _row(subject: Subject, fault: Fault, plan: Plan, outcome: Outcome, result: CheckResult) -> Row:
    scale = "" if fault.scale is None else f" s={fault.scale:.0e}"
    note = "" if outcome is Outcome.CAUGHT else _reason(subject, plan, result)
    return judged_row(f"{subject.name}: {fault.kind}{scale}", result, STANDINGS[outcome], note)


def _reason(subject: Subject, plan: Plan, result: CheckResult) -> str:
    limit = f"limit {result.detection_limit:.1g}" if result.detection_limit is not None else "no limit"
    if plan.element is None:
        return f"{limit}; {result.message}"
    row, column = plan.element
    said = _verdict_of_entry(subject, plan.element, result)
    return f"{limit}; entry {row},{column} of {float(subject.jacobian[row, column]):.3g}: {said}; {result.message}"


def _verdict_of_entry(subject: Subject, element: tuple[int, int], result: CheckResult) -> ElementVerdict:
    of, output_index = _place(subject.outputs, element[0])
    wrt, input_index = _place(subject.inputs, element[1])
    for finding in result.findings:
        if (finding.of, finding.wrt) in ((of.name, wrt.name), (None, None)):
            for found in finding.elements:
                if (found.output_index, found.input_index) == (output_index, input_index):
                    return found.verdict
    return ElementVerdict.MATCH


def _place(blocks: tuple[Block, ...], coordinate: int) -> tuple[Block, tuple[int, ...]]:
    for block in blocks:
        offset = coordinate - block.start
        if block.start <= coordinate < block.stop and offset % block.step == 0:
            return block, block.index(offset // block.step)
    raise AssertionError(f"no block holds coordinate {coordinate}")
