"""GV408: a call does not overwrite the tensors that an earlier call returned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from torch import Tensor

from gradverify.checks.contract.forward_run import differs, snapshot
from gradverify.checks.contract.wording import failure
from gradverify.core.model.problem import Problem, fresh
from gradverify.core.model.tape import Tape, record
from gradverify.errors import EvaluationError
from gradverify.nested import Named
from gradverify.result import Finding

_SCALE = 1 + 2.0**-6  # factor on the inputs


def outputs(problem: Problem, tape: Tape, other: Tape) -> Iterator[Finding]:
    """GV408: no forward overwrites the outputs of the previous one; `tape` and `other` are two calls at one point.

    Tested before everything else, because a graph with overwritten outputs is unusable. If both calls return the same
    memory, which may hold a constant, one more forward at another point shows whether it is overwritten.
    """
    common = [
        output
        for output, again in zip(tape.outputs, other.outputs, strict=False)
        if _memory(output.tensor) == _memory(again.tensor) != 0
    ]
    if not common:
        return
    before = [snapshot(output.tensor) for output in common]
    moved = [replace(primal, tensor=fresh(primal.tensor) * _SCALE) for primal in problem.primals]
    with suppress(EvaluationError):
        record(replace(problem, primals=tuple(moved)))
    for output, values in zip(common, before, strict=True):
        if differs(output.tensor, values):
            yield _overwritten(f"forward returns {output.name}", of=output.name)


def gradients(named: Sequence[Named], before: Sequence[Tensor | None]) -> Iterator[Finding]:
    """GV408: no backward overwrites the gradients that the previous one returned; `before` are their snapshots."""
    for gradient, values in zip(named, before, strict=True):
        if differs(gradient.tensor, values):
            yield _overwritten(f"backward returns the gradient by {gradient.name}", wrt=gradient.name)


def _overwritten(what: str, *, of: str | None = None, wrt: str | None = None) -> Finding:
    text = "in memory that it keeps, and the next call overwrites it: return a new tensor from every call"
    return failure("GV408", f"{what} {text}", of=of, wrt=wrt)


def _memory(tensor: Tensor) -> int:
    """Return the address of the storage, 0 for an empty tensor."""
    return tensor.untyped_storage().data_ptr() if tensor.numel() else 0
