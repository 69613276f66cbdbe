"""GV409: memory is written before it is read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Coordinates, Subject, gradients_of, new_graph, outputs_of
from gradverify.checks.contract.wording import failure
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding

IN_BACKWARD = "backward reads memory that nobody wrote, in the gradient by"


def findings(subject: Subject) -> Iterator[Finding]:
    """GV409: outputs and gradients do not depend on the contents of uninitialised memory."""
    plain = outputs_of(subject.tape)
    try:
        with poisoned_memory():
            tape = new_graph(subject)
            outputs = outputs_of(tape)
            answer = gradients_of(subject, tape, subject.cotangents)
    except EvaluationError:
        return  # torch may reject an operation in its deterministic mode
    for output, before, after in zip(subject.tape.outputs, plain, outputs, strict=False):
        if _poisoned(after, before):
            yield failure("GV409", f"forward reads memory that it never wrote, in {output.name}", of=output.name)
    for primal, before, after in zip(subject.primals, subject.gradients, answer, strict=True):
        if _poisoned(after, before):
            why = "torch.empty where zeros are meant, or entries left out"
            yield failure("GV409", f"{IN_BACKWARD} {primal.name}: {why}", wrt=primal.name)


def first_unwritten(subject: Subject, graph: Callable[[], Tape]) -> str | None:
    """Return the first input whose gradient by all outputs reads memory that nobody wrote; raises EvaluationError."""
    tape = graph()
    with poisoned_memory():
        after = _gradients_of_ones(subject, tape)
    if not any(bool(each.isnan().any()) for each in after):
        return None
    before = _gradients_of_ones(subject, graph())
    pairs = zip(subject.primals, before, after, strict=True)
    return next((primal.name for primal, was, now in pairs if _poisoned(now, was)), None)


def _gradients_of_ones(subject: Subject, tape: Tape) -> Coordinates:
    return gradients_of(subject, tape, [torch.ones_like(output.tensor) for output in tape.outputs])


def _poisoned(after: Tensor, before: Tensor) -> bool:
    """Return True if NaN appears only with poisoned memory."""
    return after.shape == before.shape and bool((after.isnan() & ~before.isnan()).any())


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
