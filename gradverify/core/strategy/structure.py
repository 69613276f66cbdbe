"""Columns that share no output: which inputs may be moved together, and whose each output's change is then.

From the windows of `windows`, input indices far enough apart to move no common output get one colour (Curtis, Powell &
Reid, J. Inst. Math. Appl. 13, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.column_groups import ColumnGroups, GroupKind, elementwise_groups, groups_by_input
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.memory import FEW
from gradverify.core.strategy.perturbation import Part, parts
from gradverify.core.strategy.sparsity import Reach, Window, reaches

_WORTH = 0.7  # colouring is worth it when it leaves at most this part of the columns
_LONGEST = 64  # periods tried
_MOST = 50_000_000  # entries that are written down


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOutputPattern:
    """How one input part reaches one output part."""

    source: Part
    target: Part
    windows: tuple[Window | None, ...]  # per input dimension; None where it reaches every index
    moved: bool  # whether any output moved at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A hypothesis: which coordinates may be moved together, and how each input reaches each output."""

    column_groups: ColumnGroups
    links: tuple[InputOutputPattern, ...]


def find_structure(sampled: Sampler, lengths: LengthScales, seed: int, most: int | None = None) -> Structure | None:
    """Return a structure that saves work, or None; costs a forward per slice of every input dimension.

    `most` is how many moves it may need, None for as many as are less than one per coordinate.
    """
    coordinates = sampled.point.numel()
    worth = _WORTH * coordinates if most is None else most
    if coordinates < FEW or not sampled.value.numel():
        return None
    linked: list[InputOutputPattern] = []
    colours, owners, count = [], [], 0
    for source, mine in links_by_input(sampled, lengths, seed):
        periods = _periods(source, mine)
        count += math.prod(periods)
        if count > worth or count * sampled.value.numel() > _MOST:
            return None
        colours.append(colours_of(source, periods) + count - math.prod(periods))
        owners.append(_owners(source, periods, mine, sampled.value.numel()))
        linked += mine
    device = sampled.point.device
    colour, column_of = torch.cat(colours).to(device), torch.cat(owners).to(device)
    column_groups = ColumnGroups(
        kind=GroupKind.SHARED, colour=colour, column_of=column_of, full=all_set(column_of >= 0)
    )
    if len(column_of) == 1 and torch.equal(column_of[0], torch.arange(coordinates, device=device)):
        column_groups = elementwise_groups(coordinates, device)
    return Structure(column_groups=column_groups, links=tuple(linked))


def links_by_input(
    sampled: Sampler, lengths: LengthScales, seed: int
) -> Iterator[tuple[Part, list[InputOutputPattern]]]:
    """Yield how each input reaches every output, as far as some of its slices tell; those without entries left out."""
    sources, targets = _input_parts(sampled), _output_parts(sampled)
    found = reaches(sampled, lengths, sources, targets, torch.Generator().manual_seed(seed))
    for source, reached in zip(sources, found, strict=True):
        yield source, [_link(source, target, reach) for target, reach in zip(targets, reached, strict=True)]


def entry_by_entry(sampled: Sampler) -> Structure:
    """Return the structure of tensors of one shape, where every output has one entry of each input to itself."""
    sources, (target,) = _input_parts(sampled), _output_parts(sampled)
    every = [torch.arange(size) for size in target.shape]
    windows = tuple(Window(dimension=k, first=mine, last=mine) for k, mine in enumerate(every))
    return Structure(
        column_groups=groups_by_input(len(sources), len(sampled.value), sampled.point.device),
        links=tuple(
            InputOutputPattern(source=source, target=target, windows=windows, moved=True) for source in sources
        ),
    )


def confined_dimensions(structure: Structure) -> list[tuple[Part, int]]:
    """Return every input part with the number of each dimension whose slices reach some output apart."""
    found = {
        (link.source.start, dimension): (link.source, dimension)
        for link in structure.links
        for dimension, window in enumerate(link.windows)
        if window is not None
    }
    return list(found.values())


def _link(source: Part, target: Part, reach: Reach) -> InputOutputPattern:
    """Give every input dimension the output dimension that confines it best, each one used once."""
    taken: set[int] = set()
    chosen: list[Window | None] = []
    for size, candidates in zip(source.shape, reach.windows, strict=True):
        free = [window for window in candidates if window.dimension not in taken]
        best = min(free, key=_period, default=None)
        useful = best is not None and (_period(best) < size or size == 1)
        chosen.append(best if useful else None)
        if best is not None and useful:
            taken.add(best.dimension)
    return InputOutputPattern(source=source, target=target, windows=tuple(chosen), moved=reach.moved)


def _period(window: Window) -> int:
    """Return how far apart two slices must be to move no common index."""
    size = len(window.first)
    lasts = window.last.cummax(dim=0).values
    for period in range(1, min(size, _LONGEST)):
        if all_set(lasts[: size - period] < window.first[period:]):
            return period
    return size


def _periods(source: Part, links: Sequence[InputOutputPattern]) -> list[int]:
    """Return for every input dimension the period that suits all outputs."""
    found = []
    for dimension, size in enumerate(source.shape):
        mine = [link.windows[dimension] for link in links if link.moved]
        found.append(max((size if window is None else _period(window) for window in mine), default=1))
    return found


def colours_of(source: Part, periods: Sequence[int]) -> Tensor:
    """Return the colour of every coordinate of the part, counted from zero."""
    if all(period == 1 for period in periods):
        return torch.zeros((), dtype=torch.long).expand(torch.Size(source.shape).numel())
    colour = torch.zeros(source.shape, dtype=torch.long)
    for dimension, (size, period) in enumerate(zip(source.shape, periods, strict=True)):
        if period > 1:
            shape = [1] * len(source.shape)
            shape[dimension] = size
            colour = colour * period + (torch.arange(size) % period).view(shape)
    return colour.reshape(-1)


def _owners(source: Part, periods: Sequence[int], links: Sequence[InputOutputPattern], outputs: int) -> Tensor:
    """Return for every colour of the part and every output the coordinate that owns it, -1 for none; (colours, m)."""
    grids = torch.meshgrid(*[torch.arange(period) for period in periods], indexing="ij") if periods else ()
    residues = torch.stack([grid.reshape(-1) for grid in grids], dim=1) if grids else torch.zeros(1, 0).long()
    if len(links) == 1 and links[0].moved:
        return _owner_of(source, periods, residues, links[0])
    column_of = torch.full((math.prod(periods), outputs), -1, dtype=torch.long)
    for link in links:
        if link.moved:
            column_of[:, link.target.place] = _owner_of(source, periods, residues, link)
    return column_of


def _owner_of(source: Part, periods: Sequence[int], residues: Tensor, link: InputOutputPattern) -> Tensor:
    """Return the owners of one output: offsets along each dimension of the input, added up over those of the output."""
    colours, shape = len(residues), link.target.shape
    if colours == 1 and _is_elementwise(source, link):
        return torch.arange(source.start, source.start + torch.Size(shape).numel()).unsqueeze(0)
    column_of = torch.full((colours, *[1] * len(shape)), source.start, dtype=torch.long)
    alone = torch.ones_like(column_of, dtype=torch.bool)
    stride = torch.Size(source.shape).numel()
    for dimension, (length, period) in enumerate(zip(source.shape, periods, strict=True)):
        stride //= length
        window = link.windows[dimension]
        along = [1] * len(shape)
        if window is None:
            column_of = column_of + (residues[:, dimension] * stride).view(colours, *along)
            continue
        along[window.dimension] = shape[window.dimension]
        found = _table(window, period, shape[window.dimension])[residues[:, dimension]].view(colours, *along)
        column_of = column_of + found * stride
        alone = alone & (found >= 0)
    column_of = column_of.expand(colours, *shape)
    if not all_set(alone):
        column_of = torch.where(alone.expand(colours, *shape), column_of, -1)
    return column_of.reshape(colours, -1)


def _is_elementwise(source: Part, link: InputOutputPattern) -> bool:
    """Tell whether every coordinate moves the output of its own place and no other."""
    return source.shape == link.target.shape and all(
        window is not None and window.dimension == dimension and _moves_its_own(window)
        for dimension, window in enumerate(link.windows)
    )


def _moves_its_own(window: Window) -> bool:
    every = torch.arange(len(window.first))
    return torch.equal(window.first, every) and torch.equal(window.last, every)


def _table(window: Window, period: int, length: int) -> Tensor:
    """Return which slice of a residue moves each output index, -1 for none; (period, length)."""
    every = torch.arange(len(window.first))
    if period == 1 and _moves_its_own(window) and length == len(every):
        return every.unsqueeze(0)
    table = torch.full((period, length), -1, dtype=torch.long)
    for offset in range(int((window.last - window.first).max()) + 1):
        inside = window.first + offset <= window.last
        table[every[inside] % period, window.first[inside] + offset] = every[inside]
    return table


def _input_parts(sampled: Sampler) -> tuple[Part, ...]:
    tensors = [primal.tensor for primal in sampled.problem.primals if primal.tensor.numel()]  # nothing moves nothing
    return parts([tuple(tensor.shape) for tensor in tensors], [tensor.is_complex() for tensor in tensors])


def _output_parts(sampled: Sampler) -> tuple[Part, ...]:
    complexes = {block.tensor: block.step == 2 for block in sampled.outputs}
    some = [k for k, shape in enumerate(sampled.shapes) if shape.numel()]
    return parts([tuple(sampled.shapes[k]) for k in some], [complexes[k] for k in some])
