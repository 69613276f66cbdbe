"""The files that differ from a revision of the git repository, and the cases that they concern."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gradverify.case import Case
from gradverify.cli.exits import UsageProblem
from gradverify.cli.terminal import complain
from gradverify.report.words import counted

_MOST_NOTES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Differences:
    """The files of a repository that differ from a revision."""

    root: Path  # of the repository
    files: frozenset[Path]  # absolute


def changed_since(cases: tuple[Case, ...], revision: str, settings: Collection[Path] = ()) -> tuple[Case, ...]:
    """Return the cases that what changed since a revision concerns, and print a sentence about them.

    Every case is returned if there is no git or no repository. Raises UsageProblem for an unknown revision.
    """
    from gradverify.concern.concerned import concerned
    from gradverify.concern.project import Project

    option = f"--changed-since {revision}"
    found = _differences(revision)
    if isinstance(found, str):
        complain(f"{option}: {found}, so every case is included")
        return cases
    project = Project(root=found.root, here=Path(os.path.realpath(Path.cwd())))
    concern = concerned(cases, found.files, project, settings)
    for note in concern.notes[:_MOST_NOTES]:
        complain(f"{option}: {note}")
    if len(concern.notes) > _MOST_NOTES:
        complain(f"{option}: and {counted(len(concern.notes) - _MOST_NOTES, 'more reason')} like these")
    if not concern.cases:
        complain(f"no case is concerned by what changed since {revision}")
    elif len(concern.cases) < len(cases):
        verb = "concerns" if len(found.files) == 1 else "concern"
        files = counted(len(found.files), "changed file")
        complain(f"{option}: {files} {verb} {len(concern.cases):,} of {counted(len(cases), 'case')}")
    return concern.cases


def _differences(revision: str) -> _Differences | str:
    """Return the files whose content differs: committed, staged, unstaged or untracked; or why that is not known."""
    try:
        top = _git("rev-parse", "--show-toplevel", folder=Path.cwd())
    except FileNotFoundError:
        return "git was not found"
    except OSError as error:
        return f"git could not be started ({error.strerror or error})"
    if top.returncode:
        return _why_no_repository(top.stderr)
    root = Path(os.path.realpath(os.fsdecode(top.stdout.removesuffix(b"\n"))))
    if _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", folder=root).returncode:
        hint = "name a commit, branch or tag, as HEAD or origin/main; a shallow clone has to fetch it first"
        raise UsageProblem(f"--changed-since {revision}: git knows no such revision; {hint}")
    options = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-relative", "--ignore-submodules=none")
    listings = (
        _git("diff", *options, revision, "--", folder=root),
        _git("diff", "--cached", *options, revision, "--", folder=root),
        _git("ls-files", "--others", "--exclude-standard", "-z", folder=root),
    )
    for listing in listings:
        if listing.returncode:
            return f"git could not tell what changed ({_first_line(listing.stderr)})"
    names = {name for listing in listings for name in listing.stdout.split(b"\0") if name}
    return _Differences(root=root, files=frozenset(root / os.fsdecode(name) for name in names))


def _git(*words: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    return subprocess.run(
        ["git", *words], cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )


def _why_no_repository(told: bytes) -> str:
    if b"not a git repository" in told:
        return "this folder is in no git repository"
    return f"git does not read this repository ({_first_line(told)})"


def _first_line(told: bytes) -> str:
    lines = told.decode("utf-8", "replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else "it gave no reason"
