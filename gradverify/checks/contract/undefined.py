"""GV308: the cotangent of an output without a consumer is undefined and counts as zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.subject import (
    Coordinates,
    Subject,
    gradients_for,
    gradients_of,
    graph_for_vjp,
    zero_except,
)
from gradverify.checks.contract.wording import failure, mismatches, raised
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.nested import Named
from gradverify.result import Finding

_MAX_OUTPUTS = 6  # largest number of outputs tested one by one


class _NoGradient(torch.autograd.Function):
    """Identity whose backward returns None, so that the cotangents of its inputs are undefined."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        del ctx
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[None, ...]:
        del ctx
        return (None,) * len(cotangents)


def findings(subject: Subject) -> Iterator[Finding]:
    """GV308: undefined cotangents count as zero, if all but one are undefined and if all are."""
    count = len(subject.cotangents)
    if count > 1:
        for number in range(min(count, _MAX_OUTPUTS)):
            yield from _all_but_one(subject, number)
    if subject.hand_written:  # torch's own backwards handle it, and hooks need not
        yield from _all_undefined(subject)


def _all_but_one(subject: Subject, number: int) -> Iterator[Finding]:
    name = subject.tape.outputs[number].name
    others = "the others are" if len(subject.cotangents) > 2 else "the other is"
    condition = f"only {name} has a cotangent and {others} undefined"
    tape = graph_for_vjp(subject)
    single = replace(tape, outputs=(tape.outputs[number],))
    expected = gradients_for(subject, zero_except(subject, number))
    yield from _compared(subject, condition, single, (subject.cotangents[number],), expected)


def _all_undefined(subject: Subject) -> Iterator[Finding]:
    tape = graph_for_vjp(subject)
    names = [output.name for output in tape.outputs if output.tensor.requires_grad]
    tensors = [output.tensor for output in tape.outputs if output.tensor.requires_grad]
    with torch.enable_grad():
        copies = _NoGradient.apply(*tensors)  # type: ignore[no-untyped-call]
    outputs = tuple(Named(name=name, tensor=tensor) for name, tensor in zip(names, copies, strict=True))
    cotangents = tuple(torch.ones_like(tensor) for tensor in copies)
    condition = "every cotangent is undefined" if len(names) > 1 else "the cotangent is undefined"
    yield from _compared(subject, condition, replace(tape, outputs=outputs), cotangents, subject.gradients_of_zeros)


def _compared(
    subject: Subject, condition: str, tape: Tape, cotangents: Sequence[Tensor], expected: Coordinates
) -> Iterator[Finding]:
    try:
        got = gradients_of(subject, tape, cotangents)
    except EvaluationError as error:
        yield failure("GV308", f"{raised(error)}, where {condition}: backward gets None or zeros for it")
        return
    yield from mismatches(
        subject, "GV308", f"an undefined cotangent is not taken for zero ({condition})", got, expected
    )
