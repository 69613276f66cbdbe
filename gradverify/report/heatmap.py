"""A finding's elements as a picture: analytic, numeric and error, a digit and a colour per cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gradverify.report import numbers
from gradverify.report.element_table import named
from gradverify.report.grid import Axis, Grid, grid_of, index_at
from gradverify.report.headings import axes_of, axis_names, compared_names
from gradverify.report.lines import DIM, EMPTY, HEAD, Line, Span, line, pad, pad_left, span, widest
from gradverify.report.safe import fold
from gradverify.report.screen import Screen
from gradverify.result import Element, Finding

_CELL = 2  # columns of a cell: a sign and a digit
_GAP = "   "
_MOST_ROWS = 24
_LEAST_PANEL = 18  # columns that a panel keeps when it stands beside others, so that its title fits
_RGB = tuple[int, int, int]
_PAPER: _RGB = (247, 247, 247)
_RED: _RGB = (178, 24, 43)
_BLUE: _RGB = (33, 102, 172)
_PURPLE: _RGB = (84, 39, 136)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: what a cell shows of its element."""

    title: str
    cell: Callable[[Element], Span]


def heatmap(finding: Finding, screen: Screen) -> list[Line]:
    """Return three panels and their legend, beside each other where they fit; nothing without elements."""
    if not finding.elements:
        return []
    (of, wrt), axes = axis_names(finding), axes_of(finding)
    label = widest(named(of, axes(element)[0]) for element in finding.elements)
    beside = _room(screen.width - label - 2, panels=3)
    grid = grid_of(finding.elements, _MOST_ROWS, _room(screen.width - label - 2, panels=1), axes)
    side_by_side = grid.columns.cells <= beside or screen.width >= 120
    if side_by_side:
        grid = grid_of(finding.elements, _MOST_ROWS, beside, axes)
    panels = _panels(finding)
    groups = [panels] if side_by_side else [[panel] for panel in panels]
    rows: list[Line] = []
    for group in groups:
        rows += [*_drawn(grid, group, of, label, screen), EMPTY]
    return [*rows, *_legend(finding, grid, (of, wrt), screen)]


def _room(width: int, panels: int) -> int:
    return max(1, (width - len(_GAP) * (panels - 1)) // panels // _CELL)


def _panels(finding: Finding) -> list[Panel]:
    found, names = finding.elements, compared_names(finding)
    largest = _largest(value for element in found for value in (element.analytic, element.numeric))
    error = _largest(element.error for element in found)
    return [
        Panel(title=names[0], cell=lambda element: _signed(element.analytic, largest)),
        Panel(title=names[1], cell=lambda element: _signed(element.numeric, largest)),
        Panel(title="error", cell=lambda element: _decades(element.error, error)),
    ]


def _drawn(grid: Grid, panels: list[Panel], of: str, label: int, screen: Screen) -> list[Line]:
    width = max(_CELL * grid.columns.cells, _LEAST_PANEL if len(panels) > 1 else 0)
    titles = [span(pad(panel.title, width) + _GAP, HEAD) for panel in panels]
    rows = [line(" " * (label + 2), *titles)]
    empty = span(pad_left(screen.glyphs.blank, _CELL), DIM)
    fill = " " * (width - _CELL * grid.columns.cells) + _GAP
    for row in range(grid.rows.cells):
        parts: list[Span] = [span(pad_left(named(of, index_at(grid.rows, row)), label) + "  ", DIM)]
        for panel in panels:
            found = (grid.worst.get((row, column)) for column in range(grid.columns.cells))
            parts += [panel.cell(element) if element else empty for element in found]
            parts.append(span(fill))
        rows.append(tuple(parts))
    return rows


def _legend(finding: Finding, grid: Grid, names: tuple[str, str], screen: Screen) -> list[Line]:
    largest = _largest(value for element in finding.elements for value in (element.analytic, element.numeric))
    error = _largest(element.error for element in finding.elements)
    saved, total = len(finding.elements), max(finding.total, len(finding.elements))
    steps = grid.rows.step, grid.columns.step
    covers = "one entry" if steps == (1, 1) else f"{steps[0]} x {steps[1]} entries and shows the worst of them"
    texts = [
        f"rows {_range(names[0], grid.rows)}, columns {_range(names[1], grid.columns)}; a cell covers {covers}",
        f"{', '.join(compared_names(finding))}: sign and size, 9 = {numbers.compact(largest)}",
        f"error: 9 = {numbers.compact(error)}, each digit less a factor of 10; !! not finite",
        f"{screen.glyphs.blank} no element among those saved; showing {saved:,} of {total:,}"
        + (f" (gradverify run --elements {total} saves all)" if saved < total else ""),
    ]
    return [line(span(row, DIM)) for text in texts for row in fold(text, screen.width)]


def _range(name: str, axis: Axis) -> str:
    first, last = named(name, index_at(axis, 0)), named(name, index_at(axis, axis.cells * axis.step))
    return first if first == last else f"{first} to {last}"


def _largest(values: Iterable[float]) -> float:
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0)


def _signed(value: float, largest: float) -> Span:
    if not math.isfinite(value):
        return _not_finite()
    share = abs(value) / largest if largest else 0.0
    sign = "-" if value < 0 else " "
    return span(f"{sign}{round(9 * share)}", _look(_BLUE if value < 0 else _RED, share))


def _decades(error: float, largest: float) -> Span:
    if not math.isfinite(error):
        return _not_finite()
    digit = max(0, 9 + math.floor(math.log10(error / largest) + 1e-9)) if error and error / largest else 0
    return span(f" {digit}", _look(_PURPLE, digit / 9))


def _not_finite() -> Span:
    return span("!!", "bold white on red")


def _look(towards: _RGB, share: float) -> str:
    red, green, blue = (round(low + share * (high - low)) for low, high in zip(_PAPER, towards, strict=True))
    return f"{'white' if share > 0.5 else 'black'} on #{red:02x}{green:02x}{blue:02x}"
