"""Let a user's file import modules from its own folder, isolated from those of other folders."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import ModuleType

from gradverify.case import Target


@contextmanager
def importable(target: Target) -> Iterator[None]:
    """Let the target's module, and its functions when they are called, import their neighbours.

    A file imports from its own folder; two folders may both have a `helpers.py`. A dotted module imports from the
    current directory.
    """
    if target.file is None:
        with _first_on_path(Path.cwd()):
            yield
    else:
        folder = resolved(target.file).parent
        with _first_on_path(folder), _private_modules(folder):
            yield


@lru_cache(maxsize=1024)
def resolved(file: str) -> Path:
    """Return the path with links resolved. Cached, since every case needs it."""
    return Path(file).resolve()


@lru_cache(maxsize=1024)
def private_name(kind: str, path: Path) -> str:
    """Return a module name that is unique to `path`."""
    digest = hashlib.blake2b(str(path).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return f"_gradverify_{kind}_{digest}"


@contextmanager
def _first_on_path(folder: Path) -> Iterator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


@contextmanager
def _private_modules(folder: Path) -> Iterator[None]:
    """Put this folder's modules into sys.modules; at the end move them, and those imported meanwhile, out again."""
    kept = _folder_modules(folder)
    before = list(sys.modules)
    for name, module in kept.items():
        sys.modules.setdefault(name, module)
    try:
        yield
    finally:
        added = _added_modules(before)
        for name in sorted(added):
            top = name.partition(".")[0]
            if top in added and (name in kept or _belongs_to(folder, sys.modules.get(top, kept.get(top)))):
                kept[name] = sys.modules.pop(name)


def _added_modules(before: Sequence[str]) -> set[str]:
    """Return the names of modules added to sys.modules since `before`.

    sys.modules is in order of insertion: unless some were removed, the new ones are the last.
    """
    found = set(islice(reversed(sys.modules), max(0, len(sys.modules) - len(before))))
    only_appended = (
        len(found) < len(sys.modules) and next(islice(reversed(sys.modules), len(found), None)) == before[-1]
    )
    return found if only_appended else sys.modules.keys() - set(before)


def _folder_modules(folder: Path) -> dict[str, ModuleType]:
    """Return the modules of this folder by name. They are kept in an attribute of a private module."""
    name = private_name("folder", folder)
    holder = sys.modules.get(name) or sys.modules.setdefault(name, ModuleType(name))
    kept: dict[str, ModuleType] = vars(holder).setdefault("modules", {})
    return kept


def _belongs_to(folder: Path, module: ModuleType | None) -> bool:
    """True if a top-level module is a file or package directly in `folder`."""
    if module is None:
        return False
    search = getattr(module, "__path__", None)
    places = list(search) if search is not None else [getattr(module, "__file__", None) or ""]
    return any(place and Path(place).resolve().parent == folder for place in places)
