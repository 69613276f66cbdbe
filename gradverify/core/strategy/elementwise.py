"""Comparison of elementwise functions: a few samples of the forward judge all entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.vjps import is_reusable, row, vjp_on_recorded_graph
from gradverify.core.decide.comparison import Comparison, JudgedPart, all_matching_comparison, with_matching_rest
from gradverify.core.decide.context import (
    MeasuredProblem,
    Reconsider,
    allowance_of,
    focused_problem,
    judging_context,
    magnitude_of,
)
from gradverify.core.decide.entrywise_screen import Settled, by_all, closely, settled
from gradverify.core.decide.statistics import merged_extremes
from gradverify.core.decide.verdict import Judged, with_outputs
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import elementwise_groups, groups_by_input, groups_of_outputs
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.estimate.stencil_polynomial import PLACES, EntrywiseSamples
from gradverify.core.forward import sampler
from gradverify.core.forward.noise import at_least
from gradverify.core.model.memory import FEW_INPUTS, portions
from gradverify.core.strategy.columnwise import compare_by_given_structure
from gradverify.core.strategy.elementwise_sampling import (
    are_isolated,
    sample_elementwise,
    sample_elementwise_again,
    stencil_of,
)
from gradverify.core.strategy.structure import Structure, elementwise_structure
from gradverify.core.strategy.verify import claims_match_vjps, first_vjp_is_diagonal

_WIDE = 2.0**23  # times the smallest claim: the last digits of the largest, 2^-46 of it, are then 1e-7 of the smallest
_REST = 1 / 8  # of the outputs: if no more are in doubt, they are judged apart from the others
_MOST = 1 / 2  # of the outputs: if more are in doubt, other steps do not help
_FORTH = sum(place > 0 for place in PLACES)  # number of samples to the right of the point, which come first


def compare_elementwise(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare all entries of an elementwise function; None if it is not elementwise."""
    by_input = sample_elementwise(measured.sampled, measured.lengths, measured.backward.known_vjp[0])
    if by_input is None:
        return None
    claimed = _claimed(measured, settings.seed, len(by_input))
    if claimed is None:
        return None
    lengths = measured.lengths.step.view(len(by_input), -1)
    found = by_all(
        [
            settled(measured.sampled, samples, claims, length, settings)
            for samples, claims, length in zip(by_input, torch.split(claimed, 1), lengths, strict=True)
        ]
    )
    many = measured.sampled.point.numel() >= FEW_INPUTS
    if (
        many and found.doubt.numel() and measured.sampled.rounding_eps()
    ):  # on stairs of rounding, eight samples show little
        return _compared(measured, elementwise_structure(measured.sampled), claimed, settings, reconsider)
    if many:
        found = judge_again_with_smaller_steps(measured, by_input, claimed, found, settings)
    if not found.doubt.numel():
        return all_matching_comparison(found.extremes, measured.entries, _parts(claimed, found.judged))
    if not many:
        return None
    structure, steps = elementwise_structure(measured.sampled), None
    if not by_input[0].at_once:
        column_of = structure.column_groups.column_of[:, found.doubt]
        steps = stencil_of(measured.sampled, by_input, measured.lengths, column_of, found.doubt)
    del by_input  # frees the largest tensors held here
    if found.doubt.numel() <= _REST * measured.sampled.value.numel():
        rest = _compare_rest(measured, structure, claimed, found, steps, settings, reconsider)
        if rest is not None:
            parts = _parts(claimed, _joined(found, rest))
            return with_matching_rest(rest, all_matching_comparison(found.extremes, measured.entries, parts))
    return _compared(measured, structure, claimed, settings, reconsider)


def judge_again_with_smaller_steps(
    measured: MeasuredProblem, by_input: Sequence[EntrywiseSamples], claimed: Tensor, found: Settled, settings: Settings
) -> Settled:
    """Return `found` with the outputs in doubt judged again by smaller steps; `claimed` is (inputs, n)."""
    for steps in (richardson.closer_steps, richardson.middle_steps):  # the closer ones may drown in rounding
        if not 0 < found.doubt.numel() <= _MOST * measured.sampled.value.numel():
            return found
        outputs, again = (
            found.doubt,
            _judged_by_steps(steps(measured.lengths).base, measured, by_input, claimed, found, settings),
        )
        kept = found.judged
        if kept is not None and again.judged is not None:
            kept = with_outputs(kept, outputs, again.judged)
        found = Settled(
            extremes=merged_extremes(found.extremes, again.extremes),
            judged=kept,
            doubt=outputs[again.doubt],
            usual=found.usual,
            foretold=found.foretold,
        )
        if not again.foretold:
            return found
    return found


def _compared(
    measured: MeasuredProblem, structure: Structure, claimed: Tensor, settings: Settings, reconsider: Reconsider
) -> Comparison | None:
    """Compare all entries as for any other structure; None if it does not hold."""
    context = judging_context(
        measured.sampled, measured.noise, measured.lengths, structure.column_groups, claimed, settings
    )
    return compare_by_given_structure(measured, structure, context, None, settings, reconsider)


def _claimed(measured: MeasuredProblem, seed: int, inputs: int) -> Tensor | None:
    """Return the claimed derivative of output k by entry k of each input, (inputs, n).

    None if backward has other entries besides, or if there are too few inputs for this test to be worth it.
    """
    backward, cotangent = measured.backward, torch.ones((), dtype=torch.float64).expand(measured.sampled.value.numel())
    claimed = vjp_on_recorded_graph(backward, cotangent)
    if claimed is not None and not _is_wide(claimed) and first_vjp_is_diagonal(backward, claimed.view(inputs, -1)):
        return claimed.view(inputs, -1)
    if measured.sampled.point.numel() < FEW_INPUTS:
        return None  # single rows cost as little here, and show more than sums
    if claimed is None or not is_reusable(backward):
        claimed = row(backward, cotangent)
    claimed = claimed.view(inputs, -1)
    column_groups = groups_by_input(inputs, claimed.shape[1], claimed.device)
    return claimed if claims_match_vjps(backward, column_groups, claimed, seed) else None


def _is_wide(claimed: Tensor) -> bool:
    """True if some claims are so small beside others that the rounding of a sum of both would hide them."""
    extremes = [torch.aminmax(claimed[part].abs()) for part in portions(claimed)]
    smallest, largest = min(float(pair.min) for pair in extremes), max(float(pair.max) for pair in extremes)
    if smallest == 0.0:
        smallest = float(torch.where(claimed != 0, claimed.abs(), torch.inf).amin())
    return largest > _WIDE * smallest


def _compare_rest(
    measured: MeasuredProblem,
    structure: Structure,
    claimed: Tensor,
    found: Settled,
    steps: Stencil | None,
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison | None:
    """Compare the entries in doubt of an elementwise function; None if it is not elementwise."""
    outputs, focused = found.doubt, focused_problem(measured, found.doubt, settings)
    column_groups = groups_of_outputs(structure.column_groups, outputs)
    if are_isolated(focused.sampled, measured.lengths, column_groups.column_of):
        column_groups = replace(column_groups, isolated=True)
    usual = found.usual * focused.sampled.value.abs()
    noise = at_least(focused.noise, usual)
    context = judging_context(focused.sampled, noise, focused.lengths, column_groups, claimed[:, outputs], settings)
    largest = magnitude_of(claimed).amax().expand(len(outputs))
    context = replace(context, allowance=replace(context.allowance, largest=largest))
    rest = replace(structure, column_groups=column_groups)
    return compare_by_given_structure(focused, rest, context, steps, settings, reconsider, verified=found.foretold)


def _joined(found: Settled, rest: Comparison) -> Judged | None:
    """Return the verdicts on all entries, with those of `rest` for the outputs in doubt; None if they are not kept."""
    if found.judged is None:
        return None
    return with_outputs(found.judged, found.doubt, rest.parts[0].judged)


def _parts(claimed: Tensor, judged: Judged | None) -> tuple[JudgedPart, ...]:
    if judged is None:
        return ()
    inputs, size = claimed.shape
    return (
        JudgedPart(column_of=groups_by_input(inputs, size, claimed.device).column_of, claimed=claimed, judged=judged),
    )


def _judged_by_steps(
    step: Tensor,
    measured: MeasuredProblem,
    by_input: Sequence[EntrywiseSamples],
    claimed: Tensor,
    found: Settled,
    settings: Settings,
) -> Settled:
    """Judge the outputs in doubt by samples at other steps; `step` is (inputs · n,)."""
    outputs, length = found.doubt, measured.lengths.step.view(len(by_input), -1)
    sampled, column_groups = (
        sampler.restricted_to_outputs(measured.sampled, outputs),
        elementwise_groups(len(outputs), outputs.device),
    )
    largest = magnitude_of(claimed).amax()
    parts = []
    for k, samples in enumerate(sample_elementwise_again(sampled, step, by_input[0].places, outputs)):
        claims = claimed[k : k + 1, outputs]
        allowance = allowance_of(sampled, length[k, outputs], column_groups, magnitude_of(claims), largest, settings)
        first_samples = by_input[k].of(outputs)
        constant, flat = (samples.samples == 0).all(dim=0), _is_flat_on_a_side(first_samples)
        # An output that is constant at these steps may lie on one stair of rounding. It is taken as flat only if it is
        # constant on one side at the first, larger steps too, which then measure it.
        samples = replace(samples, step=torch.where(constant & flat, first_samples.step, samples.step))
        parts.append(closely(sampled, samples, claims, found.usual, allowance, constant & ~flat))
    return by_all(parts)


def _is_flat_on_a_side(samples: EntrywiseSamples) -> Tensor:
    """Mask of outputs that are constant on one side of the point; (k,)."""
    constant = samples.samples == 0
    return constant[:_FORTH].all(dim=0).logical_or_(constant[_FORTH:].all(dim=0))
