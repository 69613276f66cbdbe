"""Which slices of an output depend on a slice of an input: detected by perturbation, dimension by dimension.

Along every dimension of an input, each slice (in long dimensions, a sample of them) is perturbed by random amounts, and
the range of indices that change is recorded along every dimension of every output. The result is a hypothesis: it is
verified afterwards with random directions, and dropped if it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Generator, Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.limits import HELD
from gradverify.core.model.magnitudes import LengthScales, all_set, any_set
from gradverify.core.tuning import EXAMINED, SEVERAL

_SHORT = 8  # length of a dimension up to which every slice is tried in any case
_FURTHER = 20  # further slices tried, at most, if these change nothing
NUDGE = 2.0**-8  # of the length scale: size of the displacement


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
class InputOutputPattern:
    """The sparsity pattern of one output part by one input part."""

    source: TensorPart
    target: TensorPart
    windows: tuple[Window | None, ...]  # per input dimension; None if its slices are not confined
    changed: bool  # True if any output changed


def patterns_by_input(
    sampled: Sampler, lengths: LengthScales, seed: int
) -> Iterator[tuple[TensorPart, list[InputOutputPattern]]]:
    """Yield every input part with its patterns for every output part, found from some slices; skips empty tensors.

    Costs a forward per slice tried, or one for all of them.
    """
    generator, sources, targets = torch.Generator().manual_seed(seed), input_parts(sampled), output_parts(sampled)
    displaced = sampled.point + random_magnitudes(lengths.step * NUDGE, generator)
    perturbation = _Perturbation(sampled=sampled, displaced=displaced, targets=targets, changes={})
    tried = {
        (source, dimension): _slices(size, targets, generator)
        for source in sources
        for dimension, size in enumerate(source.shape)
    }
    if sampled.vectorisation.ways and sum(map(len, tried.values())) <= _slices_per_call(sampled):
        _perturb(perturbation, tried)
    for source in sources:
        own = {axis: slices for axis, slices in tried.items() if axis[0] is source}
        _perturb(perturbation, {axis: slices[:SEVERAL] for axis, slices in own.items()})
        _perturb(perturbation, {axis: slices for axis, slices in own.items() if not _all_change(perturbation, axis)})
        unchanged = [axis for axis in own if {*chain(*perturbation.changes[axis].values())} <= {None}]
        # Further slices, where the first ones changed nothing, as happens for a ReLU.
        further = {axis: torch.randperm(axis[0].shape[axis[1]], generator=generator)[:_FURTHER] for axis in unchanged}
        _perturb(perturbation, {axis: slices.tolist() for axis, slices in further.items()})
        yield source, [_pattern(perturbation, source, number) for number in range(len(targets))]


def input_parts(sampled: Sampler) -> tuple[TensorPart, ...]:
    """Return the parts of the inputs; skips empty tensors."""
    tensors = [primal.tensor for primal in sampled.problem.primals if primal.tensor.numel()]
    return _parts([(tuple(tensor.shape), tensor.is_complex()) for tensor in tensors])


def output_parts(sampled: Sampler) -> tuple[TensorPart, ...]:
    """Return the parts of the outputs; skips empty tensors."""
    complexes = {block.tensor: block.step == 2 for block in sampled.outputs}
    return _parts([(tuple(shape), complexes[k]) for k, shape in enumerate(sampled.shapes) if shape.numel()])


def period_of(window: Window) -> int:
    """Return the distance from which on two slices change no common index."""
    size = len(window.first)
    lasts = window.last.cummax(dim=0).values
    for period in range(1, min(size, EXAMINED)):
        if all_set(lasts[: size - period] < window.first[period:]):
            return period
    return size


_Axis = tuple[TensorPart, int]  # one dimension of an input
_Ranges = tuple[tuple[int, int], ...]  # first and last index that change, for each dimension of an output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Perturbation:
    """The forward with slices perturbed, and the changes recorded so far."""

    sampled: Sampler
    displaced: Tensor  # (n,) the value of each coordinate when its slice is perturbed
    targets: tuple[TensorPart, ...]
    changes: dict[_Axis, dict[int, tuple[_Ranges | None, ...]]]  # by axis and slice: in every output, None for nothing


def _parts(tensors: Sequence[tuple[tuple[int, ...], bool]]) -> tuple[TensorPart, ...]:
    """Return where tensors, given by shape and whether they are complex, lie in a flat vector of real coordinates."""
    found, start = [], 0
    for shape, is_complex in tensors:
        found.append(TensorPart(start=start, shape=(*shape, 2) if is_complex else shape))
        start = found[-1].coordinates.stop
    return tuple(found)


def _slices_per_call(sampled: Sampler) -> int:
    """Return how many slices share a call; 0 if even one is large."""
    return HELD // (len(sampled.point) + len(sampled.value))


def _perturb(perturbation: _Perturbation, slices: Mapping[_Axis, Sequence[int]]) -> None:
    """Perturb the slices that have not been, as many in one call as `HELD` allows, and record the changes."""
    known, size = perturbation.changes, max(1, _slices_per_call(perturbation.sampled))
    places = [(axis, k) for axis, indices in slices.items() for k in indices if k not in known.setdefault(axis, {})]
    for first in range(0, len(places), size):
        batch = places[first : first + size]
        for (axis, k), changes in zip(batch, _changes(perturbation, batch), strict=True):
            known[axis][k] = changes


def _changes(perturbation: _Perturbation, places: Sequence[tuple[_Axis, int]]) -> Iterator[tuple[_Ranges | None, ...]]:
    """Yield for each slice what changes in every output when it is perturbed."""
    value, point = perturbation.sampled.value, perturbation.sampled.point
    points = point.repeat(len(places), 1)
    for own_point, ((source, dimension), k) in zip(points, places, strict=True):
        moving, displaced = (
            vector[source.coordinates].view(source.shape).select(dimension, k)
            for vector in (own_point, perturbation.displaced)
        )
        moving.copy_(displaced)
    values = value.new_empty(len(places), len(value))
    evaluate(perturbation.sampled, points, values)
    changed, undefined = values != value, torch.isnan(value)
    if any_set(undefined):
        changed.logical_and_((torch.isnan(values) & undefined).logical_not_())
    return zip(*(_ranges(changed[:, target.coordinates], target) for target in perturbation.targets), strict=True)


def _ranges(changed: Tensor, target: TensorPart) -> list[_Ranges | None]:
    """Return for each slice the ranges that change in one output, from the mask (S, entries)."""
    flags = changed.view(torch.uint8)
    shaped, ends = flags.view(len(changed), *target.shape), [flags.amax(dim=1).long()]
    for axis, size in enumerate(target.shape, start=1):
        others = [other for other in range(1, shaped.dim()) if other != axis]
        along_axis = shaped.amax(dim=others) if others else shaped
        ends += [along_axis.argmax(dim=1), size - 1 - along_axis.flip(1).argmax(dim=1)]
    return [
        tuple(zip(spans[::2], spans[1::2], strict=True)) if changed else None
        for changed, *spans in torch.stack(ends, dim=1).tolist()
    ]


def _slices(size: int, targets: Sequence[TensorPart], generator: Generator) -> list[int]:
    """Return the slices of a dimension of this size that are tried: all of a short one, else a sample."""
    if size <= (_SHORT if any(size in target.shape for target in targets) else EXAMINED):
        return list(range(size))
    inner = torch.randint(2, size - 2, (SEVERAL,), generator=generator).tolist()
    return sorted({0, 1, *inner, size - 1})


def _all_change(perturbation: _Perturbation, axis: _Axis) -> bool:
    """True if every slice changed the first and the last index of every dimension of every output."""
    whole = tuple(tuple((0, size - 1) for size in target.shape) for target in perturbation.targets)
    return all(found == whole for found in perturbation.changes[axis].values())


def _pattern(perturbation: _Perturbation, source: TensorPart, number: int) -> InputOutputPattern:
    """Return the pattern of one output, with the best window for every input dimension.

    Each dimension of the output is used once.
    """
    target, changed = perturbation.targets[number], not source.shape
    chosen: list[Window | None] = []
    for dimension, size in enumerate(source.shape):
        by_slice = {k: found[number] for k, found in perturbation.changes[source, dimension].items()}
        ranges = {k: found for k, found in by_slice.items() if found is not None}
        taken = {window.dimension for window in chosen if window is not None}
        windows = [
            _window({k: found[axis] for k, found in ranges.items()}, size, axis, length)
            for axis, length in enumerate(target.shape)
            if axis not in taken
        ]
        best = min((window for window in windows if window is not None), key=period_of, default=None)
        chosen.append(best if best is not None and (period_of(best) < size or size == 1) else None)
        changed |= bool(ranges)
    return InputOutputPattern(source=source, target=target, windows=tuple(chosen), changed=changed)


def _window(ranges: dict[int, tuple[int, int]], size: int, dimension: int, length: int) -> Window | None:
    """Return the window along one output dimension; None if nothing changed or every slice changed all of it."""
    if not ranges or all(high - low + 1 >= length for low, high in ranges.values()):
        return None
    index = torch.arange(size)
    if len(ranges) == size:
        first, last = torch.tensor([ranges[k] for k in range(size)]).unbind(dim=1)
    else:
        first = (index - max(k - low for k, (low, _) in ranges.items())).clamp(0, length - 1)
        last = (index + max(high - k for k, (_, high) in ranges.items())).clamp(0, length - 1)
    return Window(dimension=dimension, first=first, last=last)
