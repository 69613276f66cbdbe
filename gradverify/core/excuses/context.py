"""The input of an excuse, and points around the point at which the function or its claims are examined."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.backward.vjps import Backward
from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Judged
from gradverify.core.estimate.directional import STEP, directional_derivatives_at
from gradverify.core.forward.length_scales import own_or_shared
from gradverify.core.model.coordinates import zero_outside
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.tuning import NEARBY_POINTS

COLUMNS_EXAMINED = 96  # columns, or column groups, that an excuse examines


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcuseContext:
    """Some column groups with mismatching entries."""

    context: JudgingContext
    backward: Backward
    chosen: Tensor  # (C,) the column groups that the verdicts are on
    seed: int


def opposite_displacements(trial: ExcuseContext, distance: float) -> list[Tensor]:
    """Return random displacements by about `distance` length scales, then their opposites in the same order; (n,)."""
    generator = torch.Generator().manual_seed(trial.seed + 8)
    length = distance * own_or_shared(trial.context.lengths)
    half = [random_magnitudes(length, generator) for _ in range(NEARBY_POINTS)]
    return [*half, *(-displacement for displacement in half)]


def derivatives_by(context: JudgingContext, column: int, displacements: Iterable[Tensor], step: float = STEP) -> Tensor:
    """Return the derivatives by one input coordinate at displaced points, (N, m), by differences with this step."""
    length = own_or_shared(context.lengths)
    found = directional_derivatives_at(context.sampled, displacements, [zero_outside(length, column)], step)
    return found.squeeze(1) / length[column]


Excuse = Callable[[ExcuseContext, Judged], Judged]  # verdicts (C, m) before and after; only mismatches change
