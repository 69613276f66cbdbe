"""The wrong elements of a finding as a table that fits the screen without cutting a number or an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gradverify.report import numbers
from gradverify.report.headings import compared_names
from gradverify.report.lines import BAD, DIM, HEAD, Line, line, pad, pad_left, span, widest
from gradverify.report.safe import safe
from gradverify.report.screen import Screen
from gradverify.result import Against, Element, ElementVerdict, Finding, Index

_GAP = "  "
_SAMPLE = 50  # elements that tell early that a table is too wide


class Kind(StrEnum):
    """What a column says, in the order of the columns."""

    INPUT = "input"
    VALUE = "value"
    OUTPUT = "output"
    ANALYTIC = "analytic"
    NUMERIC = "numeric"
    ERROR = "error"
    ALLOWED = "allowed"
    RATIO = "ratio"
    ULPS = "ulps"
    VERDICT = "verdict"


_STYLES = {Kind.ALLOWED: DIM, Kind.RATIO: HEAD}
_WRONG = {Kind.ANALYTIC: BAD}  # the same, of an element that is accused
_ON_POINT = frozenset({Kind.VALUE, Kind.ANALYTIC, Kind.NUMERIC})  # aligned on the decimal point
_TO_LEFT = frozenset({Kind.INPUT, Kind.OUTPUT, Kind.VERDICT})
_PLACE = frozenset({Kind.INPUT, Kind.VALUE, Kind.OUTPUT})  # where the element is: the first line, when there are two


class Naming(StrEnum):
    """Where the names of input and output stand."""

    CELLS = "cells"  # x[1] in every row
    TITLES = "titles"  # x above, [1] in every row: narrower


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How much room a table takes: where names stand, and how many digits are spent."""

    naming: Naming = Naming.CELLS
    analytic: int  # more where the difference would not show
    numeric: int  # at most, as the error bar allows; more where the difference would not show
    value: int  # of the input's value
    error: int
    allowed: int


FULL = Layout(analytic=8, numeric=numbers.MOST_DIGITS, value=10, error=3, allowed=2)
COMPACT = Layout(analytic=6, numeric=7, value=6, error=2, allowed=1)
SHORT = replace(COMPACT, naming=Naming.TITLES)
TIGHT = Layout(naming=Naming.TITLES, analytic=4, numeric=4, value=3, error=2, allowed=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table, its title and cells already of one width."""

    kind: Kind
    title: str
    cells: tuple[str, ...]
    styles: tuple[str, ...]  # of the cells


def element_table(finding: Finding, elements: Sequence[Element], screen: Screen) -> list[Line]:
    """Return the elements as one row each, or stacked where one row is too wide for the screen."""
    if not elements:
        return []
    for layout in (FULL, COMPACT, SHORT, TIGHT):
        if _width(columns_of(finding, elements[:_SAMPLE], screen, layout)) > screen.width:
            continue  # twenty thousand are too many to lay out four times
        columns = columns_of(finding, elements, screen, layout)
        if _width(columns) <= screen.width:
            return _rows(columns)
    columns = columns_of(finding, elements, screen, FULL)
    if max(_width(_place(columns)), len(_GAP) + _width(_measure(columns))) <= screen.width:
        return _stacked(columns)
    return _vertical(columns)


def named(name: str, index: Index) -> str:
    """Return a tensor's element as it would be written in Python; a scalar is its name alone."""
    return f"{name}[{','.join(map(str, index))}]" if index else name


def columns_of(finding: Finding, elements: Sequence[Element], screen: Screen, layout: Layout) -> list[Column]:
    """Return the columns of a table of at least one element; that of verdicts only where they differ."""
    names = safe(finding.wrt or "input"), safe(finding.of or "output")
    bars = screen.glyphs.plus_minus if finding.against is Against.DIFFERENCES else ""
    texts = [_texts(names, element, bars, layout) for element in elements]
    titles = _titles(finding, names, bars, layout)
    left_out = _left_out(finding, elements)
    wrong = [element.verdict is ElementVerdict.MISMATCH for element in elements]
    return [
        _column(kind, titles[kind], column, wrong)
        for kind, column in zip(Kind, zip(*texts, strict=True), strict=True)
        if kind not in left_out
    ]


def _left_out(finding: Finding, elements: Sequence[Element]) -> set[Kind]:
    """Return the columns that say nothing of these elements."""
    left_out = {Kind.VERDICT} if all(each.verdict is ElementVerdict.MISMATCH for each in elements) else set()
    if finding.against is Against.DIFFERENCES:
        return left_out | {Kind.ULPS}
    return left_out | (set() if finding.wrt else {Kind.INPUT, Kind.VALUE}) | (set() if finding.of else {Kind.OUTPUT})


def _titles(finding: Finding, names: tuple[str, str], bars: str, layout: Layout) -> dict[Kind, str]:
    analytic, numeric = compared_names(finding)
    titles = {kind: kind.value for kind in Kind}
    titles |= {Kind.ANALYTIC: analytic, Kind.NUMERIC: f"{numeric} {bars} bar" if bars else numeric}
    if layout.naming is Naming.TITLES:
        titles |= {Kind.INPUT: names[0], Kind.OUTPUT: names[1]}
    return titles


def _texts(names: tuple[str, str], element: Element, bars: str, layout: Layout) -> tuple[str, ...]:
    """Return the texts of all columns; `bars` is the sign in front of error bars, "" if the values have none."""
    of_cell = names if layout.naming is Naming.CELLS else ("", "")
    over = numbers.ratio(element.error, element.allowed)
    analytic = max(layout.analytic, numbers.digits_to_show(element.analytic, element.error))
    numeric = max(layout.numeric, numbers.digits_to_show(element.numeric, element.error))
    return (
        named(of_cell[0], element.input_index),
        numbers.compact(element.value, layout.value),
        named(of_cell[1], element.output_index),
        numbers.compact(element.analytic, analytic),
        numbers.with_bar(element.numeric, element.error_bar, bars, numeric)
        if bars
        else numbers.compact(element.numeric, max(analytic, numbers.digits_to_show(element.numeric, element.error))),
        numbers.compact(element.error, layout.error),
        numbers.at_most(element.allowed, layout.allowed),
        numbers.at_least(over, 2),
        "" if element.ulps is None else numbers.compact(element.ulps, 2),
        element.verdict.value,
    )


def _column(kind: Kind, title: str, texts: Sequence[str], wrong: Sequence[bool]) -> Column:
    aligned = numbers.align_points(texts) if kind in _ON_POINT else list(texts)
    width = widest([title, *aligned])
    fit = pad if kind in _TO_LEFT else pad_left
    cells = tuple(fit(text, width) for text in aligned)
    style = _STYLES.get(kind, "")
    styles = tuple(_WRONG.get(kind, style) if accused else style for accused in wrong)
    return Column(kind=kind, title=fit(title, width), cells=cells, styles=styles)


def _width(columns: Sequence[Column]) -> int:
    return sum(widest([column.title]) for column in columns) + len(_GAP) * (len(columns) - 1)


def _place(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.kind in _PLACE]


def _measure(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if column.kind not in _PLACE]


def _rows(columns: Sequence[Column]) -> list[Line]:
    head = line(span(_GAP.join(column.title for column in columns), DIM))
    return [head, *(_row(columns, number) for number in range(len(columns[0].cells)))]


def _row(columns: Sequence[Column], number: int) -> Line:
    parts = [span(column.cells[number], column.styles[number]) for column in columns]
    return tuple(piece for part in parts for piece in (part, span(_GAP)))[:-1]


def _stacked(columns: Sequence[Column]) -> list[Line]:
    upper, lower = _rows(_place(columns)), _rows(_measure(columns))
    return [row for pair in zip(upper, lower, strict=True) for row in (pair[0], line(_GAP, *pair[1]))]


def _vertical(columns: Sequence[Column]) -> list[Line]:
    width = widest(column.title.strip() for column in columns)
    rows: list[Line] = []
    for number in range(len(columns[0].cells)):
        for place, column in enumerate(columns):
            mark = "- " if place == 0 else "  "
            title = span(pad(column.title.strip(), width), DIM)
            rows.append(line(mark, title, _GAP, span(column.cells[number].strip(), column.styles[number])))
    return rows
