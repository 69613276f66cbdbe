"""Where a case's code stands, as a repository on a server knows it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import PurePath

from gradverify.result import CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """The repository that a run's files belong to."""

    root: str = ""  # absolute, with forward slashes; "" where it is not known
    inside: str = ""  # the folder of the run below the root, with forward slashes; "" for the root itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of a file."""

    file: str  # with forward slashes: relative to the checkout's root, absolute where it lies outside
    line: int  # from 1
    relative: bool


def place_of(case: CaseResult, checkout: Checkout) -> Place | None:
    """Return where backward is defined, else where the spec names the case; None where neither is known."""
    if case.source:
        return _placed(case.source.file, case.source.line, checkout)
    return _placed(case.spec, case.line, checkout) if case.spec else None


def _placed(file: str, line: int, checkout: Checkout) -> Place:
    path = PurePath(file).as_posix()
    absolute = PurePath(file).is_absolute()
    if not absolute:
        path = posixpath.normpath(posixpath.join(checkout.inside, path))
    elif checkout.root and path.startswith(f"{checkout.root.rstrip('/')}/"):
        path, absolute = path[len(checkout.root.rstrip("/")) + 1 :], False
    if path.startswith("../") and checkout.root:  # beside the checkout: no server can show it
        path, absolute = posixpath.normpath(posixpath.join(checkout.root, path)), True
    return Place(file=path, line=max(line, 1), relative=not absolute)
