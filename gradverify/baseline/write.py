"""Write a baseline as YAML, sorted by key."""

from __future__ import annotations

import re

from gradverify.baseline.model import Baseline, Entry
from gradverify.baseline.read import VERSION
from gradverify.spec.scalar import text_scalar

_HEAD = """\
# Failures that are known: `gradverify run --baseline` takes them as expected.
# Say why in `reason`. More wrong entries than `total`, or another `cause`, fail all the same.
# After the day in `expires: 2026-12-31`, which may be left out, an entry fails again.
"""
_PLAIN = re.compile(r"[A-Za-z][\w ./()+=,;-]*(?<! )")


def to_yaml(baseline: Baseline) -> str:
    """Return a baseline as YAML."""
    entries = sorted(baseline.entries, key=lambda entry: tuple(part or "" for part in entry.key))
    rows = [row for entry in entries for row in _rows(entry)]
    return f"{_HEAD}version: {VERSION}\nknown:{'' if rows else ' []'}\n" + "".join(f"{row}\n" for row in rows)


def _rows(entry: Entry) -> list[str]:
    rows = [f"  - case: {_scalar(entry.case)}"]
    rows += [f"    check: {_scalar(entry.check)}"] if entry.check else []
    rows += [f"    code: {entry.code}"]
    rows += [f"    {name}: {_scalar(value)}" for name, value in _places(entry) if value]
    rows += [f"    total: {entry.total}"]
    rows += [f"    columns: {[list(column) for column in entry.columns]}"] if entry.columns is not None else []
    rows += [f"    cause: {_scalar(entry.cause)}"] if entry.cause else []
    rows += [f"    reason: {_scalar(entry.reason)}"]
    return [*rows, *([f"    expires: {entry.expires.isoformat()}"] if entry.expires else [])]


def _places(entry: Entry) -> tuple[tuple[str, str | None], ...]:
    return ("of", entry.of), ("wrt", entry.wrt), ("changed", entry.changed)


def _scalar(text: str) -> str:
    return text_scalar(text, _PLAIN)
