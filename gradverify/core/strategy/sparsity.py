"""Which slices of an output move when a slice of an input does: found by experiment, dimension by dimension.

For every dimension of an input, one slice after the other (or, in long dimensions, a sample of them) is displaced by
random amounts, and along every dimension of every output the range of indices that moved is noted. What comes of it is
a hypothesis and nothing more: it is verified afterwards with random directions, and dropped where it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.generators import scattered
from gradverify.core.strategy.perturbation import Part, Perturbation, Range, Seen, Slice, are_few, look, seen_of

_WHOLE = 48  # dimensions up to this long are tried slice by slice, if no output dimension is of the same length
_FIRST = 2  # slices tried before all others: where these move outputs from end to end, no other will be confined
_SHORT = 8  # dimensions up to this long in any case
_SAMPLED = 2  # slices tried of longer ones, besides the first two and the last
_FURTHER = 20  # further slices tried, at most, where those have moved nothing
_NUDGE = 2.0**-8  # size of the displacement, relative to the length scale


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


def reaches(
    sampled: Sampler, lengths: LengthScales, sources: Sequence[Part], outputs: Sequence[Part], generator: Generator
) -> Iterator[tuple[Reach, ...]]:
    """Yield for every source what it moves of every output; costs a forward per slice tried, or one for all of them."""
    displaced = sampled.point + scattered(lengths.step * _NUDGE, generator)
    perturbation = Perturbation(sampled=sampled, displaced=displaced, outputs=tuple(outputs))
    tried = [_tried(source, outputs, generator) for source in sources]
    every = [place for source, slices in zip(sources, tried, strict=True) for place in _places(source, slices)]
    if are_few(perturbation, every):
        look(perturbation, every)
    for source, slices in zip(sources, tried, strict=True):
        yield _reaches(perturbation, source, slices, generator)


def _reaches(
    perturbation: Perturbation, source: Part, tried: Sequence[list[int]], generator: Generator
) -> tuple[Reach, ...]:
    confined: list[list[tuple[Window, ...]]] = [[] for _ in perturbation.outputs]
    moved = [not source.shape] * len(perturbation.outputs)
    for dimension, (size, slices) in enumerate(zip(source.shape, tried, strict=True)):
        found = seen_of(perturbation, source, dimension, slices[:_FIRST])
        if not _everywhere(list(found.values()), perturbation.outputs):
            found |= seen_of(perturbation, source, dimension, slices[_FIRST:])
        if not _any_moved(found):
            for k in _more(size, slices, generator):
                found |= seen_of(perturbation, source, dimension, [k])
                if _any_moved(found):
                    break
        for number, output in enumerate(perturbation.outputs):
            mine = {k: seen[number] for k, seen in found.items()}
            confined[number].append(_confined(mine, size, output))
            moved[number] |= any(seen.moved for seen in mine.values())
    return tuple(Reach(moved=hit, windows=tuple(own)) for hit, own in zip(moved, confined, strict=True))


def _tried(source: Part, outputs: Sequence[Part], generator: Generator) -> list[list[int]]:
    """Return for every dimension of an input which slices are tried."""
    return [
        _slices(size, _SHORT if any(size in output.shape for output in outputs) else _WHOLE, generator)
        for size in source.shape
    ]


def _places(source: Part, tried: Sequence[list[int]]) -> list[Slice]:
    return [(source, dimension, k) for dimension, slices in enumerate(tried) for k in slices]


def _slices(size: int, whole: int, generator: Generator) -> list[int]:
    if size <= whole:
        return list(range(size))
    inner = torch.randint(2, size - 2, (_SAMPLED,), generator=generator).tolist()
    return sorted({0, 1, *inner, size - 1})


def _more(size: int, known: Sequence[int], generator: Generator) -> list[int]:
    """Return slices to try where the first ones moved nothing, as those of a ReLU may."""
    if len(known) == size:
        return []
    return [k for k in torch.randperm(size, generator=generator)[:_FURTHER].tolist() if k not in known]


def _any_moved(found: dict[int, tuple[Seen, ...]]) -> bool:
    return any(part.moved for seen in found.values() for part in seen)


def _everywhere(found: Sequence[Sequence[Seen]], outputs: Sequence[Part]) -> bool:
    """Tell whether every slice moved the first and the last index of every dimension of every output."""
    return all(
        span == (0, size - 1)
        for seen in found
        for part, output in zip(seen, outputs, strict=True)
        for span, size in zip(part.ranges, output.shape, strict=True)
        if size > 1
    )


def _confined(found: dict[int, Seen], size: int, output: Part) -> tuple[Window, ...]:
    windows = []
    for dimension, length in enumerate(output.shape):
        spans = {k: seen.ranges[dimension] for k, seen in found.items()}
        ranges = {k: span for k, span in spans.items() if span is not None}
        windows.append(_window(ranges, size, dimension, length))
    return tuple(window for window in windows if window is not None)


def _window(ranges: dict[int, Range], size: int, dimension: int, length: int) -> Window | None:
    """Return the window along one output dimension, None where nothing is confined or nothing moved at all."""
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
