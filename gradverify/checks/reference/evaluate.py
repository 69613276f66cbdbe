"""Outputs and gradients of a function in its own precision, and of its reference in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from gradverify.arithmetic.noisy import noisy_arithmetic
from gradverify.checks.reference.cotangents import Cotangent, in_float64
from gradverify.checks.reference.error_model import Precision, ulp
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import Primal, Problem, fresh
from gradverify.core.model.tape import Tape, record_all, vjp
from gradverify.errors import EvaluationError
from gradverify.interception import plain_forwards

T = TypeVar("T")
NUDGES = 4  # evaluations near the point, and as many in noisy arithmetic: a single change may be small by accident


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Outputs and gradients at one point, as real coordinates in float64."""

    outputs: Tensor  # (m,)
    gradients: tuple[Tensor, ...]  # one per cotangent, (n,) over all primals of the function
    missing: tuple[bool, ...]  # per primal: True if no cotangent has a gradient by it


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedReference:
    """Outputs and gradients of the reference at the point, near it, and with more rounding."""

    exact: Evaluated
    nudged: tuple[Evaluated, ...]  # inputs and cotangents moved by up to half an ulp of the function's precision
    noisy: tuple[Evaluated, ...]  # at the point, in noisy arithmetic
    jittered: Evaluated  # inputs and cotangents moved by up to an ulp of float64, which shows the rounding of float64


def connected_outputs(tape: Tape) -> tuple[int, ...]:
    """Return the numbers of the outputs that have a graph; all of them if none has one."""
    found = tuple(number for number, output in enumerate(tape.outputs) if output.tensor.requires_grad)
    return found or tuple(range(len(tape.outputs)))


def with_outputs(tape: Tape, numbers: Sequence[int]) -> Tape:
    """Return the tape with the outputs of these numbers only."""

    def chosen(values: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(values[number] for number in numbers)

    return replace(tape, outputs=chosen(tape.outputs), shapes=chosen(tape.shapes), nodes=chosen(tape.nodes))


def evaluate_function(
    problem: Problem, first: Tape, connected: Sequence[int], cotangents: Sequence[Cotangent]
) -> Evaluated:
    """Return the function's outputs and gradients; raises EvaluationError.

    The first vjp is taken of the graph `first`, each other one of a new graph.

    Cotangents are for the outputs numbered `connected`. Backward gets copies, since it may overwrite them.
    """
    outputs = in_float64([output.tensor for output in first.outputs])  # backward may overwrite them
    grads = [
        vjp(
            problem,
            with_outputs(record_all(problem) if number else first, connected),
            [fresh(each) for each in cotangent.tensors],
        )
        for number, cotangent in enumerate(cotangents)
    ]
    return _evaluated(outputs, grads, [primal.tensor for primal in problem.primals])


def with_wide_inputs(reference: Problem) -> Problem:
    """Return the reference with its inputs in float64 or complex128.

    If these are not their own dtypes, what the reference casts to narrower ones stays in float64: rounding on the way
    would pass for a jump of the function, as large as the rounding is beside an ulp of float64.
    """
    primals = tuple(replace(each, tensor=_wide(each.tensor)) for each in reference.primals)
    if all(before.tensor.dtype == after.tensor.dtype for before, after in zip(reference.primals, primals, strict=True)):
        return reference

    return replace(reference, primals=primals, is_widened=True)


def evaluate_reference(
    problem: Problem,
    reference: Problem,
    tape: Tape,
    connected: Sequence[int],
    cotangents: Sequence[Cotangent],
    precision: Precision,
    seed: int,
    *,
    nudges: int = NUDGES,
    noises: int = NUDGES,
) -> EvaluatedReference:
    """Return outputs and gradients of a reference in float64, `tape` its record; raises EvaluationError.

    Gradients are those by the function's primals, for cotangents of the outputs numbered `connected`. What is not
    evaluated near the point, or in noisy arithmetic, is taken to be as at the point.
    """
    device = reference.primals[0].tensor.device
    generator = torch.Generator(device if device.type == "cuda" else "cpu").manual_seed(seed)

    def at(primals: Sequence[Primal], weights: Sequence[Sequence[Tensor]], taped: Tape | None = None) -> Evaluated:
        moved = replace(reference, primals=tuple(primals))
        return _at(problem, moved, taped or recorded_reference(moved), connected, weights)

    def near(precision: Precision) -> Evaluated:
        primals = [replace(each, tensor=nudged(each.tensor, precision, generator)) for each in reference.primals]
        return at(primals, [[nudged(each, precision, generator) for each in weights] for weights in given])

    given = [[_wide(tensor) for tensor in cotangent.tensors] for cotangent in cotangents]
    double = Precision(name="float64", eps=2 * torch.finfo(torch.float64).eps, least=0.0)

    def noisy() -> Evaluated:
        with noisy_arithmetic(generator, precision.eps):
            return at(reference.primals, given)

    exact = at(reference.primals, given, tape)
    return EvaluatedReference(
        exact=exact,
        nudged=tuple(near(precision) for _ in range(nudges)) or (exact,),
        noisy=tuple(noisy() for _ in range(noises)) or (exact,),
        jittered=near(double) if noises else exact,
    )


def evaluate_exactly(
    problem: Problem, reference: Problem, tape: Tape, connected: Sequence[int], cotangents: Sequence[Cotangent]
) -> Evaluated:
    """Return outputs and gradients of a reference in float64 at its point; raises EvaluationError."""
    return _at(problem, reference, tape, connected, [list(map(_wide, each.tensors)) for each in cotangents])


def as_plain_code(problem: Problem) -> Problem:
    """Return the problem with the forwards of its hand-written Functions as plain code, which torch differentiates."""

    def function(*tensors: Tensor) -> Any:
        with plain_forwards():
            return problem.function(*tensors)

    return replace(problem, function=function)


def by_inputs_of(problem: Problem, reference: Problem) -> Problem:
    """Return the reference as a function of the function's primals alone, in their order."""
    own = {primal.name: primal for primal in reference.primals}
    names = [primal.name for primal in problem.primals]

    def function(*given: Tensor) -> Any:
        values = dict(zip(names, given, strict=True))
        return reference.function(*(values.get(name, primal.tensor) for name, primal in own.items()))

    return replace(reference, function=function, primals=tuple(own[name] for name in names))


def recorded_reference(reference: Problem) -> Tape:
    """Record the reference; raises EvaluationError with the stage "reference"."""
    try:
        return record_all(reference)
    except EvaluationError as error:
        raise EvaluationError("reference", error.original) from error


def nudged(tensor: Tensor, precision: Precision, generator: torch.Generator) -> Tensor:
    """Return float64 values moved by up to half an ulp of `precision` at random; exact zeros stay."""
    values = flatten([tensor])
    sizes = values.abs()
    moves = torch.rand(len(values), generator=generator, dtype=torch.float64, device=generator.device)
    steps = ulp(sizes, precision).masked_fill_(sizes == 0, 0.0)
    moved = torch.addcmul(values, moves.to(values.device).sub_(0.5), steps)
    (result,) = unflatten(moved, [tensor])
    return result


def _at(
    problem: Problem, reference: Problem, tape: Tape, connected: Sequence[int], weights: Sequence[Sequence[Tensor]]
) -> Evaluated:
    outputs, grads = in_float64([output.tensor for output in tape.outputs]), []
    try:
        for number, cotangent in enumerate(weights):
            taped = record_all(reference) if number and reference.fresh_graphs else tape
            leaves = {primal.name: leaf for primal, leaf in zip(reference.primals, taped.leaves, strict=True)}
            own = tuple(leaves[primal.name] for primal in problem.primals)
            grads.append(vjp(reference, replace(with_outputs(taped, connected), leaves=own), cotangent))
    except EvaluationError as error:
        raise EvaluationError("reference", error.original) from error
    return _evaluated(outputs, grads, [_wide(primal.tensor) for primal in problem.primals])


def _evaluated(outputs: Tensor, grads: Sequence[Sequence[Tensor | None]], like: Sequence[Tensor]) -> Evaluated:
    return Evaluated(
        outputs=outputs,
        gradients=tuple(_flat(grad, like) for grad in grads),
        missing=tuple(all(grad[number] is None for grad in grads) for number in range(len(like))),
    )


def _flat(grads: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    dense = [
        torch.zeros_like(tensor) if grad is None else grad.to_dense() if grad.layout is not torch.strided else grad
        for grad, tensor in zip(grads, like, strict=True)
    ]
    return in_float64(dense)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
