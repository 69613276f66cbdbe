"""What the text of a module says about Functions and operators, without importing it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gradverify.author.finding.model import Parameters

# A module whose code has none of these names, and no class of a Function, defines no function with a gradient.
_NAMES = frozenset({
    "Function", "custom_op", "triton_op", "Library", "register_autograd", "load_library", "cpp_extension", "_C",
    "torch.ops",
})  # fmt: skip
_WORDS = re.compile(rf"\b({'|'.join(map(re.escape, sorted(_NAMES)))})\b")
_OF_TORCH = frozenset({"aten", "higher_order", "prim", "prims", "quantized"})  # namespaces of torch.ops
_NAMESPACES = re.compile(r"""torch\.ops\.(\w+)|['"](\w+)::\w|Library\(\s*['"](\w+)['"]|load_library\(.*?(\w+)['"]""")
_OPERATOR_DECORATORS = ("custom_op", "triton_op")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A function with a gradient, as the text of its module defines it."""

    name: str  # attribute of the module; with `<locals>` in it where it is defined inside a function
    line: int
    end: int  # last line
    is_class: bool
    parameters: Parameters

    @property
    def is_local(self) -> bool:
        """True if it is defined inside a function."""
        return "<locals>" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of a module that may define functions with a gradient."""

    tree: ast.Module | None  # None if it cannot be parsed
    mentions: bool  # True if its code names anything that makes such functions; its text, if it cannot be parsed
    namespaces: frozenset[str]  # of operators that it mentions


def read_module(path: str) -> Text:
    """Return the text of a module; an empty one if the file cannot be read."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123
            data = stream.read()
        source = data.decode("utf-8", errors="replace")
        tree: ast.Module | None = ast.parse(data)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        source, tree = _text_of(path), None
    mentions = bool(_WORDS.search(source)) if tree is None else _names_any(tree)
    return Text(tree=tree, mentions=mentions, namespaces=_namespaces(source))


def namespaces_in(path: str) -> frozenset[str]:
    """Return the namespaces of operators that the text of a module mentions; none if the file cannot be read."""
    return _namespaces(_text_of(path))


def relevant(texts: Mapping[str, Text]) -> frozenset[str]:
    """Return the keys of texts that may define functions with a gradient, subclasses of each other's included."""
    bases = _function_classes(text.tree for text in texts.values())
    return frozenset(key for key, text in texts.items() if text.mentions or _derives(text.tree, bases))


def written_functions(text: Text, bases: frozenset[str]) -> tuple[Written, ...]:
    """Return the Functions and custom operators that a text defines, by its classes and decorators."""
    return tuple(_written(text.tree.body, "", bases)) if text.tree is not None else ()


def function_classes(texts: Iterable[Text]) -> frozenset[str]:
    """Return the names of `Function` and of every class derived from it."""
    return _function_classes(text.tree for text in texts)


def _names_any(tree: ast.Module) -> bool:
    """True if code names anything that makes functions with a gradient; comments and strings do not count."""
    return any(not _NAMES.isdisjoint(_names_in(node)) for node in ast.walk(tree))


def _names_in(node: ast.AST) -> Iterable[str]:
    """Return the names that one node adds to a text: `torch.ops` for a namespace of it that is not torch's own."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value) if node.attr in _NAMES or _last(node.value) == "ops" else ""
        if owner == "torch.ops":
            return () if node.attr in _OF_TORCH else ("torch.ops",)
        return () if owner == "torch" else (node.attr,)
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return () if module.partition(".")[0] == "torch" else module.split(".")
    return node.name.split(".") if isinstance(node, ast.alias) and node.name.partition(".")[0] != "torch" else ()


def _namespaces(source: str) -> frozenset[str]:
    return frozenset(name for match in _NAMESPACES.findall(source) for name in match if name)


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
            return stream.read()
    except OSError:
        return ""


def _function_classes(trees: Iterable[ast.Module | None]) -> frozenset[str]:
    derived = [
        (node.name, {_last(base) for base in node.bases})
        for tree in trees
        if tree is not None
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    known = {"Function"}
    while more := {name for name, bases in derived if bases & known} - known:
        known |= more
    return frozenset(known)


def _derives(tree: ast.Module | None, bases: frozenset[str]) -> bool:
    if tree is None:
        return False
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return any(_last(base) in bases for node in classes for base in node.bases)


def _written(body: Iterable[ast.stmt], prefix: str, bases: frozenset[str]) -> Iterator[Written]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
            forward = methods.get("forward")
            if forward is not None and methods.keys() & {"backward", "vjp"} and _bases(node) & bases:
                parameters = _parameters(forward, without_first="setup_context" not in methods)
                yield _named(node, prefix, parameters)
            yield from _written(node.body, f"{prefix}{node.name}.", bases)
        elif isinstance(node, ast.FunctionDef):
            if any(_last(each) in _OPERATOR_DECORATORS for each in node.decorator_list):
                parameters = _parameters(node, without_first=False)
                yield _named(node, prefix, parameters)
            yield from _written(node.body, f"{prefix}{node.name}.<locals>.", bases)
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _written(getattr(node, part, ()), prefix, bases)


def _named(node: ast.ClassDef | ast.FunctionDef, prefix: str, parameters: Parameters) -> Written:
    return Written(
        name=f"{prefix}{node.name}",
        line=node.lineno,
        end=node.end_lineno or node.lineno,
        is_class=isinstance(node, ast.ClassDef),
        parameters=parameters,
    )


def _bases(node: ast.ClassDef) -> set[str]:
    return {_last(base) for base in node.bases}


def _parameters(function: ast.FunctionDef, *, without_first: bool) -> Parameters:
    named = [*function.args.posonlyargs, *function.args.args]
    required = named[: len(named) - len(function.args.defaults)]
    names = tuple(each.arg for each in required)
    spread = None if function.args.vararg is None else function.args.vararg.arg
    return Parameters(names=names[1:] if without_first else names, spread=spread)


def _last(node: ast.expr) -> str:
    """Return the last part of a dotted name, of a call of it, or of what it is indexed by."""
    if isinstance(node, ast.Call | ast.Subscript):
        return _last(node.func if isinstance(node, ast.Call) else node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
