"""Doubts about functions that go entry by entry, settled by eight samples from closer by.

Most of them are due to a kink within the first steps, or to a function that varies on their length. From closer by it
is what it is at the point, and as plain as everywhere else. Whatever is open still gets the thorough look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function import sampler
from gradverify.core.judging.bench import allowance_of, size_of
from gradverify.core.judging.extremes import wider
from gradverify.core.judging.ground import Ground
from gradverify.core.judging.replaced import with_outputs
from gradverify.core.judging.settled import Settled, by_all, closely
from gradverify.core.numeric import richardson
from gradverify.core.numeric.moves import direct_moves
from gradverify.core.numeric.series import PLACES, Eight
from gradverify.core.ways.halves import sampled_again

_MOST = 1 / 2  # of the outputs may be in doubt: of more, the steps are not to blame
_FORTH = sum(place > 0 for place in PLACES)  # samples on the right of the point, which come first


def from_closer_by(
    ground: Ground, by_input: Sequence[Eight], claimed: Tensor, found: Settled, settings: Settings
) -> Settled:
    """Return what is `found` once the outputs in doubt have been sampled again; `claimed` is (inputs, n)."""
    for steps in (richardson.closer_steps, richardson.middle_steps):  # of which rounding may drown the first
        if not 0 < found.doubt.numel() <= _MOST * ground.sampled.value.numel():
            return found
        outputs, closer = found.doubt, _by_steps(steps(ground.lengths).base, ground, by_input, claimed, found, settings)
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


def _by_steps(
    step: Tensor, ground: Ground, by_input: Sequence[Eight], claimed: Tensor, found: Settled, settings: Settings
) -> Settled:
    """Judge the outputs in doubt by such steps, (inputs · n)."""
    outputs, length = found.doubt, ground.lengths.step.view(len(by_input), -1)
    sampled, moves = sampler.focused(ground.sampled, outputs), direct_moves(len(outputs), outputs.device)
    largest = size_of(claimed).amax()
    again = []
    for number, eight in enumerate(sampled_again(sampled, step, by_input[0].places, outputs)):
        own = claimed[number : number + 1, outputs]
        allowance = allowance_of(sampled, length[number, outputs], moves, size_of(own), largest, settings)
        far = by_input[number].of(outputs)
        still, flat = (eight.samples == 0).all(dim=0), _is_flat_on_a_side(far)
        # What stands still may be a stair of rounding, unless it does so as far as the first steps went.
        eight = replace(eight, step=torch.where(still & flat, far.step, eight.step))
        again.append(closely(sampled, eight, own, found.usual, allowance, still & ~flat))
    return by_all(again)


def _is_flat_on_a_side(eight: Eight) -> Tensor:
    """Tell which outputs do not move on one side of the point; (k,)."""
    unmoved = eight.samples == 0
    return unmoved[:_FORTH].all(dim=0).logical_or_(unmoved[_FORTH:].all(dim=0))
