"""First look at entries: three central differences, extrapolated, and a mask of the entries left in doubt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.compare import EntryTolerance, in_doubt, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_column_groups
from gradverify.core.decide.verdict import Judged, of_rows, stacked
from gradverify.core.estimate import richardson
from gradverify.core.estimate.samples import Estimate, difference_noise
from gradverify.core.estimate.smoothness import bends_in_first_look
from gradverify.core.estimate.stencil import Stencil, samples_of
from gradverify.core.forward.sampler import is_double


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """Verdicts of the first look, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the samples are not those of a smooth function
    doubt: Tensor  # bool: needs other steps


Look = tuple[Tensor, Screened]  # column groups (C,), and the first look at their entries


def screen(context: JudgingContext, stencil: Stencil) -> Screened:
    """Judge all entries of column groups sampled at the steps of `richardson`."""
    claimed, allowance = context.claimed[stencil.chosen], of_column_groups(context.allowance, stencil.chosen)
    return screened(claimed, allowance, *_estimate(context, stencil))


def _stacked(parts: Sequence[Screened]) -> Screened:
    """Return the verdicts on several sets of column groups as one."""
    if len(parts) == 1:
        return parts[0]
    bends, doubt = torch.cat([part.bends for part in parts]), torch.cat([part.doubt for part in parts])
    return Screened(judged=stacked([part.judged for part in parts]), bends=bends, doubt=doubt)


def joined_looks(looks: Sequence[Look]) -> Look:
    """Return several sets of column groups, each in ascending order, and the verdicts on them, as one such set."""
    if len(looks) == 1:
        return looks[0]
    chosen, order = torch.cat([groups for groups, _ in looks]).sort()
    return chosen, of_groups(_stacked([first for _, first in looks]), order)


def of_groups(first: Screened, rows: Tensor) -> Screened:
    """Return the verdicts on some of the column groups."""
    return Screened(judged=of_rows(first.judged, rows), bends=first.bends[rows], doubt=first.doubt[rows])


def screened(claimed: Tensor, allowance: EntryTolerance, estimate: Estimate, bends: Tensor) -> Screened:
    """Judge entries (C, m) by estimates of their derivatives; those in the mask `bends` stay in doubt."""
    judged = judge_smooth(claimed, estimate, allowance, allowance.zero)
    return Screened(judged=judged, bends=bends, doubt=in_doubt(judged, bends, claimed.abs(), allowance))


def _estimate(context: JudgingContext, stencil: Stencil) -> tuple[Estimate, Tensor]:
    """Return the derivatives, and a mask of entries where the function bends as no smooth one does; (C, m).

    In float64 the steps are exact fractions of the largest, and one polynomial goes through all samples. Other dtypes
    round the steps, so each difference is divided by its own.
    """
    sampled, noise = context.sampled, context.noise
    if not is_double(sampled):
        samples = samples_of(sampled, stencil)
        level = difference_noise(noise, samples)[:, -1]
        estimate = richardson.extrapolated(samples.difference, level)
        return estimate, bends_in_first_look(sampled, samples, level).logical_or_(estimate.bar == torch.inf)
    series = richardson.polynomial_through(stencil.values - sampled.value)
    error = richardson.error_of_samples(series, noise.level, noise.relative_level)
    return richardson.slope_of(series, stencil.lengths[0], error), richardson.bends_sharply(sampled, series, error)
