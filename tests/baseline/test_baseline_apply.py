"""Applying a baseline: known findings are as expected; new, expired and fixed ones are reported."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest
from report_specimens import (
    case,
    check,
    crashed,
    element,
    everything,
    failing_check,
    finding,
    masked,
    report,
    skipped,
    timed_out,
    undetermined,
    unexpected_pass,
    wrong_on_purpose,
)

from gradverify.baseline.apply import (
    baseline_on,
    case_with_baseline,
    findings_of,
    fixed_entries,
    report_with_baseline,
    shrunk_entries,
    updated_baseline,
)
from gradverify.baseline.model import Baseline, Entry
from gradverify.result import CaseResult, Method, Verdict

TODAY = datetime.date(2026, 4, 1)
LOST = "GV904: timed out after 2 s; the last it printed:\nstep 1"


MASK = {"of": "y", "wrt": "x", "total": 2}  # of `finding()`
NAMELESS = {"of": None, "wrt": None, "total": 1}


def entry(one: CaseResult, check: str | None = "gradcheck", code: str = "GV101", **changes: object) -> Entry:
    values = MASK | {"reason": "issue 12"} | changes
    return Entry(case=one.id, check=check, code=code, **values)  # type: ignore[arg-type]


def known(*entries: Entry) -> Baseline:
    return Baseline(entries=entries)


def verdict(one: CaseResult, *entries: Entry) -> CaseResult:
    return case_with_baseline(one, baseline_on(known(*entries), TODAY))


def test_a_known_failure_is_as_expected_and_says_why() -> None:
    found = verdict(masked(), entry(masked()))
    assert (found.as_expected, found.known, found.verdict) == (True, "issue 12", Verdict.FAIL)
    after = report_with_baseline(report(masked(), case()), baseline_on(known(entry(masked())), TODAY))
    assert (after.summary.unexpected, after.summary.failed) == (0, 1)


def test_every_finding_must_be_known() -> None:
    two = replace(masked(), checks=(failing_check(findings=(finding(), finding(code="GV102"))),))
    found = verdict(two, entry(two))
    assert (found.as_expected, found.known) == (False, None)
    assert found.message == "not in the baseline: gradcheck GV102 d y / d x"
    assert verdict(two, entry(two), entry(two, code="GV102", reason="other")).known == "issue 12; other"


@pytest.mark.parametrize(
    "changes",
    [{"check": "contract"}, {"code": "GV102"}, {"case": "other/case/cpu"}, {"of": "z"}, {"of": None}, {"wrt": "w"}],
    ids=str,
)
def test_an_entry_is_about_one_case_check_code_output_and_input(changes: dict[str, str | None]) -> None:
    found = verdict(masked(), replace(entry(masked()), **changes))
    assert not found.as_expected


def wrong(**changes: object) -> CaseResult:
    return replace(masked(), checks=(failing_check(findings=(finding(total=224, **changes),)),))


def test_a_second_wrong_input_is_not_known() -> None:
    both = (finding(total=224), finding(wrt="w", total=32))
    found = verdict(replace(masked(), checks=(failing_check(findings=both),)), entry(masked(), total=224))
    assert (found.as_expected, found.known) == (False, None)
    assert found.message == "not in the baseline: gradcheck GV101 d y / d w"


@pytest.mark.parametrize(("total", "known"), [(223, False), (224, True), (225, True)])
def test_more_wrong_entries_than_recorded_are_not_known(total: int, known: bool) -> None:
    found = verdict(wrong(), entry(masked(), total=total))
    assert found.as_expected is known
    assert found.message == (
        "" if known else "beyond the baseline: gradcheck GV101 d y / d x (224 entries, known are 223)"
    )


@pytest.mark.parametrize(
    ("before", "now", "known"),
    [
        ("missing-mask", "missing-mask", True),
        ("missing-mask", None, True),
        (None, "sign-flip", True),
        ("missing-mask", "sign-flip", False),
    ],
)
def test_another_cause_is_not_known(before: str | None, now: str | None, known: bool) -> None:
    found = verdict(wrong(cause=now), entry(masked(), total=224, cause=before))
    assert found.as_expected is known
    assert found.message == (
        "" if known else "beyond the baseline: gradcheck GV101 d y / d x (cause sign-flip, known is missing-mask)"
    )


def test_findings_with_the_same_names_are_added_up() -> None:
    uncounted = finding(code="GV305", of=None, total=0, elements=())
    one = replace(masked(), checks=(failing_check(findings=(uncounted,)),))
    two = replace(masked(), checks=(failing_check(findings=(uncounted, uncounted)),))
    known = entry(one, code="GV305", of=None, total=1)
    assert verdict(one, known).as_expected
    assert verdict(two, known).message == "beyond the baseline: gradcheck GV305 by x (2 entries, known are 1)"


def test_fewer_wrong_entries_are_known_and_the_entry_is_stale() -> None:
    more = entry(masked(), total=256)
    assert verdict(wrong(), more).as_expected
    assert shrunk_entries(report(wrong()), known(more)) == ((more, 224),)
    assert fixed_entries(report(wrong()), known(more)) == ()
    assert shrunk_entries(report(wrong()), known(replace(more, total=224), replace(more, wrt="w"))) == ()


def probed(*columns: int, **changes: object) -> CaseResult:
    elements = tuple(element(column) for column in columns)
    found = finding(elements=elements, **({"total": 9, "cause": "boundary-tile"} | changes))
    return replace(masked(), checks=(failing_check(method=Method.PROBED, findings=(found,)),))


@pytest.mark.parametrize(
    ("now", "beyond"),
    [
        (probed(0, 1, 2), ""),
        (probed(1, total=2), ""),
        (probed(0, 640, 641, total=5), "column [640] is not in `columns`, and 1 more"),
        (probed(640, total=5), "column [640] is not in `columns`"),
        (probed(0, 1, total=10), "10 entries, known are 9"),
        (probed(0, 1, cause=None), "cause not found, known is boundary-tile"),
        (probed(), "probed, and no column was found"),
    ],
)
def test_a_finding_of_a_probed_jacobian_is_known_by_its_columns_and_cause(now: CaseResult, beyond: str) -> None:
    baseline = updated_baseline(report(probed(0, 1, 2)), Baseline())
    found = case_with_baseline(now, baseline_on(baseline, TODAY))
    assert found.as_expected is not bool(beyond)
    assert found.message == (f"beyond the baseline: gradcheck GV101 d y / d x ({beyond})" if beyond else "")
    assert shrunk_entries(report(now), baseline) == ()


def test_an_entry_without_columns_does_not_know_a_probed_finding() -> None:
    found = verdict(probed(0), entry(masked(), total=9, cause="boundary-tile"))
    assert "(probed, and the entry has no `columns`; write the baseline again)" in found.message


def test_the_columns_of_findings_with_the_same_names_are_joined() -> None:
    both = (*probed(0).checks[0].findings, *probed(7).checks[0].findings)
    two = replace(masked(), checks=(failing_check(method=Method.PROBED, findings=both),))
    assert [now.columns for now in findings_of(two)] == [((0,), (7,))]


def test_an_entry_holds_through_its_last_day() -> None:
    assert verdict(masked(), entry(masked(), expires=TODAY)).as_expected
    found = verdict(masked(), entry(masked(), expires=TODAY - datetime.timedelta(days=1)))
    assert not found.as_expected
    assert found.message == "the baseline's entry gradcheck GV101 d y / d x expired on 2026-03-31 (issue 12)"


def test_a_case_that_could_not_be_run_can_be_in_the_baseline() -> None:
    lost = replace(timed_out(), message=LOST)
    timeout = entry(lost, None, "GV904", **NAMELESS)
    assert [now.key for now in findings_of(lost)] == [timeout.key]
    assert verdict(lost, timeout).as_expected
    expired = replace(timeout, expires=datetime.date(2026, 1, 1))
    found = verdict(lost, expired)
    assert found.message == (
        "GV904: timed out after 2 s; the baseline's entry GV904 expired on 2026-01-01 (issue 12); "
        "the last it printed:\nstep 1"
    )
    assert case_with_baseline(found, baseline_on(known(expired), TODAY)) == found


def test_inconclusive_and_errors_can_be_known() -> None:
    for one, code, names in ((undetermined(), "GV104", MASK | {"total": 4}), (crashed(), "GV902", NAMELESS)):
        assert verdict(one, entry(one, code=code, **names)).as_expected


def test_unexpected_passes_and_cases_with_expect_are_not_covered() -> None:
    bare = replace(masked(), checks=(check(verdict=Verdict.FAIL),))
    contradicted = replace(wrong_on_purpose(), as_expected=False)
    missing = case(verdict=Verdict.SKIP, as_expected=False, checks=())
    for one in (unexpected_pass(), missing, skipped(), case(), wrong_on_purpose(), contradicted, bare, timed_out()):
        assert findings_of(one) == (), one.id
        assert verdict(one, entry(one)) == one


def test_remarks_need_not_be_known() -> None:
    remark = finding(code="GV309", verdict=Verdict.PASS)
    found = findings_of(replace(masked(), checks=(failing_check(findings=(remark, finding())),)))
    assert [now.key for now in found] == [entry(masked()).key]


def test_applying_a_baseline_twice_changes_nothing() -> None:
    once = verdict(masked(), entry(masked()))
    assert verdict(once, entry(masked())) == once
    again = verdict(once, entry(masked(), code="GV102"))
    assert (again.as_expected, again.known) == (False, None)


def test_entries_are_fixed_if_their_check_ran_and_the_finding_is_gone() -> None:
    good = case(masked().id)
    assert fixed_entries(report(good), known(entry(masked()))) == (entry(masked()),)
    assert fixed_entries(report(masked()), known(entry(masked()))) == ()
    other = replace(masked(), checks=(failing_check(findings=(finding(code="GV102"),)),))
    assert fixed_entries(report(other), known(entry(masked()))) == (entry(masked()),)
    assert fixed_entries(report(masked()), known(entry(masked(), wrt="w"))) == (entry(masked(), wrt="w"),)


@pytest.mark.parametrize(
    "now",
    [
        case("another/case/cpu"),  # not selected
        case(masked().id, checks=(check("contract"),)),  # only another check was run
        case(masked().id, checks=(check(verdict=Verdict.SKIP),), verdict=Verdict.SKIP),
        case(masked().id, checks=(check(verdict=Verdict.ERROR),), verdict=Verdict.ERROR, as_expected=False),
        case(masked().id, checks=(check(verdict=Verdict.INCONCLUSIVE),), verdict=Verdict.INCONCLUSIVE),
        replace(timed_out(), id=masked().id, message=LOST),
        replace(skipped(), id=masked().id),
    ],
    ids=["not-selected", "other-check", "skip", "error", "inconclusive", "lost", "no-device"],
)
def test_entries_whose_check_did_not_run_are_not_fixed(now: CaseResult) -> None:
    assert fixed_entries(report(now), known(entry(masked()))) == ()
    assert entry(masked()) in updated_baseline(report(now), known(entry(masked()))).entries


def test_a_case_that_can_be_run_again_is_fixed() -> None:
    lost = entry(masked(), None, "GV904", **NAMELESS)
    assert fixed_entries(report(masked()), known(lost)) == (lost,)
    assert fixed_entries(report(replace(timed_out(), id=masked().id, message=LOST)), known(lost)) == ()


def test_updated_baseline_keeps_reasons_updates_counts_and_drops_fixed() -> None:
    old = entry(masked(), total=1, expires=datetime.date(2026, 1, 1))
    stale = entry(case("a/good/cpu"))
    elsewhere = entry(case("another/case/cpu"))
    now = replace(old, total=2, cause="missing-mask")
    new = entry(crashed(), code="GV902", reason="not looked into yet", **NAMELESS)
    made = updated_baseline(report(masked(), case("a/good/cpu"), crashed()), known(old, stale, elsewhere))
    assert set(made.entries) == {now, elsewhere, new}


def test_updated_baseline_covers_all_current_findings() -> None:
    made = updated_baseline(everything(), Baseline())
    after = report_with_baseline(everything(), baseline_on(made, TODAY))
    assert [one.id for one in after.cases if not one.as_expected] == [timed_out().id, unexpected_pass().id]
    assert updated_baseline(after, made) == made
