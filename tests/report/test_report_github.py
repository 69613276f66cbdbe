"""Annotations for GitHub, and no command that a user's text could start."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_specimens import case, check, crashed, everything, failing_check, finding, masked, report, wrong_on_purpose

from gradverify.report.ci.github import inert, workflow_commands
from gradverify.report.ci.places import Checkout
from gradverify.result import Source, Verdict

HERE = Checkout(root="/repo", inside="")
EVIL = "x\n::error::owned\r\n::set-output name=a::b,c:d%0A##[error]e"


def test_an_annotation_says_where_and_what() -> None:
    assert workflow_commands(report(masked(), case(), wrong_on_purpose()), HERE) == (
        "::error file=specs/ops/clipped_relu.py,line=31,title=gradverify%3A clipped_relu/vector/cpu-float64::"
        "gradcheck GV101: 2 entries of d y / d x differ; worst y[1] by x[1]: backward says 1, differences say "
        "0 ± 2e-11; cause missing-mask%0A"
        "reproduce: gradverify run specs/clipped_relu.yaml -k 'clipped_relu/vector/cpu-float64'\n"
    )


def test_note_about_the_point_stands_before_the_command() -> None:
    note = "parameters that held one value were drawn around it: weight around 1"
    told = workflow_commands(report(replace(masked(), note=note)), HERE)
    assert f"%0A{note}%0Areproduce: " in told


def test_nothing_where_all_is_as_expected() -> None:
    assert workflow_commands(report(case(), wrong_on_purpose()), HERE) == ""


def test_paths_are_those_of_the_repository() -> None:
    told = workflow_commands(report(masked()), Checkout(root="/repo", inside="packages/a"))
    assert told.startswith("::error file=packages/a/specs/ops/clipped_relu.py,line=31,")
    outside = replace(masked(), source=Source(file="/elsewhere/ops.py", line=3))
    assert workflow_commands(report(outside), HERE).startswith("::error title=gradverify")


@pytest.mark.parametrize(
    ("cases", "last"),
    [
        (10, "::error"),
        (11, "::notice::1 more case is not as expected"),
        (13, "::notice::3 more cases are not as expected"),
    ],
)
def test_at_most_ten_and_a_count_of_the_rest(cases: int, last: str) -> None:
    many = report(*(replace(masked(), id=f"a/{number}") for number in range(cases)))
    rows = workflow_commands(many, HERE).splitlines()
    assert sum(row.startswith("::error") for row in rows) == 10
    assert rows[-1].startswith(last)


def test_several_findings_are_one_annotation() -> None:
    many = replace(masked(), checks=(failing_check(findings=(finding(),) * 5),))
    (row,) = workflow_commands(report(many), HERE).splitlines()
    assert row.count("%0Agradcheck GV101: ") == 2
    assert "%0Aand 2 more findings%0A" in row


def test_what_all_checks_say_is_said_once() -> None:
    raised = finding(code="GV902", verdict=Verdict.ERROR, message="forward raised", elements=(), total=0)
    checks = [
        check(name, verdict=Verdict.ERROR, findings=(raised,)) for name in ("gradcheck", "gradgradcheck", "contract")
    ]
    told = workflow_commands(report(replace(crashed(), checks=tuple(checks))), HERE)
    assert "::gradcheck, gradgradcheck, contract GV902: forward raised%0Areproduce: " in told


def test_text_of_others_stays_in_its_annotation() -> None:
    source = Source(file=EVIL, line=1)
    hostile = replace(crashed(), id=EVIL, spec=EVIL, function=EVIL, message=EVIL, checks=(), source=source)
    told = workflow_commands(report(hostile), HERE)
    assert told.count("\n") == 1 and "\r" not in told
    head = re.match(r"::error file=([^,:]*),line=1,title=([^,:]*)::", told)
    assert head is not None
    assert (
        head[2] == "gradverify%3A x\\n%3A%3Aerror%3A%3Aowned\\r\\n%3A%3Aset-output name=a%3A%3Ab%2Cc%3Ad%250A##[error]e"
    )


@given(st.text(alphabet=":#[ \t\r\n\x0b\x85\u2003a"))
def test_what_is_shown_holds_no_command(text: str) -> None:
    shown = inert(text)
    assert "##[" not in shown
    assert not [row for row in re.split(r"[\r\n]", shown) if row.strip().startswith("::")]


def test_what_is_harmless_is_not_touched() -> None:
    text = "a::b\nspecs/x.yaml:1:2: [##] :x\n"
    assert inert(text) == text


def test_every_kind_is_one_line() -> None:
    rows = workflow_commands(everything(), HERE).splitlines()
    assert len(rows) == 6
    assert all(row.startswith("::error ") for row in rows)


def test_a_required_device_that_is_missing_is_told_at_the_spec() -> None:
    told = workflow_commands(
        report(case(verdict=Verdict.SKIP, as_expected=False, checks=(), message="no cuda", source=None)), HERE
    )
    assert told.startswith("::error file=specs/clipped_relu.yaml,line=12,")
    assert "expected pass, found skip: no cuda" in told


def test_what_a_baseline_says_is_told() -> None:
    expired = replace(masked(), message="the baseline's entry gradcheck GV101 expired")
    assert "the baseline's entry gradcheck GV101 expired" in workflow_commands(report(expired), HERE)
