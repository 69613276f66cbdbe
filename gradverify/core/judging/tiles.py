"""Moves and outputs gone through in tiles: as many entries at a time as stay in a cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from gradverify.core.function import sampler
from gradverify.core.function.noise import Noise
from gradverify.core.function.portion import portion
from gradverify.core.function.sampler import Sampler
from gradverify.core.judging.allowance import Allowance
from gradverify.core.judging.bench import Bench, of_moves, part_of
from gradverify.core.numeric.samples import Samples
from gradverify.core.numeric.walk import Walk, samples_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Some of the moves walked as some of the outputs see them."""

    sampled: Sampler  # looks at these outputs, as the noise does
    noise: Noise
    claimed: Tensor  # (C, m)
    allowance: Allowance
    walk: Walk  # of these moves and outputs, and more
    rows: slice
    outputs: slice

    @property
    def samples(self) -> Samples:
        """The samples of these moves and outputs."""
        return samples_of(self.sampled, self.walk, self.rows, self.outputs)


def claims_on(at: Bench, walk: Walk) -> Tensor:
    """Return what is claimed of the moves walked, (C, m)."""
    return at.claimed if len(walk.chosen) == at.moves.count else at.claimed[walk.chosen]


def tiles(at: Bench, walk: Walk) -> Iterator[Tile]:
    """Yield all entries of the moves walked."""
    claimed, allowance = claims_on(at, walk), of_moves(at.allowance, walk.chosen)
    moves, width = claimed.shape
    wide = min(max(1, width), portion(claimed))
    high = max(1, portion(claimed) // wide)
    for left in range(0, width, wide):
        outputs = slice(left, min(width, left + wide))
        sampled, noise = _looking_at(at, outputs)
        for top in range(0, moves, high):
            rows = slice(top, min(moves, top + high))
            yield Tile(
                sampled=sampled,
                noise=noise,
                claimed=claimed[rows, outputs],
                allowance=part_of(allowance, rows, outputs),
                walk=walk,
                rows=rows,
                outputs=outputs,
            )


def narrowed(tile: Tile, rows: Tensor, outputs: Tensor) -> Tile:
    """Return a tile of some of its moves and some of its outputs, given by their numbers in it."""
    walk, every = tile.walk, slice(None)
    own = walk.spot[tile.rows][rows]
    return Tile(
        sampled=sampler.focused(tile.sampled, outputs),
        noise=tile.noise.of(outputs),
        claimed=tile.claimed[rows][:, outputs],
        allowance=part_of(part_of(tile.allowance, rows, every), every, outputs),
        walk=Walk(
            chosen=walk.chosen[tile.rows][rows],
            steps=walk.steps,
            lengths=walk.lengths,
            spot=own if own.shape[1] == 1 else own[:, tile.outputs][:, outputs],
            values=walk.values[:, tile.rows, tile.outputs][:, rows][:, :, outputs],
        ),
        rows=every,
        outputs=every,
    )


def _looking_at(at: Bench, outputs: slice) -> tuple[Sampler, Noise]:
    """Return the forward and its noise for some of the outputs."""
    if outputs == slice(0, at.sampled.value.numel()):
        return at.sampled, at.noise
    return sampler.focused(at.sampled, outputs), at.noise.of(outputs)
