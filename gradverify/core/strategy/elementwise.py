"""Comparison of elementwise functions: a few samples of the forward judge all entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, reduce

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.vjps import first_vjp_is_diagonal, flat_vjp, is_reusable, vjp_on_recorded_graph
from gradverify.core.decide.compare import DOUBT, backward_rounding, relative_tolerance
from gradverify.core.decide.comparison import (
    KEPT,
    Comparison,
    Extremes,
    JudgedEntries,
    extremes_of,
    merged_extremes,
)
from gradverify.core.decide.context import (
    MeasuredProblem,
    absolute_floor,
    allowance_of,
    focused_problem,
    judging_context,
    part_of,
)
from gradverify.core.decide.screen import screened
from gradverify.core.decide.verdict import Code, Judged, all_match, of_outputs, with_part
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import groups_by_input, groups_of_outputs
from gradverify.core.estimate.richardson import DEPTH
from gradverify.core.estimate.samples import BAR_FACTOR, Estimate
from gradverify.core.forward.noise import SAFETY, at_least
from gradverify.core.forward.sampler import Sampler, restricted_to_outputs
from gradverify.core.model.limits import FEW_INPUTS, SUBSET, portions
from gradverify.core.model.magnitudes import LengthScales, any_set, finite_size
from gradverify.core.strategy.columnwise import claims_match_vjps, compare_column_groups
from gradverify.core.strategy.elementwise_sampling import EntrywiseSamples, sample_elementwise, sample_elementwise_again
from gradverify.core.strategy.structure import Structure, elementwise_structure
from gradverify.core.tuning import LAST_DIGITS

_MOST = 1 / 2  # of the outputs: if more are in doubt, other steps do not help, and all are judged again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elementwise:
    """An elementwise function with its claims, and the relative noise of its samples."""

    sampled: Sampler
    claimed: Tensor  # (M, n) the claimed derivative of output k by entry k of each input
    length: Tensor  # (M, n) length scales of the steps
    largest: Callable[[], Tensor]  # () -> (), the largest claim, found once
    noise: float  # of a sample, relative to its size
    settings: Settings

    def of(self, outputs: Tensor | slice) -> _Elementwise:
        """Return the function restricted to some of the outputs."""
        return replace(
            self,
            sampled=restricted_to_outputs(self.sampled, outputs),
            claimed=self.claimed[:, outputs],
            length=self.length[:, outputs],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Verdicts by the samples."""

    extremes: Extremes  # of the outputs that are not in doubt
    judged: Judged | None  # all entries, (M, n); None if there are too many to keep
    doubt: Tensor  # (k,) outputs with an entry in doubt
    foretold: bool  # True if the polynomials predict every sample within the noise, also for outputs in doubt


def compare_elementwise(measured: MeasuredProblem) -> Comparison | None:
    """Compare all entries of an elementwise function; None if it is not elementwise."""
    samples = sample_elementwise(measured.sampled, measured.lengths, measured.backward.known_vjp[0])
    claimed = None if samples is None else _claimed(measured, len(samples.step))
    if samples is None or claimed is None:
        return None
    function = _Elementwise(
        sampled=measured.sampled,
        claimed=claimed,
        length=measured.lengths.step.view_as(claimed),
        largest=cache(lambda: finite_size(claimed).amax()),
        noise=_relative_noise(measured.sampled, samples),
        settings=measured.settings,
    )
    found = _screened_in_parts(function, samples)
    many = measured.sampled.point.numel() >= FEW_INPUTS
    if many:
        found = _judged_by_smaller_steps(measured, function, samples, found)
    if not found.doubt.numel():
        return _comparison(measured, claimed, found.extremes, found.judged)
    if not many:
        return None
    structure = elementwise_structure(measured.sampled)
    del samples  # frees the largest tensors held here
    if found.doubt.numel() <= _MOST * measured.sampled.value.numel():
        rest = _compare_rest(measured, structure, function, found)
        if rest is not None:
            judged, place = found.judged, (slice(None), found.doubt)
            judged = with_part(judged, place, rest.judged.judged) if judged and rest.judged else None
            whole = _comparison(measured, claimed, merged_extremes(rest.extremes, found.extremes), judged)
            counts = rest.counts + Counter({Code.MATCH: whole.entries - rest.entries})
            return replace(rest, entries=whole.entries, counts=counts, extremes=whole.extremes, judged=whole.judged)
    return compare_column_groups(judging_context(measured, structure.column_groups, claimed), structure)


def _screened_in_parts(function: _Elementwise, samples: EntrywiseSamples) -> _Found:
    """Judge all entries by the samples; keeps the verdicts if they are few."""
    if function.sampled.point.numel() * function.sampled.value.numel() <= KEPT:
        return _screened(function, samples)
    parts = portions(function.sampled.value)
    found = [_screened(function.of(part), samples.of(part)) for part in parts]
    return _Found(
        extremes=reduce(merged_extremes, [each.extremes for each in found]),
        judged=None,
        doubt=torch.cat([each.doubt + part.start for each, part in zip(found, parts, strict=True)]),
        foretold=all(each.foretold for each in found),
    )


def _screened(function: _Elementwise, samples: EntrywiseSamples, suspicious: Tensor | None = None) -> _Found:
    """Judge all entries by the samples. Outputs in the mask `suspicious` (n,) stay in doubt."""
    claimed, size = function.claimed, function.claimed.abs()
    series, relative_noise = richardson.polynomial_through(samples.samples), size.new_full((), function.noise)
    noise = function.sampled.value.abs().mul_(relative_noise)
    error = richardson.error_of_samples(series, noise, relative_noise)
    estimate = richardson.slope_of(series, samples.step, error)
    deviation = richardson.forecast(series, samples.places).sub_(samples.last).abs_().div_(error)
    found = None if suspicious is not None else _all_matching(function, estimate, deviation, size)
    if found is not None:
        return found
    missed = deviation > richardson.LARGEST_DEVIATION
    bends = richardson.bends_sharply(function.sampled, series, error).logical_or_(missed)
    bends = bends if suspicious is None else bends.logical_or_(suspicious)
    groups = groups_by_input(len(claimed), claimed.shape[1], claimed.device)
    magnitude, largest, step = finite_size(claimed), function.largest(), function.length.flatten()
    lengths = LengthScales(own=step, shared=step, step=step)
    allowance = allowance_of(function.sampled, lengths, groups, magnitude, largest, function.settings)
    first = screened(claimed, allowance, estimate, bends)
    doubt = first.doubt.any(dim=0)
    sure = doubt.logical_not().nonzero().squeeze(1)
    return _Found(
        extremes=extremes_of(claimed[:, sure], of_outputs(first.judged, sure), part_of(allowance, slice(None), sure)),
        judged=first.judged,
        doubt=doubt.nonzero().squeeze(1),
        foretold=not any_set(missed),
    )


def _all_matching(function: _Elementwise, estimate: Estimate, deviation: Tensor, size: Tensor) -> _Found | None:
    """Return the verdicts if all entries match and none is in doubt, by the largest of a few numbers; else None.

    This is the usual case, and several times as fast as `screened`. `deviation` is the error of the prediction of a
    sample relative to its bound, `size` the magnitude of the claims, each (M, n).
    """
    if absolute_floor(function.sampled, function.settings):
        return None
    relative = relative_tolerance(function.settings.tolerances, function.sampled.dtypes)
    relative += backward_rounding(function.sampled.backward_eps)
    error = (function.claimed - estimate.value).abs_()
    numbers = (estimate.bar, error, estimate.bar / size, error / size, deviation)
    bar, apart, relative_bar, relative_error, missed = torch.stack([values.amax() for values in numbers]).tolist()
    if not (
        BAR_FACTOR * relative_bar <= DOUBT and relative_error <= relative and missed <= richardson.LARGEST_DEVIATION
    ):
        return None
    limit, allowed = relative + BAR_FACTOR * relative_bar, size.mul_(relative).add_(estimate.bar, alpha=BAR_FACTOR)
    return _Found(
        extremes=Extremes(error=apart, bar=bar, limit=limit, vacuous=False),
        judged=all_match(estimate.value, estimate.bar, error, allowed),
        doubt=torch.zeros(0, dtype=torch.long, device=size.device),
        foretold=True,
    )


def _judged_by_smaller_steps(
    measured: MeasuredProblem, function: _Elementwise, samples: EntrywiseSamples, found: _Found
) -> _Found:
    """Return `found` with the outputs in doubt judged again by smaller steps."""
    for steps in (richardson.closer_steps, richardson.middle_steps):  # the closer ones may drown in rounding
        outputs = found.doubt
        if not 0 < outputs.numel() <= _MOST * measured.sampled.value.numel():
            return found
        part, first = function.of(outputs), samples.of(outputs)
        again = sample_elementwise_again(part.sampled, steps(measured.lengths).base, samples.places, outputs)
        constant, at_first = (again.samples == 0).all(dim=0), first.samples == 0
        flat = at_first[:DEPTH].all(dim=0) | at_first[DEPTH:].all(dim=0)
        # An output that is constant at these steps may lie on one stair of rounding. It is taken as flat only if it is
        # constant on one side at the first, larger steps too, which then measure it.
        again = replace(again, step=torch.where(constant & flat, first.step, again.step))
        nearer = _screened(part, again, (constant & ~flat).any(dim=0))
        found = _Found(
            extremes=merged_extremes(found.extremes, nearer.extremes),
            judged=None
            if found.judged is None or nearer.judged is None
            else with_part(found.judged, (slice(None), outputs), nearer.judged),
            doubt=outputs[nearer.doubt],
            foretold=found.foretold,
        )
        if not nearer.foretold:
            return found
    return found


def _relative_noise(sampled: Sampler, samples: EntrywiseSamples) -> float:
    """Return the relative noise of the samples: the median over outputs, at least the rounding of the forward.

    An output that is zero at every sample counts as one without noise: if most are, the others, which may vary within
    the steps, do not stand for most.
    """
    pooled = slice(None, None, max(1, sampled.value.numel() // SUBSET))  # evenly spaced ones of many outputs
    series = richardson.polynomial_through(samples.samples[..., pooled])
    size = series.coefficients[:3].abs().sum(dim=0).add_(sampled.value[pooled].abs())  # also where that is zero
    share = (SAFETY * series.residue / size).masked_fill_(size == 0, 0.0)
    rounding = float(sampled.unit[0]) * max(1.0, sampled.vectorisation.largest_difference)
    median = share.nanmedian(dim=1).values.nan_to_num_(0.0, 0.0)
    return max(rounding, float(median.amax()))


def _claimed(measured: MeasuredProblem, inputs: int) -> Tensor | None:
    """Return the claimed derivative of output k by entry k of each input, (inputs, n).

    None if backward has other entries besides, or if there are too few inputs for this test to be worth it.
    """
    backward, cotangent = measured.backward, torch.ones((), dtype=torch.float64).expand(measured.sampled.value.numel())
    claimed = vjp_on_recorded_graph(backward, cotangent)
    if claimed is not None:
        entries = claimed.view(inputs, -1)
        if not _is_wide(measured, claimed) and first_vjp_is_diagonal(backward, entries):
            return entries
    if measured.sampled.point.numel() < FEW_INPUTS:
        return None  # single rows cost as little here, and show more than sums
    if claimed is None or not is_reusable(backward):
        claimed = flat_vjp(backward, cotangent)
    claimed = claimed.view(inputs, -1)
    column_groups = groups_by_input(inputs, claimed.shape[1], claimed.device)
    return claimed if claims_match_vjps(backward, column_groups, claimed, measured.settings.seed) else None


def _is_wide(measured: MeasuredProblem, claimed: Tensor) -> bool:
    """True if the last digits of the largest claim exceed the relative tolerance of the smallest one that is not 0."""
    extremes = [torch.aminmax(claimed[part].abs()) for part in portions(claimed)]
    smallest, largest = min(float(pair.min) for pair in extremes), max(float(pair.max) for pair in extremes)
    if smallest == 0.0:
        smallest = float(torch.where(claimed != 0, claimed.abs(), torch.inf).amin())
    tolerance = relative_tolerance(measured.settings.tolerances, measured.sampled.dtypes)
    return LAST_DIGITS * largest > tolerance * smallest


def _compare_rest(
    measured: MeasuredProblem, structure: Structure, function: _Elementwise, found: _Found
) -> Comparison | None:
    """Compare the entries in doubt of an elementwise function; None if it is not elementwise."""
    outputs = found.doubt
    focused = focused_problem(measured, outputs)
    column_groups = groups_of_outputs(structure.column_groups, outputs)
    noise = at_least(focused.noise, function.noise * focused.sampled.value.abs())
    claimed = function.claimed[:, outputs]
    context = judging_context(focused, column_groups, claimed, noise)
    largest = function.largest().expand(len(outputs))
    context = replace(context, allowance=replace(context.allowance, largest=largest))
    hypothesis = None if found.foretold else replace(structure, column_groups=column_groups)
    return compare_column_groups(context, hypothesis)


def _comparison(measured: MeasuredProblem, claimed: Tensor, extremes: Extremes, judged: Judged | None) -> Comparison:
    """Return the comparison of entries that all match; `judged` is None if they are not kept."""
    column_of = torch.arange(claimed.numel(), device=claimed.device).view_as(claimed)
    kept = None if judged is None else JudgedEntries(column_of=column_of, claimed=claimed, judged=judged)
    counts = Counter({Code.MATCH: measured.entries})
    return Comparison(entries=measured.entries, counts=counts, groups=(), extremes=extremes, judged=kept)
