"""Names that stay the same: of specs, of cases, and of the draws that decide their input values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import PurePath

from gradverify.spec.limits import MAX_NAME
from gradverify.spec.readers import Issue

NO_FILE = "check"  # name of a spec that is in no file, but in the words of a command line
_SPECS = "specs"  # the folder that no id names


def spec_name(location: PurePath, root: PurePath) -> str:
    """Return the first part of the ids of a spec's cases: its path below `root`, without suffix and leading `specs/`.

    Both paths are absolute. The name of a spec outside of `root` is its absolute path.
    """
    path = location.with_suffix("")
    if not path.is_relative_to(root):
        return path.anchor + "/".join(map(_clean, path.parts[1:]))
    parts = path.relative_to(root).parts
    return "/".join(map(_clean, parts[1:] if parts[0] == _SPECS and len(parts) > 1 else parts))


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


def _clean(text: str) -> str:
    return re.sub(r"[^\w.+\-]+", "_", text)
