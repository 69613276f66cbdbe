"""Which slices of an output depend on a slice of an input: detected by perturbation, dimension by dimension.

Along every dimension of an input, each slice (in long dimensions, a sample of them) is perturbed by random amounts, and
the range of indices that change is recorded along every dimension of every output. The result is a hypothesis: it is
verified afterwards with random directions, and dropped if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.strategy.perturbation import (
    OutputChange,
    Perturbation,
    Range,
    Slice,
    TensorPart,
    changes_of,
    fit_one_call,
    perturb_slices,
)

_WHOLE = 48  # length of a dimension up to which every slice is tried, if no output dimension is as long
_FIRST = 2  # slices tried first: if these change all outputs from end to end, no other will be confined
_SHORT = 8  # length of a dimension up to which every slice is tried in any case
_SAMPLED = 2  # slices tried in longer dimensions, besides the first two and the last
_FURTHER = 20  # further slices tried, at most, if these change nothing
_NUDGE = 2.0**-8  # of the length scale: size of the displacement


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
    displaced = sampled.point + random_magnitudes(lengths.step * _NUDGE, generator)
    perturbation = Perturbation(sampled=sampled, displaced=displaced, outputs=tuple(outputs))
    tried = [_slices_of(source, outputs, generator) for source in sources]
    all_slices = [place for source, slices in zip(sources, tried, strict=True) for place in _places(source, slices)]
    if fit_one_call(perturbation, all_slices):
        perturb_slices(perturbation, all_slices)
    for source, slices in zip(sources, tried, strict=True):
        yield _reach_of(perturbation, source, slices, generator)


def _reach_of(
    perturbation: Perturbation, source: TensorPart, tried: Sequence[list[int]], generator: Generator
) -> tuple[Influence, ...]:
    """Return the influence of one source on every output."""
    confined: list[list[tuple[Window, ...]]] = [[] for _ in perturbation.outputs]
    has_influence = [not source.shape] * len(perturbation.outputs)
    for dimension, (size, slices) in enumerate(zip(source.shape, tried, strict=True)):
        found = changes_of(perturbation, source, dimension, slices[:_FIRST])
        if not _change_everything(list(found.values()), perturbation.outputs):
            found |= changes_of(perturbation, source, dimension, slices[_FIRST:])
        if not _any_changed(found):
            for k in _further_slices(size, slices, generator):
                found |= changes_of(perturbation, source, dimension, [k])
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


def _slices_of(source: TensorPart, outputs: Sequence[TensorPart], generator: Generator) -> list[list[int]]:
    """Return for every dimension of an input the slices that are tried."""
    return [
        _slices(size, _SHORT if any(size in output.shape for output in outputs) else _WHOLE, generator)
        for size in source.shape
    ]


def _places(source: TensorPart, tried: Sequence[list[int]]) -> list[Slice]:
    return [(source, dimension, k) for dimension, slices in enumerate(tried) for k in slices]


def _slices(size: int, whole: int, generator: Generator) -> list[int]:
    """Return the slices of a dimension that are tried: all up to a length of `whole`, else a sample."""
    if size <= whole:
        return list(range(size))
    inner = torch.randint(2, size - 2, (_SAMPLED,), generator=generator).tolist()
    return sorted({0, 1, *inner, size - 1})


def _further_slices(size: int, known: Sequence[int], generator: Generator) -> list[int]:
    """Return further slices to try if the first ones changed nothing, as happens for a ReLU."""
    if len(known) == size:
        return []
    return [k for k in torch.randperm(size, generator=generator)[:_FURTHER].tolist() if k not in known]


def _any_changed(found: dict[int, tuple[OutputChange, ...]]) -> bool:
    return any(part.changed for seen in found.values() for part in seen)


def _change_everything(found: Sequence[Sequence[OutputChange]], outputs: Sequence[TensorPart]) -> bool:
    """True if every slice changed the first and the last index of every dimension of every output."""
    return all(
        span == (0, size - 1)
        for seen in found
        for part, output in zip(seen, outputs, strict=True)
        for span, size in zip(part.ranges, output.shape, strict=True)
        if size > 1
    )


def _windows(found: dict[int, OutputChange], size: int, output: TensorPart) -> tuple[Window, ...]:
    """Return the windows of one input dimension on one output, from the changes by some of its slices."""
    windows = []
    for dimension, length in enumerate(output.shape):
        spans = {k: seen.ranges[dimension] for k, seen in found.items()}
        ranges = {k: span for k, span in spans.items() if span is not None}
        windows.append(_window(ranges, size, dimension, length))
    return tuple(window for window in windows if window is not None)


def _window(ranges: dict[int, Range], size: int, dimension: int, length: int) -> Window | None:
    """Return the window along one output dimension; None if nothing changed or every slice changed all of it."""
    if not ranges or all(high - low + 1 >= length for low, high in ranges.values()):
        return None
    if len(ranges) == size:
        first, last = zip(*(ranges[k] for k in range(size)), strict=True)
        return Window(dimension=dimension, first=torch.tensor(first), last=torch.tensor(last))
    before = max(k - low for k, (low, _) in ranges.items())
    after = max(high - k for k, (_, high) in ranges.items())
    index = torch.arange(size)
    return Window(
        dimension=dimension,
        first=(index - before).clamp(0, length - 1),
        last=(index + after).clamp(0, length - 1),
    )
