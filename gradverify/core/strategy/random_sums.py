"""Random sums over the entries of the Jacobian, of all of it and of its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from gradverify.core.backward.vjps import Backward, row
from gradverify.core.estimate.directional import slope
from gradverify.core.estimate.richardson import DEPTH
from gradverify.core.estimate.samples import BAR_FACTOR, NOISE_FACTOR, Estimate
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.noise import Noise
from gradverify.core.forward.sampler import Sampler, magnitudes
from gradverify.core.model.coordinates import Block
from gradverify.core.model.generators import scattered
from gradverify.core.model.magnitudes import all_set, any_set

_COTANGENTS = 2  # of each of the two kinds: the outputs by their tensor's scale, and each by its own
_TANGENTS = 2  # moving every input by its own scale; one more moves them such that they matter alike
FIRST = 2.0**-6  # first step along a direction, relative to the length scale: far off, where noise hardly counts
CLOSER = (2.0**-14, 2.0**-26, 2.0**-34)  # those tried where the function bends too much, or has kinks, on the way
_FAINT = 1e-4  # of the largest output change of a tensor: smaller ones are not weighted up further
_ROUNDING, _ULP = 1e-12, 4 * torch.finfo(torch.float64).eps  # what summing up in backward may leave
_VANISHED = 0.1  # of an error at larger steps is left of it: kinks on the way were the cause
_SMALL = 1e-3  # of a sum: what rounding may leave in one that is close
_SHARP = 1e-8  # a bar below this part of the sum is good enough to do without closer steps
_MOST = 24  # moves of single inputs, if there are no more inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The forward and backward, with K cotangents and what backward says to each."""

    sampled: Sampler
    noise: Noise
    lengths: LengthScales
    backward: Backward
    rtol: float
    cotangents: Tensor  # (K, m)
    answers: Tensor  # (K, n)
    left_out: Tensor  # (m,) bool: outputs that are not finite around the point, which no cotangent weighs


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What differences and backward say of each cotangent along one direction, each (K,)."""

    error: Tensor  # numeric - claimed
    bar: Tensor
    allowed: Tensor  # by the bars, and by rounding in backward
    rounded: Tensor  # by rounding of the outputs alone, where nothing else is heard
    size: Tensor  # of the sum's terms
    rtol: float  # the part of it that is tolerated besides
    first: float  # the first step that did best

    @property
    def tolerable(self) -> bool:
        """Whether all sums come out right but for what is tolerated and rounding."""
        return all_set(self.error.abs() <= self.allowed + self.rtol * self.size)

    @property
    def close(self) -> bool:
        """Whether all do, however wide the bars, but for what is tolerated and what the outputs are rounded by."""
        return all_set(self.error.abs() <= self.tolerated) and all_set(self.rounded <= _SMALL * self.size)

    @property
    def tolerated(self) -> Tensor:
        """What sums that are close may be off by, (K,)."""
        return self.rtol * self.size + self.rounded


def probe(
    sampled: Sampler, noise: Noise, lengths: LengthScales, backward: Backward, rtol: float, generator: Generator
) -> tuple[Probe, list[Tensor], list[Gap]]:
    """Return the cotangents with backward's answers, the directions to go in, each (n,), and what was seen along them.

    Costs 6 forwards for each of 3 directions, where steps of the first size do, and 4 vjps.
    """
    directions = [scattered(lengths.step, generator) for _ in range(_TANGENTS)]
    slopes = [slope(sampled, noise, direction, FIRST) for direction in directions]
    values = torch.stack([found.value for found in slopes])
    finite = torch.isfinite(values).all(dim=0) & torch.isfinite(sampled.value)
    kinds = weights(sampled, values)
    cotangents = torch.stack([scattered(weight, generator) for weight in kinds for _ in range(_COTANGENTS)])
    ready = Probe(
        sampled=sampled,
        noise=noise,
        lengths=lengths,
        backward=backward,
        rtol=rtol,
        cotangents=cotangents,
        answers=torch.stack([row(backward, cotangent) for cotangent in cotangents]),
        left_out=~finite,
    )
    gaps = [gap(ready, direction, known) for direction, known in zip(directions, slopes, strict=True)]
    even = scattered(levelled(lengths.step, ready.answers), generator)
    return ready, [*directions, even], [*gaps, gap(ready, even)]


def weights(sampled: Sampler, changes: Tensor) -> tuple[Tensor, Tensor]:
    """Return how cotangents weigh outputs that change like this, (L, m): by their tensor's scale, and each by its own.

    Outputs that are not finite are not weighed.
    """
    finite = torch.isfinite(changes).all(dim=0) & torch.isfinite(sampled.value)
    change = changes.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=0)
    tensor_wide = magnitudes(sampled, change)
    own = torch.maximum(change, _FAINT * tensor_wide)
    wide, each = (torch.where(size > 0, 1 / size, 1.0) * finite for size in (tensor_wide, own))
    return wide, each


def gap(asked: Probe, direction: Tensor, known: Estimate | None = None) -> Gap:
    """Compare both sides along a direction; costs 6 forwards, and 6 more for each size of step that will not do.

    `known` are the slopes along it from steps of the first size, if they are known.
    """
    found = gap_at(asked, direction, FIRST, known)
    sharp = _SHARP * found.size
    for first in CLOSER:
        if all_set((found.error.abs() <= found.allowed) & (found.bar <= sharp)):
            break
        closer = gap_at(asked, direction, first)
        # However wide the bars: so many sums do not come out right by accident, and a wrong entry stays wrong.
        vanishes = closer.close and float(closer.error.abs().max()) <= _VANISHED * float(found.error.abs().max())
        found = closer if vanishes or float(closer.bar.sum()) < float(found.bar.sum()) else found
    return found


def gap_at(asked: Probe, direction: Tensor, first: float, known: Estimate | None = None) -> Gap:
    """Compare both sides along a direction with steps of one size; costs 6 forwards if the slopes are not `known`."""
    known = slope(asked.sampled, asked.noise, direction, first) if known is None else known
    terms = asked.answers * direction
    error, bar = _against(asked, known, terms.sum(dim=1))
    size = terms.square().sum(dim=1).sqrt()
    allowed = BAR_FACTOR * bar + _ROUNDING * size + _ULP * terms.abs().sum(dim=1)
    rounding = (asked.cotangents * asked.noise.rounding).square().sum(dim=1).sqrt()
    rounded = rounding * (BAR_FACTOR * NOISE_FACTOR * 2.0 ** (DEPTH - 1) / first)
    return Gap(error=error, bar=bar, allowed=allowed, rounded=rounded, size=size, rtol=asked.rtol, first=first)


def wide(found: Gap) -> bool:
    """Tell whether the two sides differ by more than rounding."""
    return any_set(~(found.error.abs() <= found.allowed))


def ratio(found: Gap) -> float:
    """Return how far the gap exceeds what is allowed."""
    return float((found.error.abs() / found.allowed.clamp(min=torch.finfo(torch.float64).tiny)).nan_to_num(1e300).max())


def levelled(lengths: Tensor, answers: Tensor) -> Tensor:
    """Return moves under which inputs of great influence weigh no more than one of middling influence."""
    influence = answers.abs().amax(dim=0) * lengths
    known = influence[influence > 0]
    if not known.numel():
        return lengths
    return lengths * (known.median() / influence.clamp(min=torch.finfo(torch.float64).tiny)).clamp(max=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some outputs by some inputs, usually one of each, whose sums differ."""

    outputs: tuple[Block, ...]
    inputs: tuple[Block, ...]
    asked: Probe  # its cotangents are zero for other outputs
    directions: list[Tensor]  # each (n,), zero for other inputs
    gaps: list[Gap]  # along these directions


def divided(asked: Probe, directions: list[Tensor], gaps: list[Gap]) -> list[Share]:
    """Return the blocks whose sums differ, the largest gap first; costs 6 forwards per input and direction.

    All blocks stay together if there is one, none differs by itself, or the sums are within what is tolerated.
    """
    off = sorted((each for each in zip(gaps, directions, strict=True) if wide(each[0])), key=_ratio, reverse=True)
    outputs, inputs = asked.sampled.outputs, asked.sampled.inputs
    whole = Share(outputs=outputs, inputs=inputs, asked=asked, directions=directions, gaps=gaps)
    if len(outputs) == len(inputs) == 1 or all(found.tolerable for found in gaps):
        return [whole] if off else []
    found = [share for share in _shares(asked, off[: max(1, _MOST // len(inputs))]) if any(map(wide, share.gaps))]
    return sorted(found, key=lambda share: max(map(ratio, share.gaps)), reverse=True) or [whole]


def _against(asked: Probe, found: Estimate, claimed: Tensor) -> tuple[Tensor, Tensor]:
    """Return by how much the sums differ from what is claimed, and the error bar of that, each (K,)."""
    value = torch.where(asked.left_out, 0.0, found.value)
    bars = torch.where(asked.left_out, 0.0, found.bar)
    # The signs are random, so that what the outputs are off by adds up like a random walk.
    bar = (asked.cotangents * bars).square().sum(dim=1).sqrt()
    error = asked.cotangents @ value - claimed
    return error, torch.where(torch.isfinite(error), bar, torch.inf)


def _ratio(found: tuple[Gap, Tensor]) -> float:
    return ratio(found[0])


def _shares(asked: Probe, off: Sequence[tuple[Gap, Tensor]]) -> Iterator[Share]:
    outputs = asked.sampled.outputs
    probes = [asked] if len(outputs) == 1 else [_of(asked, output) for output in outputs]
    for wrt in asked.sampled.inputs:
        moves = [(found.first, _within(direction, wrt)) for found, direction in off]
        slopes = [slope(asked.sampled, asked.noise, direction, first) for first, direction in moves]
        for of, probe in zip(outputs, probes, strict=True):
            gaps = [
                gap_at(probe, direction, first, known) for (first, direction), known in zip(moves, slopes, strict=True)
            ]
            mine = [direction.clone() for _, direction in moves]
            yield Share(outputs=(of,), inputs=(wrt,), asked=probe, directions=mine, gaps=gaps)


def _of(asked: Probe, output: Block) -> Probe:
    """Return the probe with cotangents for one output alone."""
    cotangents = _within(asked.cotangents, output)
    answers = torch.stack([row(asked.backward, cotangent) for cotangent in cotangents])
    others = _within(torch.ones_like(asked.left_out), output).logical_not_()
    return replace(asked, cotangents=cotangents, answers=answers, left_out=asked.left_out | others)


def _within(values: Tensor, block: Block) -> Tensor:
    """Return the values with zeros outside of a block, along the last dimension."""
    found = torch.zeros_like(values)
    found[..., block.coordinates] = values[..., block.coordinates]
    return found
