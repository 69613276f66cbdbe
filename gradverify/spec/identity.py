"""Names that stay the same: of specs, of cases, and of the draws that decide their input values."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath

from gradverify.spec.limits import MAX_NAME
from gradverify.spec.readers import Issue


def clean_stem(file_name: str) -> str:
    """Return a file's name without its suffix and without characters that would break an id."""
    return _clean(PurePath(file_name).stem)


def case_name_issues(name: str) -> Iterable[Issue]:
    """Yield why a name cannot be part of an id."""
    if not name:
        yield Issue(on_key=True, problem="a case needs a name")
    elif len(name) > MAX_NAME:
        yield Issue(on_key=True, problem=f"the name of a case has at most {MAX_NAME} characters, this one {len(name)}")
    elif re.search(r"[\s/\\]", name) or not name.isprintable():
        problem = "the name of a case is part of its id: no spaces, slashes or control characters"
        yield Issue(on_key=True, problem=problem)


def unique_name(name: str, target: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: the name, with the target's before it, and then with a number after it.

    The first document of a file keeps its names whatever is added after it.
    """
    if name in taken and name != target:
        name = f"{target}.{name}"
    number, candidate = 2, name
    while candidate in taken:
        number, candidate = number + 1, f"{name}-{number}"
    return candidate


def display_stems(locations: Iterable[str]) -> Mapping[str, str]:
    """Return the first part of the ids for each spec's location: its stem, with as few folders as tell it apart."""
    groups: dict[str, list[PurePath]] = defaultdict(list)
    for location in dict.fromkeys(locations):
        groups[clean_stem(location)].append(PurePath(location))
    return {str(path): stem for paths in groups.values() for path, stem in _told_apart(paths).items()}


def _told_apart(paths: Sequence[PurePath]) -> dict[PurePath, str]:
    for folders in range(max(len(path.parts) for path in paths)):
        stems = {path: "/".join((*_folders(path, folders), clean_stem(path.name))) for path in paths}
        if len(set(stems.values())) == len(paths):
            return stems
    # Neighbours that differ in the suffix alone, or in characters that ids do not show.
    return {path: f"{_clean(path.name)}-{number}" for number, path in enumerate(sorted(paths), start=1)}


def _folders(path: PurePath, count: int) -> tuple[str, ...]:
    parts = tuple(_clean(part) for part in path.parts[:-1])
    return parts[len(parts) - min(count, len(parts)) :]


def _clean(text: str) -> str:
    return re.sub(r"[^\w.+\-]+", "_", text).strip("_") or "_"
