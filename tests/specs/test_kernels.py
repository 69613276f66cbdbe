"""Kernels in specs/ are as their specs expect, or skipped with the reason.

`make run` judges all kernels and operators, and ends with an error if one that is not skipped is not as its spec
expects; here a quick kernel is judged, and must not be skipped where Triton is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gradverify.case import Case, Expectation
from gradverify.report.to_json import from_json
from gradverify.result import CaseResult, Verdict
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
from tests.specs.interpreted import can_interpret

ROOT = Path(__file__).parent.parent.parent
KERNEL = "kernels/swiglu.yaml"
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kernels")]
needs_triton = pytest.mark.skipif(not can_interpret(), reason="triton 3.7 is not installed")


@cache
def cases(part: str) -> dict[str, Case]:
    reading = read_paths([ROOT / "specs" / part])
    assert reading.errors == ()
    return {case.id: case for case in expand(reading.specs) if case.device == "cpu"}


@cache
def results() -> dict[str, CaseResult]:
    """Run all cases as users do: interpreted kernels need processes of their own, each of which imports Triton."""
    with TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-m", "gradverify", "run", f"specs/{KERNEL}", "-j", "1", "--json", str(report)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert report.exists(), ran.stdout + ran.stderr
        return {result.id: result for result in from_json(report.read_text(encoding="utf-8")).cases}


@pytest.mark.parametrize("identity", cases(KERNEL))
def test_case_is_as_its_spec_expects(identity: str) -> None:
    found = results()[identity]
    assert found.as_expected, (found.message, [(check.check, check.verdict, check.message) for check in found.checks])
    assert found.verdict is not Verdict.SKIP or found.message


@needs_triton
def test_no_kernel_is_skipped_on_the_cpu() -> None:
    assert all(results()[identity].verdict is not Verdict.SKIP for identity in cases(KERNEL))


def test_every_wrong_twin_is_expected_to_fail_in_some_case() -> None:
    """And `make run` ends with an error if it passes."""
    twins = re.findall(r"^class (\w+)\(", (ROOT / "specs/kernels/wrong.py").read_text(encoding="utf-8"), re.MULTILINE)
    expected = {
        case.target.name
        for case in cases("kernels").values()
        if case.target.written.startswith("wrong.py:") and is_to_fail(case.expect)
    }
    assert twins
    assert expected == set(twins)


def is_to_fail(expected: Expectation) -> bool:
    return Verdict.FAIL in (expected.verdict, *(check.verdict for check in expected.checks.values()))
