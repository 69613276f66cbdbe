"""One case in a notebook: tables and heat maps in HTML that needs no script, and text that stays text."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from gradverify.report.notebook import case_html
from gradverify.result import CaseResult
from tests.report.report_specimens import masked


def parsed(result: CaseResult) -> ElementTree.Element:
    return ElementTree.fromstring(case_html(result).replace("&ensp;", " ").replace("<br>", "<br/>"))


def test_a_wrong_gradient_has_a_table_row_and_three_squares_for_each_element() -> None:
    wrong = masked()
    elements = sum(len(finding.elements) for check in wrong.checks for finding in check.findings)
    page = parsed(wrong)
    assert elements
    assert len(page.findall(".//svg")) == 3
    assert len(page.findall(".//rect")) == 3 * elements
    assert len(page.findall("./div/table/tbody/tr")) == elements


def test_text_of_the_user_is_escaped() -> None:
    wrong = masked()
    named = replace(wrong, id="<script>alert(1)</script>", function="<b>f</b>", message="GV902: <img src=x>")
    text = case_html(named)
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>f" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
