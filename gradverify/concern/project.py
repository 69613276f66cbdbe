"""The files of a project, and the places where a module of it may be."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")
_NATIVE_SUFFIXES = frozenset(
    (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inc", ".inl", ".metal", ".pxd", ".pyx")
)
# Files that decide about the environment: names, and beginnings of names of .txt and .in files.
_SETTINGS = frozenset(
    (
        "Pipfile",
        "Pipfile.lock",
        "conda-lock.yml",
        "environment.yaml",
        "environment.yml",
        "pdm.lock",
        "pixi.lock",
        "pixi.toml",
        "poetry.lock",
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "uv.lock",
    )
)
_SETTINGS_STEMS = ("constraints", "requirements")


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where the files are that may change."""

    root: Path  # files outside of it are taken to stay as they are
    here: Path  # the working directory, where dotted targets are imported from


def places_of(path: str | Path) -> frozenset[Path]:
    """Return the absolute paths of a file: as written, with links in its folder resolved, and where a link leads."""
    written = Path(os.path.abspath(path))  # noqa: PTH100 (links are kept)
    resolved = Path(os.path.realpath(written))
    return frozenset((written, Path(os.path.realpath(written.parent), written.name), resolved))


def is_inside(path: Path, project: Project) -> bool:
    """True for files of the project; False for installed packages, also where their folder is in the project."""
    return path.is_relative_to(project.root) and not _is_installed(path)


def is_settings(path: Path) -> bool:
    """True for lock files and the configuration of a project or its environment."""
    required = path.suffix in (".txt", ".in") and path.name.startswith(_SETTINGS_STEMS)
    return path.name in _SETTINGS or required or (path.suffix == ".txt" and path.parent.name == "requirements")


def is_native_source(path: Path) -> bool:
    """True for sources of compiled code, and for compiled modules."""
    return path.suffix in _NATIVE_SUFFIXES or is_compiled(path)


def is_compiled(path: Path) -> bool:
    """True for compiled modules."""
    return path.name.endswith((*EXTENSION_SUFFIXES, ".so", ".pyd", ".dll", ".dylib"))


def candidates(parts: Sequence[str], roots: Sequence[Path]) -> Iterator[Path]:
    """Yield every file that importing the module `parts` may read, there or not: packages on the way included."""
    for root in roots:
        for count in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:count])
            yield place.with_name(f"{place.name}.py")
            yield place / "__init__.py"
            for suffix in EXTENSION_SUFFIXES:
                yield place.with_name(f"{place.name}{suffix}")


def roots_of(folder: Path, project: Project) -> tuple[Path, ...]:
    """Return the folders of the project that modules are imported from; `folder` is that of the target's file."""
    places = (folder, project.here, *(Path(os.path.abspath(entry)) for entry in sys.path))  # noqa: PTH100
    found = (Path(os.path.realpath(place)) for place in places)
    return tuple(dict.fromkeys(place for place in found if is_inside(place, project)))


@lru_cache(maxsize=4096)
def elsewhere(top: str) -> Path | None:
    """Return the folder that holds the top-level module `top` as the installed finders know it, None if they do not.

    Editable installations have finders of their own. A top-level module is found without being imported.
    """
    with suppress(Exception):
        found = importlib.util.find_spec(top)
        if found is not None and found.submodule_search_locations:
            return Path(os.path.realpath(next(iter(found.submodule_search_locations)))).parent
        if found is not None and found.has_location and found.origin:
            return Path(os.path.realpath(found.origin)).parent
        if found is not None:
            return Path(sys.prefix)  # built in
    return None


def _is_installed(path: Path) -> bool:
    return any(part in _INSTALLED for part in path.parts) or path.is_relative_to(_library())


@lru_cache(maxsize=1)
def _library() -> Path:
    return Path(os.path.realpath(sysconfig.get_paths()["stdlib"]))
