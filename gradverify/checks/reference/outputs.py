"""GV704 and GV706: the function returns the tensors that its reference returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.checks.reference.error_model import Precision
from gradverify.core.model.problem import Problem, call, fresh
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError
from gradverify.result import Finding, Verdict


def incomparable(tape: Tape, wide: Tape, name: str, precision: Precision) -> Iterator[Finding]:
    """Yield why outputs cannot be compared with those of the reference called `name`; `wide` is its record."""
    if len(tape.outputs) != len(wide.outputs):
        text = f"{name} returns {_tensors(wide)}, the function {_tensors(tape)}; `outputs` can choose among them"
        yield Finding(code="GV704", verdict=Verdict.ERROR, message=text)
        return
    for own, reference in zip(tape.outputs, wide.outputs, strict=True):
        one, other = own.tensor, reference.tensor
        if one.shape != other.shape:
            yield _wrong(own.name, f"has shape {list(one.shape)}, but {name} returns {list(other.shape)}")
        elif one.is_complex() != other.is_complex():
            yield _wrong(own.name, f"is {_dtype(one)}, but {name} returns {_dtype(other)}")
        elif torch.finfo(other.dtype).eps > max(precision.eps**2, torch.finfo(torch.float64).eps):
            text = f"{name} returns {_dtype(other)} for inputs in float64, too coarse to compare {precision.name} with"
            yield Finding(code="GV704", verdict=Verdict.ERROR, message=f"{text}; a reference casts nothing")


def wrong_kind(problem: Problem, reference: Problem, tape: Tape) -> Iterator[Finding]:
    """Yield the outputs whose dtype or device is wrong.

    An output has the dtype and device that the reference returns for the same inputs in their own dtypes, or those of
    an input. If the reference does not take inputs of these dtypes, nothing is said.
    """
    found = _outputs_in_own_dtype(reference)
    fixed = [entry.value for entry in problem.bound if isinstance(entry.value, Tensor)]
    accepted = [*(primal.tensor for primal in problem.primals), *fixed]
    for own, expected in zip(tape.outputs, found, strict=False):
        one = own.tensor
        if all(one.dtype != each.dtype for each in (expected, *accepted)):
            yield _wrong(own.name, f"is {_dtype(one)}, but {reference.name} returns {_dtype(expected)}")
        if all(one.device != each.device for each in (expected, *accepted)):
            yield _wrong(own.name, f"is on {one.device}, but {reference.name} returns one on {expected.device}")


def _outputs_in_own_dtype(reference: Problem) -> Sequence[Tensor]:
    """Return the reference's outputs for inputs in their own dtypes, () if it raises for these."""
    try:
        with torch.no_grad():
            return tuple(found.tensor for found in call(reference, [fresh(each.tensor) for each in reference.primals]))
    except EvaluationError:
        return ()


def _tensors(tape: Tape) -> str:
    return "one tensor" if len(tape.outputs) == 1 else f"{len(tape.outputs):,} tensors"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _wrong(name: str, text: str) -> Finding:
    return Finding(code="GV706", verdict=Verdict.FAIL, of=name, message=f"{name} {text}")
