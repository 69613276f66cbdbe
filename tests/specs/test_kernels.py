"""The kernels and operators in specs/ are as their specs expect, or skipped with the reason."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gradverify.case import Case
from gradverify.report.to_json import from_json
from gradverify.result import CaseResult, Verdict
from gradverify.spec.expand import expand
from gradverify.spec.read import read_paths
from tests.specs.interpreted import can_interpret

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("kernels", "custom_operators")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kernels")]
needs_triton = pytest.mark.skipif(not can_interpret(), reason="triton 3.7 is not installed")


@cache
def cases(folder: str) -> dict[str, Case]:
    reading = read_paths([ROOT / "specs" / folder])
    assert reading.errors == ()
    return {case.id: case for case in expand(reading.specs) if case.device == "cpu"}


@cache
def results(folder: str) -> dict[str, CaseResult]:
    """Run all cases of a folder as users do: interpreted kernels need processes of their own."""
    with TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-m", "gradverify", "run", f"specs/{folder}", "--json", str(report)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert report.exists(), ran.stdout + ran.stderr
        return {result.id: result for result in from_json(report.read_text(encoding="utf-8")).cases}


IDENTITIES = [(folder, identity) for folder in FOLDERS for identity in cases(folder)]


@pytest.mark.parametrize(("folder", "identity"), IDENTITIES, ids=[identity for _, identity in IDENTITIES])
def test_case_is_as_its_spec_expects(folder: str, identity: str) -> None:
    found = results(folder)[identity]
    assert found.as_expected, (found.message, [(check.check, check.verdict, check.message) for check in found.checks])
    assert found.verdict is not Verdict.SKIP or found.message


@needs_triton
def test_no_kernel_is_skipped_on_the_cpu() -> None:
    assert all(results("kernels")[identity].verdict is not Verdict.SKIP for identity in cases("kernels"))


@needs_triton
def test_every_wrong_twin_fails_in_some_case() -> None:
    twins = {name: case for name, case in cases("kernels").items() if case.target.written.startswith("wrong.py:")}
    failing = {case.target.name for name, case in twins.items() if results("kernels")[name].verdict is Verdict.FAIL}
    assert twins
    assert failing == {case.target.name for case in twins.values()}
