"""Claims so steep that the output varies by as much as its noise within steps that larger ones know nothing of.

A function that varies within a billionth of its input's size looks like noise at any larger step, and there a flat
line through that noise fits. Whether it is noise or the function shows at the finest steps, where what is claimed would
be lost in noise: noise jumps there, or stands still, where a function rises as it is claimed to. Where hardly any step
is as fine, nothing can tell.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler
from gradverify.core.samples import Samples, central, void
from gradverify.core.shape import largest_moves

_LOUD = 2.0**24  # units of rounding: noise below is not the function's own variation
_STEEP = 2.0**10  # times what the output was seen to move at most, over the largest step
_LOST = 0.25  # of the noise: what rises by less is lost in it
_ROUGHLY = 0.5  # how far differences may be off what is claimed
_FEW = 5  # steps as fine as that tell nothing
_AUDIBLE = 8.0  # units of rounding that a rise must have


def unseen(sampled: Sampler, noise: Noise, samples: Samples, claimed: Tensor) -> Tensor:
    """Tell which claims (C, m) larger steps cannot contradict, since what they see as noise may be the function."""
    size = torch.maximum(sampled.value.abs(), sampled.size)
    loud = noise.loud > _LOUD * sampled.unit * size
    if not bool(loud.any()):
        return torch.zeros_like(claimed, dtype=torch.bool)
    rise = claimed.unsqueeze(1) * samples.forth
    most = largest_moves(sampled, samples).nan_to_num(0.0, 0.0).amax(dim=1)
    heard = torch.fmin(noise.loud, most)
    fine = (rise.abs() <= _LOST * heard.unsqueeze(1)) & ~void(samples)
    audible = rise.abs() > _AUDIBLE * sampled.unit * sampled.value.abs()
    close = (central(samples) - claimed.unsqueeze(1)).abs() <= _ROUGHLY * claimed.abs().unsqueeze(1)
    shown = fine & audible & close
    twice = (shown[:, 1:] & shown[:, :-1]).any(dim=1)
    steep = rise[:, 0].abs() > _STEEP * most
    return loud & steep & (twice | (fine.sum(dim=1) < _FEW))
