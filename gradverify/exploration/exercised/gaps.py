"""Lines of a function that never ran."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from types import CodeType

from gradverify.exploration.exercised.syntax import (
    FunctionNode,
    is_error_path,
    lines_of,
    statement_lists,
)
from gradverify.exploration.exercised.user_code import nested

# Statements that run whenever the one before them has, unless it raised.
_STRAIGHT = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Pass, ast.Delete, ast.Assert)
_SUSPENDING = (ast.Yield, ast.YieldFrom, ast.Await)  # the rest of a function runs only if its caller asks for it

LeftOut = Callable[[ast.AST], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Statements one after the other that never ran."""

    within: str  # name of the function
    statements: tuple[ast.stmt, ...]

    @property
    def line(self) -> int:
        return self.statements[0].lineno


def gaps_in(node: FunctionNode, code: CodeType, ran: frozenset[int], left_out: LeftOut) -> list[Gap]:
    """Return the statements that never ran, in the order of their lines.

    Error paths are no gaps, nor are the bodies of statements for which `left_out` is true.
    """
    written = {line for each in nested(code) for _, _, line in each.co_lines() if line is not None}
    return [
        Gap(within=name, statements=block)
        for name, block in _blocks(node, node.name, written, ran, left_out)
        if not is_error_path(block)
    ]


@lru_cache(maxsize=256)
def may_have_gaps(node: FunctionNode) -> bool:
    """Return False if every statement of a function runs whenever it is called, unless it raises."""
    *before, last = node.body
    straight = all(isinstance(each, _STRAIGHT) for each in before) and isinstance(last, (*_STRAIGHT, ast.Return))
    return not straight or any(isinstance(each, _SUSPENDING) for each in ast.walk(node))


def _blocks(
    parent: ast.AST, name: str, written: set[int], ran: frozenset[int], left_out: LeftOut
) -> Iterator[tuple[str, tuple[ast.stmt, ...]]]:
    """Yield runs of statements that never ran, below a statement that did."""
    for body in statement_lists(parent):
        elsewhere = left_out(parent)
        coded = [each for each in body if written & {*lines_of(each)} and not _is_text(each)]
        for missing, group in groupby(coded, key=lambda each: not ran & {*lines_of(each)}):
            statements = tuple(group)
            if missing and not elsewhere:
                yield name, statements
            elif not missing:
                for statement in statements:
                    yield from _inside(statement, name, written, ran, left_out)
            elsewhere = elsewhere or any(left_out(each) and _leaves(each) for each in statements)


def _is_text(statement: ast.stmt) -> bool:
    """Return True for a text that stands alone: a docstring, or a comment that is written like one."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _inside(
    statement: ast.stmt, name: str, written: set[int], ran: frozenset[int], left_out: LeftOut
) -> Iterator[tuple[str, tuple[ast.stmt, ...]]]:
    if isinstance(statement, ast.ClassDef):
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        if not statement.decorator_list:  # a kernel, perhaps, which does not run as Python
            yield from _blocks(statement, statement.name, written, ran, left_out)
        return
    yield from _blocks(statement, name, written, ran, left_out)


def _leaves(statement: ast.stmt) -> bool:
    """Return True if a branch ends in `return`, so that what follows depends on the same test."""
    return any(isinstance(body[-1], ast.Return) for body in statement_lists(statement))
