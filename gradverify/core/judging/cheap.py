"""The cheap looks at entries, by few steps or from afar, and which entries they leave in doubt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from gradverify.core.function import sampler
from gradverify.core.function.noise import Noise
from gradverify.core.function.portion import portion
from gradverify.core.function.sampler import Sampler
from gradverify.core.judging.bench import Bench, of_moves, part_of
from gradverify.core.judging.compare import (
    ROUNDING,
    Allowance,
    Judged,
    all_matching,
    in_doubt,
    judge_smooth,
    tells_enough,
)
from gradverify.core.numeric import richardson
from gradverify.core.numeric.ladder import central_tableau
from gradverify.core.numeric.samples import (
    NOISE_FACTOR,
    Estimate,
    Samples,
    central,
    difference_noise,
    finest_noise,
    trusted,
    unmoved,
    void,
)
from gradverify.core.numeric.shape import suspicious
from gradverify.core.numeric.walk import Walk, samples_of

_Extrapolate = Callable[[Sampler, Noise, Samples, Tensor], Estimate]  # with what noise may do to the finest difference
_BEND = 16.0  # times the noise of an output may be in f(x+h) - 2 f(x) + f(x-h), which is heard in eight samples only


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """What the cheap pass says, all (C, m)."""

    judged: Judged
    bends: Tensor  # bool: the function bends as no smooth one does
    doubt: Tensor  # bool: deserves the thorough pass


def first_look(at: Bench, walk: Walk) -> First:
    """Go through all entries of the moves walked by the cheap pass: three steps, extrapolated twice."""
    return _looked(at, walk, partial(_judged, extrapolate=_by_richardson))


def look_from_afar(at: Bench, walk: Walk) -> First:
    """Go through entries again by longer steps, and as many as it takes to hear the derivative above the rounding."""
    return _looked(at, walk, partial(_judged, extrapolate=_by_tableau))


def straight_look(at: Bench, walk: Walk) -> First:
    """Go through entries by a single step, leaving in doubt all where the function is not a line of the slope claimed.

    One difference cannot say how far it is from the derivative. Where three points lie on a line, and backward knows
    its slope, it is as far as noise takes it, or a claim is wrong by what this step happens to be off.
    """
    return _looked(at, walk, _straight)


def _looked(at: Bench, walk: Walk, judge: Callable[[Sampler, Noise, Samples, Tensor, Allowance], First]) -> First:
    """Go through all entries of the moves walked, as many at a time as stay in a cache."""
    claimed = at.claimed if len(walk.chosen) == at.moves.count else at.claimed[walk.chosen]
    allowance = of_moves(at.allowance, walk.chosen)
    whole: First | None = None
    for outputs, tiles in _tiles(len(claimed), claimed.shape[1], portion(claimed)):
        sampled, noise = _looking_at(at, outputs)
        for rows in tiles:
            limits = part_of(allowance, rows, outputs)
            samples = samples_of(at.sampled, walk, rows, outputs)
            found = judge(sampled, noise, samples, claimed[rows, outputs], limits)
            if found.doubt.shape == claimed.shape:
                return found
            whole = _blank(claimed) if whole is None else whole
            _write(whole, found, rows, outputs)
    return _blank(claimed) if whole is None else whole


def _by_richardson(sampled: Sampler, noise: Noise, samples: Samples, level: Tensor) -> Estimate:
    del sampled, noise
    return richardson.extrapolate(samples, level)


def _by_tableau(sampled: Sampler, noise: Noise, samples: Samples, level: Tensor) -> Estimate:
    del level
    usable = trusted(central(samples), void(samples))
    return central_tableau(samples, difference_noise(sampled, noise, samples), usable)


def _judged(
    sampled: Sampler,
    noise: Noise,
    samples: Samples,
    claimed: Tensor,
    allowance: Allowance,
    extrapolate: _Extrapolate,
) -> First:
    level, zero = finest_noise(sampled, noise, samples), allowance.zero
    judged = judge_smooth(claimed, extrapolate(sampled, noise, samples, level), allowance, zero)
    own = claimed.abs()
    bends = suspicious(sampled, samples, level).logical_or_(judged.bar == torch.inf)
    # An output that never moved says most at the largest steps, where backward claims that it does.
    idle = (judged.numeric == 0).logical_and_(own > zero)
    if bool(idle.any()):
        idle &= unmoved(sampled, samples).all(dim=1)
    return First(judged=judged, bends=bends, doubt=in_doubt(judged, bends | idle, own, allowance))


def _straight(sampled: Sampler, noise: Noise, samples: Samples, claimed: Tensor, allowance: Allowance) -> First:
    forth, back, plus, minus = (each[:, 0] for each in (samples.forth, samples.back, samples.plus, samples.minus))
    rise = plus - minus
    level = _reaching(sampled, noise, rise)
    estimate = Estimate(value=rise.div_(forth + back), bar=level * (NOISE_FACTOR / forth))
    own, error = claimed.abs(), (claimed - estimate.value).abs_()
    line = _lie_on_a_line(sampled, plus, minus, level)
    plain = error <= torch.add(estimate.bar, own, alpha=ROUNDING)
    plain.logical_and_(line).logical_and_(tells_enough(estimate.bar, own, allowance))
    if bool(plain.all()):  # as in most tiles of a function that is linear
        judged = all_matching(estimate, error, allowance.rtol * own)
        return First(judged=judged, bends=judged.kinked, doubt=judged.kinked)
    judged = judge_smooth(claimed, estimate, allowance, allowance.zero)
    bends = line.logical_and_(judged.error <= allowance.atol.add_(estimate.bar)).logical_not_()
    return First(judged=judged, bends=bends, doubt=in_doubt(judged, bends, own, allowance))


def is_line(sampled: Sampler, noise: Noise, plus: Tensor, minus: Tensor) -> Tensor:
    """Tell which outputs on both sides of the point, (C, m), lie on a line with that at it, but for noise."""
    return _lie_on_a_line(sampled, plus, minus, _reaching(sampled, noise, plus - minus))


def _lie_on_a_line(sampled: Sampler, plus: Tensor, minus: Tensor, level: Tensor) -> Tensor:
    """Tell which samples do, where `level` (C, m), which is used up, is their noise."""
    return (plus + minus).sub_(sampled.value, alpha=2.0).abs_() <= level.mul_(_BEND)


def _reaching(sampled: Sampler, noise: Noise, rise: Tensor) -> Tensor:
    """Return the noise of samples that may be larger than what is at the point: on a line, by half their rise."""
    return torch.addcmul(noise.level, rise.abs(), sampled.unit)


def _looking_at(at: Bench, outputs: slice) -> tuple[Sampler, Noise]:
    """Return the forward and its noise for some of the outputs."""
    if outputs == slice(0, at.sampled.value.numel()):
        return at.sampled, at.noise
    return sampler.focused(at.sampled, outputs), at.noise.of(outputs)


def _tiles(moves: int, outputs: int, most: int) -> Iterator[tuple[slice, list[slice]]]:
    """Yield outputs, and with them moves, such that about so many entries are judged at a time."""
    width = min(max(1, outputs), most)
    height = max(1, most // width)
    rows = [slice(start, min(moves, start + height)) for start in range(0, moves, height)]
    for start in range(0, outputs, width):
        yield slice(start, min(outputs, start + width)), rows


def _blank(like: Tensor) -> First:
    """Return room for what is said of so many entries."""
    numeric, bar, error, allowed = like.new_empty(4, *like.shape)
    bends, doubt = torch.empty((2, *like.shape), dtype=torch.bool, device=like.device)
    none = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
    code = torch.empty(like.shape, dtype=torch.int8, device=like.device)
    judged = Judged(numeric=numeric, bar=bar, error=error, allowed=allowed, code=code, kinked=none, bent=none)
    return First(judged=judged, bends=bends, doubt=doubt)


def _write(whole: First, found: First, rows: slice, outputs: slice) -> None:
    """Put what is said of some entries in its place."""
    for name in ("numeric", "bar", "error", "allowed", "code"):
        getattr(whole.judged, name)[rows, outputs] = getattr(found.judged, name)
    whole.bends[rows, outputs] = found.bends
    whole.doubt[rows, outputs] = found.doubt
