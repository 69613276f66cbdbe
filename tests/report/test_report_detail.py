"""What is said of a case that is not as expected: each thing once, and nothing left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_specimens import case, check, contract, element, everything, failing_check, finding, masked

from gradverify.report.case_brief import case_brief
from gradverify.report.case_detail import DetailOptions, case_detail
from gradverify.report.case_lines import case_lines
from gradverify.report.inspect_view import InspectOptions, Picture, inspect_lines
from gradverify.report.lines import to_text
from gradverify.report.page.details import case_details
from gradverify.report.screen import Detail, Screen
from gradverify.report.summary import summary_lines
from gradverify.result import CaseResult, CheckResult, Finding, Method, TorchOutcome, Verdict

RAISED = Finding(code="GV902", verdict=Verdict.ERROR, message="forward raised ValueError: no (ops.py:3 in forward)")


def test_note_about_the_point_is_told_wherever_a_case_is_shown_in_detail() -> None:
    note = "parameters that held one value were drawn around it: weight around 1"
    wrong = replace(masked(), note=note)
    inspected = inspect_lines([wrong], Screen(width=100), InspectOptions())
    for text in (detail(wrong), to_text(inspected), to_text(case_brief(wrong, Screen(width=100)))):
        assert note in text
    assert dict(case_details(wrong, 10).facts)["note"] == note
    assert "note" not in dict(case_details(masked(), 10).facts)


def detail(result: CaseResult, level: Detail = Detail.NORMAL) -> str:
    return to_text(case_detail(result, Screen(), DetailOptions(detail=level)))


def raising(*findings: Finding) -> CaseResult:
    names = ("gradcheck", "gradgradcheck", "contract")
    checks = [
        CheckResult(check=name, verdict=Verdict.ERROR, message=found.message, findings=(found,))
        for name, found in zip(names, findings, strict=True)
    ]
    return case(verdict=Verdict.ERROR, as_expected=False, checks=tuple(checks))


def test_a_picture_is_followed_by_one_blank_line() -> None:
    for shown in (masked(), replace(masked(), checks=(failing_check(findings=(finding(),) * 2),))):
        text = to_text(inspect_lines([shown], Screen(), InspectOptions(picture=Picture.HEATMAP)))
        assert "no element among those saved" in text
        assert "\n\n\n" not in text
        assert "\n\n  reproduce:" in text


def test_what_all_checks_say_is_said_once() -> None:
    for text in (
        detail(raising(RAISED, RAISED, RAISED)),
        to_text(inspect_lines([raising(RAISED, RAISED, RAISED)], Screen(), InspectOptions())),
    ):
        assert "  gradcheck, gradgradcheck, contract: ! error\n    GV902  forward raised" in text
        assert text.count("GV902") == 1


def test_what_one_check_says_otherwise_stands_apart() -> None:
    other = replace(RAISED, message="forward raised ValueError: not again")
    text = detail(raising(RAISED, other, RAISED))
    assert "  gradcheck, contract: ! error\n" in text
    assert "  gradgradcheck: ! error\n" in text


def test_findings_with_elements_are_never_taken_together() -> None:
    both = (failing_check(torch=None), failing_check(check="forward_ad", torch=None))
    assert detail(case(verdict=Verdict.FAIL, as_expected=False, checks=both)).count("GV101") == 2


def test_torch_keeps_its_word() -> None:
    torch = TorchOutcome(name="gradcheck", verdict=Verdict.PASS, message="it does not know")
    (first, second, third) = raising(RAISED, RAISED, RAISED).checks
    result = case(verdict=Verdict.ERROR, as_expected=False, checks=(replace(first, torch=torch), second, third))
    text = detail(result)
    assert "  gradcheck: ! error\n" in text
    assert "torch.autograd.gradcheck says pass: it does not know" in text
    assert "  gradgradcheck, contract: ! error\n" in text


@pytest.mark.parametrize("level", [Detail.NORMAL, Detail.QUIET])
def test_a_check_that_was_skipped_gives_its_reason(level: Detail) -> None:
    reason = "backward is declared @once_differentiable: it has no derivative"
    skip = check("gradgradcheck", verdict=Verdict.SKIP, message=reason, entries=0, method=None, torch=None)
    result = replace(masked(), checks=(*masked().checks[:1], skip, contract()))
    text = detail(result, level)
    assert f"\n  gradgradcheck: - skip\n  {reason}\n" in text or f"\n  gradgradcheck: - skip  {reason}\n" in text
    assert text.count("12 forward and 5 backward calls") == 1
    assert detail(result, Detail.VERBOSE).count("12 forward and 5 backward calls") == 2


def test_large_counts_are_read_in_threes() -> None:
    large = failing_check(entries=35_567_697_920, mismatched=1_234_567, torch=None, findings=())
    result = case(verdict=Verdict.FAIL, as_expected=False, checks=(large,))
    assert "35,567,697,920 entries, 1,234,567 wrong" in detail(result)
    assert "✗ gradcheck 1,234,567/35,567,697,920" in to_text(case_lines([result], Screen(width=120)))


def test_a_check_of_no_entries_says_so() -> None:
    empty = case(checks=(check(entries=0, method=Method.DENSE), contract()))
    assert "✓ gradcheck 0 entries  ✓ contract  " in to_text(case_lines([empty], Screen(width=120)))


def test_without_a_spec_no_command_is_named() -> None:
    many = failing_check(torch=None, findings=(finding(total=1234),))
    result = case(spec="", verdict=Verdict.FAIL, as_expected=False, checks=(many,))
    text = to_text(case_detail(result, Screen(), DetailOptions(rows=1)))
    assert "gradverify inspect" not in text
    assert "    … the worst 1 of 1,234; the result holds 2\n" in text


def rows(result: CaseResult, width: int) -> list[str]:
    return to_text(case_lines([result], Screen(width=width))).splitlines()


def test_the_line_of_a_case_says_as_much_as_fits() -> None:
    name = "spectral/filtered/cpu-float64"
    passed = check("gradgradcheck", entries=1024)
    result = case(name, verdict=Verdict.FAIL, as_expected=False, checks=(failing_check(torch=None), passed, contract()))
    lead = f"✗ FAIL   {name}  ✗ gradcheck 2/25  "
    assert rows(result, 100)[0].startswith(f"{lead}✓ gradgradcheck 1,024  ✓ contract  ")
    assert rows(result, 85)[0].startswith(f"{lead}✓ 2 checks 1,024  ")
    assert rows(result, 80)[0].startswith(f"{lead}✓ 2 checks  ")
    assert rows(result, 70)[1] == "         ✗ gradcheck 2/25  ✓ gradgradcheck 1,024  ✓ contract"
    assert rows(result, 59)[1:] == ["         ✗ gradcheck 2/25  ✓ gradgradcheck 1,024", "         ✓ contract"]
    assert all(len(row) <= width for width in range(50, 120) for row in rows(result, width))


def test_checks_that_could_not_be_run_are_taken_together() -> None:
    assert "  ! 3 checks  " in rows(raising(RAISED, RAISED, RAISED), 80)[0]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_the_rule_goes_to_the_edge(width: int) -> None:
    head = to_text(case_detail(case("a/b/cpu"), Screen(width=width), DetailOptions())).splitlines()[0]
    assert len(head) == width
    assert head.endswith("─")


def test_a_long_summary_breaks_between_what_it_says() -> None:
    text = to_text(summary_lines(everything(), Screen(width=80)))
    assert text == (
        "✗ 6 of 12 cases not as expected: 1 pass, 2 fail, 1 inconclusive, 2 error\n"
        "  as expected: 3 pass, 1 fail, 2 skip in 1.23 s\n"
    )
    assert len(to_text(summary_lines(everything(), Screen(width=140))).splitlines()) == 1


def both_orders(first: Verdict) -> CaseResult:
    order_2 = failing_check(check="gradgradcheck", findings=(finding(code="GV201"),), torch=None)
    checks = (failing_check(torch=None) if first is Verdict.FAIL else check(), order_2)
    return case(verdict=Verdict.FAIL, as_expected=False, checks=checks)


def test_a_wrong_second_derivative_takes_one_line_if_the_first_is_wrong() -> None:
    text = detail(both_orders(Verdict.FAIL))
    assert "\n  gradgradcheck: ✗ fail  fix the first derivative first; -v shows the second\n" in text
    assert "GV101" in text
    assert "GV201" not in text
    assert "GV201" in detail(both_orders(Verdict.FAIL), Detail.VERBOSE)


def test_a_wrong_second_derivative_of_a_right_first_one_is_shown() -> None:
    assert "GV201" in detail(both_orders(Verdict.PASS))


def test_in_python_nobody_is_sent_to_an_option() -> None:
    text = detail(replace(both_orders(Verdict.FAIL), spec=""))
    assert "\n  gradgradcheck: ✗ fail  fix the first derivative first\n" in text


def test_reasons_are_shown_with_the_elements_they_hold_for_if_asked() -> None:
    elements = tuple(element(number, reason="differs" if number else "at a kink") for number in range(6))
    shown = case(verdict=Verdict.FAIL, checks=(failing_check(findings=(finding(elements=elements),)),))
    text = to_text(inspect_lines([shown], Screen(), InspectOptions(reasons=True)))
    assert "    why: at a kink: y[0] by x[0]\n" in text
    assert "    why: differs: y[1] by x[1], y[2] by x[2], y[3] by x[3] and 2 more elements\n" in text
    assert "why:" not in to_text(inspect_lines([shown], Screen(), InspectOptions()))


def test_a_reason_that_all_elements_share_names_none_of_them() -> None:
    elements = (element(1, reason="differs"), element(2, reason="differs"))
    shown = case(verdict=Verdict.FAIL, checks=(failing_check(findings=(finding(elements=elements),)),))
    assert "    why: differs\n" in to_text(inspect_lines([shown], Screen(), InspectOptions(reasons=True)))
