"""Expressions over named values: sizes such as `2 * n`, conditions such as `len(y) == n // 2 + 1`.

Python's parser reads them; they are evaluated here, node by node, so that no code of a spec ever runs. Values are
numbers, text, lists and tensors. This module imports no tensor library: it asks a tensor for its shape and its entries.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from gradverify.errors import GradverifyError

MAX_LENGTH = 1_000  # characters of an expression
_MAX_DEPTH = 50  # nested operations
_MAX_WHOLE = 2**63  # whole numbers stay below it, in either direction
_TOO_LARGE = "a whole number does not fit in 64 bits"
_OPERATORS_KNOWN = "only the operators + - * / // % are known"


class FormulaError(GradverifyError):
    """An expression cannot be read, or has no value."""

    def __init__(self, message: str, column: int = 1) -> None:
        self.message = message  # what is wrong, without a full stop
        self.column = column  # of the expression's text, from 1
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return FormulaError, (self.message, self.column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """An expression that has been read."""

    text: str  # as written
    tree: ast.expr = field(compare=False, repr=False)  # holds only nodes that can be evaluated


def parse(text: str) -> Formula:
    """Return the expression that a text holds; raises FormulaError."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"an expression has at most {MAX_LENGTH:,} characters, found {len(text):,}")
    forbidden = next((at for at, character in enumerate(text) if character in "#\\\0"), None)
    if forbidden is not None:
        raise FormulaError(f"the character {text[forbidden]!a} is not allowed", forbidden + 1)
    # A line break ends an expression in Python; in YAML it is a space.
    line = "".join(" " if character.isspace() else character for character in text)
    tree = _read(line.lstrip(), len(line) - len(line.lstrip()))
    _refuse_unknown(tree, line, 0)
    return Formula(text=text, tree=tree)


def names_of(formula: Formula) -> tuple[str, ...]:
    """Return the names of the values that the expression needs, each once, as they come in the text."""
    return tuple(dict.fromkeys(_names(formula.tree)))


def evaluate(formula: Formula, values: Mapping[str, Any]) -> Any:
    """Return the expression's value: a number, a bool, text, None, a list or a tuple; raises FormulaError.

    A tensor counts as the nested list of its entries, one without dimensions as a number. Lists are computed and
    compared entry by entry, with numbers and with lists of the same length. Tuples, among them `x.shape` and `[2, 3]`
    in the text, are compared as a whole.
    """
    return _value(formula.tree, _Scope(text=formula.text, values=values))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    text: str  # of the expression
    values: Mapping[str, Any]  # by name


class _UnsuitableError(Exception):
    """An operation does not take these values; the message says why."""


def _read(code: str, skipped: int) -> ast.expr:
    """Return the tree of an expression before which `skipped` characters were left out."""
    if not code:
        raise FormulaError("it is empty")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that run into a word, as in `1if`
            tree = ast.parse(code, mode="eval").body
    except SyntaxError as reason:
        at_end = not 1 <= (reason.offset or 0) <= len(code)  # which versions of Python number differently
        raise FormulaError("this is no expression", skipped + (len(code) if at_end else reason.offset or 1)) from None
    except (ValueError, MemoryError, RecursionError):
        raise FormulaError("this is no expression, or nested too deeply") from None
    for node in ast.walk(tree) if skipped else ():
        if isinstance(node, ast.expr):
            node.col_offset += skipped
    return tree


def _refuse_unknown(node: ast.expr, text: str, depth: int) -> None:
    """Raise FormulaError for the first node that cannot be evaluated."""
    problem = _PROBLEMS.get(type(node), lambda _: "only names, numbers, operators and a few functions are known")(node)
    if depth > _MAX_DEPTH:
        problem = f"it is nested more than {_MAX_DEPTH} levels deep"
    if problem:
        raise _error(node, text, problem)
    for part in _parts(node):
        _refuse_unknown(part, text, depth + 1)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.expr) and part is not getattr(node, "func", None):
            yield part


def _names(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    for part in _parts(node):
        yield from _names(part)


def _error(node: ast.expr, text: str, message: str) -> FormulaError:
    before = text.encode()[: node.col_offset]  # which counts bytes of UTF-8
    return FormulaError(message, len(before.decode(errors="ignore")) + 1)


def _constant_problem(node: ast.Constant) -> str:
    if node.value is not None and not isinstance(node.value, bool | int | float | str):
        return "only numbers, text, True, False and None can be written out"
    return _TOO_LARGE if _is_too_large(node.value) else ""


def _binary_problem(node: ast.BinOp) -> str:
    hint = ", write a product" if isinstance(node.op, ast.Pow) else ""
    return "" if type(node.op) in _ARITHMETIC else f"{_OPERATORS_KNOWN}{hint}"


def _unary_problem(node: ast.UnaryOp) -> str:
    return _OPERATORS_KNOWN if isinstance(node.op, ast.Invert) else ""


def _comparison_problem(node: ast.Compare) -> str:
    known = all(type(op) in (*_COMPARISONS, ast.In, ast.NotIn) for op in node.ops)
    return "" if known else "`is` is not known, write == or !="


def _call_problem(node: ast.Call) -> str:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name not in _FUNCTIONS:
        return f"{f'`{name}` is no function' if name else 'this is no function'}, there are {', '.join(_FUNCTIONS)}"
    if node.keywords or not node.args or (len(node.args) > 1 and name not in ("min", "max")):
        return f"`{name}` takes {'values' if name in ('min', 'max') else 'one value'}"
    return ""


def _attribute_problem(node: ast.Attribute) -> str:
    return "" if node.attr == "shape" else f"`.{node.attr}` is not known, only `.shape` is"


def _value(node: ast.expr, scope: _Scope) -> Any:
    try:
        return _EVALUATORS[type(node)](node, scope)
    except FormulaError:
        raise
    except ZeroDivisionError:
        raise _error(node, scope.text, "it divides by zero") from None
    except _UnsuitableError as reason:
        raise _error(node, scope.text, str(reason)) from None
    except Exception as reason:  # also of a tensor's methods
        raise _error(node, scope.text, f"`{ast.unparse(node)}` cannot be computed of these values") from reason


def _name(node: ast.Name, scope: _Scope) -> Any:
    return _without_tensors(_given(node, scope))


def _without_tensors(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_tensors(entry) for entry in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _given(node: ast.expr, scope: _Scope) -> Any:
    """Return the value of a name as it was given, a tensor as a tensor, and any other value computed."""
    if not isinstance(node, ast.Name):
        return _value(node, scope)
    if node.id not in scope.values:
        raise _error(node, scope.text, f"`{node.id}` has no value")
    return scope.values[node.id]


def _condition(node: ast.expr, scope: _Scope) -> bool:
    value = _value(node, scope)
    if isinstance(value, list | tuple):
        raise _error(node, scope.text, "a list is no condition, write all(…) or any(…)")
    return bool(value)


def _logical(node: ast.BoolOp, scope: _Scope) -> bool:
    combine = any if isinstance(node.op, ast.Or) else all
    return combine(_condition(part, scope) for part in node.values)


def _unary(node: ast.UnaryOp, scope: _Scope) -> Any:
    if isinstance(node.op, ast.Not):
        return not _condition(node.operand, scope)
    value = _value(node.operand, scope)
    return _by_entries(_exact(operator.mul), value, -1) if isinstance(node.op, ast.USub) else value


def _binary(node: ast.BinOp, scope: _Scope) -> Any:
    return _by_entries(_exact(_ARITHMETIC[type(node.op)]), _value(node.left, scope), _value(node.right, scope))


def _exact(compute: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operation on two numbers, which refuses whole numbers that are too large and everything else."""

    def exact(left: Any, right: Any) -> Any:
        value = compute(_number(left), _number(right))
        if _is_too_large(value):
            raise _UnsuitableError(_TOO_LARGE)
        return value

    return exact


def _comparison(node: ast.Compare, scope: _Scope) -> Any:
    left, result = _value(node.left, scope), True
    for op, part in zip(node.ops, node.comparators, strict=True):
        right = _value(part, scope)
        result = _compared(op, left, right)
        if isinstance(result, list) and len(node.ops) > 1:
            raise _UnsuitableError("lists are compared two at a time")
        if not result:
            break
        left = right
    return result


def _compared(op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, ast.In | ast.NotIn):
        held = left in right if isinstance(right, str) else left in _entries(right)
        return held == isinstance(op, ast.In)
    compute = _COMPARISONS[type(op)]
    if isinstance(left, tuple) or isinstance(right, tuple):
        if not isinstance(op, ast.Eq | ast.NotEq):
            raise _UnsuitableError("tuples are equal or not, they have no order")
        return compute(tuple(left), tuple(right)) if _are_lists(left, right) else isinstance(op, ast.NotEq)
    return _by_entries(compute, left, right)


def _are_lists(*values: Any) -> bool:
    return all(isinstance(value, list | tuple) for value in values)


def _by_entries(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return `compute(left, right)`, or the list of it for each entry where one is a list or both are."""
    if not (isinstance(left, list | tuple) or isinstance(right, list | tuple)):
        return compute(left, right)
    if _are_lists(left, right) and len(left) != len(right):
        raise _UnsuitableError(f"lists of {len(left)} and {len(right)} entries do not go together")
    lefts = left if isinstance(left, list | tuple) else [left] * len(right)
    rights = right if isinstance(right, list | tuple) else [right] * len(left)
    return [_by_entries(compute, first, second) for first, second in zip(lefts, rights, strict=True)]


def _entry(node: ast.Subscript, scope: _Scope) -> Any:
    value, index = _value(node.value, scope), _value(node.slice, scope)
    return _at(value, index if isinstance(index, tuple) else (index,))


def _at(value: Any, index: tuple[Any, ...]) -> Any:
    """Return what stands at an index of nested lists; what follows a slice is the index of each of its entries."""
    if not index:
        return value
    if not isinstance(value, list | tuple):
        raise _UnsuitableError("only lists have entries")
    if isinstance(index[0], slice):
        return [_at(part, index[1:]) for part in value[index[0]]]
    try:
        part = value[index[0]]
    except IndexError:
        raise _UnsuitableError(f"there is no entry {index[0]}, the list has {len(value)}") from None
    return _at(part, index[1:])


def _slice(node: ast.Slice, scope: _Scope) -> slice:
    return slice(*(part and _value(part, scope) for part in (node.lower, node.upper, node.step)))


def _shape(node: ast.expr, scope: _Scope) -> tuple[int, ...]:
    """Return the sizes of a value's dimensions: of nested lists, those along the first entries."""
    value = _given(node, scope)
    if hasattr(value, "shape"):
        return tuple(map(int, value.shape))
    sizes: list[int] = []
    while isinstance(value, list | tuple):
        sizes.append(len(value))
        value = value[0] if value else None
    return tuple(sizes)


def _called(node: ast.Call, scope: _Scope) -> Any:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    if name == "len":
        return _length(node.args[0], scope)
    values = [_value(argument, scope) for argument in node.args]
    return _FUNCTIONS[name](values if len(values) > 1 else values[0])


def _length(node: ast.expr, scope: _Scope) -> int:
    shape = _shape(node, scope)
    if shape:
        return shape[0]
    value = _value(node, scope)
    if not isinstance(value, str):
        raise _UnsuitableError("only lists have a length")
    return len(value)


def _entries(value: Any) -> list[Any]:
    """Return the entries of nested lists in order; a number is its own only entry."""
    if not isinstance(value, list | tuple):
        return [value]
    return [entry for part in value for entry in _entries(part)]


def _of_entries(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of the entries of one value, which are numbers."""

    def computed(value: Any) -> Any:
        entries = [_number(entry) for entry in _entries(value)]
        if not entries and compute in (min, max):
            raise _UnsuitableError("there is no entry")
        result = compute(entries)
        if _is_too_large(result):
            raise _UnsuitableError(_TOO_LARGE)
        return result

    return computed


def _number(value: Any) -> Any:
    if not isinstance(value, int | float | complex):
        what = "text" if isinstance(value, str) else "a list" if isinstance(value, list | tuple) else str(value)
        raise _UnsuitableError(f"expected a number, found {what}")
    return value


def _is_too_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= _MAX_WHOLE


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
    }
)
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
    }
)
_FUNCTIONS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "len": len,
        "min": _of_entries(min),
        "max": _of_entries(max),
        "abs": lambda value: [*map(_FUNCTIONS["abs"], value)] if _are_lists(value) else abs(_number(value)),
        "sum": _of_entries(sum),
        "all": _of_entries(all),
        "any": _of_entries(any),
        "sorted": _of_entries(sorted),
        "distinct": _of_entries(lambda entries: len(set(entries)) == len(entries)),
    }
)
# What may be in an expression: why a node of this kind is refused ("" if it is not), and its value.
_PROBLEMS: Mapping[type[ast.expr], Callable[[Any], str]] = MappingProxyType(
    {
        **dict.fromkeys((ast.Name, ast.BoolOp, ast.Subscript, ast.Slice, ast.List, ast.Tuple), lambda _: ""),
        ast.Constant: _constant_problem,
        ast.BinOp: _binary_problem,
        ast.UnaryOp: _unary_problem,
        ast.Compare: _comparison_problem,
        ast.Call: _call_problem,
        ast.Attribute: _attribute_problem,
    }
)
_EVALUATORS: Mapping[type[ast.expr], Callable[[Any, _Scope], Any]] = MappingProxyType(
    {
        ast.Constant: lambda node, _: node.value,
        ast.Name: _name,
        ast.BoolOp: _logical,
        ast.UnaryOp: _unary,
        ast.BinOp: _binary,
        ast.Compare: _comparison,
        ast.Call: _called,
        ast.Attribute: lambda node, scope: _shape(node.value, scope),
        ast.Subscript: _entry,
        ast.Slice: _slice,
        ast.List: lambda node, scope: tuple(_value(part, scope) for part in node.elts),
        ast.Tuple: lambda node, scope: tuple(_value(part, scope) for part in node.elts),
    }
)
