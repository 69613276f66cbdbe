"""Central differences along a direction, held against what backward claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import Problem, call
from gradverify.core.model.tape import Tape
from gradverify.errors import EvaluationError

_STEPS = (2.0**-17, 2.0**-11, 2.0**-23)  # relative to the size of the input; in float64
_RELATIVE = 1e-6  # error of a sum of products, relative to its terms, that is no reason to look closer
_CLAIM_ROUNDING, _MOST = 64.0, 2.0**-4  # eps, and in all: the same for claims in low precision
_ROUNDING = 16.0  # eps of the outputs: error of one difference
_KINK = 0.05  # difference of the two slopes, relative to the larger, that is a kink and no curvature
_DOUBLE = torch.finfo(torch.float64).eps


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What differences are taken of: in float64 if forward takes it, without casts to narrower dtypes on its way."""

    problem: Problem
    points: tuple[Tensor, ...]
    outputs: tuple[str, ...]  # names of the outputs judged
    centre: tuple[Tensor, ...]  # their values, as coordinates
    steps: tuple[float, ...]  # relative to the size of the input
    eps: float  # of the outputs
    relative: float  # error of a claim, relative to the terms of its sum, that is no reason to look closer


def surroundings(problem: Problem, tape: Tape) -> Surroundings:
    """Return what differences around the recorded point are taken of."""
    outputs = tuple(output.name for output in tape.outputs)
    points = tuple(primal.tensor for primal in problem.primals)
    eps = max(torch.finfo(each.dtype).eps for each in (*points, *(output.tensor for output in tape.outputs)))
    relative = max(_RELATIVE, min(_CLAIM_ROUNDING * eps, _MOST))
    centre = tuple(flatten([output.tensor]) for output in tape.outputs)
    if eps > _DOUBLE:
        wide = replace(problem, function=problem.finer or problem.function, is_widened=True)
        doubled = tuple(point.to(torch.complex128 if point.is_complex() else torch.float64) for point in points)
        try:
            with torch.no_grad():
                found = {output.name: output.tensor for output in call(wide, [point.clone() for point in doubled])}
        except EvaluationError:
            found = {}
        if all(name in found and torch.finfo(found[name].dtype).eps <= _DOUBLE for name in outputs):
            problem, points, eps = wide, doubled, _DOUBLE
            centre = tuple(flatten([found[name]]) for name in outputs)
    steps = _STEPS if eps <= _DOUBLE else (eps**0.33, eps**0.25, eps**0.5)
    return Surroundings(
        problem=problem, points=points, outputs=outputs, centre=centre, steps=steps, eps=eps, relative=relative
    )


def wrong_claims(
    around: Surroundings,
    tangents: Sequence[Tensor | None],
    claims: Sequence[float],
    weights: Sequence[Sequence[Tensor]],
) -> tuple[list[int], bool]:
    """Return the numbers of the claims that differ from central differences at every step, and if there is a kink."""
    wrong = list(range(len(claims)))
    has_kink = False
    for step in around.steps:
        above, below = (_outputs(around, tangents, side * step) for side in (1.0, -1.0))
        wrong = [k for k in wrong if not _agrees(around, claims[k], weights[k], above, below, step)]
        if step == around.steps[0]:
            has_kink = _has_kink(around, tangents, above, below)
        if not wrong:
            break
    return wrong, has_kink


def _has_kink(
    around: Surroundings, tangents: Sequence[Tensor | None], above: Sequence[Tensor], below: Sequence[Tensor]
) -> bool:
    """Return True if some output has slopes that differ between the two sides, relative to the larger one.

    At a quarter of the step a kink leaves a quarter of the difference, |x|^1.5 an eighth, and the curvature at a
    stationary point a sixteenth.
    """
    bends = _bends(around, above, below)
    if not any(bool((bend > 0).any()) for bend in bends):
        return False
    closer = _bends(around, *(_outputs(around, tangents, side * around.steps[0] / 4) for side in (1.0, -1.0)))
    return any(bool(((bend > 0) & (small > bend / 12)).any()) for bend, small in zip(bends, closer, strict=True))


def _bends(around: Surroundings, above: Sequence[Tensor], below: Sequence[Tensor]) -> list[Tensor]:
    """Return how much the rises to the two sides differ, 0 if it is little beside the larger one, or rounding."""
    found = []
    for high, low, middle in zip(above, below, around.centre, strict=True):
        rise, fall = high - middle, middle - low
        bend, largest = (rise - fall).abs(), torch.maximum(rise.abs(), fall.abs())
        found.append(bend.masked_fill(bend <= _KINK * largest + _ROUNDING * around.eps * middle.abs(), 0.0))
    return found


def _outputs(around: Surroundings, tangents: Sequence[Tensor | None], step: float) -> list[Tensor]:
    """Return the outputs at points moved by `step` times the tangents, as coordinates."""
    moved = [
        point.clone() if tangent is None else unflatten(flatten([point]) + step * tangent, [point])[0]
        for point, tangent in zip(around.points, tangents, strict=True)
    ]
    with torch.no_grad():
        found = {output.name: output.tensor for output in call(around.problem, moved)}
        return [flatten([found[name]]) for name in around.outputs]


def _agrees(
    around: Surroundings,
    claim: float,
    weights: Sequence[Tensor],
    above: Sequence[Tensor],
    below: Sequence[Tensor],
    step: float,
) -> bool:
    """Return True if a claimed directional derivative equals the central difference up to rounding."""
    slope = size = noise = 0.0
    for weight, high, low, middle in zip(weights, above, below, around.centre, strict=True):
        rise = weight * (high - low)
        slope += float(rise.sum()) / (2 * step)
        size += float(rise.abs().sum()) / (2 * step)
        noise += float((weight.abs() * middle.abs()).sum()) * around.eps * _ROUNDING / step
    return abs(claim - slope) <= around.relative * max(size, abs(claim)) + noise
