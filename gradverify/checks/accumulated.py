"""Gradients that backward adds to leaves, where `torch.autograd.grad` raises or returns none."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.failures import inconclusive, skipped
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record, vjp
from gradverify.deadline import OutOfTime
from gradverify.errors import EvaluationError
from gradverify.result import CheckResult, Verdict

_MISSING = "GV102"  # no gradient by an input
_NOTE = "gradients are taken with .backward(), because backward raises under torch.autograd.grad"


def with_backward(problem: Problem, undetermined: str, run: Callable[[Problem], CheckResult]) -> CheckResult | None:
    """Run a check with `.backward()`; None if this is not needed, or if backward raises here too.

    Inputs whose gradients `.backward()` adds to other tensors are not judged. `undetermined` is the code of an
    inconclusive result of this check; if it is "", the result is a skip instead.
    """
    with _gradients_kept() as leaves:
        if not _only_accumulates(problem):
            return None
        result = run(replace(problem, accumulates=True))
        elsewhere = _inputs_among(problem, leaves)
    result = _without(result, elsewhere, problem, undetermined)
    return result if result.verdict is Verdict.SKIP else replace(result, message=f"{result.message}; {_NOTE}")


def without_accumulated(problem: Problem, undetermined: str, result: CheckResult) -> CheckResult:
    """Return the result without the gradients that are missing because backward adds them to other tensors.

    A checkpoint written by hand does so, if it calls a module again in backward. Costs a forward and a backward if some
    gradient is missing.
    """
    if all(finding.code != _MISSING for finding in result.findings):
        return result
    with _gradients_kept() as leaves:
        try:
            with torch.no_grad():
                tape = record(problem)
                vjp(problem, tape, [torch.ones_like(output.tensor) for output in tape.outputs])
        except (EvaluationError, OutOfTime):
            return result
        elsewhere = _inputs_among(problem, leaves)
    return _without(result, elsewhere, problem, undetermined)


@contextmanager
def _gradients_kept() -> Iterator[Sequence[Tensor]]:
    """Yield all leaves that require grad, with `.grad` set to None, and restore their `.grad` at the end.

    The leaves that a reentrant checkpoint reads are not in the graph: it records them only while backward runs.
    """
    with torch._C.DisableTorchFunctionSubclass():
        tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor)]
        kept = [(leaf, leaf.grad) for leaf in tensors if leaf.requires_grad and leaf.is_leaf]
        for leaf, _ in kept:
            leaf.grad = None  # backward would add to an existing one in place
    try:
        yield [leaf for leaf, _ in kept]
    finally:
        with torch._C.DisableTorchFunctionSubclass():
            for leaf, before in kept:
                leaf.grad = before


def _inputs_among(problem: Problem, leaves: Sequence[Tensor]) -> tuple[str, ...]:
    """Return the names of the inputs whose values equal those of a leaf with a gradient.

    A module's parameters are inputs with copies of their values. A reentrant checkpoint calls the module again in
    backward, when it has its own parameters back.
    """
    with torch._C.DisableTorchFunctionSubclass():
        reached = [leaf.detach() for leaf in leaves if leaf.grad is not None]
        return tuple(
            primal.name for primal in problem.primals if any(_same_values(primal.tensor, leaf) for leaf in reached)
        )


def _same_values(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype, one.device, one.layout) != (other.shape, other.dtype, other.device, other.layout):
        return False
    return torch.equal(one, other)


def _without(result: CheckResult, elsewhere: Sequence[str], problem: Problem, undetermined: str) -> CheckResult:
    """Remove the fails by these inputs from the result, and say so in its message."""
    dropped = [each for each in result.findings if each.wrt in elsewhere and each.verdict is Verdict.FAIL]
    if not dropped:
        return result
    wrong = {finding.wrt for finding in dropped}
    names = " and ".join(name for name in elsewhere if name in wrong)
    text = (
        f"the gradients by {names} were not judged: backward adds them to the module's own parameters, as"
        " checkpoint(..., use_reentrant=True) does; they can be judged with use_reentrant=False"
    )
    left = tuple(finding for finding in result.findings if finding not in dropped)
    fails = [finding for finding in left if finding.verdict is Verdict.FAIL]
    if fails:
        count = max(0, result.mismatched - sum(finding.total for finding in dropped))
        return replace(result, findings=left, mismatched=count, message=f"{fails[0].message}; {text}")
    found = inconclusive(result.check, problem, undetermined, text) if undetermined else None
    found = found or skipped(result.check, problem, text)
    return replace(found, findings=(*found.findings, *left), evaluations=result.evaluations)


def _only_accumulates(problem: Problem) -> bool:
    """Return True if backward raises under `torch.autograd.grad` but works with `.backward()`.

    A reentrant checkpoint behaves so. False if the forward raises or there is no time left.
    """
    try:
        with torch.no_grad():
            tapes = record(problem), record(problem)
            ones = [torch.ones_like(output.tensor) for output in tapes[0].outputs]
            if not _raises(problem, tapes[0], ones):
                return False
            return not _raises(replace(problem, accumulates=True), tapes[1], ones)
    except (EvaluationError, OutOfTime):
        return False


def _raises(problem: Problem, tape: Tape, cotangents: Sequence[Tensor]) -> bool:
    try:
        vjp(problem, tape, cotangents)
    except EvaluationError:
        return True
    return False
