"""The report as JSON, and back."""

from __future__ import annotations

import json

from gradverify.result import SCHEMA_VERSION, Report
from gradverify.serial import ReportError, from_plain, to_plain


def to_json(report: Report) -> str:
    """Return the report as JSON text, a line for every case; non-finite numbers are strings."""
    entries = [f"{_text(name)}: {_lines(value)}" for name, value in to_plain(report).items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"


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


def _lines(value: object) -> str:
    """Return a value, one line for every entry of a list."""
    if not isinstance(value, list) or not value:
        return _text(value)
    return "[\n" + ",\n".join(map(_text, value)) + "\n]"


def _text(value: object) -> str:
    return json.dumps(value, allow_nan=False)  # ASCII: any string can then be written
