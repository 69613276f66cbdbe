"""How a spec names a Function: by a module that can be imported anywhere, or by its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from gradverify.author.recording.notes import Subject
from gradverify.run.unobserved import OFF

# Prints the search path of a fresh Python process, and where it finds packages that are not on it.
_PROGRAM = """
import importlib.util, json, os, sys
found = list(sys.path)
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    found += [os.path.dirname(place) for place in (spec and spec.submodule_search_locations) or ()]
    found += [os.path.dirname(spec.origin)] if spec and spec.origin and not spec.submodule_search_locations else []
print(json.dumps([os.path.realpath(path) for path in found]))
"""


def roots_of(packages: Collection[str]) -> tuple[str, ...]:
    """Return the folders from which a fresh process in this folder imports, among others these packages."""
    command = [sys.executable, "-c", _PROGRAM, *sorted(name for name in packages if name.isidentifier())]
    ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **OFF})
    try:
        return tuple(json.loads(ran.stdout.splitlines()[-1]))
    except (ValueError, IndexError):
        return (str(Path.cwd()),)


def importable_from(roots: Sequence[str]) -> Callable[[Subject], bool]:
    """Return a test that is True for subjects whose module is imported from one of these folders."""

    def is_importable(subject: Subject) -> bool:
        if not subject.file:
            return True
        parts = subject.module.split(".")
        homes = [os.path.join(root, *parts) for root in roots]  # noqa: PTH118
        return os.path.realpath(subject.file) in {
            place
            for home in homes
            for place in (f"{home}.py", os.path.join(home, "__init__.py"))  # noqa: PTH118
        }

    return is_importable


def target_text(subject: Subject, folder: Path, is_importable: Callable[[Subject], bool]) -> str:
    """Return `module:Name`, or `path.py:Name` relative to a folder if a fresh process does not find the module."""
    if is_importable(subject):
        return f"{subject.module}:{subject.name}"
    return f"{Path(os.path.relpath(subject.file, folder)).as_posix()}:{subject.name}"
