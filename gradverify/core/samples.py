"""The forward on both sides of the point, and the difference quotients that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.moves import Kind, Moves, members, owned
from gradverify.core.noise import Noise
from gradverify.core.sampler import Sampler, representable
from gradverify.core.together import evaluate

NOISE_FACTOR = 1.5  # by how much extrapolation amplifies the noise of a difference
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
    factors = steps.factors.tolist()
    values = sampled.value.new_empty(2, len(chosen), len(factors), sampled.value.numel())
    lengths: tuple[list[Tensor], ...] = ([], [])
    for number, factor in enumerate(factors):
        for side, sign in enumerate((1, -1)):
            moved = representable(sampled, inside, torch.add(start, base, alpha=sign * factor))
            lengths[side].append(_lengths(moves, chosen, inside, (moved - start).mul_(sign)))
            if moves.direct:
                points = moved.unsqueeze(0)
            else:
                points = sampled.point.repeat(len(chosen), 1)
                points[place, inside] = moved
            evaluate(sampled, points, values[side, :, number])
    forth, back = (torch.stack(each, dim=1) for each in lengths)
    return Samples(moves=chosen, forth=forth, back=back, plus=values[0], minus=values[1])


def _lengths(moves: Moves, chosen: Tensor, inside: Tensor, lengths: Tensor) -> Tensor:
    """Return the step of the coordinate that owns each entry, (C, 1) or (C, m), from those of the moved ones (k,)."""
    if moves.kind is Kind.SINGLE:
        return lengths.unsqueeze(1)
    if moves.direct:
        return lengths.unsqueeze(0)
    every = torch.zeros(len(moves.colour), dtype=lengths.dtype, device=lengths.device)
    every[inside] = lengths
    return owned(moves, chosen, every)


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
