"""SARIF: a result per finding that is not as expected, where a server can show it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import validator_for
from report_specimens import (
    case,
    crashed,
    everything,
    failing_check,
    finding,
    masked,
    of_any_report,
    report,
    skipped,
    undetermined,
    unexpected_pass,
    wrong_on_purpose,
)

from gradverify.catalogue import sections
from gradverify.report.ci.places import Checkout
from gradverify.report.ci.sarif import to_sarif
from gradverify.result import SCHEMA_VERSION, CaseResult, Report, Source, Verdict

# A file that holds the whole schema of the standard may be named to be obeyed as well.
_WHOLE = os.environ.get("SARIF_SCHEMA")
SCHEMAS = [
    json.loads(Path(file).read_text(encoding="utf-8"))
    for file in (Path(__file__).with_name("sarif.schema.json"), *([_WHOLE] if _WHOLE else []))
]
HERE = Checkout(root="/home/me/repo", inside="")


def sarif(made: Report, checkout: Checkout = HERE) -> Any:
    plain = json.loads(to_sarif(made, sections(), checkout))
    for schema in SCHEMAS:
        validator_for(schema)(schema).validate(plain)
    return plain["runs"][0]


def results(*cases: CaseResult, checkout: Checkout = HERE) -> list[Any]:
    return sarif(report(*cases), checkout)["results"]


def location(one: CaseResult, checkout: Checkout = HERE) -> Any:
    (result,) = results(one, checkout=checkout)
    return result["locations"][0]["physicalLocation"]


def test_note_about_the_point_is_told_with_each_finding() -> None:
    note = "parameters that held one value were drawn around it: weight around 1"
    plain, told = results(masked()), results(replace(masked(), note=note))
    assert [one["message"]["text"] for one in told] == [f"{one['message']['text']}; {note}" for one in plain]
    assert [one["partialFingerprints"] for one in told] == [one["partialFingerprints"] for one in plain]
    assert results(replace(case(), note=note)) == []


def test_every_kind() -> None:
    run = sarif(everything())
    assert [(entry["ruleId"], entry["level"]) for entry in run["results"]] == [
        ("GV101", "error"),
        ("GV201", "error"),
        ("GV201", "error"),
        ("GV104", "warning"),
        ("GV902", "error"),
        ("unexpected-outcome", "error"),
        ("unexpected-outcome", "warning"),
    ]


def test_rules_are_the_catalogue() -> None:
    rules = sarif(report())["tool"]["driver"]["rules"]
    codes = [section for section in sections() if section.name.startswith("GV")]
    assert [rule["id"] for rule in rules] == [*(section.name for section in codes), "unexpected-outcome"]
    assert rules[1]["shortDescription"]["text"] == "entries of the gradient differ"
    assert rules[1]["fullDescription"]["text"].startswith("Backward's value differs from the finite-difference value")
    assert "Mended, in this example:" in rules[1]["help"]["markdown"]
    assert sarif(report(masked()))["results"][0]["ruleIndex"] == 1


def test_a_result_says_what_where_and_why() -> None:
    (result,) = results(masked())
    assert result["message"]["text"] == (
        "clipped_relu/vector/cpu-float64: gradcheck GV101: 2 entries of d y / d x differ; worst y[1] by x[1]: "
        "backward says 1, differences say 0 ± 2e-11; cause missing-mask"
    )
    assert result["locations"][0] == {
        "physicalLocation": {
            "artifactLocation": {"uri": "specs/ops/clipped_relu.py", "uriBaseId": "SRCROOT"},
            "region": {"startLine": 31},
        },
        "logicalLocations": [{"fullyQualifiedName": "ops/clipped_relu.py:ClippedReLUFunction", "kind": "function"}],
    }


def test_what_is_as_expected_is_no_result() -> None:
    assert results(case(), wrong_on_purpose(), skipped()) == []


def test_remarks_are_no_results() -> None:
    remark = finding(code="GV309", verdict=Verdict.PASS)
    made = replace(masked(), checks=(failing_check(findings=(remark, finding())),))
    assert [entry["ruleId"] for entry in results(made)] == ["GV101"]


def test_without_a_source_the_spec_is_shown() -> None:
    assert location(crashed())["artifactLocation"]["uri"] == "specs/clipped_relu.yaml"
    assert location(crashed())["region"]["startLine"] == 12
    assert results(replace(crashed(), spec=""))[0]["locations"] == []


@pytest.mark.parametrize(
    ("file", "inside", "uri", "relative"),
    [
        ("ops.py", "", "ops.py", True),
        ("ops.py", "packages/a", "packages/a/ops.py", True),
        ("../b/ops.py", "packages/a", "packages/b/ops.py", True),
        ("a b/ü%#?.py", "", "a%20b/%C3%BC%25%23%3F.py", True),
        ("c:d.py", "", "c%3Ad.py", True),
        ("/home/me/repo/ops.py", "packages", "ops.py", True),
        ("/home/me/repository/ops.py", "", "file:///home/me/repository/ops.py", False),
        ("../ops.py", "", "file:///home/me/ops.py", False),
    ],
)
def test_paths_are_relative_to_the_repository(file: str, inside: str, uri: str, relative: bool) -> None:
    found = location(replace(masked(), source=Source(file=file, line=0)), Checkout(root="/home/me/repo", inside=inside))
    assert found["artifactLocation"] == {"uri": uri} | ({"uriBaseId": "SRCROOT"} if relative else {})
    assert found["region"] == {"startLine": 1}


def test_fingerprints_outlast_lines_and_numbers_and_are_all_different() -> None:
    first, *others = results(masked(), undetermined(), crashed(), unexpected_pass())
    prints = [entry["partialFingerprints"]["gradverify/v1"] for entry in (first, *others)]
    assert len(set(prints)) == 4
    moved = replace(masked(), source=Source(file="elsewhere.py", line=99), line=3, seconds=9.0)
    moved = replace(moved, checks=(failing_check(findings=(finding(message="3 entries differ", total=3),)),))
    assert results(moved)[0]["partialFingerprints"]["gradverify/v1"] == prints[0]


def test_equal_findings_have_fingerprints_of_their_own() -> None:
    found = results(replace(masked(), checks=(failing_check(findings=(finding(),) * 3),)))
    assert len({entry["partialFingerprints"]["gradverify/v1"] for entry in found}) == 3


def test_hostile_text_is_text() -> None:
    text = "a\x1b[31m\n::error::\ud800[x](https://x.example)"
    (result,) = results(replace(crashed(), id=text, function=text))
    shown = r"a\x1b[31m\n::error::\ud800[x] (https://x.example)"
    assert result["message"]["text"].startswith(f"{shown}: gradcheck GV902: forward raised")


@pytest.mark.slow
@of_any_report
@given(st.builds(Report, schema_version=st.just(SCHEMA_VERSION)), st.builds(Checkout))
def test_any_report_can_be_written(made: Report, checkout: Checkout) -> None:
    json.loads(to_sarif(made, sections(), checkout))


def test_what_a_baseline_says_is_told() -> None:
    expired = replace(masked(), message="the baseline's entry gradcheck GV101 expired")
    assert "the baseline's entry gradcheck GV101 expired" in results(expired)[0]["message"]["text"]
