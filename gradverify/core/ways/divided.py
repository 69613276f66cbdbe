"""Random sums that differ, divided into blocks: one output by one input each, so that no block hides behind another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradverify.core.function.analytic import row
from gradverify.core.function.coordinates import Block
from gradverify.core.numeric.directional import slope
from gradverify.core.ways.probe import Gap, Probe, gap_at, ratio, wide

_MOST = 24  # moves of single inputs, if there are no more inputs


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
