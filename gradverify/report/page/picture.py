"""The elements of a finding as a picture: where each lies on a grid, and how strong its colours are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gradverify.report import numbers
from gradverify.report.element_table import named
from gradverify.report.grid import Axis, grid_of, index_at
from gradverify.report.headings import axes_of, axis_names, compared_names, is_jacobian
from gradverify.result import Element, Finding

_MOST_ROWS, _MOST_COLUMNS = 40, 60
_FULL = 100  # the strongest colour
_WIDE = 1e3  # ratio of the largest value to the smallest beyond which sizes are drawn by their decades
_LEAST = 12  # share of what is small but not zero on such a scale

Strength = Callable[[float], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One square; strengths are percentages, None where a number is not finite."""

    row: int
    column: int
    element: int  # number of the element it shows
    analytic: int | None  # below zero for negative values
    numeric: int | None
    error: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Three panels that share their axes."""

    rows: tuple[str, ...]  # name of the output entry at each row, or of a row of one tensor
    columns: tuple[str, ...]  # name of the input entry at each column, or the last index in one tensor
    names: tuple[str, str]  # titles of the first two panels
    is_jacobian: bool  # False if the picture is of one tensor
    covers: str  # what one cell stands for
    value_scale: str  # what the strongest colour of the values stands for
    by_decades: bool  # whether sizes of values are drawn by their logarithm, as those of errors always are
    error_scale: tuple[str, str]  # what the faintest and the strongest colour of the errors stand for
    cells: tuple[Cell, ...]


def picture_of(finding: Finding, elements: Sequence[Element]) -> Picture | None:
    """Return the picture of some elements, None where there is none to draw."""
    if not elements:
        return None
    names = axis_names(finding)
    grid = grid_of(elements, _MOST_ROWS, _MOST_COLUMNS, axes_of(finding))
    numbered = {id(element): number for number, element in enumerate(elements)}
    values = [value for element in elements for value in (element.analytic, element.numeric)]
    errors = [element.error for element in elements]
    by_value, by_error = _signed(values), _decades(errors)
    low, high = _range(errors)
    return Picture(
        rows=_labels(names[0], grid.rows),
        columns=_labels(names[1], grid.columns),
        names=compared_names(finding),
        is_jacobian=is_jacobian(finding),
        covers=_covers(grid.rows, grid.columns),
        value_scale=numbers.compact(_range(values)[1]),
        by_decades=_is_wide(values),
        error_scale=(numbers.compact(low), numbers.compact(high)),
        cells=tuple(
            Cell(
                row=row,
                column=column,
                element=numbered[id(element)],
                analytic=by_value(element.analytic),
                numeric=by_value(element.numeric),
                error=by_error(element.error),
            )
            for (row, column), element in grid.worst.items()
        ),
    )


def _labels(name: str, axis: Axis) -> tuple[str, ...]:
    return tuple(named(name, index_at(axis, cell)) for cell in range(axis.cells))


def _covers(rows: Axis, columns: Axis) -> str:
    steps = rows.step, columns.step
    return "" if steps == (1, 1) else f"a cell covers {steps[0]} x {steps[1]} entries and shows the worst of them"


def _signed(values: Iterable[float]) -> Strength:
    found = list(values)
    low, high = _range(found)
    size = _by_decades(low, high) if _is_wide(found) else (lambda value: value / high if high else 0.0)

    def strength(value: float) -> int | None:
        if not math.isfinite(value):
            return None
        return round(math.copysign(_FULL * size(abs(value)), value)) if value else 0

    return strength


def _decades(errors: Iterable[float]) -> Strength:
    low, high = _range(errors)
    size = _by_decades(low, high)

    def strength(error: float) -> int | None:
        if not math.isfinite(error):
            return None
        return round(_FULL * size(abs(error))) if error else 0

    return strength


def _by_decades(low: float, high: float) -> Callable[[float], float]:
    """Return a scale on which `high` is 1, and `low` is faint but to be seen."""
    span = math.log10(high) - math.log10(low) if low and high else 0.0
    least = _LEAST / _FULL
    if not span:
        return lambda value: 1.0 if value else 0.0
    return lambda value: least + (1 - least) * (math.log10(value) - math.log10(low)) / span


def _is_wide(values: Iterable[float]) -> bool:
    low, high = _range(values)
    return bool(low) and high / low > _WIDE


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Return the smallest and the largest size among finite values that are not zero."""
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    return min(sizes, default=0.0), max(sizes, default=0.0)
