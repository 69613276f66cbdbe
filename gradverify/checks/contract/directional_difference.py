"""Directional finite differences of the forward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.checks.contract.subject import Subject, judged_outputs
from gradverify.core.model.coordinates import flatten, unflatten
from gradverify.core.model.problem import call, fresh

_STEPS = (2.0**-11, 2.0**-12)  # times the tangents


def directional(subject: Subject, tangents: Sequence[Tensor | None]) -> tuple[Tensor, float]:
    """Return J·tangents in coordinates of all outputs, (m,), and a rough error bound; raises EvaluationError.

    Richardson extrapolation of two central differences; the bound is the largest change by the extrapolation.
    """
    coarse, fine = (_central(subject, tangents, step) for step in _STEPS)
    value = (4 * fine - coarse) / 3
    bound = float((value - fine).abs().nan_to_num().max()) if value.numel() else 0.0
    return value, bound


def _central(subject: Subject, tangents: Sequence[Tensor | None], step: float) -> Tensor:
    above, below = (_outputs(subject, tangents, side * step) for side in (1.0, -1.0))
    return (above - below) / (2 * step)


def _outputs(subject: Subject, tangents: Sequence[Tensor | None], step: float) -> Tensor:
    points = []
    for primal, tangent in zip(subject.primals, tangents, strict=True):
        point = fresh(primal.tensor)
        if tangent is not None:
            (point,) = unflatten(flatten([point]) + step * flatten([tangent]), [point])
        points.append(point)
    with torch.no_grad():
        outputs = judged_outputs(subject, call(subject.problem, points))
    return torch.cat([flatten([output.tensor]) for output in outputs])
