"""Packages and paths to Python files. Nothing of theirs is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from gradverify.author.finding.model import Module
from gradverify.errors import GradverifyError

_LEFT_OUT = ("setup.py", "conftest.py", "__main__.py")
_FOLDERS_LEFT_OUT = ("test", "tests", "testing_utils", "node_modules", "__pycache__", "build", "dist", "site-packages")
_ENVIRONMENT = "pyvenv.cfg"  # in the folder of a virtual environment


class NoSuchPackage(GradverifyError):
    """A name is neither a package nor a path with Python files."""


def modules_of(places: Sequence[str]) -> tuple[Module, ...]:
    """Return the modules of packages, modules, files and folders, each once; raises NoSuchPackage.

    Left out are tests, setup.py, `__main__`, and what begins with a dot.
    """
    found: dict[str, Module] = {}
    for place in places:
        for module in _of_path(Path(place)) if _is_path(place) else _of_name(place):
            found.setdefault(module.path, module)
    return tuple(found.values())


def _is_path(place: str) -> bool:
    return os.sep in place or place.endswith(".py") or place in (".", "..")


def _of_name(name: str) -> Iterator[Module]:
    """Yield the modules of an importable package or module, else of a folder of that name."""
    spec = _located(name)
    if spec is None:
        if Path(name).is_dir():
            yield from _of_path(Path(name))
            return
        hint = "install it in this environment, start gradverify in the folder that holds it, or name a path"
        raise NoSuchPackage(f"{name}: there is no such package, module, file or folder; {hint}")
    for folder in spec.submodule_search_locations or ():
        for file in _python_files(Path(folder)):
            dotted = ".".join((name, *file.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            yield _named(file, dotted)
    if spec.submodule_search_locations is None and spec.origin is not None and spec.origin.endswith(".py"):
        yield _named(Path(spec.origin), name)


def _located(name: str) -> ModuleSpec | None:
    """Return where a dotted name is, without importing the packages above it; None if it is nowhere."""
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])  # noqa: PTH109
    if spec is None:
        with suppress(ImportError, ValueError):
            spec = find_spec(top)  # an editable install may have a finder of its own
    for number, part in enumerate(rest, start=2):
        if spec is None or spec.submodule_search_locations is None:
            return None
        full = ".".join([top, *rest][:number])
        assert part == full.rpartition(".")[2]
        spec = PathFinder.find_spec(full, list(spec.submodule_search_locations))
    return spec


def _of_path(path: Path) -> Iterator[Module]:
    """Yield the modules of a file or folder, by name where they lie in a package that can be imported."""
    if path.is_file() and path.suffix == ".py":
        yield _by_path(path)
        return
    if not path.is_dir():
        what = "not a Python file" if path.exists() else "no such file or folder"
        raise NoSuchPackage(f"{path}: {what}; name a package, a .py file, or a folder with .py files")
    for file in _python_files(path):
        yield _by_path(file)


def _by_path(path: Path) -> Module:
    file = path.resolve()
    root = next(folder for folder in file.parents if not (folder / "__init__.py").is_file())
    importable = {Path(entry or ".").resolve() for entry in sys.path} | {Path.cwd()}
    if root != file.parent and root in importable:
        dotted = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        return _named(file, dotted)
    shown = os.path.relpath(file)
    return Module(path=str(file), name=None, shown=str(file) if shown.startswith(os.pardir) else shown)


def _named(file: Path, dotted: str) -> Module:
    return Module(path=str(file.resolve()), name=dotted, shown=dotted)


def _python_files(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_wanted(Path(root, name)))
        for name in sorted(names):
            if name.endswith(".py") and not is_left_out(name):
                yield Path(root, name)


def _is_wanted(folder: Path) -> bool:
    name = folder.name
    return not (name.startswith(".") or name in _FOLDERS_LEFT_OUT or (folder / _ENVIRONMENT).exists())


def is_left_out(name: str) -> bool:
    """True for the names of files with tests, `setup.py`, `__main__.py`, and what begins with a dot."""
    return name in _LEFT_OUT or name.startswith((".", "test_")) or name.endswith("_test.py")
