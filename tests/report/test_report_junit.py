"""JUnit XML: what a server reads is what the screen says."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st
from report_specimens import (
    case,
    crashed,
    everything,
    masked,
    of_any_report,
    report,
    skipped,
    timed_out,
    undetermined,
    unexpected_pass,
    wrong_on_purpose,
)

from gradverify.report.ci.junit import to_junit
from gradverify.result import SCHEMA_VERSION, CaseResult, Report, Verdict

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).with_name("junit.xsd")))


def entry_of(one: CaseResult) -> Xml.Element:
    text = to_junit(report(one))
    SCHEMA.validate(text.partition("\n")[2])
    found = Xml.fromstring(text.encode()).find("testsuite/testcase")
    assert found is not None
    return found


def outcome(one: CaseResult) -> Xml.Element:
    (found,) = entry_of(one)
    return found


def test_every_kind_is_valid_and_counted() -> None:
    text = to_junit(everything())
    SCHEMA.validate(text.partition("\n")[2])
    root = Xml.fromstring(text.encode())
    cases = root.findall("testsuite/testcase")
    assert root.attrib == {"name": "gradverify", "tests": "12", "failures": "4", "errors": "2", "time": "1.234"}
    assert [entry.get("name") for entry in cases] == [entry.id for entry in everything().cases]
    assert len(root.findall("testsuite/testcase/failure")) == 4
    assert len(root.findall("testsuite/testcase/error")) == 2
    for suite in root.findall("testsuite"):
        assert suite.get("tests") == str(len(suite.findall("testcase")))
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))


def test_an_empty_report_is_valid() -> None:
    SCHEMA.validate(to_junit(report()).partition("\n")[2])


def test_a_failure_holds_findings_elements_and_cause() -> None:
    found = outcome(masked())
    assert (found.tag, found.get("type")) == ("failure", "fail")
    assert found.get("message") == (
        "gradcheck GV101: 2 entries of d y / d x differ; worst y[1] by x[1]: backward says 1, "
        "differences say 0 ± 2e-11; cause missing-mask"
    )
    text = found.text or ""
    assert "x[4]" in text and "cause missing-mask: analytic is not zero" in text
    assert "gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64'" in text


def test_an_error_is_an_error_and_its_escapes_are_text() -> None:
    found = outcome(crashed())
    assert (found.tag, found.get("type")) == ("error", "error")
    assert found.get("message") == (
        r"gradcheck GV902: forward raised ValueError: \x1b[31mred\x1b[0m [bold]not markup[/bold] \x07"
    )


def test_a_skip_has_its_reason() -> None:
    found = outcome(skipped())
    assert (found.tag, found.get("message")) == ("skipped", skipped().message)


def test_a_skip_that_must_not_be_is_a_failure() -> None:
    found = outcome(case(verdict=Verdict.SKIP, as_expected=False, checks=(), message="no device cuda"))
    assert (found.tag, found.get("message")) == ("failure", "expected pass, found skip: no device cuda")


def test_inconclusive_is_a_failure_unless_expected() -> None:
    assert outcome(undetermined()).tag == "failure"
    assert not list(entry_of(case(verdict=Verdict.INCONCLUSIVE, expected=Verdict.INCONCLUSIVE)))


def test_expected_failures_and_errors_pass() -> None:
    assert not list(entry_of(wrong_on_purpose()))
    assert not list(entry_of(case(verdict=Verdict.ERROR, expected=Verdict.ERROR, checks=(), message="GV901: no")))


def test_a_pass_that_should_have_failed_is_a_failure() -> None:
    assert outcome(unexpected_pass()).get("message", "") == "expected fail, found pass: and every check passed"


def test_what_a_lost_worker_printed_is_its_output() -> None:
    message = "GV905: crashed: SIGSEGV; the last it printed:\nabout to\x00touch\nit \ud800"
    found, printed = entry_of(case(verdict=Verdict.ERROR, as_expected=False, checks=(), message=message))
    assert found.get("message") == "GV905: crashed: SIGSEGV"
    assert (printed.tag, printed.text) == ("system-out", "about to\\x00touch\nit \\ud800")


def test_times_are_seconds() -> None:
    assert entry_of(timed_out()).get("time") == "60.000"
    assert entry_of(case(seconds=math.nan)).get("time") == "0.000"


@pytest.mark.parametrize("text", ["<&>\"']]>", "\x00\x0b\x1f", "\ud800\udfff", "\ufffe\uffff", "a\nb\tc", "é𝄞"])
def test_any_text_is_held(text: str) -> None:
    one = case(id=f"a/{text}", function=text, spec=text, message=text, verdict=Verdict.ERROR, as_expected=False)
    entry_of(one)


@pytest.mark.slow
@of_any_report
@given(st.builds(Report, schema_version=st.just(SCHEMA_VERSION)))
def test_any_report_is_valid_but_for_times_below_zero(made: Report) -> None:
    Xml.fromstring(to_junit(made).encode())


def test_times_that_no_clock_shows_are_added_up_all_the_same() -> None:
    made = report(case(id="a", seconds=1e308), case(id="b", seconds=1e308))
    Xml.fromstring(to_junit(made).encode())
