"""The report as JSON, and back."""

from __future__ import annotations

import json

from gradverify.result import SCHEMA_VERSION, Report
from gradverify.serial import ReportError, from_plain, to_plain


def to_json(report: Report) -> str:
    """Return the report as JSON text with a final line break; non-finite numbers are strings."""
    return json.dumps(to_plain(report), indent=1, allow_nan=False) + "\n"  # ASCII: any string can then be written


def from_json(text: str) -> Report:
    """Rebuild a report from `to_json`'s text; raises ReportError where it is anything else."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not JSON: {error}") from error
    if not isinstance(plain, dict) or "schema_version" not in plain:
        raise ReportError("not a report of gradverify: `schema_version` is missing")
    version = plain["schema_version"]
    if version != SCHEMA_VERSION:
        raise ReportError(f"schema_version is {version!r}, this gradverify reads {SCHEMA_VERSION}")
    try:
        return from_plain(Report, plain)
    except OverflowError as error:
        raise ReportError(f"a number is out of range: {error}") from error
