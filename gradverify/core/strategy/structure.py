"""The structure of a sparse Jacobian: columns that are perturbed together, and rows that share a cotangent.

Columns that share no output get one colour. The windows of `sparsity` give how far apart input indices must be to
change no common output (Curtis, Powell & Reid, J. Inst. Math. Appl. 13, 1974). Outputs whose rows have no column in
common get one colour and share one cotangent (Coleman & Moré, SIAM J. Numer. Anal. 20(1), 1983): a few vjps then give
all claimed entries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import torch
from torch import Tensor

from gradverify.core.backward.vjps import EVERYTHING, Backward, jacobian, many_vjps
from gradverify.core.decide.comparison import KEPT
from gradverify.core.estimate.column_groups import ColumnGroups, groups_by_input
from gradverify.core.forward.sampler import Sampler
from gradverify.core.model.coordinates import total
from gradverify.core.model.limits import AT_ONCE, HELD, LARGEST, MIN_BATCHED
from gradverify.core.model.magnitudes import LengthScales, all_set
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
    all_patterns: list[InputOutputPattern] = []
    colours, columns, count = [], [], 0
    for source, patterns in patterns_by_input(sampled, lengths, seed):
        periods = _periods(source, patterns)
        count += math.prod(periods)
        if count > most_groups or count * sampled.value.numel() > LARGEST:
            return None
        colours.append(_colours_of(source, periods) + count - math.prod(periods))
        columns.append(_columns_of_colours(source, periods, patterns, sampled.value.numel()))
        all_patterns += patterns
    device = sampled.point.device
    colour, column_of = torch.cat(colours).to(device), torch.cat(columns).to(device)
    column_groups = ColumnGroups(group_of=colour, column_of=column_of, complete=all_set(column_of >= 0))
    return Structure(column_groups=column_groups, patterns=tuple(all_patterns))


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


def claimed_entries(backward: Backward, structure: Structure) -> Tensor | None:
    """Return the claimed entries of a structure, (M, m).

    They come from single rows if compressed vjps would be no fewer; None if there would be too many to hold.
    """
    column_of, inputs = structure.column_groups.column_of, len(structure.column_groups.group_of)
    outputs = column_of.shape[1]
    whole = _colouring([pattern for pattern in structure.patterns if pattern.changed], EVERYTHING)
    if whole.count >= outputs:
        if inputs * outputs > KEPT:
            return None
        return torch.where(column_of >= 0, jacobian(backward).T.gather(0, column_of.clamp(min=0)), 0.0)
    claimed = torch.zeros_like(column_of, dtype=torch.float64)
    for colouring in _by_input(whole, inputs):
        _write_entries(backward, structure.column_groups, colouring, claimed)
    return claimed


def _colours_of(source: TensorPart, periods: Sequence[int]) -> Tensor:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowColouring:
    """Patterns with the colours of their outputs. Outputs of one colour share a cotangent."""

    patterns: tuple[tuple[InputOutputPattern, Tensor], ...]  # with the colour of each output of the pattern's target
    count: int  # number of colours, which is the number of cotangents
    only: slice  # input coordinates that the vjps are needed for


def _colouring(patterns: Sequence[InputOutputPattern], only: slice) -> _RowColouring:
    """Return the colouring of some patterns; those to one output that have equal colours share them."""
    known: dict[tuple[int, bytes], Tensor] = {}
    coloured, count = [], 0
    for pattern in patterns:
        own = _row_colours(pattern)
        key = pattern.target.start, own.numpy().tobytes()
        if key not in known:
            known[key] = own + count
            count += int(own.max()) + 1
        coloured.append((pattern, known[key]))
    return _RowColouring(patterns=tuple(coloured), count=count, only=only)


def _by_input(whole: _RowColouring, inputs: int) -> list[_RowColouring]:
    """Return a colouring for every input, with vjps for this input only; just `whole` if that saves too little.

    `inputs` is the number of input coordinates, which is the length of a full vjp.
    """
    grouped = groupby([pattern for pattern, _ in whole.patterns], key=attrgetter("source"))
    found = [_colouring(list(own), source.coordinates) for source, own in grouped]
    fewest = min((colouring.count for colouring in found), default=0)
    shared = whole.count < sum(colouring.count for colouring in found)
    return [whole] if shared or fewest < MIN_BATCHED or whole.count * inputs < AT_ONCE else found


def _write_entries(backward: Backward, column_groups: ColumnGroups, colouring: _RowColouring, claimed: Tensor) -> None:
    """Write the entries of a colouring's patterns to `claimed` (M, m)."""
    outputs, first = column_groups.column_of.shape[1], colouring.only.start or 0
    height = max(1, HELD // (outputs + len(column_groups.group_of)))
    for start in range(0, colouring.count, height):
        cotangents = torch.zeros(min(height, colouring.count - start), outputs, dtype=torch.float64)
        covered = []  # (pattern, its outputs that have one of the next colours, those colours counted from `start`)
        for pattern, colour in colouring.patterns:
            place = ((colour >= start) & (colour < start + len(cotangents))).nonzero().squeeze(1)
            covered.append((pattern, place, colour[place] - start))
        for pattern, place, colour in covered:
            cotangents[colour, pattern.target.start + place] = 1.0
        vjps = many_vjps(backward, cotangents, colouring.only)
        for pattern, place, colour in covered:
            groups = column_groups.group_of[pattern.source.coordinates]
            rows = slice(int(groups.min()), int(groups.max()) + 1)  # column groups of one input are consecutive
            places = pattern.target.start + place.to(vjps.device)
            column_of = column_groups.column_of[rows, places]
            position = colour.to(vjps.device) * vjps.shape[1] + column_of.sub(first).clamp_(min=0)
            entries = vjps.reshape(-1).index_select(0, position.reshape(-1)).view(column_of.shape)
            claimed[rows, places] = entries.masked_fill_(column_of < 0, 0.0)


def _row_colours(pattern: InputOutputPattern) -> Tensor:
    """Return a colour for every output of the pattern, from 0; outputs of one colour depend on no common input."""
    widths = list(pattern.target.shape)
    for window in pattern.windows:
        if window is not None:
            widths[window.dimension] = int((window.last - window.first).max()) + 1
    return _colours_of(pattern.target, [max(1, width) for width in widths])


def _periods(source: TensorPart, patterns: Sequence[InputOutputPattern]) -> list[int]:
    """Return for every input dimension the smallest period that holds for all outputs."""
    found = []
    for dimension, size in enumerate(source.shape):
        windows = [pattern.windows[dimension] for pattern in patterns if pattern.changed]
        found.append(max((size if window is None else period_of(window) for window in windows), default=1))
    return found


def _columns_of_colours(
    source: TensorPart, periods: Sequence[int], patterns: Sequence[InputOutputPattern], outputs: int
) -> Tensor:
    """Return for every colour of the part and every output the column of the entry, -1 for none; (colours, m)."""
    column_of = torch.full((math.prod(periods), outputs), -1, dtype=torch.long)
    for pattern in patterns:
        if pattern.changed:
            column_of[:, pattern.target.coordinates] = _columns_of_output(source, periods, pattern)
    return column_of


def _columns_of_output(source: TensorPart, periods: Sequence[int], pattern: InputOutputPattern) -> Tensor:
    """Return the columns of one output part, added up over the input dimensions; -1 for none; (colours, entries)."""
    shape, stride = (*periods, *pattern.target.shape), total(source.shape)
    column_of = torch.full([1] * len(shape), source.start)
    has_column = torch.ones_like(column_of, dtype=torch.bool)
    for dimension, (length, period, window) in enumerate(zip(source.shape, periods, pattern.windows, strict=True)):
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
