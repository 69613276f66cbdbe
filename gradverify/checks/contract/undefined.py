"""GV308: where nothing downstream depends on an output, its cotangent is undefined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Answer, Subject, answer_of, ask, graph, zero_except
from gradverify.checks.contract.wording import accusation, differences, raised
from gradverify.core.model.problem import Named
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_ALONE = 6  # outputs left out one by one, at most


class _Swallow(torch.autograd.Function):
    """A consumer whose backward has no gradient to give, so that the one before it gets none."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        del ctx
        return tuple(tensor.clone() for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[None, ...]:
        del ctx
        return (None,) * len(cotangents)


def findings(subject: Subject) -> Iterator[Finding]:
    """GV308: an undefined cotangent counts as zero, each and all."""
    count = len(subject.cotangents)
    if count > 1:
        for number in range(min(count, _ALONE)):
            yield from _only(subject, number)
    if subject.hand_written:  # torch's own backwards know, and hooks are not asked to
        yield from _none(subject)


def _only(subject: Subject, number: int) -> Iterator[Finding]:
    name = subject.tape.outputs[number].name
    others = "the others are" if len(subject.cotangents) > 2 else "the other is"
    condition = f"only {name} has a cotangent and {others} undefined"
    tape = graph(subject)
    alone = replace(tape, outputs=(tape.outputs[number],))
    expected = ask(subject, zero_except(subject, number))
    yield from _compared(subject, condition, alone, (subject.cotangents[number],), expected)


def _none(subject: Subject) -> Iterator[Finding]:
    tape = graph(subject)
    names = [output.name for output in tape.outputs if output.tensor.requires_grad]
    tensors = [output.tensor for output in tape.outputs if output.tensor.requires_grad]
    with torch.enable_grad():
        swallowed = _Swallow.apply(*tensors)  # type: ignore[no-untyped-call]
    outputs = tuple(Named(name=name, tensor=tensor) for name, tensor in zip(names, swallowed, strict=True))
    cotangents = tuple(torch.ones_like(tensor) for tensor in swallowed)
    condition = "every cotangent is undefined" if len(names) > 1 else "the cotangent is undefined"
    yield from _compared(subject, condition, replace(tape, outputs=outputs), cotangents, subject.constant)


def _compared(
    subject: Subject, condition: str, tape: Tape, cotangents: Sequence[Tensor], expected: Answer
) -> Iterator[Finding]:
    try:
        got = answer_of(subject, tape, cotangents)
    except EvaluationError as error:
        yield accusation("GV308", f"{raised(error)}, where {condition}: backward gets None or zeros for it")
        return
    yield from differences(
        subject, "GV308", f"an undefined cotangent is not taken for zero ({condition})", got, expected
    )
