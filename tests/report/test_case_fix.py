"""`--brief`: at most 15 lines per failing case, cause and fix first, and the other cases in one line."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report_specimens import case, crashed, everything, masked, report, second_order, skipped
from test_report_brief import many_failing_checks

from gradverify.catalogue import Section, causes, section_of, sections
from gradverify.report.case_detail import DetailOptions
from gradverify.report.case_fix import MOST, case_fix
from gradverify.report.lines import cells, plain
from gradverify.report.screen import Detail, Screen
from gradverify.report.terminal import report_lines
from gradverify.result import CaseResult, CheckResult, Finding, Verdict

NOTE = "parameters that held one value were drawn around it: weight around 1, bias around 0"
SPECIMENS = [masked(), crashed(), many_failing_checks(), second_order(), *everything().cases]


def shown(result: CaseResult, width: int = 80) -> list[str]:
    return [plain(row) for row in case_fix(result, Screen(width=width))]


def page_of(cause: str) -> Section:
    page = section_of(cause, sections())
    assert page is not None
    return page


def with_cause(cause: str) -> CaseResult:
    first = masked()
    check = first.checks[0]
    named = replace(check.findings[0], cause=cause)
    return replace(first, checks=(replace(check, findings=(named,)), *first.checks[1:]))


def test_cause_then_fix_then_place_then_elements_then_command() -> None:
    rows = shown(masked())
    starts = [row.split()[0] for row in rows]
    assert starts[:2] == ["✗", "cause"]
    order = [next(n for n, row in enumerate(rows) if row.startswith(f"  {word}")) for word in ("cause", "fix")]
    order += [next(n for n, row in enumerate(rows) if row.startswith(f"  {word}")) for word in ("backward:", "gradch")]
    order.append(next(n for n, row in enumerate(rows) if row.startswith("  reproduce:")))
    assert order == sorted(order)
    assert "    def backward(ctx, g): return g * ((x > 0) & (x < 1.5))" in rows


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("number", range(len(SPECIMENS)))
def test_no_case_takes_more_than_15_lines(number: int, width: int) -> None:
    rows = shown(SPECIMENS[number], width)
    assert len(rows) <= MOST
    assert all(rows)


def test_note_about_the_point_stands_under_the_place() -> None:
    rows = shown(replace(masked(), note=NOTE))
    start = next(number for number, row in enumerate(rows) if row.startswith("  backward:"))
    assert " ".join(row.strip() for row in rows[start + 1 : start + 3]) == NOTE
    assert [row for row in rows if "around" not in row and row.strip() != "0"] == shown(masked())


@pytest.mark.parametrize("width", [40, 80, 140])
@pytest.mark.parametrize("number", range(len(SPECIMENS)))
def test_a_long_note_leaves_a_case_in_15_lines(number: int, width: int) -> None:
    rows = shown(replace(SPECIMENS[number], note="; ".join([NOTE] * 9)), width)
    assert len(rows) <= MOST
    start = next(number for number, row in enumerate(rows) if row.startswith("  parameters that held one"))
    assert rows[start].endswith("…") or rows[start + 1].endswith("…")
    assert max(cells(row) for row in rows[start : start + 2] if "around" in row or "…" in row) <= width


@pytest.mark.parametrize("cause", causes())
def test_every_cause_has_a_fix(cause: str) -> None:
    rows = shown(with_cause(cause))
    assert len(rows) <= MOST
    assert any(row.startswith("  fix") and f"gradverify explain {cause}" in row for row in rows)
    assert re.search(r"^Mended(, in this example)?:", page_of(cause).text, re.MULTILINE)


def test_an_example_of_a_cause_that_mends_nothing_but_itself_is_named_and_not_shown() -> None:
    rows = shown(with_cause("wrong-axis"))
    assert "  fix: gradverify explain wrong-axis" in rows


@pytest.mark.parametrize("code", ["GV306", "GV407", "GV408", "GV409"])
def test_what_spoils_all_numbers_comes_before_a_cause_found_in_them(code: str) -> None:
    first = masked()
    told = "backward of ClippedReLU modifies its cotangent in place"
    finding = Finding(code=code, verdict=Verdict.FAIL, message=told)
    contract = CheckResult(check="contract", verdict=Verdict.FAIL, message=told, findings=(finding,))
    rows = shown(replace(first, checks=(*first.checks[:2], contract)))
    assert rows[1].startswith((f"  fix as in gradverify explain {code}", f"  fix: gradverify explain {code}"))
    assert any(row.startswith("  also: gradcheck GV101") for row in rows)


def test_other_findings_are_counted_where_they_have_the_same_code() -> None:
    first = masked()
    check = first.checks[0]
    alike = tuple(replace(check.findings[0], wrt=name, message=f"{name} differs") for name in ("x", "y", "z"))
    rows = shown(replace(first, checks=(replace(check, findings=alike), *first.checks[1:])))
    assert "  also: 2 more gradcheck GV101" in rows


@pytest.mark.parametrize(("code", "shown_there"), [("GV103", True), ("GV104", False), ("GV904", False)])
def test_an_example_that_mends_nothing_but_itself_is_named_and_not_shown(code: str, shown_there: bool) -> None:
    first = masked()
    check = first.checks[0]
    verdict = Verdict.FAIL if shown_there else Verdict.INCONCLUSIVE
    coded = replace(check, findings=(replace(check.findings[0], code=code, verdict=verdict, cause=None),))
    rows = shown(replace(first, checks=(coded,)))
    command = f"gradverify explain {code}"
    assert (f"  fix as in {command}:" if shown_there else f"  fix: {command}") in rows


@pytest.mark.parametrize(
    ("code", "has_fix"), [("GV101", False), ("GV702", False), ("GV301", False), ("GV102", True), ("GV401", True)]
)
def test_without_a_cause_only_a_page_that_mends_any_such_mistake_is_a_fix(code: str, has_fix: bool) -> None:
    first = masked()
    check = first.checks[0]
    coded = replace(check, findings=(replace(check.findings[0], code=code, cause=None),))
    rows = shown(replace(first, checks=(coded,)))
    assert any(row.startswith("  fix") for row in rows) is has_fix


@pytest.mark.slow
def test_cases_as_expected_are_named_together_in_one_line() -> None:
    good = [replace(case(), id=f"good/number-{number}/cpu") for number in range(30)]
    rows = report_lines(report(*good, masked(), skipped()), Screen(), DetailOptions(detail=Detail.BRIEF))
    texts = [plain(row) for row in rows]
    (together,) = (text for text in texts if "number-0" in text)
    assert together.startswith("✓ 31 as expected: good/number-0/cpu, ")
    assert together.endswith("…")
    assert cells(together) <= 80
