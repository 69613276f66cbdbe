"""GV309–GV312: the raw return values of backward, before autograd sums, casts or copies them to another device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import Exchange, Slot, class_of, custom_nodes, recorded_exchanges
from gradverify.checks.contract.subject import Subject
from gradverify.checks.contract.wording import failure, remark
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Rejected, Tape, vjp
from gradverify.errors import EvaluationError
from gradverify.result import Finding

_NO_TENSOR = re.compile(r"different than None at position (\d+)")  # torch's message, counts arguments from 1


def findings(subject: Subject) -> Iterator[Finding]:
    """GV309–GV311: a gradient has its input's shape, dtype and device."""
    for exchange in subject.exchanges:
        yield from _compared(exchange)


def refusals(problem: Problem, tape: Tape) -> tuple[Finding, ...]:
    """GV310–GV312: return why autograd rejects the gradients, empty if it accepts them.

    Raises EvaluationError if backward itself raises.
    """
    cotangents = [torch.ones_like(output.tensor) for output in tape.outputs]
    with recorded_exchanges(custom_nodes(tape)) as exchanges:
        try:
            vjp(problem, tape, cotangents)
        except EvaluationError as error:
            if not exchanges:
                raise
            error_line = str(error.original).strip().splitlines()[0]
            found = [finding for exchange in exchanges[-1:] for finding in _rejected(exchange, error_line)]
            if not found and not isinstance(error, Rejected):
                raise
            return tuple(found) or (failure("GV312", f"autograd rejects what backward returned: {error_line}"),)
    return ()


def _rejected(exchange: Exchange, error_line: str) -> Iterator[Finding]:
    name = class_of(exchange.node).__name__
    wanted = len(exchange.node.needs_input_grad)
    if len(exchange.returned) < wanted or any(entry is not None for entry in exchange.returned[wanted:]):
        text = f"backward of {name} returns {_counted(len(exchange.returned), 'gradient')}, forward takes"
        text = f"{text} {_counted(wanted, 'argument')}, and autograd rejects it"
        yield failure("GV312", f"{text}: one gradient per argument, None where there is none")
        return
    superfluous = _NO_TENSOR.search(error_line)
    if superfluous:
        place = f"backward of {name}, argument {int(superfluous[1]) - 1}"
        text = f"{place}: returns a gradient for what is no tensor, and autograd rejects it: None there"
        yield failure("GV312", text)
    for slot in exchange.slots:
        gradient = exchange.returned[slot.place]
        place = f"backward of {name}, argument {slot.place}"
        if gradient is not None and not isinstance(gradient, Tensor):
            text = f"{place}: returns a value of type {type(gradient).__name__}, which is no tensor"
            yield failure("GV312", f"{text}, and autograd rejects it")
        elif gradient is not None and gradient.device != slot.device:
            yield _device(place, gradient, slot)
        elif gradient is not None and gradient.is_complex() and not slot.dtype.is_complex:
            dtypes = f"returns {_dtype_name(gradient.dtype)} for an input of {_dtype_name(slot.dtype)}"
            yield failure("GV310", f"{place}: {dtypes}, and autograd rejects it: the real part is the gradient")
        elif gradient is not None and not _sums_to(gradient.shape, slot.shape):
            shapes = f"a gradient of shape {list(gradient.shape)} for an input of shape {list(slot.shape)}"
            yield failure("GV312", f"{place}: returns {shapes}, and autograd rejects it")


def is_summed(exchange: Exchange) -> bool:
    """True if autograd sums a gradient to the shape of its input."""
    return any(gradient.shape != slot.shape for slot, gradient in _gradients(exchange))


def _gradients(exchange: Exchange) -> Iterator[tuple[Slot, Tensor]]:
    for slot in exchange.slots:
        gradient: Any = exchange.returned[slot.place] if slot.place < len(exchange.returned) else None
        if isinstance(gradient, Tensor):
            yield slot, gradient


def _compared(exchange: Exchange) -> Iterator[Finding]:
    for slot, gradient in _gradients(exchange):
        place = f"backward of {class_of(exchange.node).__name__}, argument {slot.place}"
        if gradient.shape != slot.shape:
            shapes = f"a gradient of shape {list(gradient.shape)} for an input of shape {list(slot.shape)}"
            yield failure("GV309", f"{place}: returns {shapes}; autograd sums it without a word")
        if gradient.dtype != slot.dtype:
            yield _dtype(place, gradient, slot, exchange)
        if gradient.device != slot.device:
            yield _device(place, gradient, slot)


def _dtype(place: str, gradient: Tensor, slot: Slot, exchange: Exchange) -> Finding:
    text = f"{place}: returns {_dtype_name(gradient.dtype)} for an input of {_dtype_name(slot.dtype)}"
    cotangents = [_eps(entry.dtype) for entry in exchange.received if isinstance(entry, Tensor)]
    if max(torch.finfo(slot.dtype).eps, min(cotangents, default=0.0)) < _eps(gradient.dtype):
        return failure("GV310", f"{text}; autograd casts it back, but the digits are lost")
    return remark("GV310", f"{text}; autograd casts it")


def _device(place: str, gradient: Tensor, slot: Slot) -> Finding:
    return failure("GV311", f"{place}: returns a gradient on {gradient.device} for an input on {slot.device}")


def _eps(dtype: torch.dtype) -> float:
    """Return the eps of a dtype, 1 for integers."""
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 1.0


def _sums_to(shape: torch.Size, wanted: torch.Size) -> bool:
    """Return True if autograd can reduce `shape` to `wanted` by sums, the inverse of broadcasting."""
    lead = len(shape) - len(wanted)
    return lead >= 0 and all(small in (1, large) for small, large in zip(wanted, shape[lead:], strict=True))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
