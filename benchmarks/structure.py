"""Measure the size of the numeric engine against its goals: `python -m benchmarks.structure [--json FILE]`.

Counts, in `gradverify/core` unless another folder is named:

files      Python files with more than a docstring and `from __future__` imports
lines      all lines of these files
constants  names assigned at module level whose value holds a number (not as an index) or a name counted before it
writers    statements in functions that give entries a verdict: `Code.X` stands in them as a value (not in a comparison,
           in `torch.isin`, as an index, as a key of a mapping), or they pass `code` to `Judged` or `replace`.
entered    files of which at least one function runs during one gradcheck, after a first one has run
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

import gradverify
from benchmarks.command import parsed_options, parser_of, save
from benchmarks.plain_table import table
from benchmarks.record import Total
from gradverify.case import Settings, TorchGradcheck
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind

PACKAGE = Path(gradverify.__file__).parent
CORE = PACKAGE / "core"
_ALONE = Settings(torch_gradcheck=TorchGradcheck.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One number and its upper limit, if any."""

    name: str
    value: int
    goal: int | None = None


class WrongSoftmax(torch.autograd.Function):
    """Softmax over the last dimension with a gradient 0.1 % too large in the first column."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        gradient: Tensor = y * (cotangent - (cotangent * y).sum(-1, keepdim=True))
        gradient[:, 0] *= 1.001
        return gradient


def main() -> None:
    """Print the table of counts."""
    options = parsed_options(parser_of(__doc__))
    counts = list(all_counts())
    rows = [
        (count.name, count.value, "" if count.goal is None else f"<= {count.goal}", _met(count)) for count in counts
    ]
    print(table(("count", "now", "goal", ""), rows))
    save("structure", options, (), [Total(name=count.name, value=count.value) for count in counts])


def all_counts() -> Iterator[Count]:
    """Yield every count with its goal."""
    core, diagnosis = (files_with_code(folder) for folder in (CORE, PACKAGE / "diagnosis"))
    yield Count(name="core: files", value=len(core), goal=45)
    yield Count(name="core: lines", value=_lines(core), goal=7000)
    yield Count(name="core: constants", value=sum(len(numeric_constants(_tree(path))) for path in core), goal=120)
    writers = [len(verdict_writers(_tree(path))) for path in core]
    yield Count(name="core: statements that write a verdict", value=sum(writers))
    yield Count(name="core: files that write a verdict", value=sum(map(bool, writers)), goal=1)
    yield Count(name="diagnosis: files", value=len(diagnosis), goal=45)
    yield Count(name="diagnosis: lines", value=_lines(diagnosis), goal=4000)
    yield Count(name="entered: sin of 1,000", value=len(files_entered(torch.sin, 1000)), goal=18)
    yield Count(name="entered: softmax 5x5", value=len(files_entered(lambda x: x.softmax(-1), 5, 5)), goal=26)
    yield Count(name="entered: wrong softmax 5x5", value=len(files_entered(WrongSoftmax.apply, 5, 5)), goal=36)


def files_with_code(folder: Path) -> list[Path]:
    """Return the Python files with more than a docstring and `from __future__` imports."""
    return [path for path in sorted(folder.rglob("*.py")) if any(map(_is_code, _tree(path).body))]


def numeric_constants(module: ast.Module) -> list[str]:
    """Return the module-level names with numeric values, in order of assignment."""
    found: list[str] = []
    for statement in module.body:
        for target, value in _assigned(statement):
            if _holds_number(value, found):
                found.append(target)
    return found


def verdict_writers(module: ast.Module) -> list[int]:
    """Return the lines of the statements in functions that give entries a verdict."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    lines = {line for function in functions for line in _writing_lines(function)}
    return sorted(lines)


def files_entered(function: Callable[..., Any], *shape: int) -> set[str]:
    """Return the files of core with a function that runs during one gradcheck at random values of this shape."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    problem = bind(function, (values,), names=["x"])
    run_check("gradcheck", problem, _ALONE)  # triggers the imports on first use
    entered: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        run_check("gradcheck", problem, _ALONE)
    finally:
        sys.setprofile(None)
    return {name for name in entered if Path(name).is_relative_to(CORE)}


def _met(count: Count) -> str:
    return "" if count.goal is None else "met" if count.value <= count.goal else "not met"


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _lines(paths: Sequence[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def _is_code(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module != "__future__"
    return not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))


def _assigned(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name that the statement assigns and the expression assigned to it."""
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value is not None:
        yield statement.target.id, statement.value
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            if isinstance(target, ast.Name):
                yield target.id, statement.value
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                for name, value in zip(target.elts, statement.value.elts, strict=True):
                    if isinstance(name, ast.Name):
                        yield name.id, value


def _holds_number(value: ast.AST, known: Sequence[str]) -> bool:
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.Name):
        return value.id in known
    return any(_holds_number(child, known) for child in _values_below(value))


def _writing_lines(node: ast.AST, line: int = 0) -> Iterator[int]:
    """Yield the first line of each innermost statement below the node that gives entries a verdict."""
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.isin"):
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code":
        yield line
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Judged", "replace"):
        yield from (line for keyword in node.keywords if keyword.arg == "code")
    for child in _values_below(node):
        yield from _writing_lines(child, child.lineno if isinstance(child, ast.stmt) else line)


def _values_below(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children of the node that are values, without indices and keys of mappings."""
    if isinstance(node, ast.Subscript):
        yield node.value
    elif isinstance(node, ast.Dict):
        yield from node.values
    else:
        yield from ast.iter_child_nodes(node)


if __name__ == "__main__":
    main()
