"""Forwards that move in small stairs: what is computed in a lower precision inside, or quantised.

At steps within one stair nothing moves, and a difference of exactly zero looks like a derivative of exactly zero.
Stairs are told from a function that is flat at the point, such as a clamp, by what happens beyond: it moves on both
sides, in opposite directions, and close by. The height of a stair then counts as noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.sampler import Sampler
from gradverify.core.samples import Samples, to_the_end, unmoved, void

_NEAR, _FAR = 4, 10  # rungs beyond the stair that are looked at
_BOTH = 2  # of them, at least, must move on both sides
_NARROW = 2.0**-7  # widest stair that counts, relative to the largest step, if it moves on both sides near by
_LOW = 2.0**-7  # highest stair that counts, relative to the output, if it does so far off: bfloat16 has such stairs


def stair(sampled: Sampler, samples: Samples) -> Tensor:
    """Return the height of the stair that the point lies on, 0 where it lies on none; (C, m)."""
    nothing = void(samples)
    still = unmoved(sampled, samples)
    tail = to_the_end(still | nothing) & ~nothing
    first = tail.to(torch.int8).argmax(dim=1, keepdim=True)
    up, down = samples.plus - sampled.value, sampled.value - samples.minus
    opposite = (up * down > 0) & torch.isfinite(up) & torch.isfinite(down)
    distance = first - torch.arange(still.shape[1], device=still.device).view(1, -1, 1)
    near, far = ((opposite & (distance > 0) & (distance <= reach)).sum(dim=1) >= _BOTH for reach in (_NEAR, _FAR))
    moves = torch.cat([up.abs(), down.abs()], dim=1)
    beyond = (distance > 0) & (distance <= _FAR)
    smallest = torch.where(torch.cat([beyond, beyond], dim=1) & (moves > 0), moves, torch.inf).amin(dim=1)
    width = samples.forth.expand_as(up).gather(1, first).squeeze(1)
    narrow = near & (width <= _NARROW * samples.forth[:, 0])
    low = far & (smallest <= _LOW * sampled.value.abs())
    return torch.where(tail.any(dim=1) & (narrow | low), smallest, 0.0)
