"""How well the forward repeats and how finely it resolves: measured, never assumed.

The estimate is ECnoise: differences of high order of a smooth function along a line vanish faster than those of its
rounding noise, so what is left of them is the noise (Moré & Wild, SIAM J. Sci. Comput. 33(3), 2011, section 3). The
samples are not equispaced, as there, but the differences divided: rounding that goes up by the same at every step, as
that of 1 + x may over eight of them, would vanish like something smooth. The line is sampled on either side of the
point, each side for itself and without the point, because a kink or a jump there would look like noise; a side that
hears far more than the other is taken to have crossed one.

What is left when the samples stand closer together tells noise from a function that varies on a length below their
distance: noise stays, smooth variation vanishes. So the distance shrinks for as long as the estimate follows it. One
fall is not enough: samples that all lie within one stair of rounding are quiet too.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gradverify.core.forward.ecnoise import PLACES, noise_in, on_line
from gradverify.core.forward.length_scales import LengthScales, own_or_shared
from gradverify.core.forward.sampler import Sampler, along, magnitudes
from gradverify.core.model.generators import scattered_from
from gradverify.core.model.magnitudes import all_set, any_set, identical

_SPACING = 1.3 * 2.0**-20  # of the length scale: many float32 ulps, and far below what most functions feel
_CLOSER = 4.0  # by which the samples then move together
_CLOSEST = 11  # times, at most
_FOLLOWS = 30.0  # an estimate that falls by this much was no noise: order 3 of a smooth function falls by 64
_FALLS_A_LITTLE = 3.0  # noise seldom does, from one distance to the next
_CLEARLY = 3.0  # two large falls in a row, or three small ones: once, samples may come to lie within one stair
_FASTEST = 1e5  # an estimate that falls by more fell into a stair of the forward: order 5 falls by 1024
_FALLS = 8.0  # an estimate that falls by less over two distances is noise
_PATIENCE = 3  # distances that are tried in any case
_RELIABLE = 1e-5  # but not above this part of the output, which is more than float32 has
_LOUD = 256.0  # noise above this multiple of rounding, beside the largest output, is worth a closer look
SAFETY = 8.0  # from a standard deviation, the smallest of three estimates, to a bound
_CLEAN = 64.0  # a forward with noise below this multiple of rounding is not listened to twice; a few in 10^6 show 20
_CROSSED = 1e3  # a side that hears this many times more than the other has crossed a kink or a jump
_SMALL = 2.0**-20  # move of all inputs, relative to their length
_FINER = 0.25  # of a unit of rounding of 1: what moves by so little is not rounded beside 1
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """A bound on each output's own error, (m,) float64, in the output's units."""

    level: Tensor
    loud: Tensor  # the level, or more where it cannot be told whether what was heard far off was noise or a kink
    lasting: Tensor  # bool: that was as loud at several distances, as noise would be
    rounding: Tensor  # the part that rounding the value to its own dtype explains
    share: Tensor  # of samples that are larger, which it grows with

    def of(self, outputs: Tensor | slice) -> Noise:
        """Return the noise of some of the outputs."""
        return Noise(**{field.name: getattr(self, field.name)[outputs] for field in fields(self)})


def measure(sampled: Sampler, lengths: LengthScales, seed: int) -> Noise:
    """Measure the noise of every output along one random direction; costs 8 forwards, more where it is large."""
    direction = first_direction(sampled, lengths, seed)
    return noise_from_samples(sampled, direction, on_line(sampled, direction, PLACES))


def first_direction(sampled: Sampler, lengths: LengthScales, seed: int) -> Tensor:
    """Return the direction that is listened along first, at the distances `PLACES`; (n,)."""
    return direction_of(lengths, seed) * -_spacing(sampled)


def noise_from_samples(sampled: Sampler, direction: Tensor, heard: Tensor) -> Noise:
    """Measure the noise of every output, where `heard` (8, m) are those at the distances `PLACES` along `direction`."""
    size = sampled.value.abs().nan_to_num(0.0, 0.0, 0.0)
    rounding = rounding_of(sampled, heard.abs().amax(dim=0))
    worth = _LOUD * torch.fmax(rounding, sampled.size * sampled.unit)
    one = noise_in(heard)
    del heard  # of all that is held here, the largest
    if _is_clean(one, worth):
        return _everywhere_alike(sampled, pooled(sampled, torch.fmax(one.mul_(SAFETY), rounding)), rounding)
    finite = torch.isfinite(sampled.value)
    level = before = earlier = _estimate(sampled, direction, one, rounding, worth, finite)
    open_ = level > worth
    fallen = torch.zeros_like(level)  # how clearly it has fallen, one distance after the other
    quiet, lasting = torch.full_like(level, torch.inf), torch.zeros_like(open_)
    for times in range(_CLOSEST):
        if not any_set(open_):
            break
        direction = direction / _CLOSER
        closer = _estimate(sampled, direction, one_side(sampled, direction), rounding, worth, finite)
        unknown = before == torch.inf
        level, before = torch.where(unknown, closer, level), torch.where(unknown, closer, before)
        gone, fell = before > closer * _FASTEST, fallen > 0
        fallen = torch.where(closer * _FALLS_A_LITTLE < before, fallen + 1.0, 0.0)
        fallen += 0.5 * (closer * _FOLLOWS < before)
        follows = ~gone & (fallen >= _CLEARLY)
        level = torch.where(open_ & follows & (closer * _FOLLOWS < level), closer, level)
        # Samples within one stair of noise, or on this side of the first kink.
        silent = open_ & (gone | ((closer <= worth) & (closer * _FOLLOWS < before) & ~follows))
        quiet = torch.where(silent, closer, quiet)
        lasting |= silent & ~fell & (times > 0)
        falling = closer * _FALLS < torch.fmax(before, earlier)
        uncertain = falling | (closer > _RELIABLE * size) | (times < _PATIENCE)
        open_ &= uncertain & (closer > worth) & ~gone
        before, earlier = closer, before
    loud = level = pooled(sampled, torch.where(level < torch.inf, level, rounding))
    if any_set(quiet < torch.inf):
        level = torch.fmin(loud, pooled(sampled, quiet))
    return Noise(level=level, loud=loud, lasting=lasting, rounding=rounding, share=sampled.unit)


def at_least(noise: Noise, size: Tensor) -> Noise:
    """Return the noise raised to what is usual, (m,)."""
    return replace(noise, level=torch.fmax(noise.level, size), loud=torch.fmax(noise.loud, size))


def but_for_rounding(noise: Noise, sampled: Sampler) -> Noise:
    """Return the noise if all of it that rounding does not explain is the function itself."""
    share = torch.minimum(noise.share, torch.maximum(sampled.unit, share_of(sampled, noise.rounding)))
    return replace(noise, level=noise.rounding, share=share)


def share_of(sampled: Sampler, level: Tensor) -> Tensor:
    """Return the part of an output that noise (m,) is in the median; ()."""
    size = sampled.value.abs()
    return (level / size).masked_fill(size == 0, torch.nan).nanmedian().nan_to_num(0.0)


def _everywhere_alike(sampled: Sampler, level: Tensor, rounding: Tensor) -> Noise:
    """Return noise that is no louder far off."""
    none = torch.zeros_like(level, dtype=torch.bool)
    return Noise(level=level, loud=level, lasting=none, rounding=rounding, share=sampled.unit)


def rounding_of(sampled: Sampler, near: Tensor) -> Tensor:
    """Return what rounding the outputs to their own dtype, and sampling many in one call, explains; (m,).

    An output that is exactly zero may be a sum of others that cancels, as far as they are no larger than it is `near`
    the point (m,), where it moves at all.
    """
    size = sampled.value.abs().nan_to_num(0.0, 0.0, 0.0)
    around = torch.where((near > 0) & (near < sampled.size), near, sampled.size)
    size = torch.where(size > 0, size, around)
    return size * (sampled.unit * max(1.0, sampled.together.rough)) + _TINY


def moves_finely(sampled: Sampler, lengths: LengthScales) -> Tensor:
    """Tell which outputs feel a small move of all inputs, or are of a tensor that moves by less than rounding of 1.

    (m,) bool. Nothing in such outputs is rounded beside a number of the size of 1, as log(1 + x²) is.
    """
    small = _SMALL * direction_of(lengths, 0)
    felt = torch.maximum(*((along(sampled, move) - sampled.value).abs() for move in (small, -small)))
    fine = (felt > 0) & (felt < _FINER * sampled.unit)
    return (felt > 0) | (magnitudes(sampled, fine.to(felt.dtype)) > 0)


def repeats(sampled: Sampler) -> bool:
    """Tell whether a second forward at the same point gives bit for bit the same outputs."""
    again = along(sampled, torch.zeros_like(sampled.point))
    return identical(again, sampled.value)


def direction_of(lengths: LengthScales, seed: int) -> Tensor:
    """Return a random direction in which every input moves by about its own length, (n,)."""
    return scattered_from(own_or_shared(lengths), seed)


def _estimate(
    sampled: Sampler, direction: Tensor, one: Tensor, rounding: Tensor, worth: Tensor, finite: Tensor
) -> Tensor:
    """Return a bound on the noise from that of `one` side of the point, and of the other where the first is loud.

    It is infinite where neither side is in the domain, though the point is (`finite`).
    """
    if _is_clean(one, worth):
        return torch.fmax(one.mul_(SAFETY), rounding)
    other = one_side(sampled, -direction)
    quiet, loud = torch.fmax(torch.fmin(one, other), rounding), torch.fmax(one, other)
    noise_from_samples = torch.where(loud <= _CROSSED * quiet, loud, quiet).mul_(SAFETY)
    return torch.fmax(noise_from_samples, rounding).masked_fill_(finite & loud.isnan(), torch.inf)


def _is_clean(one: Tensor, worth: Tensor) -> bool:
    """Tell whether one side of the point shows so little noise that the other need not be heard."""
    return all_set(one <= worth * (_CLEAN / _LOUD / SAFETY))


def pooled(sampled: Sampler, level: Tensor) -> Tensor:
    """Raise what an output seems to vary by to what its tensor's outputs vary by, relative to their size.

    Eight samples sometimes show far less noise than there is, but seldom for most outputs. A few outputs that are
    looked at apart say nothing of the others.
    """
    if sampled.kept is not None:
        return level
    size = sampled.value.abs()
    size = torch.where((size > 0) & (size < torch.inf), size, torch.nan)  # no number where nothing is known
    share = level / size
    for block in sampled.outputs:
        own = share[block.coordinates]
        share[block.coordinates] = own.nanmedian() if own.numel() else own
    return torch.fmax(level, share * size)


def one_side(sampled: Sampler, direction: Tensor) -> Tensor:
    return noise_in(on_line(sampled, direction, PLACES))


def _spacing(sampled: Sampler) -> float:
    """Return the distance of the samples: coarser where the inputs' own dtype could not hold it."""
    coarsest = max(torch.finfo(primal.tensor.dtype).eps for primal in sampled.problem.primals)
    return max(_SPACING, 8 * coarsest)
