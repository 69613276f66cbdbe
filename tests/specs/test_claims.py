"""Claims about saved bytes, from the file to the screen and the report."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gradverify.baseline.apply import baseline_on, case_with_baseline
from gradverify.baseline.model import Baseline, Entry
from gradverify.report.case_brief import case_brief
from gradverify.report.lines import to_text
from gradverify.report.screen import Screen
from gradverify.result import CaseResult, Verdict
from gradverify.run.run_case import run_case
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths

OPS = """
import torch

class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        value = torch.sigmoid(x)
        return grad * (value + x * value * (1 - value))

class Cached(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.cache = torch.sigmoid(x)
        return Swish.forward(ctx, x)

class Wrong(Cached):
    @staticmethod
    def backward(ctx, grad):
        return 2 * Swish.backward(ctx, grad)

def generous(x):
    return (x.exp() / (1 + x.exp())) * x

class ByNumpy(Swish):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(Swish.forward(ctx, x.detach()).numpy())
"""


def result_of(folder: Path, name: str, claim: str, more: str = "") -> CaseResult:
    (folder / "ops.py").write_text(OPS, encoding="utf-8")
    text = f'function: ops.py:{name}\ninputs: {{x: {{shape: [5]}}}}\nexpect: {{saved_bytes: "{claim}"}}\n{more}'
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    reading = read_paths([folder / "s.yaml"])
    assert not reading.errors
    (case,) = expand(reading.specs)
    return run_case(case)


@pytest.mark.parametrize(
    "claim", ["<= 0.5 * reference", "== 40", "<= 0.50 * reference", "<= 40 B", "< 0.04 KiB", "> 0"]
)
def test_claim_that_holds(tmp_path: Path, claim: str) -> None:
    result = result_of(tmp_path, "Swish", claim, "checks: [gradcheck]")
    assert result.as_expected
    assert result.message == ""
    assert result.measured is not None
    assert (result.measured.claim, result.measured.claim_holds) == (claim, True)


@pytest.mark.parametrize(
    ("name", "claim", "found"),
    [
        ("Swish", "< 0.5 * reference", "found 40 B, plain torch 80 B (0.5 of it)"),
        ("Cached", "<= 0.5 * reference", "found 80 B, plain torch 80 B (1 of it)"),
        ("Swish", "<= 39 B", "found 40 B, plain torch 80 B"),
        (
            "ByNumpy",
            "<= 0.5 * reference",
            "which could not be judged: plain torch: its forward hides operations from torch; name a `reference`",
        ),
    ],
)
def test_claim_that_does_not_hold_is_unexpected(tmp_path: Path, name: str, claim: str, found: str) -> None:
    result = result_of(tmp_path, name, claim, "checks: [gradcheck]")
    assert not result.as_expected
    assert result.verdict is Verdict.PASS
    assert [check.verdict for check in result.checks] == [Verdict.PASS]
    assert result.message.removeprefix(f"expected saved_bytes {claim}").lstrip(", ") == found
    assert f"expected saved_bytes {claim}" in to_text(case_brief(result, Screen(width=140)))


def test_claim_about_a_reference(tmp_path: Path) -> None:
    result = result_of(tmp_path, "Swish", "<= 0.1 * reference", "reference: ops.py:generous")
    assert not result.as_expected
    assert result.message.startswith("expected saved_bytes <= 0.1 * reference, found 40 B, reference ")


def test_wrong_gradient_is_unexpected_beside_a_claim_that_holds(tmp_path: Path) -> None:
    result = result_of(tmp_path, "Wrong", "<= 1 * reference", "checks: [gradcheck]")
    assert not result.as_expected
    assert result.verdict is Verdict.FAIL


def test_check_that_fails_as_expected_with_a_claim(tmp_path: Path) -> None:
    assert result_of(tmp_path, "Wrong", '<= 1 * reference", gradcheck: "fail', "checks: [gradcheck]").as_expected
    result = result_of(tmp_path, "Wrong", '< 1 * reference", gradcheck: "fail', "checks: [gradcheck]")
    assert not result.as_expected
    assert result.message == "expected saved_bytes < 1 * reference, found 80 B, plain torch 80 B (1 of it)"


def test_baseline_does_not_cover_a_claim(tmp_path: Path) -> None:
    result = result_of(tmp_path, "Wrong", "< 1 * reference", "checks: [gradcheck]")
    (finding,) = [finding for finding in result.checks[0].findings if finding.verdict is Verdict.FAIL]
    entry = Entry(
        case=result.id,
        check="gradcheck",
        code=finding.code,
        of=finding.of,
        wrt=finding.wrt,
        total=finding.total,
        cause=finding.cause,
        reason="known",
    )
    judge = baseline_on(Baseline(entries=(entry,)), datetime.date(2026, 4, 1))
    assert not case_with_baseline(result, judge).as_expected
    met = result_of(tmp_path, "Wrong", "<= 1 * reference", "checks: [gradcheck]")
    assert case_with_baseline(met, judge).as_expected
