"""Which slices of an output move when a slice of an input does: found by experiment, dimension by dimension.

For every dimension of an input, one slice after the other (or, in long dimensions, a sample of them) is displaced by
random amounts, and along every dimension of every output the range of indices that moved is noted. What comes of it is
a hypothesis and nothing more: it is verified afterwards with random directions, and dropped where it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import torch
from torch import Generator, Tensor

from gradverify.core.function.chance import scattered
from gradverify.core.function.flags import any_set
from gradverify.core.function.sampler import Sampler
from gradverify.core.function.scale import Scales
from gradverify.core.function.together import evaluate

_WHOLE = 48  # dimensions up to this long are tried slice by slice, if no output dimension is of the same length
_FIRST = 2  # slices tried before all others: where these move outputs from end to end, no other will be confined
_SHORT = 8  # dimensions up to this long in any case
_SAMPLED = 2  # slices tried of longer ones, besides the first two and the last
_FURTHER = 20  # further slices tried, at most, where those have moved nothing
_NUDGE = 2.0**-8  # size of the displacement, relative to the length scale
_AT_ONCE = 1 << 19  # numbers in one call: up to so many, all slices of all inputs go through it


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One real tensor among the inputs or outputs: its first coordinate and its shape, complex parts last."""

    start: int
    shape: tuple[int, ...]

    @property
    def place(self) -> slice:
        """The part's coordinates."""
        return slice(self.start, self.start + torch.Size(self.shape).numel())


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


_Range = tuple[int, int]  # first and last index that moved
_Slice = tuple[Part, int, int]  # of an input: the part, the dimension and the index along it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a slice moved of one output."""

    moved: bool
    ranges: tuple[_Range | None, ...]  # per dimension of the output; None where nothing moved


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """The forward with slices displaced, and what that has moved so far."""

    sampled: Sampler
    nudge: Tensor  # (n,) by how much each coordinate is displaced, in whatever slice
    outputs: tuple[Part, ...]
    known: dict[_Slice, tuple[_Seen, ...]] = field(default_factory=dict)  # one per output


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[Part, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(Part(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)


def reaches(
    sampled: Sampler, lengths: Scales, sources: Sequence[Part], outputs: Sequence[Part], generator: Generator
) -> Iterator[tuple[Reach, ...]]:
    """Yield for every source what it moves of every output; costs a forward per slice tried, or one for all of them."""
    nudge = scattered(lengths.step * _NUDGE, generator)
    watch = _Watch(sampled=sampled, nudge=nudge, outputs=tuple(outputs))
    tried = [_tried(source, outputs, generator) for source in sources]
    every = [place for source, slices in zip(sources, tried, strict=True) for place in _places(source, slices)]
    if sampled.together.ways and len(every) * _width(sampled) <= _AT_ONCE:
        _look(watch, every)
    for source, slices in zip(sources, tried, strict=True):
        yield _reaches(watch, source, slices, generator)


def _reaches(watch: _Watch, source: Part, tried: Sequence[list[int]], generator: Generator) -> tuple[Reach, ...]:
    confined: list[list[tuple[Window, ...]]] = [[] for _ in watch.outputs]
    moved = [not source.shape] * len(watch.outputs)
    for dimension, (size, slices) in enumerate(zip(source.shape, tried, strict=True)):
        found = _seen(watch, source, dimension, slices[:_FIRST])
        if not _everywhere(list(found.values()), watch.outputs):
            found |= _seen(watch, source, dimension, slices[_FIRST:])
        if not _any_moved(found):
            for k in _more(size, slices, generator):
                found |= _seen(watch, source, dimension, [k])
                if _any_moved(found):
                    break
        for number, output in enumerate(watch.outputs):
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


def _places(source: Part, tried: Sequence[list[int]]) -> list[_Slice]:
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


def _any_moved(found: dict[int, tuple[_Seen, ...]]) -> bool:
    return any(part.moved for seen in found.values() for part in seen)


def _everywhere(found: Sequence[Sequence[_Seen]], outputs: Sequence[Part]) -> bool:
    """Tell whether every slice moved the first and the last index of every dimension of every output."""
    return all(
        span == (0, size - 1)
        for seen in found
        for part, output in zip(seen, outputs, strict=True)
        for span, size in zip(part.ranges, output.shape, strict=True)
        if size > 1
    )


def _seen(watch: _Watch, source: Part, dimension: int, slices: Sequence[int]) -> dict[int, tuple[_Seen, ...]]:
    """Return what these slices of an input dimension move, by their index."""
    every = [(source, dimension, k) for k in slices]
    _look(watch, [place for place in every if place not in watch.known])
    return {place[2]: watch.known[place] for place in every}


def _look(watch: _Watch, places: Sequence[_Slice]) -> None:
    """Displace slices, as many in one call as are small, and note what moved."""
    size = max(1, _AT_ONCE // _width(watch.sampled))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        for place, seen in zip(some, _looked(watch, _moved(watch, some)), strict=True):
            watch.known[place] = seen


def _width(sampled: Sampler) -> int:
    return sampled.point.numel() + sampled.value.numel()


def _moved(watch: _Watch, places: Sequence[_Slice]) -> Tensor:
    """Return which outputs change when each of the slices is displaced, (S, m) bool."""
    value = watch.sampled.value
    points = watch.sampled.point.repeat(len(places), 1)
    start = 0
    for (source, dimension), some in groupby(places, key=itemgetter(0, 1)):
        slices = [k for _, _, k in some]
        own = points[start : start + len(slices), source.place].view(len(slices), *source.shape)
        slabs = watch.nudge[source.place].view(source.shape).unbind(dimension)
        for mine, k in zip(own.unbind(), slices, strict=True):
            mine.select(dimension, k).add_(slabs[k])
        start += len(slices)
    there = value.new_empty(len(places), len(value))
    evaluate(watch.sampled, points, there)
    changed, undefined = there != value, torch.isnan(value)
    return changed.logical_and_((torch.isnan(there) & undefined).logical_not_()) if any_set(undefined) else changed


def _looked(watch: _Watch, moved: Tensor) -> list[tuple[_Seen, ...]]:
    """Return what each of the slices (S, m) moved of every output."""
    columns = [_of_output(moved[:, output.place], output) for output in watch.outputs]
    return [*zip(*columns, strict=True)] if columns else [()] * len(moved)


def _of_output(moved: Tensor, output: Part) -> list[_Seen]:
    """Return what each slice moved of one output, from flags (S, entries)."""
    if not moved.numel():
        nothing = _Seen(moved=False, ranges=(None,) * len(output.shape))
        return [nothing] * len(moved)
    flags = moved.view(torch.uint8)
    shaped, ends = flags.view(len(moved), *output.shape), [flags.amax(dim=1).long()]
    for axis, size in enumerate(output.shape, start=1):
        others = [other for other in range(1, shaped.dim()) if other != axis]
        hit = shaped.amax(dim=others) if others else shaped
        ends += [hit.argmax(dim=1), size - 1 - hit.flip(1).argmax(dim=1)]
    return [
        _Seen(moved=bool(any_), ranges=tuple(zip(spans[::2], spans[1::2], strict=True)))
        if any_
        else _Seen(moved=False, ranges=(None,) * len(output.shape))
        for any_, *spans in torch.stack(ends, dim=1).tolist()
    ]


def _confined(found: dict[int, _Seen], size: int, output: Part) -> tuple[Window, ...]:
    windows = []
    for dimension, length in enumerate(output.shape):
        spans = {k: seen.ranges[dimension] for k, seen in found.items()}
        ranges = {k: span for k, span in spans.items() if span is not None}
        windows.append(_window(ranges, size, dimension, length))
    return tuple(window for window in windows if window is not None)


def _window(ranges: dict[int, _Range], size: int, dimension: int, length: int) -> Window | None:
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
