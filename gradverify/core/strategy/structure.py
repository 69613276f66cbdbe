"""The structure of a sparse Jacobian: columns that share no output get one colour and are perturbed together.

The windows of `sparsity` give how far apart input indices must be to change no common output (Curtis, Powell & Reid, J.
Inst. Math. Appl. 13, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.estimate.column_groups import ColumnGroups, GroupKind, elementwise_groups, groups_by_input
from gradverify.core.forward.length_scales import LengthScales
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import total
from gradverify.core.model.magnitudes import all_set
from gradverify.core.model.memory import FEW_INPUTS, LARGEST
from gradverify.core.strategy.sparsity import (
    InputOutputPattern,
    TensorPart,
    Window,
    input_parts,
    output_parts,
    patterns_by_input,
    period_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """A hypothesis: which columns can be perturbed together, and the sparsity pattern of each output by each input."""

    column_groups: ColumnGroups
    patterns: tuple[InputOutputPattern, ...]


def find_structure(sampled: Sampler, lengths: LengthScales, seed: int, most_groups: float) -> Structure | None:
    """Return a structure of at most `most_groups` column groups, or None; costs a forward per slice tried."""
    coordinates = sampled.point.numel()
    if coordinates < FEW_INPUTS or not sampled.value.numel():
        return None
    all_links: list[InputOutputPattern] = []
    colours, columns, count = [], [], 0
    for source, links in patterns_by_input(sampled, lengths, seed):
        periods = _periods(source, links)
        count += math.prod(periods)
        if count > most_groups or count * sampled.value.numel() > LARGEST:
            return None
        colours.append(colours_of(source, periods) + count - math.prod(periods))
        columns.append(_columns_of_colours(source, periods, links, sampled.value.numel()))
        all_links += links
    device = sampled.point.device
    colour, column_of = torch.cat(colours).to(device), torch.cat(columns).to(device)
    column_groups = ColumnGroups(
        kind=GroupKind.SHARED, colour=colour, column_of=column_of, complete=all_set(column_of >= 0)
    )
    if len(column_of) == 1 and torch.equal(column_of[0], torch.arange(coordinates, device=device)):
        column_groups = elementwise_groups(coordinates, device)
    return Structure(column_groups=column_groups, patterns=tuple(all_links))


def elementwise_structure(sampled: Sampler) -> Structure:
    """Return the structure of an elementwise function of inputs of one shape."""
    sources, (target,) = input_parts(sampled), output_parts(sampled)
    indices = [torch.arange(size) for size in target.shape]
    windows = tuple(Window(dimension=k, first=index, last=index) for k, index in enumerate(indices))
    return Structure(
        column_groups=groups_by_input(len(sources), len(sampled.value), sampled.point.device),
        patterns=tuple(
            InputOutputPattern(source=source, target=target, windows=windows, changed=True) for source in sources
        ),
    )


def colours_of(source: TensorPart, periods: Sequence[int]) -> Tensor:
    """Return the colour of every coordinate of the part, from 0; `periods` has one per dimension."""
    if all(period == 1 for period in periods):
        return torch.zeros((), dtype=torch.long).expand(total(source.shape))
    colour = torch.zeros(source.shape, dtype=torch.long)
    for dimension, (size, period) in enumerate(zip(source.shape, periods, strict=True)):
        if period > 1:
            shape = [1] * len(source.shape)
            shape[dimension] = size
            colour = colour * period + (torch.arange(size) % period).view(shape)
    return colour.reshape(-1)


def _periods(source: TensorPart, links: Sequence[InputOutputPattern]) -> list[int]:
    """Return for every input dimension the smallest period that holds for all outputs."""
    found = []
    for dimension, size in enumerate(source.shape):
        windows = [link.windows[dimension] for link in links if link.changed]
        found.append(max((size if window is None else period_of(window) for window in windows), default=1))
    return found


def _columns_of_colours(
    source: TensorPart, periods: Sequence[int], links: Sequence[InputOutputPattern], outputs: int
) -> Tensor:
    """Return for every colour of the part and every output the column of the entry, -1 for none; (colours, m)."""
    column_of = torch.full((math.prod(periods), outputs), -1, dtype=torch.long)
    for link in links:
        if link.changed:
            column_of[:, link.target.coordinates] = _columns_of_output(source, periods, link)
    return column_of


def _columns_of_output(source: TensorPart, periods: Sequence[int], link: InputOutputPattern) -> Tensor:
    """Return the columns of one output part, added up over the input dimensions; -1 for none; (colours, entries)."""
    shape, stride = (*periods, *link.target.shape), total(source.shape)
    column_of = torch.full([1] * len(shape), source.start)
    has_column = torch.ones_like(column_of, dtype=torch.bool)
    for dimension, (length, period, window) in enumerate(zip(source.shape, periods, link.windows, strict=True)):
        stride //= length
        along = [1] * len(shape)
        along[dimension] = period
        if window is None:
            slices = torch.arange(period).view(along)
        else:
            place = len(periods) + window.dimension
            along[place] = shape[place]
            slices = _slices_by_colour(window, period, shape[place]).view(along)
        column_of = column_of + slices * stride
        has_column = has_column & (slices >= 0)
    return torch.where(has_column, column_of, -1).expand(shape).reshape(math.prod(periods), -1)


def _slices_by_colour(window: Window, period: int, length: int) -> Tensor:
    """Return the slice of each colour that changes each index of the output, -1 for none; (period, length)."""
    table = torch.full((period, length), -1)
    index = torch.arange(len(window.first))
    for offset in range(int((window.last - window.first).max()) + 1):
        inside = window.first + offset <= window.last
        table[index[inside] % period, window.first[inside] + offset] = index[inside]
    return table
