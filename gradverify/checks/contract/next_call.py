"""Whether a call computes something else because an earlier call overwrote an input that is not differentiated."""

from __future__ import annotations

from torch import Tensor

from gradverify.checks.contract.forward_run import same_outputs
from gradverify.checks.contract.subject import Subject, gradients_of, new_graph
from gradverify.checks.contract.wording import failure, mismatches, remark
from gradverify.core.model.coordinates import is_freed
from gradverify.core.model.problem import copies_of_fixed, holding
from gradverify.errors import EvaluationError
from gradverify.result import Finding


def fixed_overwritten(subject: Subject, code: str, number: int, tensor: Tensor) -> Finding:
    """Return the finding about fixed input `number`, which is `tensor` after a call that overwrote it.

    It fails if the next call with this tensor has other outputs or gradients. If these are the same, the tensor may be
    state or an output buffer, and the finding is a remark.
    """
    wrt, *others = subject.problem.fixed.originals[number].names
    name = f"{wrt} (also given as {', '.join(others)})" if others else wrt
    by = "forward" if code == "GV401" else "backward"
    if is_freed(tensor):
        return failure(code, f"{by} frees the memory of {name}, which the caller still holds: work on a clone", wrt=wrt)
    says = f"{by} modifies {name} in place, and the next call with it"
    if _next_call_differs(subject, number, tensor):
        dirty = "mark it dirty and return it, or " if code == "GV401" else ""
        meant = f"if meant, {dirty}`expect: {{contract: {{codes: [{code}]}}}}`"
        return failure(code, f"{says} computes something else: work on a clone; {meant}", wrt=wrt)
    return remark(code, f"{says} computes the same: right for state and buffers, else work on a clone", wrt=wrt)


def _next_call_differs(subject: Subject, number: int, tensor: Tensor) -> bool:
    """Return True if outputs or gradients differ, or the call raises, with `tensor` for fixed input `number`."""
    fixed = list(copies_of_fixed(subject.problem))
    fixed[number] = tensor
    expected = new_graph(subject)
    try:
        with holding(subject.problem, fixed):
            tape = new_graph(subject)
        if not same_outputs(subject, tape, expected):
            return True
        answer = gradients_of(subject, tape, subject.cotangents)
    except EvaluationError:
        return True
    return any(mismatches(subject, "", "", answer, subject.gradients))
