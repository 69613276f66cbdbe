"""The JSON is the report, whole."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_specimens import case, everything, of_any_report, report

from gradverify.report.to_json import from_json, to_json
from gradverify.result import SCHEMA_VERSION, Report
from gradverify.serial import ReportError


def test_round_trip_of_every_kind() -> None:
    text = to_json(everything())
    assert to_json(from_json(text)) == text
    assert from_json(text).cases[3] == everything().cases[3]


@pytest.mark.slow
@of_any_report
@given(st.builds(Report, schema_version=st.just(SCHEMA_VERSION)))
def test_round_trip_of_any_report(made: Report) -> None:
    text = to_json(made)
    text.encode("utf-8")
    assert to_json(from_json(text)) == text


def test_numbers_that_json_has_no_word_for() -> None:
    plain = json.loads(to_json(report(case(seconds=math.nan), case(seconds=-math.inf))))
    assert [entry["seconds"] for entry in plain["cases"]] == ["NaN", "-Infinity"]


def test_field_names() -> None:
    plain = json.loads(to_json(everything()))
    assert list(plain) == [
        "schema_version",
        "gradverify",
        "environment",
        "summary",
        "shard",
        "missing_shards",
        "not_run",
        "engine",
        "cases",
    ]
    names = ["cases", "as_expected", "unexpected", "pass", "fail", "inconclusive", "error", "skip", "seconds"]
    assert list(plain["summary"]) == names
    finding = plain["cases"][3]["checks"][0]["findings"][0]
    assert list(finding) == ["code", "verdict", "of", "wrt", "message", "cause", "total", "elements", "against"]
    numbers = ["value", "analytic", "numeric", "error_bar", "error", "allowed"]
    assert list(finding["elements"][0]) == ["output_index", "input_index", *numbers, "verdict", "reason", "ulps"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "not a report of gradverify: `schema_version` is missing"),
        ("{}", "not a report of gradverify: `schema_version` is missing"),
        ('{"schema_version": 2}', "schema_version is 2, this gradverify reads 1"),
        ('{"schema_version": 1}', "Report: `gradverify` is missing"),
    ],
)
def test_anything_else_is_said_to_be(text: str, message: str) -> None:
    with pytest.raises(ReportError) as caught:
        from_json(text)
    assert str(caught.value) == message


def test_a_number_out_of_range() -> None:
    text = to_json(report(case(seconds=1.5))).replace("1.5", "1" + "0" * 400)
    with pytest.raises(ReportError, match="a number is out of range"):
        from_json(text)


def test_deep_nesting() -> None:
    with pytest.raises(ReportError, match="not JSON"):
        from_json("[" * 100_000)
