"""In a GitHub job: annotations in the log, and the summary of the job."""

from __future__ import annotations

import os
from pathlib import Path

from gradverify.cli.checkout import current_checkout
from gradverify.cli.terminal import complain, in_github_job, instruct
from gradverify.report.ci.github import workflow_commands
from gradverify.report.ci.markdown import to_markdown
from gradverify.result import Report


def publish(report: Report) -> None:
    """Write annotations and the job's summary in a GitHub job; elsewhere do nothing."""
    if in_github_job():
        instruct(workflow_commands(report, current_checkout()))
        publish_summary(report)


def publish_summary(report: Report) -> None:
    """Write the job's summary in a GitHub job; elsewhere do nothing."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY", "")
    if in_github_job() and summary:
        _append(Path(summary), to_markdown(report))


def _append(path: Path, text: str) -> None:
    """Append to the summary, which other steps write too. Prints a warning if that fails."""
    try:
        with path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n{text}")
    except (OSError, ValueError) as error:
        complain(f"warning: could not write the summary of the job: {error}")
