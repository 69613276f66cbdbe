"""Which slices of an output depend on a slice of an input: detected by perturbation, dimension by dimension.

Along every dimension of an input, each slice (in long dimensions, a sample of them) is perturbed by random amounts, and
the range of indices that change is recorded along every dimension of every output. The result is a hypothesis: it is
verified afterwards with random directions, and dropped if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import torch
from torch import Generator, Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.magnitudes import any_set

_WHOLE = 48  # length of a dimension up to which every slice is tried, if no output dimension is as long
_SHORT = 8  # length of a dimension up to which every slice is tried in any case
_FEW = 2  # slices tried at the beginning and, in longer dimensions, at random; if the first ones change all, no others
_FURTHER = 20  # further slices tried, at most, if these change nothing
NUDGE = 2.0**-8  # of the length scale: size of the displacement
_AT_ONCE = 1 << 19  # numbers in the points and outputs of one call, up to which slices share it
Range = tuple[int, int]  # first and last index that changed


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPart:
    """One real tensor among the inputs or outputs: its first coordinate and its shape, complex parts last."""

    start: int
    shape: tuple[int, ...]

    @property
    def coordinates(self) -> slice:
        """The coordinates of the part in the flat vector."""
        return slice(self.start, self.start + torch.Size(self.shape).numel())


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Slice k of an input dimension changes only indices first[k] … last[k] of one output dimension."""

    dimension: int  # of the output
    first: Tensor  # (size of the input dimension,)
    last: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """How one input part influences one output part, as far as it was perturbed."""

    changed: bool  # True if anything changed
    windows: tuple[tuple[Window, ...], ...]  # per input dimension, one for each output dimension that it confines


def influences(
    sampled: Sampler,
    lengths: LengthScales,
    sources: Sequence[TensorPart],
    outputs: Sequence[TensorPart],
    generator: Generator,
) -> Iterator[tuple[Influence, ...]]:
    """Yield for every source its influence on every output; costs a forward per slice tried, or one for all of them."""
    displaced = sampled.point + random_magnitudes(lengths.step * NUDGE, generator)
    at_once = _AT_ONCE // (len(sampled.point) + len(sampled.value))
    perturbation = _Perturbation(sampled=sampled, displaced=displaced, outputs=tuple(outputs), at_once=at_once)
    tried = [[_slices(size, outputs, generator) for size in source.shape] for source in sources]
    all_slices = [
        (source, dimension, k)
        for source, of_source in zip(sources, tried, strict=True)
        for dimension, slices in enumerate(of_source)
        for k in slices
    ]
    if sampled.vectorisation.ways and len(all_slices) <= at_once:
        _perturb_slices(perturbation, all_slices)
    for source, slices in zip(sources, tried, strict=True):
        yield _reach_of(perturbation, source, slices, generator)


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[TensorPart, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(TensorPart(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)


_Slice = tuple[TensorPart, int, int]  # one slice of an input: its part, the dimension, and the index along it


@dataclass(frozen=True, slots=True, kw_only=True)
class _OutputChange:
    """Which part of one output changes when a slice is perturbed."""

    changed: bool  # True if anything changes
    ranges: tuple[Range | None, ...]  # per dimension of the output; None if nothing changes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Perturbation:
    """The forward with slices perturbed, and the changes recorded so far."""

    sampled: Sampler
    displaced: Tensor  # (n,) the value of each coordinate when its slice is perturbed
    outputs: tuple[TensorPart, ...]
    at_once: int  # slices that share one call; below 1 if even one is large
    known: dict[_Slice, tuple[_OutputChange, ...]] = field(default_factory=dict)  # one per output


def _reach_of(
    perturbation: _Perturbation, source: TensorPart, tried: Sequence[list[int]], generator: Generator
) -> tuple[Influence, ...]:
    """Return the influence of one source on every output."""
    confined: list[list[tuple[Window, ...]]] = [[] for _ in perturbation.outputs]
    has_influence = [not source.shape] * len(perturbation.outputs)
    for dimension, (size, slices) in enumerate(zip(source.shape, tried, strict=True)):
        found = _changes_of(perturbation, source, dimension, slices[:_FEW])
        if not _change_everything(list(found.values()), perturbation.outputs):
            found |= _changes_of(perturbation, source, dimension, slices[_FEW:])
        if not _any_changed(found):
            for k in _further_slices(size, slices, generator):
                found |= _changes_of(perturbation, source, dimension, [k])
                if _any_changed(found):
                    break
        for number, output in enumerate(perturbation.outputs):
            of_output = {k: seen[number] for k, seen in found.items()}
            confined[number].append(_windows(of_output, size, output))
            has_influence[number] |= any(seen.changed for seen in of_output.values())
    return tuple(
        Influence(changed=changed, windows=tuple(windows))
        for changed, windows in zip(has_influence, confined, strict=True)
    )


def _changes_of(
    perturbation: _Perturbation, source: TensorPart, dimension: int, slices: Sequence[int]
) -> dict[int, tuple[_OutputChange, ...]]:
    """Return what changes in every output when slices of an input dimension are perturbed, by their index."""
    slices_of_input = [(source, dimension, k) for k in slices]
    _perturb_slices(perturbation, [place for place in slices_of_input if place not in perturbation.known])
    return {place[2]: perturbation.known[place] for place in slices_of_input}


def _perturb_slices(perturbation: _Perturbation, places: Sequence[_Slice]) -> None:
    """Perturb slices, as many in one call as `_AT_ONCE` allows, and record the changes."""
    size = max(1, perturbation.at_once)
    for first in range(0, len(places), size):
        batch = places[first : first + size]
        for place, changes in zip(batch, _changes(perturbation, batch), strict=True):
            perturbation.known[place] = changes


def _changes(perturbation: _Perturbation, places: Sequence[_Slice]) -> Iterator[tuple[_OutputChange, ...]]:
    """Return for each slice what changes in every output when it is perturbed."""
    value, point = perturbation.sampled.value, perturbation.sampled.point
    points = point.repeat(len(places), 1)
    start = 0
    for (source, dimension), group in groupby(places, key=itemgetter(0, 1)):
        slices = torch.tensor([k for _, _, k in group], device=point.device).view(-1, *[1] * len(source.shape))
        at_point, displaced = (
            vector[source.coordinates].view(source.shape) for vector in (point, perturbation.displaced)
        )
        along = torch.arange(source.shape[dimension], device=point.device)
        mask = along.view(-1, *[1] * (len(source.shape) - 1 - dimension)) == slices
        points[start : start + len(slices), source.coordinates] = torch.where(mask, displaced, at_point).flatten(1)
        start += len(slices)
    values = value.new_empty(len(places), len(value))
    evaluate(perturbation.sampled, points, values)
    changed, undefined = values != value, torch.isnan(value)
    if any_set(undefined):
        changed.logical_and_((torch.isnan(values) & undefined).logical_not_())
    return zip(*(_of_output(changed[:, output.coordinates], output) for output in perturbation.outputs), strict=True)


def _of_output(changed: Tensor, output: TensorPart) -> list[_OutputChange]:
    """Return for each slice what changes in one output, from the mask (S, entries)."""
    flags = changed.view(torch.uint8)
    shaped, ends = flags.view(len(changed), *output.shape), [flags.amax(dim=1).long()]
    for axis, size in enumerate(output.shape, start=1):
        others = [other for other in range(1, shaped.dim()) if other != axis]
        along_axis = shaped.amax(dim=others) if others else shaped
        ends += [along_axis.argmax(dim=1), size - 1 - along_axis.flip(1).argmax(dim=1)]
    nothing = _OutputChange(changed=False, ranges=(None,) * len(output.shape))
    return [
        _OutputChange(changed=True, ranges=tuple(zip(spans[::2], spans[1::2], strict=True))) if changed else nothing
        for changed, *spans in torch.stack(ends, dim=1).tolist()
    ]


def _slices(size: int, outputs: Sequence[TensorPart], generator: Generator) -> list[int]:
    """Return the slices of a dimension of this size that are tried: all of a short one, else a sample."""
    if size <= (_SHORT if any(size in output.shape for output in outputs) else _WHOLE):
        return list(range(size))
    inner = torch.randint(2, size - 2, (_FEW,), generator=generator).tolist()
    return sorted({0, 1, *inner, size - 1})


def _further_slices(size: int, known: Sequence[int], generator: Generator) -> list[int]:
    """Return further slices to try if the first ones changed nothing, as happens for a ReLU."""
    if len(known) == size:
        return []
    return [k for k in torch.randperm(size, generator=generator)[:_FURTHER].tolist() if k not in known]


def _any_changed(found: dict[int, tuple[_OutputChange, ...]]) -> bool:
    return any(part.changed for seen in found.values() for part in seen)


def _change_everything(found: Sequence[Sequence[_OutputChange]], outputs: Sequence[TensorPart]) -> bool:
    """True if every slice changed the first and the last index of every dimension of every output."""
    return all(
        span == (0, size - 1)
        for seen in found
        for part, output in zip(seen, outputs, strict=True)
        for span, size in zip(part.ranges, output.shape, strict=True)
        if size > 1
    )


def _windows(found: dict[int, _OutputChange], size: int, output: TensorPart) -> tuple[Window, ...]:
    """Return the windows of one input dimension on one output, from the changes by some of its slices."""
    windows = []
    for dimension, length in enumerate(output.shape):
        ranges = {k: span for k, seen in found.items() if (span := seen.ranges[dimension]) is not None}
        windows.append(_window(ranges, size, dimension, length))
    return tuple(window for window in windows if window is not None)


def _window(ranges: dict[int, Range], size: int, dimension: int, length: int) -> Window | None:
    """Return the window along one output dimension; None if nothing changed or every slice changed all of it."""
    if not ranges or all(high - low + 1 >= length for low, high in ranges.values()):
        return None
    if len(ranges) == size:
        first, last = torch.tensor([ranges[k] for k in range(size)]).unbind(dim=1)
        return Window(dimension=dimension, first=first, last=last)
    before = max(k - low for k, (low, _) in ranges.items())
    after = max(high - k for k, (_, high) in ranges.items())
    index = torch.arange(size)
    first, last = (index - before).clamp(0, length - 1), (index + after).clamp(0, length - 1)
    return Window(dimension=dimension, first=first, last=last)
