"""GV703: the reference's own gradient is the derivative of its forward, so that it can judge others."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.checks.reference.error_model import Precision
from gradverify.checks.reference.evaluate import by_inputs_of, nudged
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.problem import Meter, Problem, call, fresh
from gradverify.core.model.tape import record, vjp

_STEPS = (2.0**-11, 2.0**-16)  # of central differences, relative to the rms of each input: at both it has to differ
_DIRECTIONS = 2  # along which it has to differ
_ASIDE = 2.0**-6  # distance of the second point from the first, relative to each entry or, if larger, the rms
_BARS = 8.0  # times the change by extrapolation, that a directional derivative may be off by
_RELATIVE = 1e-6  # of the derivative
_ROUNDING = 2.0**-48  # of the outputs' sum of magnitudes: some eps for each entry


def wrong_gradient(problem: Problem, reference: Problem, precision: Precision, seed: int) -> str:
    """Return what is wrong with the gradient of a reference in float64 by the function's inputs, "" if it is right.

    The gradient is compared with central differences along random directions, which any wrong entry changes. The point
    is moved by up to half an ulp of `precision`, away from ties between rounded inputs, and if the gradient is wrong
    there, further aside: at a kink it is not the mean of the two slopes. Raises EvaluationError.
    """
    generator = torch.Generator().manual_seed(seed)
    found = ""
    for aside in (False, True):
        primals = tuple(
            replace(each, tensor=_aside(each.tensor, generator) if aside else nudged(each.tensor, precision, generator))
            for each in reference.primals
        )
        moved = by_inputs_of(problem, replace(reference, primals=primals, meter=Meter()))
        result = _wrong_at(moved, generator)
        if result is None:
            return ""
        found = result
    return found


def _wrong_at(reference: Problem, generator: torch.Generator) -> str | None:
    """Return the two numbers that differ along the last direction, "" if they are not finite; None if any agree."""
    found: str | None = ""
    for _ in range(_DIRECTIONS):
        found = _wrong_along(reference, generator)
        if found is None:
            return None
    return found


def _aside(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return the tensor moved by far more than the steps, also where it is zero: zeros are kinks of many functions."""
    values = flatten([tensor])
    moved = values + random_magnitudes(_ASIDE * torch.maximum(values.abs(), _rms(values)), generator)
    (result,) = unflatten(moved, [tensor])
    return result


def _wrong_along(reference: Problem, generator: torch.Generator) -> str | None:
    """Return the two numbers that differ along a random direction, "" if they are not finite; None if they agree.

    They agree if they do with either step. Outputs that are not finite are left out.
    """
    tape = record(reference)
    outputs, names = [output.tensor for output in tape.outputs], {output.name for output in tape.outputs}
    values = flatten(outputs)
    cotangent = random_magnitudes(values.isfinite().to(values.dtype), generator)
    tangents = [_tangent(primal.tensor, generator) for primal in reference.primals]
    grads = vjp(reference, tape, unflatten(cotangent, outputs))
    pairs = [(grad, tangent) for grad, tangent in zip(grads, tangents, strict=True) if grad is not None]
    claimed = sum(float(flatten([grad]) @ flatten([tangent])) for grad, tangent in pairs)
    rounding = _ROUNDING * float(cotangent.abs() @ torch.where(cotangent == 0, 0.0, values.abs()))
    found = ""
    for step in _STEPS:
        coarse, fine = (_difference(reference, names, tangents, cotangent, width) for width in (step, step / 2))
        value = (4 * fine - coarse) / 3
        allowed = _BARS * abs(value - fine) + _RELATIVE * (abs(claimed) + abs(value)) + rounding / step
        if abs(claimed - value) <= allowed:
            return None
        if math.isfinite(claimed) and math.isfinite(value):
            found = f"along a random direction its derivative is {value:.6g}, by its gradient {claimed:.6g}"
    return found


def _tangent(tensor: Tensor, generator: torch.Generator) -> Tensor:
    values = flatten([tensor])
    (tangent,) = unflatten(random_magnitudes(_rms(values).expand_as(values), generator), [tensor])
    return tangent


def _rms(values: Tensor) -> Tensor:
    return values.square().mean().sqrt() if values.numel() else values.sum()


def _difference(
    reference: Problem, names: Collection[str], tangents: Sequence[Tensor], cotangent: Tensor, step: float
) -> float:
    """Return the central difference of <cotangent, named outputs> along the tangents."""
    above, below = (_at(reference, names, tangents, side * step) for side in (1.0, -1.0))
    return float(cotangent @ torch.where(cotangent == 0, 0.0, above - below)) / (2 * step)


def _at(reference: Problem, names: Collection[str], tangents: Sequence[Tensor], step: float) -> Tensor:
    points = [
        fresh(primal.tensor) + step * tangent for primal, tangent in zip(reference.primals, tangents, strict=True)
    ]
    return flatten([output.tensor for output in call(reference, points) if output.name in names])
