"""The imports of a user's file: what lies beside it can be imported, and stays out of other files' way."""

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
    """Let `target`'s module, and its functions when they are called, import what they expect to find.

    For a file that is what lies in its folder; two folders may both have a `helpers.py`. For a dotted module it is
    what lies in the current directory.
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
    """Return where a file lies, links followed: once per process, since every case asks."""
    return Path(file).resolve()


@lru_cache(maxsize=1024)
def private_name(kind: str, path: Path) -> str:
    """Return a module name that belongs to `path` alone."""
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
    """Put this folder's modules into sys.modules, and take them and those that come to join them out again."""
    kept = _kept_modules(folder)
    before = list(sys.modules)
    for name, module in kept.items():
        sys.modules.setdefault(name, module)
    try:
        yield
    finally:
        joined = _joined(before)
        for name in sorted(joined):
            top = name.partition(".")[0]
            if top in joined and (name in kept or _lies_in(folder, sys.modules.get(top, kept.get(top)))):
                kept[name] = sys.modules.pop(name)


def _joined(before: Sequence[str]) -> set[str]:
    """Return the names of the modules that have come since: sys.modules has them in order, unless some were removed."""
    found = set(islice(reversed(sys.modules), max(0, len(sys.modules) - len(before))))
    undisturbed = len(found) < len(sys.modules) and next(islice(reversed(sys.modules), len(found), None)) == before[-1]
    return found if undisturbed else sys.modules.keys() - set(before)


def _kept_modules(folder: Path) -> dict[str, ModuleType]:
    """Return the modules of this folder that wait for their next use; a module of its own holds them."""
    name = private_name("folder", folder)
    holder = sys.modules.get(name) or sys.modules.setdefault(name, ModuleType(name))
    kept: dict[str, ModuleType] = vars(holder).setdefault("modules", {})
    return kept


def _lies_in(folder: Path, module: ModuleType | None) -> bool:
    """Tell whether a top-level module was found through `folder` itself, as a file or as a package."""
    if module is None:
        return False
    search = getattr(module, "__path__", None)
    places = list(search) if search is not None else [getattr(module, "__file__", None) or ""]
    return any(place and Path(place).resolve().parent == folder for place in places)
