"""First look at entries: three central differences, extrapolated, and a mask of the entries left in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.decide.compare import in_doubt, judge_smooth
from gradverify.core.decide.context import JudgingContext, of_column_groups, part_of
from gradverify.core.decide.tolerance import EntryTolerance
from gradverify.core.decide.verdict import Judged, unwritten
from gradverify.core.estimate import richardson
from gradverify.core.estimate.samples import Estimate, finest_noise
from gradverify.core.estimate.smoothness import bends_in_first_look
from gradverify.core.estimate.stencil import Stencil, first_steps, samples_of
from gradverify.core.forward import sampler
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, is_double
from gradverify.core.model.memory import portion


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """Verdicts of the first look, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the samples are not those of a smooth function
    doubt: Tensor  # bool: needs other steps


def screen(context: JudgingContext, stencil: Stencil) -> Screened:
    """Judge all entries of column groups sampled at the steps of `richardson`, block by block."""
    every = len(stencil.chosen) == context.column_groups.count
    claimed = context.claimed if every else context.claimed[stencil.chosen]
    allowance = of_column_groups(context.allowance, stencil.chosen)
    whole: Screened | None = None
    for rows, outputs in _blocks(claimed):
        sampled, noise = _restricted_to(context, outputs)
        own = claimed[rows, outputs]
        estimate, bends = _estimate(sampled, noise, own.abs(), stencil, rows, outputs)
        found = screened(own, part_of(allowance, rows, outputs), estimate, bends)
        if own.shape == claimed.shape:
            return found
        whole = _blank(claimed) if whole is None else whole
        _write(whole, found, rows, outputs)
    return _blank(claimed) if whole is None else whole


def screened(claimed: Tensor, allowance: EntryTolerance, estimate: Estimate, bends: Tensor) -> Screened:
    """Judge entries (C, m) by estimates of their derivatives; those in the mask `bends` stay in doubt."""
    judged = judge_smooth(claimed, estimate, allowance, allowance.zero)
    return Screened(judged=judged, bends=bends, doubt=in_doubt(judged, bends, claimed.abs(), allowance))


def _estimate(
    sampled: Sampler, noise: Noise, slope: Tensor, stencil: Stencil, rows: slice, outputs: slice
) -> tuple[Estimate, Tensor]:
    """Return the derivatives, and a mask of entries where the function bends as no smooth one does; (C, m).

    In float64 the steps are exact fractions of the largest, and one polynomial goes through all samples. Other dtypes
    round the steps, so each difference is divided by its own. `slope` (C, m) is the magnitude of the claims.
    """
    if not is_double(sampled):
        samples = samples_of(sampled, stencil, rows, outputs)
        level = finest_noise(noise, samples)
        estimate = richardson.extrapolate(samples, level)
        return estimate, bends_in_first_look(sampled, samples, level).logical_or_(estimate.bar == torch.inf)
    step = first_steps(sampled, stencil, rows, outputs)
    series = richardson.polynomial_through(stencil.values[:, rows, outputs] - sampled.value)
    error = richardson.error_of_samples(series, noise.level, noise.relative_level, step, slope)
    return richardson.slope_of(series, step, error), richardson.bends_sharply(sampled, series, error)


def _blocks(like: Tensor) -> Iterator[tuple[slice, slice]]:
    """Yield the rows and columns of blocks that cover a matrix and each fit in a cache."""
    count, width = like.shape
    wide = min(max(1, width), portion(like))
    high = max(1, portion(like) // wide)
    for left in range(0, width, wide):
        for top in range(0, count, high):
            yield slice(top, min(count, top + high)), slice(left, min(width, left + wide))


def _restricted_to(context: JudgingContext, outputs: slice) -> tuple[Sampler, Noise]:
    """Return the sampler and the noise restricted to some of the outputs."""
    if outputs == slice(0, context.sampled.value.numel()):
        return context.sampled, context.noise
    return sampler.restricted_to_outputs(context.sampled, outputs), context.noise.of(outputs)


def _blank(like: Tensor) -> Screened:
    """Return memory for the verdicts on entries of this shape."""
    bends, doubt = torch.empty((2, *like.shape), dtype=torch.bool, device=like.device)
    return Screened(judged=unwritten(like), bends=bends, doubt=doubt)


def _write(whole: Screened, found: Screened, rows: slice, outputs: slice) -> None:
    """Write the verdicts on some entries into those on all."""
    for name in ("numeric", "bar", "error", "allowed", "code", "reason"):
        getattr(whole.judged, name)[rows, outputs] = getattr(found.judged, name)
    whole.bends[rows, outputs] = found.bends
    whole.doubt[rows, outputs] = found.doubt
