"""The first questions to a forward of few inputs, all in one call: how noisy it is, and how each input moves it."""

from __future__ import annotations

from dataclasses import dataclass

from gradverify.core.function.ecnoise import PLACES
from gradverify.core.function.lasting import of_stairs
from gradverify.core.function.line import points_on_line
from gradverify.core.function.noise import Noise, first_direction, measure, measured
from gradverify.core.function.portion import FEW
from gradverify.core.function.sampler import Sampler
from gradverify.core.function.scale import Scales
from gradverify.core.numeric import richardson
from gradverify.core.numeric.walk import Walk, walked_beside

_SMALL = 1 << 16  # numbers in all points of the call and their outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the first call of the forward has shown."""

    noise: Noise
    walk: Walk | None = None  # of each input alone, by the steps of `richardson`; None where there are too many


def opening(sampled: Sampler, lengths: Scales, seed: int) -> Opening:
    """Measure the noise and, where the inputs are few and small, take the first steps with each; costs 8 + 6 n calls.

    Where the forward can be vectorised, all of it is one call.
    """
    if sampled.narrow():
        return Opening(noise=of_stairs(measure(sampled, lengths, seed), sampled, lengths))
    inputs, outputs = sampled.point.numel(), sampled.value.numel()
    points = len(PLACES) + 2 * richardson.DEPTH * inputs
    if inputs >= FEW or points * (inputs + outputs) > _SMALL:
        return Opening(noise=measure(sampled, lengths, seed))
    direction = first_direction(sampled, lengths, seed)
    line = points_on_line(sampled, direction, PLACES)
    heard, walk = walked_beside(sampled, richardson.steps(lengths), line)
    return Opening(noise=measured(sampled, direction, heard), walk=walk)
