"""Let a user's file import modules from its own folder, isolated from those of other folders."""

from __future__ import annotations

import hashlib
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from types import ModuleType

from gradverify.case import Target


@contextmanager
def importable(target: Target) -> Iterator[None]:
    """Let the target's module, and its functions when they are called, import their neighbours.

    A file imports from its own folder, then from the current directory; two folders may both have a `helpers.py`.
    A dotted module imports from the current directory. A module of a folder is imported once, whichever target needs
    it.
    """
    here = resolved(str(Path.cwd()))
    folders = (here,) if target.file is None else tuple(dict.fromkeys((resolved(target.file).parent, here)))
    with _first_on_path(folders), _neighbours(folders):
        yield


@lru_cache(maxsize=1024)
def resolved(file: str) -> Path:
    """Return the path with links resolved. Cached, since every case needs it."""
    return Path(file).resolve()


@lru_cache(maxsize=1024)
def private_name(path: Path) -> str:
    """Return a module name that is unique to the file `path`."""
    digest = hashlib.blake2b(str(path).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return f"_gradverify_file_{digest}"


@contextmanager
def _first_on_path(folders: Sequence[Path]) -> Iterator[None]:
    entries = [str(folder) for folder in folders]
    sys.path[:0] = entries
    try:
        yield
    finally:
        for entry in entries:
            if entry in sys.path:
                sys.path.remove(entry)


_MODULES: defaultdict[Path, dict[str, ModuleType]] = defaultdict(dict)  # of each folder, by name
_blocks: list[tuple[Sequence[Path], list[str]]] = []  # those entered: their folders, and what sys.modules held before


@contextmanager
def _neighbours(folders: Sequence[Path]) -> Iterator[None]:
    """Let sys.modules hold the modules of these folders, instead of those of the block around this one."""
    if _blocks:
        _move_out(*_blocks[-1])
    _blocks.append((folders, list(sys.modules)))
    _move_in(folders)
    try:
        yield
    finally:
        _move_out(*_blocks.pop())
        if _blocks:
            _move_in(_blocks[-1][0])


def _move_in(folders: Sequence[Path]) -> None:
    """Put the modules of these folders into sys.modules, except where an earlier folder has one of the same name."""
    earlier: list[str] = []
    for folder in folders:
        modules = _MODULES[folder]
        hidden = {top for top in set(map(_top, modules)) if earlier and PathFinder.find_spec(top, earlier)}
        for name, module in modules.items():
            if _top(name) not in hidden:
                sys.modules.setdefault(name, module)
        earlier.append(str(folder))


def _move_out(folders: Sequence[Path], before: Sequence[str]) -> None:
    """Move what these folders hold out of sys.modules, of the modules that it did not hold `before`."""
    added = _added_modules(before)
    homes = {top: _home(top, folders) for top in map(_top, added) if top in added}
    for name in sorted(added):
        home = homes.get(_top(name))
        if home is not None:
            _MODULES[home][name] = sys.modules.pop(name)


def _top(name: str) -> str:
    return name.partition(".")[0]


def _home(name: str, folders: Sequence[Path]) -> Path | None:
    """Return the folder that directly holds the file or package of a top-level module; None if it is none of these."""
    module = sys.modules[name]
    search = getattr(module, "__path__", None)
    places = list(search) if search is not None else [getattr(module, "__file__", None) or ""]
    parents = {resolved(place).parent for place in places if place}
    return next((folder for folder in folders if folder in parents), None)


def _added_modules(before: Sequence[str]) -> set[str]:
    """Return the names of modules added to sys.modules since `before`.

    sys.modules is in order of insertion: unless some were removed, the new ones are the last.
    """
    found = set(islice(reversed(sys.modules), max(0, len(sys.modules) - len(before))))
    only_appended = (
        len(found) < len(sys.modules) and next(islice(reversed(sys.modules), len(found), None)) == before[-1]
    )
    return found if only_appended else sys.modules.keys() - set(before)
