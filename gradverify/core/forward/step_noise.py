"""Noise that lasts: listened for at seventeen distances, where `noise` listens at those that tell noise from variation.

Stairs of rounding are as loud for samples far apart as for samples close together, until these come to lie within one
stair; what is smooth falls by 8 and more from one distance to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.noise import Noise, direction_of, one_side, pooled, share_of
from gradverify.core.forward.sampler import Sampler, magnitudes

SPACINGS = tuple(2.0**-k for k in range(3, 20))  # relative to the length scale, from where rounding may be heard
_LASTS = 3  # distances, at most of which what lasts is heard
_STAYS = 4.0  # noise falls by less from one of these to the next
_HIGH = 2.0**6  # times what rounding to so few digits leaves on the way: what is louder may be the function itself
_AT_ONCE = 1024.0  # and by more where the samples come to lie within one stair, which smooth variation does seldom
_TINY = torch.finfo(torch.float64).tiny


def of_stairs(noise: Noise, sampled: Sampler, lengths: LengthScales) -> Noise:
    """Return the noise of a forward that rounds some of what it computes, be the stairs wider than samples are apart.

    A smooth term beside such stairs moves by any step, and within one of them it moves alone. What is far louder than
    rounding to so few digits may as well be a function that varies quickly.
    """
    rounded = _rounded_to(sampled, sampled.narrow())
    heard = [_at_all(sampled, side * direction_of(lengths, 0)) for side in (1.0, -1.0)]
    height, low = (
        torch.maximum(_height(sampled, heard, most), rounded) for most in (torch.inf, _HIGH * sampled.stair())
    )
    level = torch.maximum(noise.level, height)
    return Noise(
        level=level,
        loud=torch.maximum(noise.loud, height),
        lasting=noise.lasting | (height > 0),
        rounding=torch.maximum(noise.rounding, low),
        share=torch.maximum(sampled.unit, share_of(sampled, level)),
    )


def _rounded_to(sampled: Sampler, eps: float) -> Tensor:
    """Return what rounding leaves of outputs of which all of their tensor have so few digits, 0 of others; (m,).

    One that stays on its stair all around is heard nowhere.
    """
    size = sampled.value.abs().nan_to_num(0.0, 0.0, 0.0)
    more = (torch.frexp(size).mantissa * (2 / eps)).frac() != 0
    return torch.where(magnitudes(sampled, more.to(size.dtype)) > 0, 0.0, size * (eps / 2))


def _height(sampled: Sampler, heard: Sequence[Tensor], most: float) -> Tensor:
    """Return how high the stairs are that are heard (K, m) on either side, none above `most`; (m,)."""
    one, other = (_flight(side, most) for side in heard)
    both = (one > 0) & (other > 0)
    return pooled(sampled, torch.where(both, torch.minimum(one, other), torch.maximum(one, other)))


def _flight(heard: Tensor, most: float) -> Tensor:
    """Return the loudest of what is heard (K, m) at distances each half the one before that finer ones hear too; (m,).

    Not above `most`. Once by accident, samples show far less than there is.
    """
    heard = heard.nan_to_num(0.0, 0.0, 0.0)
    finer = heard.unfold(0, _LASTS, 1).median(dim=2).values[1:]
    heard = heard[: len(finer)]
    return torch.where((heard <= _STAYS * finer) & (heard <= most), heard, 0.0).amax(dim=0)


def heard_at(sampled: Sampler, lengths: LengthScales, spacing: float) -> Tensor:
    """Return the noise that samples at this distance show, relative to the length scale, and nothing more; (m,)."""
    return one_side(sampled, direction_of(lengths, 0) * spacing).nan_to_num(0.0)


def lasting(sampled: Sampler, lengths: LengthScales) -> Tensor:
    """Return the loudest noise that samples at some distance show, and at a half and a quarter of it too; (m,).

    So stairs of rounding are heard that are wider than the samples of `measure` are apart, and nothing smooth is, which
    falls by 8 each time, but for accidents: at once, or after distances that it varies too quickly for. Infinite where
    the forward is not finite at any of these distances.
    """
    heard = _at_all(sampled, direction_of(lengths, 0))
    return lasting_in(heard).masked_fill_(heard.isnan().all(dim=0), torch.inf)


def lasting_in(heard: Tensor) -> Tensor:
    """Return the loudest noise that lasts, of what is heard (K, m) at distances each half the one before; (m,)."""
    stays = heard[:-1] <= _STAYS * heard[1:]
    noise = stays[:-1] & stays[1:] & ~_fades(heard)[:-2]
    return torch.where(noise, heard[:-2], 0.0).amax(dim=0)


def _fades(heard: Tensor) -> Tensor:
    """Tell at which distances something smooth is heard: what is left of it later falls again and again; (K, m).

    Noise stays, or is gone at once. It may fall once by accident.
    """
    fall = heard[:-1] / heard[1:].clamp(min=_TINY)
    little = (fall > _STAYS) & (fall <= _AT_ONCE)
    fading = torch.zeros_like(heard, dtype=torch.bool)
    for number in range(len(fall) - 2, -1, -1):
        twice = little[number] & little[number + 1]
        fading[number] = twice | (fading[number + 1] & (fall[number] <= _AT_ONCE))
    return fading


def _at_all(sampled: Sampler, direction: Tensor) -> Tensor:
    """Return what is heard along a direction at all distances, (K, m)."""
    return torch.stack([one_side(sampled, direction * spacing) for spacing in SPACINGS])
