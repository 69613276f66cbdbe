"""What moves are judged with, put together once, and the part of it that some moves and outputs need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor

from gradverify.case import Settings
from gradverify.core.function import sampler
from gradverify.core.function.lasting import lasting
from gradverify.core.function.noise import Noise, moves_finely
from gradverify.core.function.sampler import Sampler, magnitudes
from gradverify.core.function.scale import Scales
from gradverify.core.judging.allowance import Allowance, entry_scale, relative_tolerance, resolution_scale
from gradverify.core.numeric.moves import Moves, of_outputs

_LEAST = 8.0  # times the smallest number of backward's dtype, which what underflows inside may leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is needed to judge columns: the sampled forward, its noise and scales, and the claimed Jacobian."""

    sampled: Sampler
    noise: Noise
    lengths: Scales
    moves: Moves
    claimed: Tensor  # (M, m): what backward claims of each output and the coordinate that owns it in each move
    allowance: Allowance
    loudest: Callable[[], Tensor]  # () -> (m,), of many outputs at once: see `lasting`
    finely: Callable[[], Tensor]  # () -> (m,) bool, likewise: see `noise.moves_finely`

    @property
    def width(self) -> int:
        """How many numbers a move takes: those of a point, and of the outputs looked at there."""
        return self.sampled.value.numel() + self.sampled.point.numel()


def bench(sampled: Sampler, noise: Noise, lengths: Scales, moves: Moves, claimed: Tensor, settings: Settings) -> Bench:
    """Put together what every move is judged with; `claimed` is (M, m)."""
    size = size_of(claimed)
    largest = magnitudes(sampled, size.amax(dim=0)) if len(claimed) else sampled.value
    return Bench(
        sampled=sampled,
        noise=noise,
        lengths=lengths,
        moves=moves,
        claimed=claimed,
        allowance=allowance_of(sampled, lengths.step, moves, size, largest, settings),
        loudest=cache(lambda: lasting(sampled, lengths)),
        finely=cache(lambda: moves_finely(sampled, lengths)),
    )


def allowance_of(
    sampled: Sampler, step: Tensor, moves: Moves, size: Tensor, largest: Tensor, settings: Settings
) -> Allowance:
    """Return what the tolerances leave for every entry, whose claims are of that size, (M, m).

    `step` (n,) is what steps go by, and `largest` () or (m,) the largest that is claimed of each output tensor.
    """
    return Allowance(
        rtol=relative_tolerance(settings.tolerances, sampled.dtypes),
        floor=floor_of(sampled, settings),
        beside=entry_scale(moves, size),
        scale=resolution_scale(moves, size, sampled.size, step),
        largest=largest.expand(size.shape[1]),
        order=sampled.problem.order,
        coarse=sampled.coarse,
    )


def floor_of(sampled: Sampler, settings: Settings) -> float:
    """Return the part of what is allowed that is the same for all entries."""
    return (settings.tolerances.atol or 0.0) + _LEAST * sampled.least


def size_of(claimed: Tensor) -> Tensor:
    """Return how large claims are, zero where they are no number."""
    return claimed.abs().nan_to_num_(0.0, 0.0, 0.0)


def focused(at: Bench, outputs: Tensor | slice) -> Bench:
    """Return the bench with some of the outputs only, given by their numbers."""
    if isinstance(outputs, slice) and outputs == slice(0, at.sampled.value.numel()):
        return at
    moves = of_outputs(at.moves, outputs)
    allowance = part_of(at.allowance, slice(None), outputs)
    sampled, claimed = sampler.focused(at.sampled, outputs), at.claimed[:, outputs]
    return replace(
        at,
        sampled=sampled,
        noise=at.noise.of(outputs),
        moves=moves,
        claimed=claimed,
        allowance=allowance,
        loudest=lambda: at.loudest()[outputs],
        finely=lambda: at.finely()[outputs],
    )


def of_moves(allowance: Allowance, chosen: Tensor) -> Allowance:
    """Return the allowance of some of the moves, which are in order."""
    if len(chosen) == len(allowance.beside):
        return allowance
    return part_of(allowance, chosen, slice(None))


def part_of(allowance: Allowance, moves: Tensor | slice, outputs: Tensor | slice) -> Allowance:
    """Return the allowance of some of the moves and some of the outputs, one of which is a slice."""
    return Allowance(
        rtol=allowance.rtol,
        floor=allowance.floor,
        beside=allowance.beside[moves, outputs],
        scale=allowance.scale[moves, outputs],
        largest=allowance.largest[outputs],
        order=allowance.order,
        coarse=allowance.coarse,
    )
