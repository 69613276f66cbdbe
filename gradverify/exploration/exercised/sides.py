"""Conditions that only ever took one side, and which of them are worth a remark."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gradverify.exploration.exercised.gaps import Gap
from gradverify.exploration.exercised.syntax import (
    FunctionNode,
    called_name,
    guard_lines,
    is_decided_elsewhere,
    lines_of,
    names_in,
)
from gradverify.exploration.exercised.watched import Condition
from gradverify.result import Side

_COMPARED = {"gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "eq": "eq", "ne": "not_equal"}
_LOWER = {"clamp_min", "maximum", "fmax", "relu", "threshold"}
_UPPER = {"clamp_max", "minimum", "fmin"}
_BOUNDING = {
    *_LOWER,
    *_UPPER,
    *("clamp", "clip", "clamp_", "clip_", "clamp_min_", "clamp_max_", "max", "min", "hardtanh", "hardtanh_", "relu6"),
    *("relu_", "threshold_"),
}
_COMPARING = {*_COMPARED, *_COMPARED.values()}
_MASK_AT = {"where": 0, "masked_fill": 1, "masked_fill_": 1}  # place of the mask in a call of torch's function
_RANDOM = ("rand", "bernoulli", "dropout")  # beginnings of names
_MODULES = {"torch", "F", "functional", "nn", "math", "np", "numpy"}
_TINY, _HUGE = 1e-3, 1e4  # bounds nearer to zero, or farther away, guard against division by zero and overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSided:
    """A condition that only ever took one side."""

    condition: Condition
    text: str  # what is said of it
    never: Side

    @property
    def missing(self) -> tuple[object, ...]:
        """What an input would have to do: two conditions with the same are about the same values."""
        if not self.condition.constants:
            return (self.text, self.never)
        greater = self.condition.operation in ("gt", "ge")
        less = self.condition.operation in ("lt", "le")
        high = (
            self.never is Side.ABOVE
            or (self.never is Side.TRUE and greater)
            or (self.never is Side.FALSE and less)
            or (self.never is Side.WITHIN and self.condition.operation in _LOWER)
        )
        return (self.condition.constants, high) if greater or less or self._bounds() else (self.text, self.never)

    def _bounds(self) -> bool:
        return self.condition.operation in _LOWER | _UPPER


def one_sided(
    conditions: Sequence[Condition], node: FunctionNode, gaps: Sequence[Gap], cotangents: Sequence[str]
) -> list[OneSided]:
    """Return the conditions of a function that took one side only, as far as its inputs decide about them.

    Left out are guards against errors, division by zero and overflow, ties, random masks, what depends on the
    cotangents, and the test of a branch that is reported as a line.
    """
    tests = _tests_of(node, gaps, cotangents) if conditions else ()
    quiet = guard_lines(node) | {line for each in tests for line in lines_of(each)}
    found = []
    for condition in conditions:
        if condition.was_true == condition.was_false or condition.at_points or condition.line in quiet:
            continue
        text = _subject(condition)
        if text is not None and not _is_guard(condition) and _is_about_inputs(text, cotangents):
            found.append(OneSided(condition=condition, text=text, never=_never(condition)))
    return found


@lru_cache(maxsize=256)
def may_be_one_sided(node: FunctionNode) -> bool:
    """Return False if no expression of a function is a condition that `one_sided` may report."""
    return any(map(_may_be_condition, ast.walk(node)))


def _may_be_condition(node: ast.AST) -> bool:
    """Return True for a comparison, and for a call that compares, bounds or masks."""
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Compare)
    name = called_name(node)
    return name.rstrip("_") in _COMPARING or name in _BOUNDING or name in _MASK_AT


def _tests_of(node: FunctionNode, gaps: Sequence[Gap], cotangents: Sequence[str]) -> Iterator[ast.AST]:
    """Yield the tests of branches that never ran, and of those that nothing in the inputs decides."""
    missing = {statement.lineno for gap in gaps for statement in gap.statements}
    for each in ast.walk(node):
        if isinstance(each, ast.If | ast.While):
            first = {body[0].lineno for body in (each.body, each.orelse) if body}
            if first & missing or is_decided_elsewhere(each, cotangents):
                yield each.test


def _subject(condition: Condition) -> str | None:
    """Return the part of the expression that the remark is about; None if torch made the condition, not the user."""
    try:
        expression = ast.parse(condition.text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    name = called_name(expression) if isinstance(expression, ast.Call) else ""
    if condition.operation in _COMPARED:
        own = isinstance(expression, ast.Compare) or name.rstrip("_") in (
            condition.operation,
            _COMPARED[condition.operation],
        )
        return condition.text if own else None
    if condition.operation in _LOWER | _UPPER:
        return condition.text if name in _BOUNDING else None
    if name in _MASK_AT and isinstance(expression, ast.Call):
        return _mask(condition.text, expression, name)
    return None


def _mask(text: str, call: ast.Call, name: str) -> str | None:
    """Return the mask among the arguments of `where` and `masked_fill`, as it is written."""
    of_torch = isinstance(call.func, ast.Attribute) and names_in(call.func.value) <= {"torch"}
    place = _MASK_AT[name] if of_torch else 0
    if place >= len(call.args):
        return None
    return ast.get_source_segment(text, call.args[place])


def _is_guard(condition: Condition) -> bool:
    """Return True for a comparison with numbers that only guard against division by zero or overflow."""
    sizes = [abs(constant) for constant in condition.constants]
    return bool(sizes) and all(0 < size < _TINY or size > _HUGE for size in sizes)


def _is_about_inputs(text: str, cotangents: Sequence[str]) -> bool:
    """Return True if an expression has a name in it that inputs may decide about."""
    expression = ast.parse(text, mode="eval")
    names = names_in(expression)
    if names & set(cotangents) or any(name.lstrip("_").startswith(_RANDOM) for name in names):
        return False
    return any(isinstance(each, ast.Name) and each.id not in _MODULES for each in ast.walk(expression))


def _never(condition: Condition) -> Side:
    if condition.operation in _LOWER | _UPPER:
        if condition.was_true:
            return Side.WITHIN
        return Side.BELOW if condition.operation in _LOWER else Side.ABOVE
    return Side.FALSE if condition.was_true else Side.TRUE
