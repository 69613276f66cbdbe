"""Entries of an elementwise function judged by the polynomials through their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import compress
from operator import not_

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.decide.compare import all_matching, judge_smooth
from gradverify.core.decide.comparison import KEPT
from gradverify.core.decide.context import absolute_floor, allowance_of, magnitude_of
from gradverify.core.decide.doubt import DOUBT, in_doubt
from gradverify.core.decide.statistics import Extremes, merged_extremes, with_extremes
from gradverify.core.decide.tolerance import EntryTolerance, backward_rounding, relative_tolerance
from gradverify.core.decide.verdict import Judged, Reason, decide, stacked
from gradverify.core.estimate.column_groups import elementwise_groups
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.estimate.stencil_polynomial import (
    LARGEST_DEVIATION,
    LARGEST_STEPS_FROM_ZERO,
    POSITION_ROUNDING,
    EntrywiseSamples,
    StencilPolynomial,
    forecast_error,
    local_magnitude,
    noise_bound,
    polynomial_through,
    slope_of,
)
from gradverify.core.forward import sampler
from gradverify.core.forward.noise import rounding_of
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import all_set, any_set
from gradverify.core.model.memory import portions

_POOLED = 4096  # outputs, at least, whose relative noise stands for that of all
_OWN = 0.25  # weight of the noise bound from an entry's own samples, which are few


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Verdicts by the samples."""

    extremes: Extremes  # of the entries that match beyond doubt
    judged: Judged | None  # all entries, (inputs, n); None if there are too many to keep
    doubt: Tensor  # (k,) outputs with an entry in doubt
    usual: float  # relative noise of most samples
    foretold: bool  # True if the polynomials predict every sample within the noise, also for entries in doubt


def settled(sampled: Sampler, eight: EntrywiseSamples, claimed: Tensor, length: Tensor, settings: Settings) -> Settled:
    """Judge all entries by these samples; `claimed` is (1, n), and `length` (n,) the scale of the steps."""
    value, some = sampled.value, _pooled(sampled.value)
    pooled = polynomial_through(eight.samples[:, some])
    usual = _usual_noise(sampled, pooled, value[some])
    relative = relative_tolerance(settings.tolerances, sampled.dtypes) + backward_rounding(sampled.backward_eps)
    kept = sampled.point.numel() * value.numel() <= KEPT
    parts = [slice(0, value.numel())] if kept else portions(value)
    last, worst = glances(eight, value, claimed[0], parts, usual, pooled if kept and some.step == 1 else None)
    plain = [is_plain(most, relative) and not absolute_floor(sampled, settings) for most in worst]
    found = Settled(
        extremes=reduce(merged_extremes, [extremes_of(most, relative) for most in compress(worst, plain)], Extremes()),
        judged=matches(last, claimed[0], relative) if kept else None,
        doubt=torch.zeros(0, dtype=torch.long, device=value.device),
        usual=usual,
        foretold=True,
    )
    if all(plain):
        return found
    largest = magnitude_of(claimed).amax()
    column_groups = elementwise_groups(value.numel(), value.device)
    for some in compress(parts, map(not_, plain)):
        around, own = sampler.restricted_to_outputs(sampled, some), claimed[:, some]
        allowance = allowance_of(around, length[some], column_groups, magnitude_of(own), largest, settings)
        near = closely(around, eight.of(some), own, usual, allowance)
        found = _joined(found, replace(near, doubt=near.doubt + some.start))
    return found


def by_all(found: Sequence[Settled]) -> Settled:
    """Return the verdicts for all inputs as one, with a row for each input."""
    if len(found) == 1:
        return found[0]
    judged = [each.judged for each in found if each.judged is not None]
    return Settled(
        extremes=reduce(merged_extremes, [each.extremes for each in found]),
        judged=stacked(judged) if judged else None,
        doubt=torch.unique(torch.cat([each.doubt for each in found])),
        usual=max(each.usual for each in found),
        foretold=all(each.foretold for each in found),
    )


def closely(
    sampled: Sampler,
    eight: EntrywiseSamples,
    claimed: Tensor,
    usual: float,
    allowance: EntryTolerance,
    strange: Tensor | None = None,
) -> Settled:
    """Judge the entries of the outputs of `sampled` one by one; `claimed` is (1, k).

    `usual` is the relative noise of most samples. Entries in the mask `strange` (k,) stay in doubt.
    """
    seen = _seen(sampled, eight, usual)
    judged = judge_smooth(claimed, seen.slope, allowance, allowance.zero)
    off = seen.off > seen.noise if strange is None else (seen.off > seen.noise).logical_or_(strange)
    open_ = in_doubt(judged, off.unsqueeze(0), claimed.abs(), allowance)
    if any_set(open_):
        judged = decide(judged, [(open_, Reason.IN_DOUBT)])
    return Settled(
        extremes=with_extremes(Extremes(), claimed, judged, allowance),
        judged=judged,
        doubt=open_[0].nonzero().squeeze(1),
        usual=usual,
        foretold=all_set((seen.off <= seen.quiet)[open_[0]]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Slopes of some outputs (k,), and how well the polynomials predict their samples."""

    slope: Estimate  # (1, k)
    off: Tensor  # error of the prediction of the sample at a random place
    noise: Tensor  # bound on this error, by the noise of the output's own samples
    quiet: Tensor  # bound on this error, by the usual noise alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """Slopes of some outputs and the errors of the claims, each (k,)."""

    slope: Estimate
    error: Tensor  # of the claims


def glances(
    eight: EntrywiseSamples,
    value: Tensor,
    claimed: Tensor,
    parts: Sequence[slice],
    usual: float,
    known: StencilPolynomial | None,
) -> tuple[Glance, list[list[float]]]:
    """Return the slopes of the last part, and for each part the largest of five numbers.

    These are the error bar, the error, both relative to the claim, and the prediction error relative to the noise.
    `usual` is the noise relative to `value` (n,). `known` are the polynomials of all outputs, if they are computed.
    """
    worst = []
    for some in parts:
        seen, middle, mine = eight.of(some), value[some], claimed[some]
        own, series = mine.abs(), known or polynomial_through(seen.samples)
        noise = middle.abs().mul_(usual)
        noise.addcmul_(seen.step, own, value=LARGEST_STEPS_FROM_ZERO * POSITION_ROUNDING)  # rounding of the input
        slope = slope_of(series, seen.step, noise)
        error = (mine - slope.value).abs_()
        off = forecast_error(seen, series).div_(noise)
        worst += [each.amax() for each in (slope.bar, error, slope.bar / own, error / own, off)]
    return Glance(slope=slope, error=error), torch.stack(worst).view(len(parts), -1).tolist()


def is_plain(worst: Sequence[float], relative: float) -> bool:
    """True if all entries of a part agree beyond doubt; an error up to `relative` is allowed."""
    _, _, bar, error, off = worst
    return BAR_FACTOR * bar <= DOUBT and error <= relative and off <= LARGEST_DEVIATION


def extremes_of(worst: Sequence[float], relative: float) -> Extremes:
    """Return the extremes of entries that all agree and are all significant."""
    return Extremes(error=worst[1], bar=worst[0], limit=relative + BAR_FACTOR * worst[2], vacuous=False)


def matches(seen: Glance, claimed: Tensor, relative: float) -> Judged:
    """Return the verdicts (1, k) on entries that all agree with the claims (k,)."""
    estimate = Estimate(value=seen.slope.value.unsqueeze(0), bar=seen.slope.bar.unsqueeze(0))
    return all_matching(estimate, seen.error.unsqueeze(0), claimed.abs().mul_(relative).unsqueeze(0))


def _joined(one: Settled, other: Settled) -> Settled:
    """Return the verdicts on both sets of entries as one."""
    return Settled(
        extremes=merged_extremes(one.extremes, other.extremes),
        judged=None if one.judged is None else other.judged,
        doubt=torch.cat([one.doubt, other.doubt]),
        usual=one.usual,
        foretold=one.foretold and other.foretold,
    )


def _seen(sampled: Sampler, eight: EntrywiseSamples, usual: float) -> _Seen:
    """Return the slopes and prediction errors of the outputs of `sampled`."""
    series = polynomial_through(eight.samples)
    input_rounding = (series.coefficients[0] * (eight.point / eight.step)).abs_().mul_(POSITION_ROUNDING)
    near = local_magnitude(series, sampled.value)
    quiet = torch.fmax(near * usual, rounding_of(sampled, near))
    noise = torch.fmax(quiet, noise_bound(series).mul_(_OWN)).add_(input_rounding)
    found = slope_of(series, eight.step, noise)
    return _Seen(
        slope=Estimate(value=found.value.unsqueeze(0), bar=found.bar.unsqueeze(0)),
        off=forecast_error(eight, series),
        noise=noise.mul_(LARGEST_DEVIATION),
        quiet=quiet.add_(input_rounding).mul_(LARGEST_DEVIATION),
    )


def _pooled(value: Tensor) -> slice:
    """Return the outputs whose relative noise stands for that of all: each of few, evenly spaced ones of many."""
    return slice(None, None, max(1, value.numel() // _POOLED))


def _usual_noise(sampled: Sampler, series: StencilPolynomial, value: Tensor) -> float:
    """Return the median relative noise of the samples of some outputs (k,), at least the rounding of the forward.

    An output that is zero at every sample counts as one without noise: if most are, the others, which may vary within
    the steps, do not stand for most.
    """
    size = local_magnitude(series, value)
    share = (noise_bound(series) / size).masked_fill_(size == 0, 0.0)
    rounding = float(sampled.unit[0]) * max(1.0, sampled.vectorisation.largest_difference)
    return max(rounding, float(share.nanmedian().nan_to_num(0.0, 0.0)))
