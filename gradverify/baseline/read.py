"""Read a baseline from YAML, or report every mistake in it with its place."""

from __future__ import annotations

import datetime
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradverify.baseline.model import NOTHING_KNOWN, Baseline, Entry, Key
from gradverify.catalogue import known_checks
from gradverify.errors import SpecError
from gradverify.spec.document import compose
from gradverify.spec.expect import cause_name
from gradverify.spec.files import read_text, text_error
from gradverify.spec.node import Loc, Node, error, key_place, value_place
from gradverify.spec.readers import (
    BadValueError,
    Issue,
    Reader,
    bad,
    expected,
    keyed,
    list_of,
    one_of,
    text,
    whole,
    whole_between,
)
from gradverify.spec.wording import found, misspelt

VERSION = 2
_MAX_INTEGER = 2**63 - 1
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The result of reading a file."""

    baseline: Baseline  # empty if there are errors
    errors: tuple[SpecError, ...]


def read_baseline(path: Path, codes: Sequence[str]) -> Reading:
    """Return the baseline in a file. `codes` are the valid codes."""
    if not os.path.lexists(path):
        missing = text_error(str(path), "", "no such file", f"--write-baseline {shlex.quote(str(path))} makes it")
        return Reading(baseline=NOTHING_KNOWN, errors=(missing,))
    content = read_text(path)
    if isinstance(content, SpecError):
        return Reading(baseline=NOTHING_KNOWN, errors=(content,))
    return parse(content, str(path), codes)


def parse(content: str, file: str, codes: Sequence[str]) -> Reading:
    """Return the baseline in a text, or all its mistakes."""
    composed = compose(content, file)
    errors = list(composed.errors)
    if not errors and len(composed.documents) != 1:
        hint = "it starts with `version` and `known`; without known failures leave the file away"
        errors.append(text_error(file, "", f"expected one document, found {len(composed.documents)}", hint))
    if errors:
        return Reading(baseline=NOTHING_KNOWN, errors=tuple(errors))
    root = composed.documents[0]
    try:
        return Reading(baseline=Baseline(entries=_entries(root, codes)), errors=())
    except BadValueError as reason:
        return Reading(baseline=NOTHING_KNOWN, errors=tuple(_error(root, issue) for issue in reason.issues))


def _entries(root: Node, codes: Sequence[str]) -> tuple[Entry, ...]:
    _refuse_other_versions(root)
    readers = {"version": whole, "known": list_of(_entry_reader(codes), "entries")}
    values = _mapping(root.plain, readers, ("version", "known"))
    entries: tuple[Entry, ...] = values["known"]
    _refuse_duplicates(entries, root)
    return entries


def _entry_reader(codes: Sequence[str]) -> Reader[Entry]:
    readers = {
        "case": text,
        "check": one_of(known_checks()),
        "code": one_of(codes),
        "of": text,
        "wrt": text,
        "changed": text,
        "total": whole_between(1, _MAX_INTEGER),
        "columns": list_of(list_of(whole_between(0, _MAX_INTEGER), "whole numbers"), "indices of input elements"),
        "cause": cause_name,
        "reason": text,
        "expires": _date,
    }

    def read(value: Any) -> Entry:
        return Entry(**_mapping(value, readers, ("case", "code", "total", "reason")))

    return read


def _mapping(value: Any, readers: Mapping[str, Reader[Any]], required: Sequence[str]) -> dict[str, Any]:
    """Read a mapping with at least the required keys. Raises BadValueError with all mistakes."""
    issues: list[Issue] = []
    values: dict[str, Any] = {}
    try:
        values = keyed(value, readers)
    except BadValueError as reason:
        issues += reason.issues
    if isinstance(value, dict):
        issues += (Issue(at=(key,), problem="is missing") for key in _absent(value, required, tuple(readers)))
    if issues:
        raise BadValueError(*issues)
    return values


def _absent(value: dict[str, Any], required: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the required keys that are missing, without misspelt ones, which `keyed` reports."""
    return [key for key in required if key not in value and not misspelt(key, value, known)]


def _refuse_other_versions(root: Node) -> None:
    """Raise BadValueError for another version, without the mistakes in its entries that follow from it."""
    version = root.plain.get("version") if isinstance(root.plain, dict) else VERSION
    if isinstance(version, bool) or not isinstance(version, int) or version == VERSION:
        return
    again = f"move it away, and `gradverify run PATH --write-baseline {shlex.quote(root.where.file)}` writes it anew"
    old = f"its entries do not say which input is wrong, nor how many entries are; {again}"
    hint = old if version < VERSION else "a later gradverify wrote it"
    raise BadValueError(Issue(at=("version",), problem=f"expected {VERSION}, found {version}", hint=hint))


def _date(value: Any) -> datetime.date:
    if not isinstance(value, str):
        raise expected("a date as 2026-12-31", value)
    try:
        if _DATE.fullmatch(value):
            return datetime.date.fromisoformat(value)
    except ValueError as reason:
        raise bad(f"{found(value)} is no date: {reason}") from None
    raise expected("a date as 2026-12-31", value)


def _refuse_duplicates(entries: Sequence[Entry], root: Node) -> None:
    first: dict[Key, int] = {}
    issues = []
    for number, entry in enumerate(entries):
        other = first.setdefault(entry.key, number)
        if other != number:
            line = value_place(root, _at(other)).where.line
            issues.append(Issue(at=_at(number), problem="is there twice", hint=f"first at line {line}"))
    if issues:
        raise BadValueError(*issues)


def _at(number: int) -> Loc:
    return "known", number


def _error(root: Node, issue: Issue) -> SpecError:
    place = key_place(root, issue.at) if issue.on_key else value_place(root, issue.at)
    return error(place, issue.problem, issue.hint)
