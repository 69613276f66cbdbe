"""The module through which a spec reaches an operator of `torch.ops`, chosen as `gradverify init` chooses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from gradverify.author.finding.places import is_left_out
from gradverify.author.finding.reading import namespaces_in
from gradverify.author.recording.notes import Notes, Place, Subject

_IN_DISPATCHER = "torch.ops."
_TESTS = ("test", "tests")  # folders


def with_operators_named(notes: Notes) -> Notes:
    """Return the notes with every operator under the name that it has in one of the modules that lead to it."""
    homes = {subject: _home(subject, places) for subject, places in notes.places.items() if places}
    return replace(
        notes,
        signatures=tuple(replace(each, subject=homes.get(each.subject, each.subject)) for each in notes.signatures),
        uncounted=_renamed(notes.uncounted, homes),
    )


def file_name(subject: Subject) -> str:
    """Return what a spec of a subject is called."""
    if subject.name.startswith(_IN_DISPATCHER):
        return subject.name.removeprefix(_IN_DISPATCHER).partition(".")[2]
    return subject.name


def _home(subject: Subject, places: tuple[Place, ...]) -> Subject:
    """Return the subject at the best place, as it is if there is none: then `reason` says so.

    An operator that is no attribute of a module is reached where it is defined, or where its namespace is mentioned.
    """
    namespace = subject.name.removeprefix(_IN_DISPATCHER).partition(".")[0]
    mentions = cache(lambda file: namespace in namespaces_in(file))
    usable = [place for place in places if not _is_in_dispatcher(place) or place.defines or mentions(place.file)]
    if not usable:
        return subject

    def order(place: Place) -> tuple[bool, bool, bool, bool, bool, list[tuple[bool, str]]]:
        of_namespace = place.module.partition(".")[0] == namespace
        return (
            _is_in_tests(place),
            _is_in_dispatcher(place),
            not place.defines,
            not mentions(place.file),
            not of_namespace,
            _as_walked(Path(place.file)),
        )

    best = min(usable, key=order)
    return Subject(module=best.module, name=best.name, file=best.file)


def _is_in_dispatcher(place: Place) -> bool:
    return place.name.startswith(_IN_DISPATCHER)


def _is_in_tests(place: Place) -> bool:
    """True for modules that `init` leaves out."""
    parts = place.module.split(".")
    return parts[-1] == "__main__" or is_left_out(Path(place.file).name) or any(part in _TESTS for part in parts[:-1])


def _as_walked(path: Path) -> list[tuple[bool, str]]:
    """Return a key that sorts paths as a walk does: the files of a folder before its folders."""
    return [*((True, part) for part in path.parent.parts), (False, path.name)]


def _renamed(counts: Mapping[Subject, int], homes: Mapping[Subject, Subject]) -> dict[Subject, int]:
    return {homes.get(subject, subject): count for subject, count in counts.items()}
