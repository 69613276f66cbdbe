"""Names of Python objects and of data files, found relative to the spec that names them."""

from __future__ import annotations

import ast
import keyword
import os
import re
from pathlib import Path

from gradverify.case import DataFile, Target
from gradverify.spec.files import is_file, names_in
from gradverify.spec.readers import BadValueError, bad
from gradverify.spec.wording import listed, meant_file, shortened

_DATA_SUFFIXES = (".pt", ".pth", ".npy", ".npz")
_NAMED_ARRAY = re.compile(r"(?P<file>.+\.(?:pt|pth|npy|npz)):(?P<name>[^:]+)", re.IGNORECASE)


def read_target(written: str, folder: Path) -> Target:
    """Return what `path.py:Name` or `package.module:Name` names; raises BadValueError where no such file is."""
    place, colon, name = written.rpartition(":")
    if "::" in written:
        meant = written.replace("::", ":", 1).replace("::", ".")
        raise bad(f"expected one colon, found text '{shortened(written)}'", f"did you mean `{shortened(meant)}`?")
    if not colon or not written.isprintable():
        raise _malformed(written, folder)
    if not _is_dotted(name):
        raise bad(f"`{shortened(name)}` after the colon is not a Python name")
    if not re.search(r"[/\\]|\.py$", place):
        if not _is_dotted(place):
            raise bad(f"`{shortened(place)}` is neither a .py file nor the dotted name of a module")
        return Target(module=place, name=name, written=written)
    if not place.endswith(".py"):
        raise bad(f"`{shortened(place)}` does not end in .py")
    return Target(file=str(_existing(place, folder, (".py",))), name=name, written=written)


def read_data_file(written: str, folder: Path) -> DataFile:
    """Return the data file that a spec names, `file.npz:name` included; raises BadValueError where it is not there."""
    place, name = split_data_file(written)
    if Path(place).suffix.lower() not in _DATA_SUFFIXES:
        raise bad(f"`{shortened(written)}` does not end in {', '.join(_DATA_SUFFIXES)}")
    file = _existing(place, folder, _DATA_SUFFIXES)
    return DataFile(path=f"{file}:{name}" if name else str(file))


def split_data_file(written: str) -> tuple[str, str]:
    """Return the path of a data file and the name of the array in it, "" where none is named."""
    named = _NAMED_ARRAY.fullmatch(written)
    return (named["file"], named["name"]) if named else (written, "")


def _existing(written: str, folder: Path, suffixes: tuple[str, ...]) -> Path:
    path = Path(os.path.abspath(folder / written))  # noqa: PTH100 (links are kept)
    if not is_file(path):
        names = names_in(path.parent, suffixes)
        beside = {name: str(Path(written).parent / name) for name in names}
        near = meant_file(written, beside) or (f"there is: {listed(beside.values())}" if names else "")
        hint = near or f"nothing ends in {' or '.join(suffixes)} there; paths are relative to the spec"
        raise bad(f"no such file `{shortened(written)}`", hint)
    return path


def _malformed(written: str, folder: Path) -> BadValueError:
    problem = f"expected path.py:Name or package.module:Name, found text '{shortened(written)}'"
    file = folder / written if written.endswith(".py") else _file_of_module(written)
    if file is not None:
        names = _defined_in(file)
        hint = f"add a colon and one of: {listed(names)}" if names else "add a colon and the name in that file"
        return bad(problem, hint)
    module, dot, name = written.rpartition(".")
    return bad(problem, f"did you mean `{module}:{name}`?" if dot and _is_dotted(written) else "")


def _file_of_module(written: str) -> Path | None:
    """Return the file of a module in the working directory, which targets may be imported from; None if none is."""
    if not _is_dotted(written):
        return None
    path = Path.cwd().joinpath(*written.split("."))
    return next((file for file in (Path(f"{path}.py"), path / "__init__.py") if is_file(file)), None)


def _defined_in(file: Path) -> tuple[str, ...]:
    """Return the public classes and functions of a Python file; none if it cannot be read."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    defined = (each.name for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef))
    return tuple(name for name in defined if not name.startswith("_"))


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))
