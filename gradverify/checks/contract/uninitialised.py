"""GV409: memory is written before it is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Coordinates, Subject, gradients_of, new_graph, outputs_of
from gradverify.checks.contract.wording import failure
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.interception import OperatorMode
from gradverify.result import Finding

_UNINITIALISED = {
    torch.ops.aten.empty,
    torch.ops.aten.empty_like,
    torch.ops.aten.empty_permuted,
    torch.ops.aten.empty_strided,
    torch.ops.aten.new_empty,
    torch.ops.aten.new_empty_strided,
}
IN_BACKWARD = "backward reads memory that nobody wrote, in the gradient by"


def findings(subject: Subject) -> Iterator[Finding]:
    """GV409: outputs and gradients do not depend on the contents of uninitialised memory."""
    plain, gradients = outputs_of(subject.tape), subject.gradients
    try:
        with poisoned_memory():
            outputs, answer = _evaluated(subject)
    except EvaluationError:
        return  # torch may reject an operation in its deterministic mode
    if any(map(_both_nan, (*outputs, *answer), (*plain, *gradients))):
        with suppress(EvaluationError), _ZeroedMemory():  # freed memory may hold NaN
            plain, gradients = _evaluated(subject)
    for output, before, after in zip(subject.tape.outputs, plain, outputs, strict=False):
        if _poisoned(after, before):
            yield failure("GV409", f"forward reads memory that it never wrote, in {output.name}", of=output.name)
    for primal, before, after in zip(subject.primals, gradients, answer, strict=True):
        if _poisoned(after, before):
            why = "torch.empty where zeros are meant, or entries left out"
            yield failure("GV409", f"{IN_BACKWARD} {primal.name}: {why}", wrt=primal.name)


def _evaluated(subject: Subject) -> tuple[Coordinates, Coordinates]:
    """Return the outputs and the gradients of a new graph; raises EvaluationError."""
    tape = new_graph(subject)
    outputs = outputs_of(tape)  # before backward, which may overwrite them
    return outputs, gradients_of(subject, tape, subject.cotangents)


def first_unwritten(subject: Subject, graph: Callable[[], Tape]) -> str | None:
    """Return the first input whose gradient by all outputs reads memory that nobody wrote; raises EvaluationError."""
    tape = graph()
    with poisoned_memory():
        after = _gradients_of_ones(subject, tape)
    if not any(bool(each.isnan().any()) for each in after):
        return None
    with _ZeroedMemory():
        before = _gradients_of_ones(subject, graph())
    pairs = zip(subject.primals, before, after, strict=True)
    return next((primal.name for primal, was, now in pairs if _poisoned(now, was)), None)


def _gradients_of_ones(subject: Subject, tape: Tape) -> Coordinates:
    return gradients_of(subject, tape, [torch.ones_like(output.tensor) for output in tape.outputs])


def _poisoned(after: Tensor, before: Tensor) -> bool:
    """Return True if NaN appears only with poisoned memory."""
    return after.shape == before.shape and bool((after.isnan() & ~before.isnan()).any())


def _both_nan(one: Tensor, other: Tensor) -> bool:
    """Return True if an entry is NaN in both."""
    return one.shape == other.shape and bool((one.isnan() & other.isnan()).any())


class _ZeroedMemory(OperatorMode):
    """Fills uninitialised tensors with zeros."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        return found.zero_() if getattr(func, "overloadpacket", None) in _UNINITIALISED else found


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Make torch fill uninitialised tensors with NaN; restores torch's settings on exit."""
    mode = torch.get_deterministic_debug_mode()
    switch: Any = torch.utils.deterministic  # its one setting is a property of the module
    fills = switch.fill_uninitialized_memory
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_deterministic_debug_mode("warn")
            switch.fill_uninitialized_memory = True
            yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        switch.fill_uninitialized_memory = fills
