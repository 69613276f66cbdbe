"""Outputs and gradients on the CPU, at the inputs and at numbers next to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor

from gradverify.checks.reference.cotangents import Cotangent
from gradverify.checks.reference.error_model import Precision, ulp
from gradverify.checks.reference.evaluate import NUDGES, Evaluated, EvaluatedReference, evaluate_function
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import Problem
from gradverify.core.model.tape import Tape, record_all


def moved_to(outputs: Sequence[Tensor], cotangent: Cotangent) -> Cotangent:
    """Return the cotangent on the devices of the outputs."""
    pairs = zip(cotangent.tensors, outputs, strict=True)
    return replace(cotangent, tensors=tuple(tensor.to(output.device) for tensor, output in pairs))


def on_the_cpu(found: Evaluated) -> Evaluated:
    return replace(found, outputs=found.outputs.cpu(), gradients=tuple(each.cpu() for each in found.gradients))


def evaluated_on_cpu(
    on_cpu: Problem,
    taped: Tape,
    connected: Sequence[int],
    given: Sequence[Cotangent],
    precision: Precision,
    seed: int,
) -> EvaluatedReference:
    """Return outputs and gradients on the CPU, at the point and at neighbouring numbers; raises EvaluationError."""
    exact = evaluate_function(on_cpu, taped, connected, given)
    generator = Generator().manual_seed(seed)

    def near() -> Evaluated:
        primals = tuple(replace(each, tensor=_neighbour(each.tensor, precision, generator)) for each in on_cpu.primals)
        moved = replace(on_cpu, primals=primals)
        weights = [
            replace(each, tensors=tuple(_neighbour(tensor, precision, generator) for tensor in each.tensors))
            for each in given
        ]
        return evaluate_function(moved, record_all(moved), connected, weights)

    # Rounding on the way is not measured apart: it differs at every neighbour, and so is in what these show.
    return EvaluatedReference(exact=exact, nudged=tuple(near() for _ in range(NUDGES)), noisy=(exact,), jittered=exact)


def _neighbour(tensor: Tensor, precision: Precision, generator: Generator) -> Tensor:
    """Return the tensor in its own dtype, half of its entries moved to the next number of `precision` on either side.

    Zeros, and numbers whose neighbour is not finite, stay as they are.
    """
    values = flatten([tensor])
    steps = ulp(values.abs(), precision).masked_fill_(values == 0, 0.0)
    moves = torch.randint(-1, 3, values.shape, generator=generator)
    moved = torch.addcmul(values, steps, moves.masked_fill_(moves == 2, 0).to(torch.float64))
    moved = torch.where(moved.abs() <= torch.finfo(tensor.dtype).max, moved, values)
    (result,) = unflatten(moved, [tensor])
    return result
