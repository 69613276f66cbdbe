"""What was not exercised, in words: on the screen and on the page."""

from __future__ import annotations

from typing import Any

import pytest
from report_specimens import case, report

from gradverify.report.case_detail import DetailOptions
from gradverify.report.ci.markdown import to_markdown
from gradverify.report.lines import to_text
from gradverify.report.page.details import case_details
from gradverify.report.screen import ASCII, UNICODE, Detail, Screen
from gradverify.report.terminal import report_lines
from gradverify.report.to_json import from_json, to_json
from gradverify.report.uncovered_text import uncovered_texts
from gradverify.result import CaseResult, Side, Uncovered, Verdict


def entry(text: str = "x > 6", never: Side = Side.TRUE, line: int = 14, **changes: Any) -> Uncovered:
    return Uncovered(**({"file": "ops.py", "line": line, "within": "forward", "text": text, "never": never} | changes))


def texts(*cases: CaseResult, detail: Detail = Detail.NORMAL) -> list[str]:
    return uncovered_texts(cases, detail, UNICODE)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (entry(), "`x > 6` in forward at ops.py:14 was never true"),
        (entry(never=Side.FALSE), "`x > 6` in forward at ops.py:14 was never false"),
        (entry("y.clamp(0, 6)", Side.BELOW), "`y.clamp(0, 6)` in forward at ops.py:14 met no value below its bound"),
        (entry("y.clamp(0, 6)", Side.ABOVE), "`y.clamp(0, 6)` in forward at ops.py:14 met no value above its bound"),
        (entry("y.relu()", Side.WITHIN), "`y.relu()` in forward at ops.py:14 met no value within its bound"),
        (entry("y = y + b", Side.RUN, within="backward"), "`y = y + b` in backward at ops.py:14 never ran"),
        (
            entry("w", Side.DIFFERENTIATED, within="Scale"),
            "`w` in Scale at ops.py:14 held integers and was not differentiated, though backward returns a gradient for"
            " it (1.0 is a number that is differentiated, 1 is not)",
        ),
        (entry("a\x1b[2Jb"), "`a\\x1b[2Jb` in forward at ops.py:14 was never true"),
    ],
)
def test_sentence_of_each_side(given: Uncovered, expected: str) -> None:
    assert texts(case(uncovered=(given,))) == [f"not exercised: {expected}"]


def test_long_code_is_cut_at_a_blank() -> None:
    long = entry("y = " + "value + " * 20, Side.RUN)
    (text,) = uncovered_texts([case(uncovered=(long,))], Detail.NORMAL, ASCII)
    kept = "y = " + "value + " * 8
    assert text == f"not exercised: `{kept}...` in forward at ops.py:14 never ran"


def test_only_what_all_cases_of_a_function_leave_is_shown() -> None:
    first, second = entry(line=1), entry(line=2)
    both, one = case("a", uncovered=(first, second)), case("b", uncovered=(second,))
    (text,) = texts(both, one)
    assert text == "not exercised: `x > 6` in forward at ops.py:2 was never true"
    assert texts(both, case("b")) == []


def test_other_functions_and_cases_that_did_not_run_have_no_say() -> None:
    here = case("a", uncovered=(entry(),))
    assert len(texts(here, case("b", source=None, function="other.py:f"))) == 1
    assert len(texts(here, case("b", verdict=Verdict.SKIP))) == 1
    assert len(texts(here, case("b", verdict=Verdict.ERROR))) == 1
    assert texts(here, case("b", verdict=Verdict.FAIL)) == []
    plain = case("a", source=None, uncovered=(entry(),))
    assert texts(plain, case("b", source=None)) == []


def test_screen_has_at_most_five_before_the_summary() -> None:
    seven = report(case(uncovered=tuple(entry(line=line) for line in range(1, 8))))
    text = to_text(report_lines(seven, Screen(width=100), DetailOptions()))
    rows = [f"- not exercised: `x > 6` in forward at ops.py:{line} was never true\n" for line in range(1, 8)]
    assert text.endswith("".join(rows[:5]) + "- and 2 more: -v\n✓ 1 case as expected: 1 pass in 1.23 s\n")
    verbose = to_text(report_lines(seven, Screen(width=100), DetailOptions(detail=Detail.VERBOSE)))
    assert "".join(rows) + "✓ 1 case" in verbose
    quiet = to_text(report_lines(seven, Screen(width=100), DetailOptions(detail=Detail.QUIET)))
    assert "exercised" not in quiet


def test_page_lists_at_most_five() -> None:
    facts = case_details(case(uncovered=tuple(entry(line=line) for line in range(1, 8))), 10).facts
    listed = [text for name, text in facts if name == "not exercised"]
    assert listed[0] == "`x > 6` in forward at ops.py:1 was never true"
    assert listed[5:] == ["and 2 more"]


def test_json_keeps_it_and_markdown_leaves_it_out() -> None:
    one = report(case(uncovered=(entry(),)))
    assert from_json(to_json(one)) == one
    assert "exercised" not in to_markdown(one)
