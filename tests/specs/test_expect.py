"""What a spec expects of a check's cause and codes, from the file to the screen and the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradverify.report.case_brief import case_brief
from gradverify.report.lines import to_text
from gradverify.report.screen import Screen
from gradverify.report.to_json import from_json, to_json
from gradverify.result import CaseResult, Environment, Report, Verdict, summarize
from gradverify.run.run_case import run_case
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

OPS = """
import torch

class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad

class ScaledWrongly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad
"""
EXPECT = "expect: {gradcheck: {cause: straight-through, codes: [GV101]}}\n"


def result_of(folder: Path, name: str, expect: str) -> CaseResult:
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    text = f"function: ops.py:{name}\ninputs: {{x: {{shape: [5], uniform: [-3, 3]}}}}\nchecks: [gradcheck]\n{expect}"
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    reading = read_paths([folder / "s.yaml"])
    assert not reading.errors
    (case,) = expand(reading.specs)
    return run_case(case)


@pytest.mark.parametrize("expect", ["expect: fail\n", EXPECT])
def test_a_straight_through_estimator_is_as_expected(tmp_path: Path, expect: str) -> None:
    assert result_of(tmp_path, "Round", expect).as_expected


def test_another_mistake_is_hidden_by_fail_and_shown_by_the_exact_form(tmp_path: Path) -> None:
    assert result_of(tmp_path, "ScaledWrongly", "expect: fail\n").as_expected
    result = result_of(tmp_path, "ScaledWrongly", EXPECT)
    assert not result.as_expected
    assert result.verdict is Verdict.FAIL
    assert (
        "  expected gradcheck to fail by cause straight-through alone, found GV101 with\n  cause constant-factor\n"
    ) in to_text(case_brief(result, Screen()))


def test_the_report_holds_what_was_expected_of_each_check(tmp_path: Path) -> None:
    result = result_of(tmp_path, "Round", EXPECT)
    environment = Environment(python="3", torch="2", platform="Linux", devices=("cpu",), seed=None)
    report = Report(gradverify="0", environment=environment, summary=summarize([result], 1.0), cases=(result,))
    text = to_json(report)
    assert json.loads(text)["cases"][0]["expected_checks"] == [
        {"check": "gradcheck", "verdict": "fail", "cause": "straight-through", "codes": ["GV101"]}
    ]
    assert from_json(text) == report
