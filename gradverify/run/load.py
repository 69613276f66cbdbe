"""Import the object that a target names, inside a worker."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from gradverify.case import Absence, Target, TargetProblem
from gradverify.errors import TargetError, what_is_lacking
from gradverify.paths import shown_path
from gradverify.run.describe_exception import describe
from gradverify.run.siblings import importable, private_name, resolved

_MOST_NAMES = 20


class LoadError(TargetError):
    """A target does not exist, or its module raised; `problem` says which."""

    def __init__(self, problem: TargetProblem) -> None:
        self.problem = problem
        super().__init__(problem.message)


def load(target: Target) -> Any:
    """Return the object that `target` names. Raises LoadError."""
    with importable(target):
        return find(target)


def find(target: Target) -> Any:
    """Return the same object inside an `importable(target)` block. A file is imported once per process."""
    return _attribute(module_of(target), target)


def module_of(target: Target) -> ModuleType:
    """Return the module that holds a target, inside an `importable(target)` block. Raises LoadError."""
    return _from_file(Path(target.file), target.name) if target.file is not None else _from_name(target.module or "")


def _from_file(path: Path, wanted: str) -> ModuleType:
    if not path.is_file():
        raise LoadError(_missing_problem(f"there is no file {shown_path(str(path))}", _python_files(path), path.name))
    path = resolved(str(path))
    name = private_name(path)
    neighbour = sys.modules.get(path.stem)  # another file of the folder, or a dotted name, may have imported it
    loaded = neighbour if getattr(neighbour, "__file__", None) == str(path) else sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(_missing_problem(f"{shown_path(str(path))} is not a Python file", (), ""))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look up their module
    is_found_by_neighbours = sys.modules.setdefault(path.stem, module) is module
    try:
        hint = partial(_in_a_package, path, wanted)
        _imported(lambda: spec.loader.exec_module(module) if spec.loader else None, shown_path(str(path)), hint)
    except BaseException:
        sys.modules.pop(name, None)
        if is_found_by_neighbours:
            sys.modules.pop(path.stem, None)
        raise
    return module


_broken_packages: dict[tuple[str, ...], LoadError] = {}  # by name, and the folders that modules come from


def _from_name(name: str) -> ModuleType:
    packages = list(accumulate(name.split("."), "{}.{}".format))
    for package in packages:
        known = (package, *sys.path)
        if known in _broken_packages and package not in sys.modules:
            # What it had imported before it raised is there. For that, Python would not import the package again.
            raise _broken_packages[known]
    try:
        module: ModuleType = _imported(lambda: importlib.import_module(name), name)
        return module
    except LoadError as error:
        cause = error.__cause__
        absent = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if absent is not None and (name == absent or name.startswith(f"{absent}.")):
            raise LoadError(_missing_problem(_no_module(absent), (), "")) from cause
        broken = next((package for package in packages if package not in sys.modules), "")
        if broken:
            _broken_packages[broken, *sys.path] = error
        raise


def _no_module(name: str) -> str:
    """Return the message for a module that does not exist: where it was searched, and what to do."""
    package, _, part = name.rpartition(".")
    if package:
        return f"there is no module `{name}`: `{package}` can be imported, but holds no module `{part}`"
    return (
        f"there is no module `{name}`: it is not installed in this environment, and not in the working directory"
        f" {Path.cwd()}; install its package (`pip install -e FOLDER`), start gradverify in the folder that holds it,"
        " or name its file, as `path/to/ops.py:Name`"
    )


def _no_hint(_: BaseException) -> str:
    return ""


def _imported(run: Callable[[], Any], what: str, hint: Callable[[BaseException], str] = _no_hint) -> Any:
    """Return run(), the import of the user's module.

    Any exception becomes a LoadError with the line that raised, and with `hint` of the exception.
    """
    try:
        return run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lacking = what_is_lacking(error)
        if lacking is not None:
            raise LoadError(TargetProblem(absence=Absence.UNAVAILABLE, message=lacking)) from error
        message = f"importing {what} raised {describe(error)}{hint(error)}"
        raise LoadError(TargetProblem(absence=Absence.RAISED, message=message)) from error


def _in_a_package(file: Path, wanted: str, error: BaseException) -> str:
    """Return a hint for a file that cannot import its own package, because it was not imported as part of it.

    `wanted` is the name in the file that is looked for.
    """
    if not isinstance(error, ImportError):
        return ""
    relative = "relative import" in str(error)
    packages = list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.parents))[::-1]
    if packages and (relative or (error.name or "").partition(".")[0] == packages[0].name):
        names = [folder.name for folder in packages] + ([] if file.name == "__init__.py" else [file.stem])
        root = packages[0].parent
        where = "" if root == Path.cwd() else f", in the folder {root} or with `{names[0]}` installed"
        return f"; it is a module of the package `{names[0]}`: name it {'.'.join(names)}:{wanted}{where}"
    return "; a module with relative imports is named as package.module:Name" if relative else ""


def _attribute(module: ModuleType, target: Target) -> Any:
    found: Any = module
    for number, part in enumerate(target.name.split(".")):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            owner = ".".join(target.name.split(".")[:number]) or _name_of_module(target)
            names = _callables(found)
            raise LoadError(_missing_problem(f"{owner} has no `{part}`", names, part)) from error
        except Exception as error:
            raise LoadError(
                TargetProblem(absence=Absence.RAISED, message=f"looking up {target.name} raised {describe(error)}")
            ) from error
    return found


def _missing_problem(message: str, names: tuple[str, ...], wanted: str) -> TargetProblem:
    near = difflib.get_close_matches(wanted, names, n=3)
    ordered = (*near, *(name for name in names if name not in near))
    return TargetProblem(absence=Absence.MISSING, message=message, names=ordered[:_MOST_NAMES])


def _callables(owner: Any) -> tuple[str, ...]:
    """Return the public callables defined in a module or class, Function subclasses first."""
    home = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
    found = {
        name: value
        for name, value in vars(owner).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", home) == home
    }
    functions = [name for name, value in found.items() if _is_function(value)]
    return (*functions, *(name for name in found if name not in functions))


def _is_function(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, torch.autograd.Function)


def _python_files(path: Path) -> tuple[str, ...]:
    if not path.parent.is_dir():
        return ()
    return tuple(sorted(file.name for file in path.parent.glob("*.py")))


def _name_of_module(target: Target) -> str:
    return shown_path(target.file) if target.file is not None else str(target.module)
