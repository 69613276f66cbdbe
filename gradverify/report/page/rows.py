"""The wrong elements of a finding as the texts of a table, and how many of them a page has room for."""

from __future__ import annotations

from collections.abc import Sequence

from gradverify.report import numbers
from gradverify.report.element_table import named
from gradverify.report.headings import compared_names
from gradverify.report.safe import safe
from gradverify.result import Against, CaseResult, CheckResult, Element, Finding, Report

_MOST_ROWS = 1000  # of one finding
_MOST_IN_ALL = 30_000  # of one page; around 200 bytes each
_PM = "±"
_ERRORS = ("difference", "allowed", "ratio")
_ALIGNED = ("input value", "analytic", "numeric ± bar", "kernel", "reference")  # on the decimal point

Row = tuple[str, ...]


def rows_per_finding(report: Report, most: int = _MOST_IN_ALL) -> int:
    """Return how many elements of each finding are shown so that a page of many failures can still be opened."""
    sizes = [
        len(finding.elements) for case in report.cases for check in checks_shown(case) for finding in check.findings
    ]
    low, high = 0, _MOST_ROWS
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(size, middle) for size in sizes) <= most else (low, middle - 1)
    return max(low, 1)


def checks_shown(case: CaseResult) -> tuple[CheckResult, ...]:
    """Return the checks whose findings a case's details show: its own, and those that fail at other inputs."""
    failing = () if case.explored is None else case.explored.failing
    return (*case.checks, *(check for found in failing for check in found.checks))


def row_names(finding: Finding) -> Row:
    """Return the titles of the columns of a finding's table; the verdict is the last."""
    analytic, numeric = compared_names(finding)
    if finding.against is Against.DIFFERENCES:
        return ("output", "input", "input value", analytic, f"{numeric} {_PM} bar", *_ERRORS, "verdict")
    of = ("output",) if finding.of else ()
    wrt = ("input", "input value") if finding.wrt else ()
    return (*of, *wrt, analytic, numeric, *_ERRORS, "ulps", "verdict")


def element_rows(finding: Finding, elements: Sequence[Element]) -> tuple[Row, ...]:
    """Return the texts of each element, in the order of `row_names`."""
    if not elements:
        return ()
    titles = row_names(finding)
    texts = [_texts(finding, element) for element in elements]
    columns = [[text[title] for text in texts] for title in titles]
    aligned = [
        numbers.align_points(column) if title in _ALIGNED else column
        for title, column in zip(titles, columns, strict=True)
    ]
    return tuple(zip(*aligned, strict=True))


def _texts(finding: Finding, element: Element) -> dict[str, str]:
    """Return the texts of an element by the titles of their columns."""
    analytic, numeric = compared_names(finding)
    digits = [max(8, numbers.digits_to_show(value, element.error)) for value in (element.analytic, element.numeric)]
    return {
        "output": named(safe(finding.of or "output"), element.output_index),
        "input": named(safe(finding.wrt or "input"), element.input_index),
        "input value": numbers.compact(element.value, 10),
        f"{numeric} {_PM} bar": numbers.with_bar(element.numeric, element.error_bar, _PM),
        numeric: numbers.compact(element.numeric, digits[1]),
        analytic: numbers.compact(element.analytic, digits[0]),
        "difference": numbers.compact(element.error, 3),
        "allowed": numbers.at_most(element.allowed, 2),
        "ratio": numbers.at_least(numbers.ratio(element.error, element.allowed), 2),
        "ulps": "" if element.ulps is None else numbers.compact(element.ulps, 2),
        "verdict": element.verdict.value,
    }
