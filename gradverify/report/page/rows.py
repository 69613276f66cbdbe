"""The wrong elements of a finding as the texts of a table, and how many of them a page has room for."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.report import numbers
from gradverify.report.element_table import named
from gradverify.report.safe import safe
from gradverify.result import Element, Finding, Report

_MOST_ROWS = 1000  # of one finding
_MOST_IN_ALL = 30_000  # of one page; around 200 bytes each
_PM = "±"
_ALIGNED = (2, 3, 4)  # columns aligned on the decimal point

Row = tuple[str, ...]  # output, input, value, analytic, numeric ± bar, difference, allowed, ratio, verdict


def rows_per_finding(report: Report, most: int = _MOST_IN_ALL) -> int:
    """Return how many elements of each finding are shown so that a page of many failures can still be opened."""
    sizes = [len(finding.elements) for case in report.cases for check in case.checks for finding in check.findings]
    low, high = 0, _MOST_ROWS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(size, middle) for size in sizes) <= most else (low, middle - 1)
    return max(low, 1)


def element_rows(finding: Finding, elements: Sequence[Element]) -> tuple[Row, ...]:
    """Return the texts of each element."""
    if not elements:
        return ()
    names = safe(finding.of or "output"), safe(finding.wrt or "input")
    columns = [list(column) for column in zip(*(_texts(names, element) for element in elements), strict=True)]
    for number in _ALIGNED:
        columns[number] = numbers.align_points(columns[number])
    return tuple(zip(*columns, strict=True))


def _texts(names: tuple[str, str], element: Element) -> Row:
    analytic = max(8, numbers.digits_to_show(element.analytic, element.error))
    return (
        named(names[0], element.output_index),
        named(names[1], element.input_index),
        numbers.compact(element.value, 10),
        numbers.compact(element.analytic, analytic),
        numbers.with_bar(element.numeric, element.error_bar, _PM),
        numbers.compact(element.error, 3),
        numbers.at_most(element.allowed, 2),
        numbers.at_least(numbers.ratio(element.error, element.allowed), 2),
        element.verdict.value,
    )
