"""Runs the checks on planted faults and on right functions, and says what came of it."""

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
from benchmarks.subject import Subject, checked
from gradverify.case import Tolerances
from gradverify.core.decide.tolerance import relative_tolerance
from gradverify.core.model.coordinates import Block
from gradverify.core.model.problem import Problem, call, fresh
from gradverify.result import CheckResult, ElementVerdict, Verdict

CHANGES_NOTHING = 1e-9  # relative to the entry: a smaller difference is no fault
ROUNDING = 1e-11  # relative to the smaller of row and column: neither is one
SPOKEN_OF = 1e-4  # of the largest in its row or column: the detection limit is that of entries of this size and more


class Outcome(StrEnum):
    """What became of a planted fault."""

    CAUGHT = "caught"
    MISSED = "missed"
    ELSEWHERE = "elsewhere"  # failed, but the wrong entry is not among those named
    UNDER_LIMIT = "under limit"  # passed, and the printed detection limit promises nothing of such an error
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
    """Torch's gradcheck: every entry, or one projection."""

    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One planted fault and what everyone said of it."""

    subject: str
    kind: str
    scale: float | None
    size: float  # largest relative error of an entry
    outcome: Outcome
    row: Row  # its note says what was said of a fault that was not caught
    slow: Verdict  # torch's gradcheck; skip where it fails the right function too, and so deserves no credit
    fast: Verdict


def attempt(subject: Subject, fault: Fault, seed: int, asked: frozenset[Mode]) -> Trial | None:
    """Plant the fault and judge; None where it cannot occur or changes nothing."""
    generator = torch.Generator().manual_seed(seed)
    plan = fault.plant(subject, generator)
    if plan is None:
        return None
    apart = _apart(subject, plan)
    size = float(apart.max())
    if size == 0:
        return None
    problem = planted(subject.problem, subject.kept, plan.claim)
    result = checked("gradcheck", problem, seed)
    outcome = _outcome(subject, plan, apart, result)
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
    """Return what torch's gradcheck says at its own defaults; anything it raises but its own error is an error."""
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
    """Return the faster of two runs."""
    found = []
    for _ in range(2):
        begin = time.perf_counter()
        task()
        found.append(time.perf_counter() - begin)
    return min(found)


def _apart(subject: Subject, plan: Plan) -> Tensor:
    """Return the relative errors of the entries that have one derivative, 0 where the fault is none; (m, n)."""
    right = subject.jacobian
    wrong = claimed_jacobian(plan.claim, len(right))
    apart, larger = (wrong - right).abs(), torch.maximum(wrong.abs(), right.abs())
    real = subject.defined & (apart > CHANGES_NOTHING * larger) & (apart > ROUNDING * _beside(right))
    return torch.where(real, apart / larger, 0.0)


def _beside(jacobian: Tensor) -> Tensor:
    """Return for every entry the smaller of the largest in its row and in its column; (m, n)."""
    return torch.minimum(jacobian.abs().amax(0, keepdim=True), jacobian.abs().amax(1, keepdim=True))


def _outcome(subject: Subject, plan: Plan, apart: Tensor, result: CheckResult) -> Outcome:
    if result.verdict is Verdict.FAIL:
        named = plan.element is None or _verdict_on(subject, plan.element, result) is ElementVerdict.MISMATCH
        return Outcome.CAUGHT if named else Outcome.ELSEWHERE
    if result.verdict is not Verdict.PASS:
        return Outcome.INCONCLUSIVE
    dtypes = {primal.tensor.dtype for primal in subject.problem.primals}
    if float(apart.max()) <= 1.1 * relative_tolerance(Tolerances(), dtypes):
        return Outcome.BELOW
    limit = result.detection_limit
    under = limit is not None and _spoken_of(subject, plan, apart) <= limit
    return Outcome.UNDER_LIMIT if under else Outcome.MISSED


def _spoken_of(subject: Subject, plan: Plan, apart: Tensor) -> float:
    """Return the largest relative error of an entry of such a size that the detection limit speaks of it."""
    wrong = claimed_jacobian(plan.claim, len(subject.jacobian))
    size = torch.maximum(wrong.abs(), subject.jacobian.abs())
    return float(torch.where(size > SPOKEN_OF * _beside(wrong), apart, 0.0).max())


def _row(subject: Subject, fault: Fault, plan: Plan, outcome: Outcome, result: CheckResult) -> Row:
    scale = "" if fault.scale is None else f" s={fault.scale:.0e}"
    note = "" if outcome is Outcome.CAUGHT else _reason(subject, plan, result)
    return judged_row(f"{subject.name}: {fault.kind}{scale}", result, STANDINGS[outcome], note)


def _reason(subject: Subject, plan: Plan, result: CheckResult) -> str:
    limit = f"limit {result.detection_limit:.1g}" if result.detection_limit is not None else "no limit"
    if plan.element is None:
        return f"{limit}; {result.message}"
    row, column = plan.element
    said = _verdict_on(subject, plan.element, result)
    return f"{limit}; entry {row},{column} of {float(subject.jacobian[row, column]):.3g}: {said}; {result.message}"


def _verdict_on(subject: Subject, element: tuple[int, int], result: CheckResult) -> ElementVerdict:
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
