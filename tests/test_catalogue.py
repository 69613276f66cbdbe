"""Checks and codes have one source each: the pages beside the checks, and the registry that maps names to functions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.examples.outputs import outputs
from gradverify.catalogue import codes, document, known_checks, parse
from gradverify.checks.registry import CHECKS
from tests.following import without_numbers

ROOT = Path(__file__).parent.parent
PAGE_OF_CHECKS = ROOT / "docs" / "checks.md"
_OUTPUT = re.compile(r"Prints:\n\n```text\n.*?\n```\n\n", re.DOTALL)
PAGE = """# outputs

## GV790 — an output is negative

The forward returned a negative number.
"""
CODE = """
from gradverify.checks.failures import evaluations
from gradverify.core.model.tape import record
from gradverify.result import CheckResult, Finding, Verdict

NAME = "positive"


def run(problem, settings):
    record(problem)
    finding = Finding(code="GV790", verdict=Verdict.FAIL, message="y is negative")
    return CheckResult(
        check=NAME,
        verdict=Verdict.FAIL,
        message=finding.message,
        evaluations=evaluations(problem),
        findings=(finding,),
    )
"""
SPEC = """\
function: ops.py:negated
checks: [positive]
positive: {rtol: 0.1}
inputs: {x: {shape: [2]}}
expect: {positive: {verdict: fail, codes: [GV790]}}
"""


def test_every_page_has_a_check_and_every_check_a_page() -> None:
    assert known_checks() == tuple(check.name for check in CHECKS)


def test_the_documentation_is_made_of_the_pages() -> None:
    text = _OUTPUT.sub("", PAGE_OF_CHECKS.read_text(encoding="utf-8"))
    assert text.endswith(f"\n\n{document()}"), "run `make docs`"
    names = [section.name for section in parse(text) if section.name.startswith("GV")]
    assert len(set(names)) == len(names)
    assert names == list(codes())


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # torch's own, in forward mode
def test_wrong_examples_print_what_the_documentation_shows_and_mended_ones_pass() -> None:
    """Numbers are left out: another machine rounds otherwise."""
    printed, amiss = outputs()
    assert not amiss, "\n".join(amiss)
    text = PAGE_OF_CHECKS.read_text(encoding="utf-8")
    shown = text.partition("\n# ")[2]
    assert without_numbers(f"# {shown}") == without_numbers(document(printed)), "run `make docs`"


@pytest.mark.slow
def test_a_new_check_is_its_own_files_and_a_line_in_the_registry(tmp_path: Path) -> None:
    package = tmp_path / "gradverify"
    shutil.copytree(ROOT / "gradverify", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "checks" / "positive.py").write_text(CODE, encoding="utf-8")
    (package / "checks" / "positive.md").write_text(PAGE, encoding="utf-8")
    registry = package / "checks" / "registry.py"
    line = "CHECKS = (\n    Check(name=positive.NAME, run=_causeless(positive.run)),"
    text = registry.read_text(encoding="utf-8").replace("CHECKS = (", line)
    registry.write_text(text.replace("import batching,", "import positive, batching,"), encoding="utf-8")
    (tmp_path / "ops.py").write_text("def negated(x):\n    return -x.exp()\n", encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")

    assert "GV790 — an output is negative\n\nThe forward returned" in gradverify(tmp_path, "explain", "gv790")
    assert "reference, parity, positive)" in " ".join(gradverify(tmp_path, "run", "--help").split())
    ran = gradverify(tmp_path, "run", "spec.yaml", "--jobs", "1", "--verbose")
    assert "GV790  y is negative" in ran
    assert "1 case as expected" in ran


def gradverify(folder: Path, *words: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "gradverify", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONUTF8": "1", "COLUMNS": "200"},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
