"""One mistake in a module stops many cases: its error is shown once, and the other cases are named."""

from __future__ import annotations

from report_specimens import case, report

from gradverify.report.case_detail import DetailOptions
from gradverify.report.lines import cells, to_text
from gradverify.report.repeated_errors import grouped, others_lines
from gradverify.report.screen import Detail, Screen
from gradverify.report.terminal import lines_after_listing
from gradverify.result import CaseResult, Verdict


def stopped(name: str, module: str, raised: str) -> CaseResult:
    message = f"GV901: importing {module} raised {raised}"
    return case(id=f"{name}/cpu", verdict=Verdict.ERROR, as_expected=False, checks=(), message=message)


SYNTAX = "SyntaxError: expected ':' (pkg/ops.py:17)"
CASES = (
    stopped("a", "pkg.ops", SYNTAX),
    stopped("b", "pkg", "KeyError: 1 (pkg/b.py:2)"),
    stopped("c", "pkg.c", SYNTAX),
)


def test_cases_with_one_error_of_an_import_are_one_group() -> None:
    assert [[each.id for each in group] for group in grouped(CASES)] == [["a/cpu", "c/cpu"], ["b/cpu"]]


def test_other_messages_stay_apart_also_if_they_are_equal() -> None:
    crashed = [
        case(id=f"{name}/cpu", verdict=Verdict.ERROR, as_expected=False, checks=(), message="GV905: forward raised X")
        for name in "ab"
    ]
    assert [len(group) for group in grouped(crashed)] == [1, 1]


def test_the_error_is_shown_once_with_the_other_cases_under_it() -> None:
    text = to_text(lines_after_listing(report(*CASES), Screen(), DetailOptions()))
    assert text.count("SyntaxError") == 1
    assert "  the same in 1 more case: c/cpu\n" in text
    assert text.count("KeyError") == 1


def test_verbose_shows_every_case() -> None:
    text = to_text(lines_after_listing(report(*CASES), Screen(), DetailOptions(detail=Detail.VERBOSE)))
    assert text.count("SyntaxError") == 2
    assert "the same in" not in text


def test_many_other_cases_take_two_lines() -> None:
    others = [stopped(f"functions/number{number}", "pkg", SYNTAX) for number in range(40)]
    rows = others_lines(others, Screen())
    assert len(rows) == 2
    assert all(cells(to_text([row]).rstrip("\n")) <= 80 for row in rows)
    assert to_text(rows).startswith("  the same in 40 more cases: functions/number0/cpu, ")
    assert to_text(rows).endswith("…\n")
