"""The report of an internal error, to be pasted into an issue."""

from __future__ import annotations

import platform
import shlex
import traceback
from collections.abc import Sequence
from importlib import metadata

from gradverify import __version__
from gradverify.report.safe import safe

WHERE = "the issue tracker of gradverify's repository"


def defect_report(error: BaseException, arguments: Sequence[str]) -> str:
    """Return the text of the report: versions, command, traceback, and where to send it."""
    trace = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(
        [
            "gradverify: this is a defect of gradverify, not of your code or your spec.",
            f"Please send everything between the lines to {WHERE}.",
            "-" * 70,
            f"gradverify {__version__}, torch {_version('torch')}, Python {platform.python_version()}",
            f"platform: {platform.platform()}",
            f"command: gradverify {safe(shlex.join(arguments))}",
            *map(safe, trace),
            "-" * 70,
            "",
        ]
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
