"""In a GitHub job: annotations, the summary of the job, and no other workflow commands in the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report_specimens import case, crashed, masked, report

from gradverify.errors import SpecError, Where
from gradverify.report.to_json import to_json


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path.parent))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    return tmp_path / "summary.md"


def test_annotations_follow_the_report(fake, call, job: Path, tmp_path: Path) -> None:
    fake.results = [masked()]
    ran = call("run", "specs")
    assert ran.exit_code == 1
    *shown, last = ran.stdout.splitlines()
    assert shown[-1].startswith("✗ 1 of 1 case not as expected")
    assert last.startswith(f"::error file={tmp_path.name}/specs/ops/clipped_relu.py,line=31,title=")
    assert "### ✗ fail `clipped_relu/vector/cpu-float64`" in job.read_text(encoding="utf-8")


def test_the_summary_is_added_to(fake, call, job: Path) -> None:
    fake.results = [case()]
    job.write_text("# mine", encoding="utf-8")
    assert call("run", "specs").exit_code == 0
    assert job.read_text(encoding="utf-8").startswith("# mine\n## gradverify: ✓ 1 case as expected")


def test_merge_publishes_too(fake, call, job: Path) -> None:
    Path("a.json").write_text(to_json(report(masked())), encoding="utf-8")
    assert "::error " in call("merge", "a.json").stdout
    assert job.exists()


def test_nothing_is_published_outside_a_github_job(fake, call, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    fake.results = [masked()]
    assert "::" not in call("run", "specs").stdout
    assert not job.exists()


def test_a_summary_that_cannot_be_written_is_a_warning(
    fake, call, job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake.results = [case()]
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))
    ran = call("run", "specs")
    assert ran.exit_code == 0
    assert ran.stderr.startswith("gradverify: warning: could not write the summary of the job: ")


def commands(text: str) -> list[str]:
    """Return the lines that a runner would take for a command, without gradverify's annotations."""
    rows = text.splitlines()
    found = [row for row in rows if row.lstrip().startswith("::") or "##[" in row]
    return [row for row in found if not row.startswith("::error file=")]


def test_text_of_specs_cannot_be_a_workflow_command(fake, call, job: Path) -> None:
    evil = "::error::owned\n::add-mask::a\n  ::stop-commands::x\n##[error]y"
    fake.results = [
        replace(crashed(), id=evil, function=evil, message=evil),
        replace(masked(), id="::error::b", spec="::error::c.yaml", function=evil),
    ]
    fake.spec_errors = (SpecError(where=Where(file="::error::d.yaml"), problem=evil),)
    for words in (("run", "specs", "--keep-going"), ("run", "specs", "--keep-going", "-v"), ("list", "--keep-going")):
        ran = call(*words)
        assert commands(ran.stdout) == []
        assert commands(ran.stderr) == []


def test_defect_report_contains_no_workflow_command(fake, call, job: Path) -> None:
    fake.results = [case()]
    fake.raises = RuntimeError("::error::owned\n::error::again\n##[error]y")
    ran = call("run", "specs")
    assert ran.exit_code == 3
    assert ": :error::again" in ran.stderr
    assert commands(ran.stderr) == []
