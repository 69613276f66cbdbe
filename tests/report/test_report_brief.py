"""The default screen: about a dozen lines per case, with what failed, why, and where to see the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from report_specimens import (
    case,
    contract,
    crashed,
    element,
    everything,
    failing_check,
    finding,
    masked,
    report,
    second_order,
    skipped,
)

from gradverify.report.case_brief import case_brief
from gradverify.report.case_detail import DetailOptions
from gradverify.report.lines import cells, plain, to_text
from gradverify.report.screen import Detail, Screen
from gradverify.report.terminal import lines_after_listing, report_lines
from gradverify.result import PRINTED, AgreesWith, CaseResult, CheckResult, Finding, TorchDerivative, Verdict


def brief(result: CaseResult, width: int = 80) -> str:
    return to_text(case_brief(result, Screen(width=width)))


def failing(*checks: CheckResult, **changes: object) -> CaseResult:
    return case(verdict=Verdict.FAIL, as_expected=False, checks=checks, **changes)


def many_failing_checks() -> CaseResult:
    long = "backward reads memory that nobody has written, " * 6
    names = ("contract", "forward_ad", "batching", "compile", "precision")
    others = [
        CheckResult(check=name, verdict=Verdict.FAIL, findings=(finding(code="GV409", message=f"{name}: {long}"),))
        for name in names
    ]
    return failing(failing_check(findings=masked().checks[0].findings), *others)


def test_a_backward_that_torchs_own_derivative_agrees_with() -> None:
    """The forward may be what is wrong, so the default screen says it; that torch agrees with numeric goes without."""
    found = {side: TorchDerivative(agrees_with=side, entries=1, difference=0.0) for side in AgreesWith}
    shown = {side: brief(failing(replace(masked().checks[0], torch_derivative=found[side]))) for side in AgreesWith}
    assert "    torch's own derivative of the forward agrees with analytic\n" in shown[AgreesWith.ANALYTIC]
    assert "torch's own" not in shown[AgreesWith.NUMERIC]
    crowded = many_failing_checks()
    first = replace(crowded.checks[0], torch_derivative=found[AgreesWith.ANALYTIC])
    assert brief(replace(crowded, checks=(first, *crowded.checks[1:]))).count("\n") <= 15


def test_a_case_with_one_failing_check_shows_message_elements_cause_and_command() -> None:
    assert brief(masked()) == (
        "✗ FAIL  clipped_relu/vector/cpu-float64  ───────────────────────────────────────\n"
        "  specs/clipped_relu.yaml:12, backward at specs/ops/clipped_relu.py:31\n"
        "  ✗ gradcheck GV101: 2 entries of d y / d x differ\n"
        "    input    value  output  analytic      numeric ± bar  error  allowed  ratio\n"
        "    x[1]   3.51235  y[1]           1  0 ± 2e-11              1    3e-10  3.3e9\n"
        "    x[4]   6.51235  y[4]           1  0.2500000 ± 2e-11   0.75    3e-10  2.5e9\n"
        "    cause missing-mask: analytic is not zero where numeric is, for x > 2; this\n"
        "    explains 100 % of the error\n"
        "  reproduce:\n"
        "  gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64'\n"
    )


def test_what_is_not_shown_is_counted_beside_the_command_that_shows_it() -> None:
    rows = brief(second_order()).splitlines()
    at = rows.index("  … 19,998 more elements and 1 more finding:")
    assert rows[at + 1] == "  gradverify inspect 'spectral/filtered/cpu-complex128-sample2'"
    few = failing(failing_check(findings=(finding(total=5, elements=tuple(map(element, range(5)))),)))
    assert "  … 2 more elements: gradverify inspect 'clipped_relu/vector/cpu-float64'\n" in brief(few)


def test_a_count_that_is_not_of_elements_is_not_taken_for_one() -> None:
    linear = finding(code="GV302", message="a zero cotangent gets a gradient", total=7, elements=())
    text = brief(failing(contract(verdict=Verdict.FAIL, findings=(linear,))))
    assert "contract GV302: d y / d x: a zero cotangent gets a gradient" in text
    assert "more" not in text


def test_a_second_failing_check_takes_two_lines_at_most_and_names_its_cause() -> None:
    other = finding(code="GV202", cause="detached", message="no second derivative of y by x\nbecause " + "of it " * 30)
    text = brief(failing(failing_check(), failing_check(check="forward_ad", findings=(other,))))
    assert "\n  ✗ forward_ad GV202: cause detached: no second derivative of y by x\n" in text
    assert text.count("ratio") == 1  # one table


def test_second_derivative_beside_a_wrong_first_one_takes_one_line() -> None:
    other = finding(code="GV202", cause="detached", message="no second derivative of y by x")
    text = brief(failing(failing_check(), failing_check(check="gradgradcheck", findings=(other,))))
    assert "\n  ✗ gradgradcheck: fix the first derivative first\n" in text
    assert "detached" not in text


def test_reason_of_a_wrong_second_derivative_is_shown_whole() -> None:
    reason = Finding(code="GV502", verdict=Verdict.FAIL, message="an intermediate is saved " * 8 + "so mark backward")
    text = brief(failing(failing_check(check="gradgradcheck", findings=(reason, finding(code="GV202")))))
    assert "so mark backward" in " ".join(text.split())
    assert "also d y / d x in 2 entries\n" in text


def test_other_wrong_blocks_are_named_under_the_worst() -> None:
    blocks = [finding(of="y", wrt=name, message=f"2 entries of d y / d {name} differ") for name in ("q", "k", "v")]
    text = brief(failing(failing_check(findings=tuple(blocks))))
    assert "\n    also d y / d k in 2 entries, d y / d v in 2 entries\n" in text


def test_checks_that_say_the_same_share_a_line() -> None:
    raised = Finding(code="GV902", verdict=Verdict.ERROR, message="forward raised ValueError: no")
    checks = [CheckResult(check=name, verdict=Verdict.ERROR, findings=(raised,)) for name in ("gradcheck", "contract")]
    text = brief(case(verdict=Verdict.ERROR, as_expected=False, checks=tuple(checks)))
    assert "\n  ! gradcheck, contract GV902: forward raised ValueError: no\n" in text
    assert text.count("GV902") == 1


def test_a_proven_fail_is_shown_before_what_could_not_be_judged() -> None:
    open_ = failing_check(verdict=Verdict.INCONCLUSIVE, findings=(finding(code="GV104", verdict=Verdict.INCONCLUSIVE),))
    wrong = contract(verdict=Verdict.FAIL, findings=(finding(code="GV301", elements=(), total=0),))
    text = brief(failing(open_, wrong))
    assert text.index("GV301") < text.index("GV104")


def test_checks_that_fail_keep_their_order() -> None:
    open_ = finding(code="GV104", verdict=Verdict.INCONCLUSIVE)
    first = failing_check(findings=(finding(), open_))
    wrong = contract(verdict=Verdict.FAIL, findings=(finding(code="GV301", elements=(), total=0),))
    text = brief(failing(first, wrong))
    assert text.index("GV101") < text.index("GV301")
    assert "1 more finding" in text


def test_checks_beyond_the_third_are_named_with_their_codes() -> None:
    text = brief(many_failing_checks())
    assert "  also failed: batching GV409, compile GV409, precision GV409\n" in text


def test_a_long_message_is_cut_at_a_word_and_inspect_is_named() -> None:
    long = finding(elements=(), total=0, message="d y / d x " + "differs a lot " * 40)
    text = brief(failing(failing_check(findings=(long,))))
    assert "differs a …\n" in text or "differs …\n" in text or "a lot …\n" in text
    assert "  … the whole message: gradverify inspect 'clipped_relu/vector/cpu-float64'\n" in text


def test_of_what_a_crash_printed_the_last_lines_are_shown() -> None:
    printed = "\n".join(f"row {number}" for number in range(50))
    died = case(
        verdict=Verdict.ERROR, as_expected=False, checks=(), message=f"GV905: the worker died{PRINTED}{printed}"
    )
    rows = brief(died).splitlines()
    assert [row.strip() for row in rows[2:7]] == ["GV905: the worker died", "…", "row 47", "row 48", "row 49"]
    assert "  … the whole message: gradverify inspect 'clipped_relu/vector/cpu-float64'" in rows


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_case_takes_about_a_dozen_lines(width: int) -> None:
    most = 16 if width >= 80 else 19
    for result in (*everything().cases, many_failing_checks(), crashed()):
        rows = [plain(row) for row in case_brief(result, Screen(width=width))]
        assert len(rows) <= most, "\n".join(rows)
        for row in rows:
            assert cells(row) <= width or row.strip().startswith("gradverify ") or width < 80, row


def test_verbose_shows_every_finding_in_full() -> None:
    text = to_text(report_lines(everything(), Screen(), DetailOptions(detail=Detail.VERBOSE)))
    assert "worst y[1] by x[1]: backward says 1, differences say 0 ± 2e-11" in text.replace("\n           ", " ")
    assert "12 forward and 5 backward calls" in " ".join(text.split())
    usual = to_text(report_lines(everything(), Screen(), DetailOptions()))
    assert len(usual.splitlines()) < 0.6 * len(text.splitlines())


def test_without_a_spec_no_command_is_named() -> None:
    text = brief(replace(failing(failing_check(findings=(finding(total=1234),))), spec=""))
    assert "  … 1,232 more elements\n" in text
    assert "gradverify inspect" not in text and "reproduce" not in text


def test_a_skip_that_is_not_expected_says_its_reason_once() -> None:
    draft = skipped()
    expected, unexpected = (
        to_text(lines_after_listing(report(each), Screen(), DetailOptions()))
        for each in (draft, replace(draft, as_expected=False))
    )
    reason = "this machine has no device cuda"
    assert expected.startswith(f"- 1 case skipped: {reason}")
    assert unexpected.startswith("✗ SKIP")
    assert unexpected.count(reason) == 1
