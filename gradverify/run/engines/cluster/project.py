"""The project's folder, and which of its files reach the nodes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gradverify.run.engines.cluster.messages import Project
from gradverify.spec.files import project_root

# As in .gitignore. Beside these, Ray leaves out what .gitignore and .rayignore name.
EXCLUDES = (
    ".git/",
    "/.venv*/",
    "/venv/",
    "/build/",
    "/dist/",
    "/.tox/",
    "/.nox/",
    "*.egg-info/",
    "__pycache__/",
    "node_modules/",
    ".gradverify/",
    ".mypy_cache/",
    ".ruff_cache/",
    ".pytest_cache/",
    ".hypothesis/",
)
_MOST_NAMED = 3


def own_project() -> Project:
    """Return the project of the current folder: the nearest one above it with pyproject.toml or .git, else itself."""
    here = Path.cwd().resolve()
    root = project_root(here)
    entries = [Path(entry or here).resolve() for entry in sys.path]
    inside = [entry for entry in entries if entry.is_relative_to(root) and not _is_installed(entry, root)]
    path = tuple(dict.fromkeys(str(entry.relative_to(root)) for entry in inside))
    return Project(root=str(root), here=str(here.relative_to(root)), path=path)


def largest_parts(root: str) -> str:
    """Return the names and sizes of the largest files and folders directly in the project's folder that are sent."""
    entries = [entry for entry in Path(root).iterdir() if not entry.match(".venv*")]
    left_out = {pattern.strip("/") for pattern in EXCLUDES} | _ignored_by_git(root, entries)
    sizes = [
        (_size(entry), f"{entry.name}/" if entry.is_dir() else entry.name)
        for entry in entries
        if entry.name not in left_out
    ]
    return ", ".join(f"{name} {size / 2**20:,.0f} MiB" for size, name in sorted(sizes, reverse=True)[:_MOST_NAMED])


def _ignored_by_git(root: str, entries: Sequence[Path]) -> set[str]:
    names = [entry.name for entry in entries]
    try:
        answer = subprocess.run(
            ["git", "check-ignore", "-z", "--stdin"], cwd=root, input="\0".join(names), capture_output=True, text=True
        )
    except OSError:
        return set()
    return set(answer.stdout.split("\0"))


def _is_installed(entry: Path, root: Path) -> bool:
    """True if an entry of sys.path belongs to a virtual environment inside the project."""
    folders = [entry, *entry.parents]
    return any((folder / "pyvenv.cfg").is_file() for folder in folders[: folders.index(root) + 1])


def _size(entry: Path) -> int:
    if entry.is_symlink() or not entry.is_dir():
        return entry.lstat().st_size
    total = 0
    for folder, _, files in os.walk(entry):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118
            except OSError:
                continue
    return total
