"""The imports of a Python file, found in its text."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Functions that import or run code named by their arguments, or change where modules are found.
_COMPUTED = frozenset(
    (
        "__import__",
        "__path__",
        "addsitedir",
        "exec",
        "exec_module",
        "import_module",
        "load_module",
        "load_source",
        "locate",
        "meta_path",
        "resolve_name",
        "run_module",
        "run_path",
        "spec_from_file_location",
        "walk_packages",
    )
)
_BY_NAME = frozenset(("__import__", "import_module"))  # the first argument is the name of a module
# Names that appear where compiled code is built or loaded.
_NATIVE = frozenset(
    ("CDLL", "PyDLL", "RawKernel", "RawModule", "cdll", "cpp_extension", "dlopen", "load_library", "pyximport")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import statement, or a call that imports a module named by a constant."""

    module: str  # dotted, "" for `from . import x`
    level: int = 0  # leading dots
    names: tuple[str, ...] = ()  # after `from module import`, possibly modules of a package; "*" among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What a file imports."""

    found: tuple[Import, ...] = ()
    unclear: str = ""  # why there may be more, as the predicate of a sentence; "" if there is no more
    native: bool = False  # True if the file builds or loads compiled code


def imports_of(file: Path) -> Imports:
    """Return the imports anywhere in a file, also inside functions; none if there is no such file."""
    try:
        stat = file.stat()
    except OSError:
        return Imports()
    return _read(file, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4096)
def _read(file: Path, _changed: int, _size: int) -> Imports:
    """Read a file. Its time and size are part of the key, so that an edited file is read again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in strings
            tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return Imports(unclear="cannot be read as Python")
    nodes = list(ast.walk(tree))
    aliases = _aliases(nodes)
    named = {
        node.func
        for node in nodes
        if isinstance(node, ast.Call) and _called(node, aliases) in _BY_NAME and _constant_name(node)
    }
    computed = next((line for node in nodes if node not in named and (line := _computed_line(node, aliases))), 0)
    return Imports(
        found=tuple(found for node in nodes for found in _imports(node, aliases)),
        unclear=f"imports or runs code by a computed name in line {computed}" if computed else "",
        native=any(_names_of(node) & _NATIVE for node in nodes),
    )


def _imports(node: ast.AST, aliases: dict[str, str]) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(module=alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        names = tuple(alias.name for alias in node.names)
        yield Import(module=node.module or "", level=node.level, names=names)
    elif isinstance(node, ast.Call) and _called(node, aliases) in _BY_NAME and (name := _constant_name(node)):
        yield Import(module=name)


def _computed_line(node: ast.AST, aliases: dict[str, str]) -> int:
    """Return the line of a node that runs code which the text does not name, or changes where modules are; else 0."""
    if isinstance(node, ast.ImportFrom):
        return node.lineno if node.module == "sys" and "path" in {alias.name for alias in node.names} else 0
    if isinstance(node, ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        is_path = node.attr == "path" and aliases.get(owner, owner) == "sys"
        return node.lineno if is_path or node.attr in _COMPUTED else 0
    return node.lineno if isinstance(node, ast.Name) and aliases.get(node.id, node.id) in _COMPUTED else 0


def _constant_name(call: ast.Call) -> str:
    """Return the absolute module name in the first argument, "" if it is computed or relative."""
    first = call.args[0] if call.args else None
    name = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return "" if name.startswith(".") else name


def _called(call: ast.Call, aliases: dict[str, str]) -> str:
    """Return the last part of the name of what is called, an alias replaced by what was imported."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return aliases.get(call.func.id, call.func.id) if isinstance(call.func, ast.Name) else ""


def _aliases(nodes: list[ast.AST]) -> dict[str, str]:
    imports = (node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname: alias.name for node in imports for alias in node.names if alias.asname}


def _names_of(node: ast.AST) -> set[str]:
    """Return the single names that a node mentions."""
    if isinstance(node, ast.Name):
        return {node.id}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Import):
        return {part for alias in node.names for part in alias.name.split(".")}
    if isinstance(node, ast.ImportFrom):
        return {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return set()
