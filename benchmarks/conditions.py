"""Which conditions of core decide nothing: `python -m benchmarks.conditions zoo [OPTIONS OF THE ZOO]`.

Runs another benchmark with the masks, maxima and `if` statements of `gradverify.core` watched. Prints the operands
without which each result would have been the same, and the conditions that never were true, or never false. What
decides nothing in any benchmark and test may be deleted, unless it guards memory or against what user code may do.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import operator
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

ROOM = "gradverify.core"
_WATCHER = "_watched_by_benchmark"  # name of the watcher in the modules watched
_SIGNS: dict[type[ast.operator], str] = {ast.BitAnd: "and_", ast.BitOr: "or_"}  # functions of `operator`
_OF_TWO = ("maximum", "minimum", "fmax", "fmin")  # functions of torch that choose one of two operands


@dataclass(slots=True)
class Seen:
    """What was seen of one place in the code; mutable."""

    text: str
    times: int = 0
    left_matters: int = 0  # results that differ from the left operand; for a condition, those that are true
    right_matters: int = 0  # the same for the right operand; for a condition, those that are false


class Watcher:
    """Evaluates what is watched, and counts; `seen` is by module and place."""

    and_, or_ = staticmethod(operator.and_), staticmethod(operator.or_)
    iand, ior = staticmethod(operator.iand), staticmethod(operator.ior)

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def both(self, place: str, text: str, choose: Callable[[Any, Any], Any], one: Any, two: Any) -> Any:
        """Return what `choose` returns for two operands, and note from which of them it differs."""
        before = _copied(one) if choose in (operator.iand, operator.ior) else one  # which they change
        result = choose(one, two)
        seen = self.seen.setdefault(place, Seen(text))
        seen.times += 1
        seen.left_matters += _differs(result, before)
        seen.right_matters += _differs(result, two)
        return result

    def condition(self, place: str, text: str, value: Any) -> bool:
        """Return the truth of a condition, and note it."""
        seen, is_true = self.seen.setdefault(place, Seen(text)), bool(value)
        seen.times += 1
        seen.left_matters += is_true
        seen.right_matters += not is_true
        return is_true

    def idle(self) -> Iterator[str]:
        """Yield a line for each operand and condition that decided nothing."""
        for place, seen in sorted(self.seen.items()):
            named = ("true", "false") if seen.text.startswith("if ") else ("its right operand", "its left operand")
            for count, name in zip((seen.left_matters, seen.right_matters), named, strict=True):
                if not count:
                    what = f"never {name}" if name in ("true", "false") else f"{name} never mattered"
                    yield f"{place}: {seen.text}: {what}, {seen.times:,} times"


class Finder(importlib.abc.MetaPathFinder):
    """Imports the modules of a room so that they are watched."""

    def __init__(self, room: str, watcher: Watcher) -> None:
        self.room = room
        self.watcher = watcher

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module of the room, None for any other."""
        if name != self.room and not name.startswith(f"{self.room}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(name, spec.origin, self.watcher)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, watcher: Watcher) -> None:
        super().__init__(name, path)
        self.watcher = watcher

    def get_code(self, fullname: str) -> Any:
        """Return the code of the module with calls of the watcher in it; it is not kept in a file."""
        tree = _Watching(fullname).visit(ast.parse(Path(self.path).read_text(encoding="utf-8")))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_WATCHER] = self.watcher
        super().exec_module(module)


class _Watching(ast.NodeTransformer):
    """Puts calls of the watcher around masks, maxima and conditions."""

    def __init__(self, module: str) -> None:
        self.module = module

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)  # annotations are left alone
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitAnd | ast.BitOr):
            return node
        return self._call("both", node, text, _of_watcher(_SIGNS[type(node.op)]), node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitAnd | ast.BitOr) or not isinstance(node.target, ast.Name):
            return node
        target = ast.copy_location(ast.Name(id=node.target.id, ctx=ast.Load()), node)
        choose = _of_watcher(f"i{_SIGNS[type(node.op)].rstrip('_')}")
        value = self._call("both", target, text, choose, target, node.value)
        return ast.copy_location(ast.Assign(targets=[node.target], value=value), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        text = ast.unparse(node)
        self.generic_visit(node)
        function = node.func
        if len(node.args) != 2 or node.keywords or not isinstance(function, ast.Attribute):
            return node
        is_of_two = function.attr in _OF_TWO and ast.unparse(function.value) == "torch"
        return self._call("both", node, text, function, *node.args) if is_of_two else node

    def visit_If(self, node: ast.If) -> ast.AST:
        text = f"if {ast.unparse(node.test)}"
        self.generic_visit(node)
        node.test = self._call("condition", node.test, text, node.test)
        return node

    def _call(self, method: str, node: ast.expr, text: str, *operands: ast.expr) -> ast.expr:
        place = ast.Constant(f"{self.module}:{node.lineno:04}:{node.col_offset}")
        call = ast.Call(func=_of_watcher(method), args=[place, ast.Constant(text), *operands], keywords=[])
        return ast.copy_location(call, node)


def _of_watcher(name: str) -> ast.expr:
    return ast.Attribute(value=ast.Name(id=_WATCHER, ctx=ast.Load()), attr=name, ctx=ast.Load())


def _copied(value: Any) -> Any:
    """Return a copy that an operation in place does not change."""
    return value.clone() if isinstance(value, Tensor) else copy(value)


def _differs(result: Any, operand: Any) -> bool:
    if isinstance(result, Tensor) and isinstance(operand, Tensor):
        same = (result == operand) | ((result != result) & (operand != operand))  # nan equals nan
        return not bool(same.all())
    return bool(result != operand) if not isinstance(result, Tensor) else True


def main() -> None:
    """Run the benchmark that the command line names, watched, and print what decided nothing."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    watcher = Watcher()
    sys.meta_path.insert(0, Finder(ROOM, watcher))
    sys.argv = sys.argv[1:]
    try:
        runpy.run_module(f"benchmarks.{sys.argv[0]}", run_name="__main__", alter_sys=True)
    finally:
        print(*watcher.idle(), sep="\n")


if __name__ == "__main__":
    main()
