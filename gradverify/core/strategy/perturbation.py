"""Perturb slices of an input and record which outputs change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import torch
from torch import Tensor

from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import any_set

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


Slice = tuple[TensorPart, int, int]  # one slice of an input: its part, the dimension, and the index along it


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChange:
    """Which part of one output changes when a slice is perturbed."""

    changed: bool  # True if anything changes
    ranges: tuple[Range | None, ...]  # per dimension of the output; None if nothing changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """The forward with slices perturbed, and the changes recorded so far."""

    sampled: Sampler
    displaced: Tensor  # (n,) the value of each coordinate when its slice is perturbed
    outputs: tuple[TensorPart, ...]
    known: dict[Slice, tuple[OutputChange, ...]] = field(default_factory=dict)  # one per output


def changes_of(
    perturbation: Perturbation, source: TensorPart, dimension: int, slices: Sequence[int]
) -> dict[int, tuple[OutputChange, ...]]:
    """Return what changes in every output when slices of an input dimension are perturbed, by their index."""
    slices_of_input = [(source, dimension, k) for k in slices]
    perturb_slices(perturbation, [place for place in slices_of_input if place not in perturbation.known])
    return {place[2]: perturbation.known[place] for place in slices_of_input}


def perturb_slices(perturbation: Perturbation, places: Sequence[Slice]) -> None:
    """Perturb slices, as many in one call as `_AT_ONCE` allows, and record the changes."""
    size = max(1, _AT_ONCE // _width(perturbation.sampled))
    for first in range(0, len(places), size):
        batch = places[first : first + size]
        for place, changes in zip(batch, _changes(perturbation, _changed(perturbation, batch)), strict=True):
            perturbation.known[place] = changes


def fit_one_call(perturbation: Perturbation, places: Sequence[Slice]) -> bool:
    """True if all of these slices go through one call."""
    return bool(perturbation.sampled.vectorisation.ways) and len(places) * _width(perturbation.sampled) <= _AT_ONCE


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[TensorPart, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(TensorPart(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)


def _width(sampled: Sampler) -> int:
    return sampled.point.numel() + sampled.value.numel()


def _changed(perturbation: Perturbation, places: Sequence[Slice]) -> Tensor:
    """Mask of outputs that change when each of the slices is perturbed, (S, m)."""
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
    return changed.logical_and_((torch.isnan(values) & undefined).logical_not_()) if any_set(undefined) else changed


def _changes(perturbation: Perturbation, changed: Tensor) -> list[tuple[OutputChange, ...]]:
    """Return for each slice what changes in every output, from the mask (S, m)."""
    columns = [_of_output(changed[:, output.coordinates], output) for output in perturbation.outputs]
    return [*zip(*columns, strict=True)] if columns else [()] * len(changed)


def _of_output(changed: Tensor, output: TensorPart) -> list[OutputChange]:
    """Return for each slice what changes in one output, from the mask (S, entries)."""
    if not changed.numel():
        nothing = OutputChange(changed=False, ranges=(None,) * len(output.shape))
        return [nothing] * len(changed)
    flags = changed.view(torch.uint8)
    shaped, ends = flags.view(len(changed), *output.shape), [flags.amax(dim=1).long()]
    for axis, size in enumerate(output.shape, start=1):
        others = [other for other in range(1, shaped.dim()) if other != axis]
        along_axis = shaped.amax(dim=others) if others else shaped
        ends += [along_axis.argmax(dim=1), size - 1 - along_axis.flip(1).argmax(dim=1)]
    return [
        OutputChange(changed=bool(changed), ranges=tuple(zip(spans[::2], spans[1::2], strict=True)))
        if changed
        else OutputChange(changed=False, ranges=(None,) * len(output.shape))
        for changed, *spans in torch.stack(ends, dim=1).tolist()
    ]
