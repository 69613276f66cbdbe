"""Lines that never ran and conditions that only ever took one side, in the code that was watched."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Sequence
from types import CodeType, FunctionType

from gradverify.exploration.exercised.functions import with_called
from gradverify.exploration.exercised.gaps import Gap, gaps_in, may_have_gaps
from gradverify.exploration.exercised.sides import OneSided, may_be_one_sided, one_sided
from gradverify.exploration.exercised.syntax import (
    FunctionNode,
    function_node,
    is_decided_elsewhere,
    lines_of,
    test_lines,
)
from gradverify.exploration.exercised.user_code import code_of, name_of
from gradverify.exploration.exercised.watched import Condition, Watched
from gradverify.result import Side, Uncovered


def uncovered(watched: Watched, functions: Sequence[FunctionType | CodeType]) -> tuple[Uncovered, ...]:
    """Return what was not exercised of these functions, by file and line.

    The lines are those of `functions` and of functions nested in them; the conditions also those of functions of the
    same file that they call. Files are those of the code objects. Nothing is returned for a function that never ran.
    """
    own = {id(code) for code in map(code_of, functions)}
    found: list[Uncovered] = []
    known: set[tuple[object, ...]] = set()  # what forward's conditions miss, for backward not to repeat it
    for code in sorted(filter(None, map(code_of, with_called(functions))), key=_is_backward):
        node = function_node(code)
        if node is None:
            continue
        gaps, conditions = _of_function(watched, code, node)
        if id(code) in own:
            found += [_line_entry(code, gap) for gap in gaps]
        found += [_condition_entry(each) for each in conditions if not _is_backward(code) or each.missing not in known]
        known |= {each.missing for each in conditions}
    return tuple(sorted(set(found), key=lambda each: (each.file, each.line, each.text, each.never)))


def may_show_more(watched: Watched, functions: Sequence[FunctionType | CodeType]) -> bool:
    """Return True if other inputs may run other lines or take other sides, also in functions that these call."""
    nodes = ((code, function_node(code)) for code in filter(None, map(code_of, with_called(functions))))
    return any(any(_of_function(watched, code, node)) for code, node in nodes if node is not None)


def may_be_uncovered(functions: Sequence[FunctionType | CodeType]) -> bool:
    """Return False if `uncovered` has nothing to report of these functions, whatever their inputs are.

    This holds for code that runs line by line, without a condition. It need not be watched.
    """
    codes = [code for code in map(code_of, with_called(functions)) if code is not None]
    for file in {code.co_filename for code in codes}:
        linecache.checkcache(file)  # it may have been edited and loaded again
    nodes = (node for node in map(function_node, codes) if node is not None)
    return any(may_have_gaps(node) or may_be_one_sided(node) for node in nodes)


def _of_function(watched: Watched, code: CodeType, node: FunctionNode) -> tuple[list[Gap], list[OneSided]]:
    """Return the lines and the conditions of one function."""
    cotangents = _parameters(code)[1:] if _is_backward(code) else ()
    lines = lines_of(node)
    ran = frozenset(line for file, line in watched.ran if file == code.co_filename and line in lines)
    body = {line for statement in node.body for line in lines_of(statement)}
    conditions = _conditions_in(watched, code, lines)
    at_points = {each.line for each in conditions if each.at_points}

    def left_out(statement: ast.AST) -> bool:
        return is_decided_elsewhere(statement, cotangents) or bool(at_points & test_lines(statement))

    gaps = gaps_in(node, code, ran, left_out) if ran & body else []
    return gaps, one_sided(conditions, node, gaps, cotangents)


def _conditions_in(watched: Watched, code: CodeType, lines: range) -> list[Condition]:
    return [each for each in watched.conditions if each.file == code.co_filename and each.line in lines]


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Return the names of the positional parameters, with that of `*grads` at the end."""
    count = code.co_argcount + code.co_kwonlyargcount
    variadic = code.co_varnames[count : count + 1] if code.co_flags & inspect.CO_VARARGS else ()
    return (*code.co_varnames[: code.co_argcount], *variadic)


def _is_backward(code: CodeType) -> bool:
    return code.co_name in ("backward", "vjp")


def _line_entry(code: CodeType, gap: Gap) -> Uncovered:
    within = name_of(code) if gap.within == code.co_name else gap.within
    text = linecache.getline(code.co_filename, gap.line).strip()
    return Uncovered(file=code.co_filename, line=gap.line, within=within, text=text, never=Side.RUN)


def _condition_entry(found: OneSided) -> Uncovered:
    condition = found.condition
    return Uncovered(
        file=condition.file, line=condition.line, within=condition.within, text=found.text, never=found.never
    )
