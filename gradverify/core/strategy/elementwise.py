"""Elementwise functions: all entries judged by a few samples of forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.backward.vjps import asked_again, may_be_asked, row
from gradverify.core.decide.comparison import Comparison, JudgedPart, beside, matching
from gradverify.core.decide.context import (
    MeasuredProblem,
    Reconsider,
    allowance_of,
    focused_problem,
    judging_context,
    size_of,
)
from gradverify.core.decide.entrywise_screen import Settled, by_all, closely, settled
from gradverify.core.decide.statistics import wider
from gradverify.core.decide.verdict import Judged, with_outputs
from gradverify.core.estimate import richardson
from gradverify.core.estimate.column_groups import elementwise_groups, groups_by_input, of_outputs
from gradverify.core.estimate.stencil import Stencil
from gradverify.core.estimate.stencil_polynomial import PLACES, EntrywiseSamples
from gradverify.core.forward import sampler
from gradverify.core.forward.noise import at_least
from gradverify.core.model.memory import FEW, portions
from gradverify.core.strategy.columnwise import compared_under
from gradverify.core.strategy.diagonality_test import are_isolated, sampled_again, sampled_entry_by_entry, stencil_of
from gradverify.core.strategy.structure import Structure, entry_by_entry
from gradverify.core.strategy.verify import claims_hold, each_by_its_own

_WIDE = 2.0**23  # times as large as another: the last digits that a product may be off by are 1e-7 of that
_REST = 1 / 8  # of the outputs may be left in doubt, to be judged apart from the others
_MOST = 1 / 2  # of the outputs may be in doubt: of more, the steps are not to blame
_FORTH = sum(place > 0 for place in PLACES)  # samples on the right of the point, which come first


def compare_entry_by_entry(measured: MeasuredProblem, settings: Settings, reconsider: Reconsider) -> Comparison | None:
    """Compare by the simplest structure of all, None where it does not hold."""
    by_input = sampled_entry_by_entry(measured.sampled, measured.lengths, measured.backward.heard[0])
    if by_input is None:
        return None
    claimed = _claimed(measured, settings.seed, len(by_input))
    if claimed is None:
        return None
    lengths = measured.lengths.step.view(len(by_input), -1)
    found = by_all(
        [
            settled(measured.sampled, eight, own, length, settings)
            for eight, own, length in zip(by_input, torch.split(claimed, 1), lengths, strict=True)
        ]
    )
    many = measured.sampled.point.numel() >= FEW
    if many and found.doubt.numel() and measured.sampled.narrow():  # of stairs, eight samples say little
        return _compared(measured, entry_by_entry(measured.sampled), claimed, settings, reconsider)
    if many:
        found = from_closer_by(measured, by_input, claimed, found, settings)
    if not found.doubt.numel():
        return matching(found.extremes, measured.entries, _parts(claimed, found.judged))
    if not many:
        return None
    structure, steps = entry_by_entry(measured.sampled), None
    if not by_input[0].at_once:
        own = structure.column_groups.column_of[:, found.doubt]
        steps = stencil_of(measured.sampled, by_input, measured.lengths, own, found.doubt)
    del by_input  # of all that is held, the largest
    if found.doubt.numel() <= _REST * measured.sampled.value.numel():
        rest = _rest(measured, structure, claimed, found, steps, settings, reconsider)
        if rest is not None:
            parts = _parts(claimed, _together(found, rest))
            return beside(rest, matching(found.extremes, measured.entries, parts))
    return _compared(measured, structure, claimed, settings, reconsider)


def from_closer_by(
    measured: MeasuredProblem, by_input: Sequence[EntrywiseSamples], claimed: Tensor, found: Settled, settings: Settings
) -> Settled:
    """Return what is `found` once the outputs in doubt have been sampled again; `claimed` is (inputs, n)."""
    for steps in (richardson.closer_steps, richardson.middle_steps):  # of which rounding may drown the first
        if not 0 < found.doubt.numel() <= _MOST * measured.sampled.value.numel():
            return found
        outputs, closer = (
            found.doubt,
            _by_steps(steps(measured.lengths).base, measured, by_input, claimed, found, settings),
        )
        kept = found.judged
        if kept is not None and closer.judged is not None:
            kept = with_outputs(kept, outputs, closer.judged)
        found = Settled(
            extremes=wider(found.extremes, closer.extremes),
            judged=kept,
            doubt=outputs[closer.doubt],
            usual=found.usual,
            foretold=found.foretold,
        )
        if not closer.foretold:
            return found
    return found


def _compared(
    measured: MeasuredProblem, structure: Structure, claimed: Tensor, settings: Settings, reconsider: Reconsider
) -> Comparison | None:
    """Compare all entries as those of any other structure, None where it does not hold."""
    context = judging_context(
        measured.sampled, measured.noise, measured.lengths, structure.column_groups, claimed, settings
    )
    return compared_under(measured, structure, context, None, settings, reconsider)


def _claimed(measured: MeasuredProblem, seed: int, inputs: int) -> Tensor | None:
    """Return what backward claims of every output and the entries of its number, (inputs, n).

    None where that is not all that it claims.
    """
    backward, cotangent = measured.backward, torch.ones((), dtype=torch.float64).expand(measured.sampled.value.numel())
    claimed = asked_again(backward, cotangent)
    if claimed is not None and not _is_wide(claimed) and each_by_its_own(backward, claimed.view(inputs, -1)):
        return claimed.view(inputs, -1)
    if measured.sampled.point.numel() < FEW:
        return None  # single rows say more than sums, for as little
    if claimed is None or not may_be_asked(backward):
        claimed = row(backward, cotangent)
    claimed = claimed.view(inputs, -1)
    column_groups = groups_by_input(inputs, claimed.shape[1], claimed.device)
    return claimed if claims_hold(backward, column_groups, claimed, seed) else None


def _is_wide(claimed: Tensor) -> bool:
    """Tell whether claims are so much larger than others that these would be lost in the rounding of a sum of both."""
    ends = [torch.aminmax(claimed[part].abs()) for part in portions(claimed)]
    least, most = min(float(end.min) for end in ends), max(float(end.max) for end in ends)
    if least == 0.0:
        least = float(torch.where(claimed != 0, claimed.abs(), torch.inf).amin())
    return most > _WIDE * least


def _rest(
    measured: MeasuredProblem,
    structure: Structure,
    claimed: Tensor,
    found: Settled,
    steps: Stencil | None,
    settings: Settings,
    reconsider: Reconsider,
) -> Comparison | None:
    """Compare the entries left in doubt of a function that goes entry by entry, None where it does not."""
    outputs, some = found.doubt, focused_problem(measured, found.doubt, settings)
    column_groups = of_outputs(structure.column_groups, outputs)
    if are_isolated(some.sampled, measured.lengths, column_groups.column_of):
        column_groups = replace(column_groups, isolated=True)
    usual = found.usual * some.sampled.value.abs()
    noise = at_least(some.noise, usual)
    context = judging_context(some.sampled, noise, some.lengths, column_groups, claimed[:, outputs], settings)
    largest = size_of(claimed).amax().expand(len(outputs))
    context = replace(context, allowance=replace(context.allowance, largest=largest))
    rest = replace(structure, column_groups=column_groups)
    return compared_under(some, rest, context, steps, settings, reconsider, verified=found.foretold)


def _together(found: Settled, rest: Comparison) -> Judged | None:
    """Return the verdicts on all entries, those left in doubt as they were judged apart; None where none are kept."""
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


def _by_steps(
    step: Tensor,
    measured: MeasuredProblem,
    by_input: Sequence[EntrywiseSamples],
    claimed: Tensor,
    found: Settled,
    settings: Settings,
) -> Settled:
    """Judge the outputs in doubt by such steps, (inputs · n)."""
    outputs, length = found.doubt, measured.lengths.step.view(len(by_input), -1)
    sampled, column_groups = (
        sampler.focused(measured.sampled, outputs),
        elementwise_groups(len(outputs), outputs.device),
    )
    largest = size_of(claimed).amax()
    again = []
    for number, eight in enumerate(sampled_again(sampled, step, by_input[0].places, outputs)):
        own = claimed[number : number + 1, outputs]
        allowance = allowance_of(sampled, length[number, outputs], column_groups, size_of(own), largest, settings)
        far = by_input[number].of(outputs)
        still, flat = (eight.samples == 0).all(dim=0), _is_flat_on_a_side(far)
        # What stands still may be a stair of rounding, unless it does so as far as the first steps went.
        eight = replace(eight, step=torch.where(still & flat, far.step, eight.step))
        again.append(closely(sampled, eight, own, found.usual, allowance, still & ~flat))
    return by_all(again)


def _is_flat_on_a_side(eight: EntrywiseSamples) -> Tensor:
    """Tell which outputs do not move on one side of the point; (k,)."""
    unmoved = eight.samples == 0
    return unmoved[:_FORTH].all(dim=0).logical_or_(unmoved[_FORTH:].all(dim=0))
