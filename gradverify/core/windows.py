"""Which slices of an output move when a slice of an input does: found by experiment, dimension by dimension.

For every dimension of an input, one slice after the other (or, in long dimensions, a sample of them) is displaced by
random amounts, and along every dimension of every output the range of indices that moved is noted. What comes of it is
a hypothesis and nothing more: it is verified afterwards with random directions, and dropped where it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.chance import scattered
from gradverify.core.sampler import Sampler, along
from gradverify.core.scale import Scales

_WHOLE = 48  # dimensions up to this long are tried slice by slice, if no output dimension is of the same length
_FIRST = 2  # slices tried before all others: where these move outputs from end to end, no other will be confined
_SHORT = 8  # dimensions up to this long in any case
_SAMPLED = 2  # slices tried of longer ones, besides the first two and the last
_FURTHER = 20  # further slices tried, at most, where those have moved nothing
_NUDGE = 2.0**-8  # size of the displacement, relative to the length scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One real tensor among the inputs or outputs: its first coordinate and its shape, complex parts last."""

    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Slice k of an input dimension moves only indices first[k] … last[k] of one output dimension."""

    dimension: int  # of the output
    first: Tensor  # (size of the input dimension,)
    last: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What one input part was seen to move of one output part."""

    moved: bool  # whether anything moved at all
    windows: tuple[tuple[Window, ...], ...]  # per input dimension, one for each output dimension that it confines


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[Part, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(Part(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)


def reaches(
    sampled: Sampler, lengths: Scales, source: Part, outputs: Sequence[Part], generator: torch.Generator
) -> list[Reach]:
    """Return for every output what `source` moves of it; costs a forward per slice tried."""
    confined: list[list[tuple[Window, ...]]] = [[] for _ in outputs]
    moved = [False] * len(outputs)
    for dimension, size in enumerate(source.shape):
        alike = any(size in output.shape for output in outputs)
        slices = _slices(size, _SHORT if alike else _WHOLE, generator)
        flags = [_moved(sampled, lengths, source, dimension, k, generator) for k in slices[:_FIRST]]
        if not _everywhere(flags, outputs):
            flags += [_moved(sampled, lengths, source, dimension, k, generator) for k in slices[_FIRST:]]
        slices = slices[: len(flags)]
        for k in _more(size, slices, generator):
            if any(bool(flag.any()) for flag in flags):
                break
            slices.append(k)
            flags.append(_moved(sampled, lengths, source, dimension, k, generator))
        for number, output in enumerate(outputs):
            masks = [flag[output.start : output.start + _count(output)].reshape(output.shape) for flag in flags]
            confined[number].append(_confined(masks, slices, size))
            moved[number] |= any(bool(mask.any()) for mask in masks)
    if not source.shape:
        moved = [True] * len(outputs)
    return [Reach(moved=hit, windows=tuple(found)) for hit, found in zip(moved, confined, strict=True)]


def _everywhere(flags: Sequence[Tensor], outputs: Sequence[Part]) -> bool:
    """Tell whether every slice moved the first and the last index of every dimension of every output."""
    masks = [
        flag[output.start : output.start + _count(output)].reshape(output.shape) for flag in flags for output in outputs
    ]
    return all(
        bool(mask.select(axis, end).any())
        for mask in masks
        for axis, size in enumerate(mask.shape)
        if size > 1
        for end in (0, -1)
    )


def _slices(size: int, whole: int, generator: torch.Generator) -> list[int]:
    if size <= whole:
        return list(range(size))
    inner = torch.randint(2, size - 2, (_SAMPLED,), generator=generator).tolist()
    return sorted({0, 1, *inner, size - 1})


def _more(size: int, known: Sequence[int], generator: torch.Generator) -> list[int]:
    """Return slices to try where the first ones moved nothing, as those of a ReLU may."""
    if len(known) == size:
        return []
    return [k for k in torch.randperm(size, generator=generator)[:_FURTHER].tolist() if k not in known]


def _moved(
    sampled: Sampler, lengths: Scales, source: Part, dimension: int, k: int, generator: torch.Generator
) -> Tensor:
    """Return which outputs change when slice k is displaced, (m,) bool."""
    device = sampled.point.device
    inside = torch.zeros(source.shape, dtype=torch.bool, device=device)
    inside.select(dimension, k).fill_(True)
    size = inside.numel()
    displacement = torch.zeros_like(sampled.point)
    place = slice(source.start, source.start + size)
    displacement[place] = scattered(inside.reshape(-1) * lengths.step[place] * _NUDGE, generator)
    there = along(sampled, displacement)
    return (there != sampled.value) & ~(torch.isnan(there) & torch.isnan(sampled.value))


def _count(part: Part) -> int:
    return torch.Size(part.shape).numel()


def _confined(masks: Sequence[Tensor], slices: Sequence[int], size: int) -> tuple[Window, ...]:
    shape = masks[0].shape if masks else ()
    found = [_window(masks, slices, size, dimension, length) for dimension, length in enumerate(shape)]
    return tuple(window for window in found if window is not None)


def _window(masks: Sequence[Tensor], slices: Sequence[int], size: int, dimension: int, length: int) -> Window | None:
    """Return the window along one output dimension, None where nothing is confined or nothing moved at all."""
    ranges = {}
    for k, mask in zip(slices, masks, strict=True):
        others = [axis for axis in range(mask.dim()) if axis != dimension]
        hit = (mask.any(dim=others) if others else mask).nonzero()
        if len(hit):
            ranges[k] = (int(hit.min()), int(hit.max()))
    if not ranges or all(high - low + 1 >= length for low, high in ranges.values()):
        return None
    if len(ranges) == size:
        first, last = zip(*(ranges[k] for k in range(size)), strict=True)
        return Window(dimension=dimension, first=torch.tensor(first), last=torch.tensor(last))
    before = max(k - low for k, (low, _) in ranges.items())
    after = max(high - k for k, (_, high) in ranges.items())
    every = torch.arange(size)
    return Window(
        dimension=dimension,
        first=(every - before).clamp(0, length - 1),
        last=(every + after).clamp(0, length - 1),
    )
