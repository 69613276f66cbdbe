"""Test of measured columns: J·v summed from their entries against the difference of the forward along v."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.decide.context import JudgingContext
from gradverify.core.decide.verdict import Code, Judged
from gradverify.core.estimate.column_groups import spread_to_entries
from gradverify.core.estimate.directional import sum_differs_near_point
from gradverify.core.estimate.samples import Estimate
from gradverify.core.model.generators import random_magnitudes


def columns_do_not_add_up(
    context: JudgingContext, chosen: Tensor, judged: Judged, generator: torch.Generator
) -> Tensor:
    """Mask of outputs whose measured entries do not give the derivative along a random direction; (m,).

    The direction displaces the column groups `chosen` (C,) only, whose verdicts are `judged`. Outputs with an entry
    that is not smooth are not tested. Costs 6 forwards, or 24 if the first steps do not agree.
    """
    column_groups, direction = context.column_groups, random_magnitudes(context.lengths.step, generator)
    if len(chosen) < column_groups.count:
        direction = torch.where(torch.isin(column_groups.colour, chosen), direction, 0.0)
    by = spread_to_entries(column_groups, direction)
    by = by if len(chosen) == column_groups.count else by[chosen]
    value, bar = (judged.numeric * by).nan_to_num_(0.0), (judged.bar * by.abs()).nan_to_num_(torch.inf)
    total = (
        Estimate(value=value[0], bar=bar[0])
        if len(value) == 1
        else Estimate(value=value.sum(dim=0), bar=bar.sum(dim=0))
    )
    return sum_differs_near_point(context.sampled, context.noise, direction, total, are_smooth(judged))


def are_smooth(judged: Judged) -> Tensor:
    """Mask of outputs whose entries are all smooth, so that J·v can be summed from them; (m,)."""
    return ((judged.code == Code.MATCH) | (judged.code == Code.MISMATCH)).all(dim=0)
