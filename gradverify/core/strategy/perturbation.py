"""Which outputs move if slices of an input are perturbed."""

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

_AT_ONCE = 1 << 19  # numbers in one call: up to so many, all slices of all inputs go through it
Range = tuple[int, int]  # first and last index that moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One real tensor among the inputs or outputs: its first coordinate and its shape, complex parts last."""

    start: int
    shape: tuple[int, ...]

    @property
    def place(self) -> slice:
        """The part's coordinates."""
        return slice(self.start, self.start + torch.Size(self.shape).numel())


Slice = tuple[Part, int, int]  # of an input: the part, the dimension and the index along it


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a slice moved of one output."""

    moved: bool
    ranges: tuple[Range | None, ...]  # per dimension of the output; None where nothing moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Perturbation:
    """The forward with slices displaced, and what that has moved so far."""

    sampled: Sampler
    displaced: Tensor  # (n,) where each coordinate is, if the slice that it is in is displaced
    outputs: tuple[Part, ...]
    known: dict[Slice, tuple[Seen, ...]] = field(default_factory=dict)  # one per output


def seen_of(
    perturbation: Perturbation, source: Part, dimension: int, slices: Sequence[int]
) -> dict[int, tuple[Seen, ...]]:
    """Return what these slices of an input dimension move, by their index."""
    every = [(source, dimension, k) for k in slices]
    look(perturbation, [place for place in every if place not in perturbation.known])
    return {place[2]: perturbation.known[place] for place in every}


def look(perturbation: Perturbation, places: Sequence[Slice]) -> None:
    """Displace slices, as many in one call as are small, and note what moved."""
    size = max(1, _AT_ONCE // _width(perturbation.sampled))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        for place, seen in zip(some, _looked(perturbation, _moved(perturbation, some)), strict=True):
            perturbation.known[place] = seen


def are_few(perturbation: Perturbation, places: Sequence[Slice]) -> bool:
    """Tell whether all of these slices go through one call."""
    return bool(perturbation.sampled.together.ways) and len(places) * _width(perturbation.sampled) <= _AT_ONCE


def parts(shapes: Sequence[Sequence[int]], complexes: Sequence[bool]) -> tuple[Part, ...]:
    """Return where tensors of these shapes lie in a flat vector of their real coordinates."""
    found, start = [], 0
    for shape, is_complex in zip(shapes, complexes, strict=True):
        real = (*shape, 2) if is_complex else tuple(shape)
        found.append(Part(start=start, shape=real))
        start += torch.Size(real).numel()
    return tuple(found)


def _width(sampled: Sampler) -> int:
    return sampled.point.numel() + sampled.value.numel()


def _moved(perturbation: Perturbation, places: Sequence[Slice]) -> Tensor:
    """Return which outputs change when each of the slices is displaced, (S, m) bool."""
    value, point = perturbation.sampled.value, perturbation.sampled.point
    points = point.repeat(len(places), 1)
    start = 0
    for (source, dimension), some in groupby(places, key=itemgetter(0, 1)):
        slices = torch.tensor([k for _, _, k in some], device=point.device).view(-1, *[1] * len(source.shape))
        own, aside = (values[source.place].view(source.shape) for values in (point, perturbation.displaced))
        along = torch.arange(source.shape[dimension], device=point.device)
        moving = along.view(-1, *[1] * (len(source.shape) - 1 - dimension)) == slices
        points[start : start + len(slices), source.place] = torch.where(moving, aside, own).flatten(1)
        start += len(slices)
    there = value.new_empty(len(places), len(value))
    evaluate(perturbation.sampled, points, there)
    changed, undefined = there != value, torch.isnan(value)
    return changed.logical_and_((torch.isnan(there) & undefined).logical_not_()) if any_set(undefined) else changed


def _looked(perturbation: Perturbation, moved: Tensor) -> list[tuple[Seen, ...]]:
    """Return what each of the slices (S, m) moved of every output."""
    columns = [_of_output(moved[:, output.place], output) for output in perturbation.outputs]
    return [*zip(*columns, strict=True)] if columns else [()] * len(moved)


def _of_output(moved: Tensor, output: Part) -> list[Seen]:
    """Return what each slice moved of one output, from flags (S, entries)."""
    if not moved.numel():
        nothing = Seen(moved=False, ranges=(None,) * len(output.shape))
        return [nothing] * len(moved)
    flags = moved.view(torch.uint8)
    shaped, ends = flags.view(len(moved), *output.shape), [flags.amax(dim=1).long()]
    for axis, size in enumerate(output.shape, start=1):
        others = [other for other in range(1, shaped.dim()) if other != axis]
        hit = shaped.amax(dim=others) if others else shaped
        ends += [hit.argmax(dim=1), size - 1 - hit.flip(1).argmax(dim=1)]
    return [
        Seen(moved=bool(any_), ranges=tuple(zip(spans[::2], spans[1::2], strict=True)))
        if any_
        else Seen(moved=False, ranges=(None,) * len(output.shape))
        for any_, *spans in torch.stack(ends, dim=1).tolist()
    ]
