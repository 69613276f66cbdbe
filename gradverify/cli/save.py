"""Write the inputs at which a gradient is wrong as specs, for `--save`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from gradverify.result import CaseResult, Discovery, Report
from gradverify.spec.save import save_spec
from gradverify.spec.wording import visible

_OTHER = re.compile(r"[^A-Za-z0-9_]+")  # what a file name has a dash for
_LONGEST = 80  # characters of a file name


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A report whose discoveries know their files."""

    report: Report
    lost: tuple[str, ...] = ()  # messages about files that could not be written


def save_found(report: Report, folder: Path | None) -> Saved:
    """Write a spec into a folder for each discovery that fails its case; nothing if `folder` is None.

    A file is named after its case and after what was changed. One that is there is never replaced: a number is added,
    unless it has the same text.
    """
    if folder is None:
        return Saved(report=report)
    lost: list[str] = []
    cases = tuple(_with_files(case, report.gradverify, folder, lost) for case in report.cases)
    return Saved(report=replace(report, cases=cases), lost=tuple(lost))


def _with_files(case: CaseResult, version: str, folder: Path, lost: list[str]) -> CaseResult:
    if case.explored is None or not case.explored.failing:
        return case
    failing = case.explored.failing
    found = tuple(
        _written(case, each, version, folder, lost) if each in failing else each for each in case.explored.discoveries
    )
    return replace(case, explored=replace(case.explored, discoveries=found))


def _written(case: CaseResult, found: Discovery, version: str, folder: Path, lost: list[str]) -> Discovery:
    """Return the discovery with its file; one that YAML has no word for has none."""
    if not found.spec:
        return found
    text = _commented(case, found, version)
    try:
        path = save_spec(folder, _name(case, found), text).path
    except OSError as error:
        lost.append(f"could not write a spec into {folder}: {error.strerror or error}")
        return found
    return replace(found, saved=path.as_posix())


def _commented(case: CaseResult, found: Discovery, version: str) -> str:
    rows = [
        f"Found by gradverify {version} at inputs near those of {case.id}.",
        *(f"Changed: {change}" for change in found.changes),
    ]
    return "".join(f"# {visible(row)}\n" for row in rows) + found.spec


def _name(case: CaseResult, found: Discovery) -> str:
    """Return the name of a file, without suffix: the spec's, the case's if it has its own, and what was changed."""
    spec, name, *_ = (*case.id.split("/")[-3:-1], "")
    function = case.function.rpartition(":")[2].rpartition(".")[2]
    words = [spec, *([name] if name != function else []), *(change.partition(":")[0] for change in found.changes[:1])]
    return "-".join(_OTHER.sub("-", word).strip("-") for word in words)[:_LONGEST]
