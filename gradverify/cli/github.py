"""A run inside a GitHub job: annotations in the log, and the summary of the job."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.cli.checkout import current_checkout
from gradverify.cli.terminal import complain, in_github_job, instruct
from gradverify.report.ci.github import workflow_commands
from gradverify.report.ci.markdown import to_markdown
from gradverify.result import Report


def publish(report: Report) -> None:
    """Tell GitHub what came of a run; elsewhere do nothing."""
    if not in_github_job():
        return
    instruct(workflow_commands(report, current_checkout()))
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if summary:
        _append(Path(summary), to_markdown(report))


def _append(path: Path, text: str) -> None:
    """Add to a page that other steps write too; that it cannot be written is worth a warning only."""
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{text}")
    except (OSError, ValueError) as error:
        complain(f"warning: could not write the summary of the job: {error}")
