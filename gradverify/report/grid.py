"""Scattered elements of a Jacobian laid on a grid of cells that fits a screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradverify.report.headings import Axes, jacobian_axes
from gradverify.result import Element, Index


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One side of the grid: places of flattened indices, from the first element found to the last."""

    extents: tuple[int, ...]  # largest index found in each dimension, plus one
    first: int  # place of the first cell
    last: int  # place of the last element
    step: int  # places that one cell covers

    @property
    def cells(self) -> int:
        return (self.last - self.first) // self.step + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The worst element in each cell."""

    rows: Axis  # outputs, or all dimensions of one tensor but the last
    columns: Axis  # inputs, or the last dimension
    worst: dict[tuple[int, int], Element]  # by row and column; cells without an element are left out


def grid_of(elements: Sequence[Element], most_rows: int, most_columns: int, axes: Axes = jacobian_axes) -> Grid:
    """Lay the elements out on at most so many cells; at least one element is needed."""
    places = [axes(element) for element in elements]
    rows = _axis([row for row, _ in places], most_rows)
    columns = _axis([column for _, column in places], most_columns)
    worst: dict[tuple[int, int], Element] = {}
    for element, (row, column) in zip(elements, places, strict=True):
        cell = _cell(rows, row), _cell(columns, column)
        if cell not in worst or _size(element) > _size(worst[cell]):
            worst[cell] = element
    return Grid(rows=rows, columns=columns, worst=worst)


def index_at(axis: Axis, cell: int) -> Index:
    """Return the index of the first place that a cell covers."""
    return unflattened(min(axis.first + cell * axis.step, axis.last), axis.extents)


def unflattened(place: int, extents: Sequence[int]) -> Index:
    """Return the index at a place in row-major order."""
    index: list[int] = []
    for extent in reversed(extents):
        place, rest = divmod(place, extent)
        index.append(rest)
    return tuple(reversed(index))


def flattened(index: Index, extents: Sequence[int]) -> int:
    """Return the place of an index in row-major order."""
    place = 0
    for entry, extent in zip(index, extents, strict=False):
        place = place * extent + entry
    return place


def _axis(indices: Iterable[Index], most: int) -> Axis:
    found = list(indices)
    dimensions = max(map(len, found))
    # A report may have been written by hand, and hold an index below zero.
    extents = tuple(max(1, *(index[d] + 1 for index in found if d < len(index))) for d in range(dimensions))
    places = [flattened(index, extents) for index in found]
    first, last = min(places), max(places)
    return Axis(extents=extents, first=first, last=last, step=(last - first) // max(most, 1) + 1)


def _cell(axis: Axis, index: Index) -> int:
    return (flattened(index, axis.extents) - axis.first) // axis.step


def _size(element: Element) -> float:
    return math.inf if math.isnan(element.error) else element.error
