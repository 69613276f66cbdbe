"""The forward on both sides of the point, and the difference quotients that follow from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.moves import Kind, Moves, members, owned
from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler, representable
from gradverify.core.together import evaluate

BAR_FACTOR = 10.0  # an error counts from this many error bars on
NOISE_FACTOR = 1.5  # by how much extrapolation amplifies the noise of a difference
_AT_ONCE = 1 << 17  # numbers in the points of one call: beyond them a call of its own costs nothing
_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """K steps for each of n coordinates: base times factor, coarse to fine."""

    base: Tensor  # (n,)
    factors: Tensor  # (K,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The forward on both sides of the point for C moves and K steps, coarse to fine."""

    moves: Tensor  # (C,) which moves
    forth: (
        Tensor  # (C, K, 1 or m) x + h - x of the coordinate moved, exactly; zero where its dtype cannot hold the step
    )
    back: Tensor  # (C, K, 1 or m) x - (x - h), exactly
    plus: Tensor  # (C, K, m)
    minus: Tensor  # (C, K, m)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Derivatives with their error bars, each (C, m); the bar is infinite where nothing could be said."""

    value: Tensor
    bar: Tensor


def sample(sampled: Sampler, moves: Moves, chosen: Tensor, steps: Steps) -> Samples:
    """Evaluate the forward at x ± h for every chosen move (C,) and step."""
    inside, place = members(moves, chosen)
    start, base = (sampled.point, steps.base) if moves.direct else (sampled.point[inside], steps.base[inside])
    factors = torch.cat([steps.factors, -steps.factors]).unsqueeze(1)
    values = sampled.value.new_empty(len(factors), len(chosen), sampled.value.numel())
    lengths = []
    for some in _parts(len(factors), len(chosen) * (sampled.point.numel() + sampled.value.numel())):
        moved = representable(sampled, inside, torch.addcmul(start, factors[some], base))
        lengths.append(_lengths(moves, chosen, inside, (moved - start).mul_(factors[some].sign())))
        if moves.direct:
            points = moved
        else:
            points = sampled.point.repeat(len(moved), len(chosen), 1)
            points[:, place, inside] = moved
            points = points.flatten(0, 1)
        evaluate(sampled, points, values[some].flatten(0, 1))
    half = len(factors) // 2
    found = torch.cat(lengths, dim=1)
    plus, minus = values[:half].transpose(0, 1), values[half:].transpose(0, 1)
    return Samples(moves=chosen, forth=found[:, :half], back=found[:, half:], plus=plus, minus=minus)


def _parts(count: int, numbers: int) -> Iterator[slice]:
    """Yield steps whose points go through one call: all where they are small, else one after the other."""
    size = count if count * numbers <= _AT_ONCE else 1
    for start in range(0, count, size):
        yield slice(start, start + size)


def _lengths(moves: Moves, chosen: Tensor, inside: Tensor, lengths: Tensor) -> Tensor:
    """Return the steps of the coordinate that owns each entry, (C, K, 1) or (C, K, m), from those moved, (K, k)."""
    if moves.kind is Kind.SINGLE:
        return lengths.T.unsqueeze(2)
    if moves.direct:
        return lengths.unsqueeze(0)
    every = torch.zeros(len(moves.colour), dtype=lengths.dtype, device=lengths.device)
    found = []
    for row in lengths:
        every[inside] = row
        found.append(owned(moves, chosen, every))
    return torch.stack(found, dim=1)


def joined(coarse: Samples, fine: Samples) -> Samples:
    """Return the samples of the same moves at both sets of steps."""
    return Samples(
        moves=coarse.moves,
        forth=torch.cat([coarse.forth, fine.forth], dim=1),
        back=torch.cat([coarse.back, fine.back], dim=1),
        plus=torch.cat([coarse.plus, fine.plus], dim=1),
        minus=torch.cat([coarse.minus, fine.minus], dim=1),
    )


def of_rows(samples: Samples, rows: Tensor) -> Samples:
    """Return the samples of some of the moves."""
    return Samples(
        moves=samples.moves[rows],
        forth=samples.forth[rows],
        back=samples.back[rows],
        plus=samples.plus[rows],
        minus=samples.minus[rows],
    )


def of_outputs(samples: Samples, outputs: slice) -> Samples:
    """Return the samples of some of the outputs."""
    forth, back = (each if each.shape[2] == 1 else each[:, :, outputs] for each in (samples.forth, samples.back))
    plus, minus = samples.plus[:, :, outputs], samples.minus[:, :, outputs]
    return Samples(moves=samples.moves, forth=forth, back=back, plus=plus, minus=minus)


def finest(samples: Samples, count: int) -> Samples:
    """Return the samples at the last, finest steps only."""
    some = slice(-count, None)
    return Samples(
        moves=samples.moves,
        forth=samples.forth[:, some],
        back=samples.back[:, some],
        plus=samples.plus[:, some],
        minus=samples.minus[:, some],
    )


def void(samples: Samples) -> Tensor:
    """Tell which steps vanish in the input's own dtype, so that nothing was sampled; (C, K, 1 or m)."""
    return (samples.forth <= 0) | (samples.back <= 0)


def central(samples: Samples) -> Tensor:
    """Return (f(x+h) - f(x-h)) / 2h, (C, K, m)."""
    return (samples.plus - samples.minus) / (samples.forth + samples.back)


def one_sided(sampled: Sampler, samples: Samples) -> tuple[Tensor, Tensor]:
    """Return the difference quotients to the left and to the right of the point, each (C, K, m)."""
    left = (sampled.value - samples.minus) / samples.back
    right = (samples.plus - sampled.value) / samples.forth
    return left, right


def unmoved(sampled: Sampler, samples: Samples) -> Tensor:
    """Tell where the forward is bit for bit the same on both sides of the point; (C, K, m)."""
    return (samples.plus == sampled.value) & (samples.minus == sampled.value)


def to_the_end(flags: Tensor) -> Tensor:
    """Mark the steps from which on all finer ones are flagged; (C, K, m) bool."""
    return flags.to(torch.int8).flip(1).cummin(dim=1).values.flip(1).bool()


def difference_noise(sampled: Sampler, noise: Noise, samples: Samples) -> Tensor:
    """Return what the forward's noise may change in a central difference, (C, K, m)."""
    larger = torch.maximum(samples.plus.abs(), samples.minus.abs()).nan_to_num(0.0, 0.0, 0.0) * sampled.unit + _TINY
    return NOISE_FACTOR * torch.maximum(noise.level, larger) / samples.forth
