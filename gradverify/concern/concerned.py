"""Decide which cases changed files concern."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import gradverify
from gradverify.case import Case
from gradverify.concern.project import Project, is_native_source, is_settings, places_of
from gradverify.concern.reach import Known, Reach, reach_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """The cases that changed files concern."""

    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()  # sentences on cases that are included because their files cannot be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changed files, as they are looked up."""

    files: frozenset[Path]
    folders: frozenset[Path]  # those that are no files: a submodule, or a folder that was renamed, is one change
    packages: frozenset[Path]  # folders in which a Python file changed
    native: bool  # True if a source of compiled code is among them


def concerned(
    cases: Sequence[Case], changed: Collection[Path], project: Project, settings: Collection[Path] = ()
) -> Concern:
    """Return the cases that changed files concern, all of them where a file may concern every case.

    `changed` are absolute paths, also of files that are gone; one that is a folder stands for every file below it.
    `settings` are files that decide about every case, beside those known by their names.
    """
    outside = [case for case in cases if not any(place.is_relative_to(project.root) for place in places_of(case.spec))]
    notes = [f"{case.spec} is outside of this repository: its cases are included" for case in outside]
    if not changed:
        return Concern(cases=tuple(outside), notes=tuple(dict.fromkeys(notes)))
    if why := _concerns_all(changed, settings):
        return Concern(cases=tuple(cases), notes=(f"{why}, which may concern every case",))
    known, changes = Known(), _changes(changed)
    reaches = [(case, reach_of(case, project, known)) for case in cases]
    hit = {case.id for case in outside} | {case.id for case, reach in reaches if is_hit(reach, changes)}
    unclear = [(case, reach) for case, reach in reaches if reach.unclear and case.id not in hit]
    included = hit | {case.id for case, _ in unclear}
    return Concern(
        cases=tuple(case for case in cases if case.id in included),
        notes=tuple(dict.fromkeys([*notes, *(f"{reach.unclear[0]}: its cases are included" for _, reach in unclear)])),
    )


def is_hit(reach: Reach, changes: Changes) -> bool:
    """True if one of the changed files is among those that a case depends on."""
    if not reach.files.isdisjoint(changes.files) or not reach.folders.isdisjoint(changes.packages):
        return True
    if reach.native and changes.native:
        return True
    return bool(changes.folders) and any(parent in changes.folders for file in reach.files for parent in file.parents)


def _changes(changed: Collection[Path]) -> Changes:
    return Changes(
        files=frozenset(changed),
        folders=frozenset(file for file in changed if not file.is_file()),
        packages=frozenset(file.parent for file in changed if file.suffix == ".py"),
        native=any(is_native_source(file) for file in changed),
    )


def _concerns_all(changed: Collection[Path], settings: Collection[Path]) -> str:
    """Return the sentence that a file changed which may concern every case, "" if none did."""
    own = Path(os.path.realpath(gradverify.__file__)).parent
    places = {place for path in settings for place in places_of(path)}
    for file in sorted(changed):
        if is_settings(file) or file in places:
            return f"{file.name} changed"
        if file.is_relative_to(own):
            return "gradverify itself changed"
    return ""
