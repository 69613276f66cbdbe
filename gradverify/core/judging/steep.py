"""Claims so steep that the output varies by as much as its noise within steps that larger ones know nothing of.

A function that varies within a billionth of its input's size looks like noise at any larger step, and there a flat
line through that noise fits. Whether it is noise or the function shows at the finest steps, where what is claimed would
be lost in noise: noise jumps there, or stands still, where a function rises as it is claimed to. Where hardly any step
is as fine, nothing can tell.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.core.function.noise import Noise
from gradverify.core.function.sampler import Sampler
from gradverify.core.numeric.nonsmooth import Local
from gradverify.core.numeric.samples import Samples, central, void
from gradverify.core.numeric.shape import largest_moves

_LOUD = 2.0**24  # units of rounding: noise below is not the function's own variation
_HARDLY = 64.0  # times the noise
_STEEP = 2.0**10  # times what the output was seen to move at most, over the largest step
_FLATTER = 0.25  # a slope steeper than this part of the claim comes from the finest steps itself
_LOST = 0.25  # of the noise: what rises by less is lost in it
_ROUGHLY = 0.5  # how far differences may be off what is claimed
_FEW = 5  # steps as fine as that tell nothing
_AUDIBLE = 8.0  # units of rounding that a rise must have


def heard(noise: Noise, local: Local) -> Tensor:
    """Return what was taken for noise, before or now; (C, m)."""
    return torch.maximum(noise.loud, local.scatter)


def drowned(sampled: Sampler, noise: Tensor, samples: Samples) -> Tensor:
    """Tell which outputs were seen to move by hardly more than this noise, which may be the function itself; (C, m)."""
    most = _most(sampled, samples)
    return _loud(sampled, noise) & (most > 0) & (most <= _HARDLY * noise)


def unseen(sampled: Sampler, noise: Tensor, samples: Samples, claimed: Tensor, numeric: Tensor) -> Tensor:
    """Tell which claims a flatter slope cannot contradict, since this noise may be the function itself; all (C, m)."""
    loud, most = _loud(sampled, noise), _most(sampled, samples)
    rise = claimed.unsqueeze(1) * samples.forth
    steep = (rise[:, 0].abs() > _STEEP * most) & (numeric.abs() < _FLATTER * claimed.abs())
    fine = (rise.abs() <= _LOST * torch.fmin(noise, most).unsqueeze(1)) & ~void(samples)
    audible = rise.abs() > _AUDIBLE * sampled.unit * sampled.value.abs()
    close = (central(samples) - claimed.unsqueeze(1)).abs() <= _ROUGHLY * claimed.abs().unsqueeze(1)
    shown = fine & audible & close
    twice = (shown[:, 1:] & shown[:, :-1]).any(dim=1)
    return loud & steep & (twice | (fine.sum(dim=1) < _FEW))


def _loud(sampled: Sampler, noise: Tensor) -> Tensor:
    return noise > _LOUD * sampled.unit * torch.maximum(sampled.value.abs(), sampled.size)


def _most(sampled: Sampler, samples: Samples) -> Tensor:
    """Return by how much each output was seen to move, (C, m)."""
    return largest_moves(sampled, samples).nan_to_num(0.0, 0.0).amax(dim=1)
