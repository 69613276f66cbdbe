"""Entries judged by one sample each, where the function is a straight line.

One difference cannot say how far it is from the derivative. But where an output lies on a line along a direction in
which all entries of an input move farther than they do here, and backward claims this very slope, the difference is as
far from the derivative as noise takes it, or the claim is wrong by what this step happens to be off.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.flags import all_set
from gradverify.core.function.noise import Noise
from gradverify.core.function.portion import rows_at_once
from gradverify.core.function.sampler import Sampler
from gradverify.core.judging.allowance import ROUNDING, Allowance
from gradverify.core.judging.bench import Bench, of_moves, part_of
from gradverify.core.judging.compare import Judged, all_matching, judge_smooth
from gradverify.core.judging.doubt import in_doubt, tells_enough
from gradverify.core.judging.replaced import stacked
from gradverify.core.numeric.samples import NOISE_FACTOR, Estimate

_BEND = 16.0  # times the noise of an output may be in f(x+h) - 2 f(x) + f(x-h), which is heard in eight samples only
_NOISE = 2 * NOISE_FACTOR  # a rise from the point has twice the noise of one from side to side, per length


def are_lines(sampled: Sampler, noise: Noise, plus: Tensor, minus: Tensor) -> Tensor:
    """Tell which outputs on both sides of the point, (C, m), lie on a line with that at it, but for noise."""
    allowed = _reaching(noise, plus - minus, _BEND)
    return (plus + minus).sub_(sampled.value, alpha=2.0).abs_() <= allowed


def on_lines(at: Bench, chosen: Tensor, values: Tensor, far: Tensor) -> tuple[Judged, Tensor]:
    """Return the verdicts on the entries of some moves, and which of them have the slope claimed, beyond doubt; (C, m).

    `values` (C, m) are the outputs after one step by `far`, (C, 1) or (C, m). Verdicts on other entries say nothing.
    """
    every = len(chosen) == at.moves.count
    claimed, allowance = at.claimed if every else at.claimed[chosen], of_moves(at.allowance, chosen)
    looks, high = [], rows_at_once(claimed)
    for top in range(0, len(chosen), high):
        rows = slice(top, top + high)
        own = part_of(allowance, rows, slice(None))
        looks.append(_look(values[rows] - at.sampled.value, far[rows], claimed[rows], at.noise, own))
    if len(looks) == 1:
        return looks[0]
    return stacked([judged for judged, _ in looks]), torch.cat([fine for _, fine in looks])


def _look(rise: Tensor, far: Tensor, claimed: Tensor, noise: Noise, allowance: Allowance) -> tuple[Judged, Tensor]:
    bar = _reaching(noise, rise, _NOISE).div_(far)
    estimate, own = Estimate(value=rise.div_(far), bar=bar), claimed.abs()
    error = (claimed - estimate.value).abs_()
    close = error <= torch.add(bar, own, alpha=ROUNDING)
    if all_set(tells_enough(bar, own, allowance).logical_and_(close)):  # as in most of a function that is linear
        return all_matching(estimate, error, own.mul_(allowance.rtol)), close
    judged = judge_smooth(claimed, estimate, allowance, allowance.zero)
    close.logical_or_(error <= allowance.atol.add_(bar))
    return judged, in_doubt(judged, close.logical_not(), own, allowance).logical_not_()


def _reaching(noise: Noise, rise: Tensor, times: float) -> Tensor:
    """Return so many times the noise of samples that may be larger than at the point: on a line, by half their rise."""
    return torch.addcmul(times * noise.level, rise.abs(), times * noise.share)
