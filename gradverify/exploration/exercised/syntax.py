"""The statements of a function: which of them guard against errors, and where a condition is used."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import CodeType

from gradverify.exploration.exercised.user_code import nested

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_NESTED_BODIES = ("body", "orelse", "finalbody")
_BEYOND = 30  # lines after the last one with code, in which a function may still go on
_CHECKS = {"_assert", "_check", "_assert_async", "_check_is_size", "warn", "warn_once", "print"}
# What a spec's inputs do not decide, or what the contract check tries by itself.
_ELSEWHERE = {
    *("is_cuda", "is_cpu", "device", "is_available", "device_count", "get_device_capability", "is_compiling"),
    *("requires_grad", "needs_input_grad", "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled"),
    *("is_contiguous", "stride", "data_ptr", "version_info", "__version__", "environ", "getenv", "platform"),
    *("TYPE_CHECKING", "__debug__", "is_fake", "is_scripting", "is_tracing"),
}


def function_node(code: CodeType) -> FunctionNode | None:
    """Return the syntax tree of a function with the line numbers of its file; None for lambdas and without source."""
    first = code.co_firstlineno
    last = max(line for each in nested(code) for _, _, line in each.co_lines() if line is not None)
    lines = linecache.getlines(code.co_filename)[first - 1 : last + _BEYOND]
    return None if code.co_name.startswith("<") or not lines else _parsed("".join(lines), first)


def statement_lists(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the bodies of a compound statement that are no error paths: without those of `except`."""
    for name in _NESTED_BODIES:
        body = getattr(statement, name, None)
        if isinstance(body, list) and body:
            yield body
    if isinstance(statement, ast.Match):
        for case in statement.cases:
            yield case.body


def is_error_path(body: Sequence[ast.stmt]) -> bool:
    """Return True for statements that end in `raise`, or of which none computes anything."""
    return bool(body) and (isinstance(body[-1], ast.Raise) or all(map(_is_idle, body)))


def is_decided_elsewhere(statement: ast.AST, cotangents: Iterable[str]) -> bool:
    """Return True for an `if` about the device, the memory layout, needed gradients, or a cotangent that is None."""
    if not isinstance(statement, ast.If | ast.While):
        return False
    test = statement.test
    if names_in(test) & _ELSEWHERE:
        return True
    compared = [each for each in ast.walk(test) if isinstance(each, ast.Compare) and _has_none(each)]
    return any(names_in(each) & set(cotangents) for each in compared)


def test_lines(statement: ast.AST) -> set[int]:
    """Return the lines of the test of an `if` or `while`; empty for other statements."""
    return {*lines_of(statement.test)} if isinstance(statement, ast.If | ast.While) else set()


def names_in(node: ast.AST) -> set[str]:
    """Return the names and attributes in an expression."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


@lru_cache(maxsize=256)
def guard_lines(function: FunctionNode) -> frozenset[int]:
    """Return the lines that only decide on errors: assertions, tests before an error path, and values used in them."""
    return frozenset(line for each in _guards(function) for line in lines_of(each))


def called_name(call: ast.Call) -> str:
    """Return the last part of the name that is called, "" if there is none."""
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def lines_of(node: ast.AST) -> range:
    """Return the lines of a node."""
    first = getattr(node, "lineno", 1)
    return range(first, (getattr(node, "end_lineno", None) or first) + 1)


def _guarded_names(function: FunctionNode) -> set[str]:
    """Return the names that decide on errors: in an assertion, or in the test of an `if` with an error path."""
    tests = [
        each.test
        for each in ast.walk(function)
        if isinstance(each, ast.Assert) or (isinstance(each, ast.If) and (is_error_path(each.body)))
    ]
    return {name.id for test in tests for name in ast.walk(test) if isinstance(name, ast.Name)}


def _guards(function: FunctionNode) -> Iterator[ast.AST]:
    """Yield what only decides on errors: assertions, tests of an `if` with an error path, and values of their names."""
    names = _guarded_names(function)
    for each in ast.walk(function):
        if isinstance(each, ast.Assert):
            yield each
        elif isinstance(each, ast.If | ast.While) and (is_error_path(each.body) or is_error_path(each.orelse)):
            yield each.test
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and called_name(each.value) in _CHECKS:
            yield each
        elif isinstance(each, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            if names & {target.id for target in targets if isinstance(target, ast.Name)}:
                yield each


@lru_cache(maxsize=256)
def _parsed(text: str, first: int) -> FunctionNode | None:
    """Parse the function that `text` begins with. An `if` around it lets it keep its indentation."""
    indented = text[:1] in (" ", "\t")
    try:
        source = "".join(inspect.getblock(text.splitlines(keepends=True)))
        tree = ast.parse(f"if 1:\n{source}" if indented else source)
    except (SyntaxError, ValueError, IndexError):
        return None
    ast.increment_lineno(tree, first - (2 if indented else 1))
    return next((node for node in ast.walk(tree) if isinstance(node, FunctionNode)), None)


def _is_idle(statement: ast.stmt) -> bool:
    """Return True for a statement that computes nothing: `return None`, `pass`, an assertion, a warning."""
    if isinstance(statement, ast.Pass | ast.Continue | ast.Break | ast.Assert | ast.Raise | ast.Global | ast.Nonlocal):
        return True
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and called_name(value) in _CHECKS)
    if isinstance(statement, ast.Return | ast.Assign):
        return statement.value is None or _is_none(statement.value)
    if isinstance(statement, ast.If):
        return is_error_path(statement.body) and (not statement.orelse or is_error_path(statement.orelse))
    return False


def _is_none(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return all(map(_is_none, value.elts))
    return isinstance(value, ast.Constant) and value.value in (None, NotImplemented)


def _has_none(compared: ast.Compare) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is None for each in (compared.left, *compared.comparators))
