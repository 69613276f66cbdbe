"""What the text of forward and backward says about each parameter. Nothing is run."""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_LISTS = ("len", "enumerate", "zip", "cat", "stack", "concat", "list", "tuple", "sum", "broadcast_tensors")
_METHODS = frozenset(name for name in dir(torch.Tensor) if callable(getattr(torch.Tensor, name, None)))
_VALUES = frozenset(dir(torch.Tensor)) - _METHODS
_SIZES = ("shape", "size")
_CONVERSIONS = frozenset({"to", "type", "type_as", "bool", "byte", "short", "int", "long", "half", "float", "double"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """How forward uses one parameter."""

    of_tensor: frozenset[str] = frozenset()  # attributes of it that are read or called as those of a tensor
    foreign: frozenset[str] = frozenset()  # attributes that no tensor has, or not as a value
    called: bool = False
    listed: bool = False  # gone through, measured by len, or joined
    tested: bool = False  # stands alone as a condition
    compared: bool = False
    choices: tuple[Any, ...] = ()  # numbers and words that it is compared with
    rank: int | None = None  # number of dimensions that its shape is unpacked into
    count: int | None = None  # number of entries that it is unpacked into
    parts: int | None = None  # number of equal parts that its last dimension is cut into by `chunk`
    by_entry: bool = False  # it is a tensor, and forward takes single entries of it only
    indexed: bool = False  # brackets follow it
    as_index: bool = False  # between the brackets of something else
    saved: bool = False  # given to save_for_backward, or to a function of torch

    @property
    def is_tensor(self) -> bool:
        """True if it has an attribute that only tensors have, or is saved."""
        return self.saved or (bool(self.of_tensor) and not self.foreign)

    @property
    def may_be_whole(self) -> bool:
        """True if something is done with it that is done with indices, labels and masks."""
        return self.as_index or self.compared or not self.of_tensor.isdisjoint(_CONVERSIONS)


def uses_of(forward: Callable[..., Any], names: Sequence[str]) -> dict[str, Uses]:
    """Return how forward uses each parameter; nothing is known where its text cannot be read."""
    tree = _tree(forward)
    if tree is None:
        return {name: Uses() for name in names}
    above = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    places: dict[str, list[ast.Name]] = {name: [] for name in names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in places:
            places[node.id].append(node)
    counters = _counters(tree)
    return {name: _uses(found, above, counters) for name, found in places.items()}


def undifferentiated(backward: Callable[..., Any], count: int) -> frozenset[int]:
    """Return the positions of arguments for which every `return` of backward has None; of `count` arguments."""
    tree = _tree(backward)
    found = [_entries(node.value) for node in _returns(tree)] if tree is not None else []
    returned = [entries for entries in found if entries is not None]
    if not returned:
        return frozenset()
    shortest = min(len(entries) for entries in returned)
    return frozenset(n for n in range(min(shortest, count)) if all(_is_none(entries[n]) for entries in returned))


def _tree(function: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def _uses(places: Sequence[ast.Name], above: dict[int, ast.AST], counters: frozenset[str]) -> Uses:
    parents = [(place, above[id(place)]) for place in places]
    attributes = [parent for _, parent in parents if isinstance(parent, ast.Attribute)]
    of_tensor = frozenset(each.attr for each in attributes if _is_of_tensor(each, above))
    return Uses(
        of_tensor=of_tensor,
        foreign=frozenset(each.attr for each in attributes) - of_tensor,
        called=any(isinstance(parent, ast.Call) and parent.func is place for place, parent in parents),
        listed=any(_is_listed(place, parent) for place, parent in parents),
        tested=any(_is_tested(place, parent) for place, parent in parents),
        compared=any(isinstance(parent, ast.Compare) for _, parent in parents),
        choices=tuple(dict.fromkeys(each for _, parent in parents for each in _compared(parent))),
        rank=_first(_rank(parent, above) for _, parent in parents),
        count=_first(_unpacked(place, parent) for place, parent in parents),
        parts=_first(_parts(place, parent, above) for place, parent in parents),
        by_entry=_is_by_entry(parents, counters),
        indexed=any(isinstance(parent, ast.Subscript) and parent.value is place for place, parent in parents),
        as_index=any(_is_index(place, parent, above) for place, parent in parents),
        saved=any(_is_saved(place, parent) for place, parent in parents),
    )


def _first(found: Iterator[int | None]) -> int | None:
    return next((each for each in found if each is not None), None)


def _is_of_tensor(attribute: ast.Attribute, above: dict[int, ast.AST]) -> bool:
    parent = above[id(attribute)]
    is_called = isinstance(parent, ast.Call) and parent.func is attribute
    return attribute.attr in (_METHODS if is_called else _VALUES)


def _is_listed(place: ast.Name, parent: ast.AST) -> bool:
    if isinstance(parent, ast.For | ast.comprehension) and parent.iter is place:
        return True
    return isinstance(parent, ast.Call) and place in parent.args[:1] and _name(parent.func) in _LISTS


def _is_tested(place: ast.Name, parent: ast.AST) -> bool:
    if isinstance(parent, ast.If | ast.IfExp):
        return parent.test is place
    return isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def _compared(parent: ast.AST) -> Iterator[Any]:
    if not isinstance(parent, ast.Compare):
        return
    for other in (parent.left, *parent.comparators):
        entries = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else [other]
        yield from (
            entry.value
            for entry in entries
            if isinstance(entry, ast.Constant) and isinstance(entry.value, str | int | float)
        )


def _rank(parent: ast.AST, above: dict[int, ast.AST]) -> int | None:
    """Return n for `a, b, … = x.shape` or `x.size()` with n names."""
    if not isinstance(parent, ast.Attribute) or parent.attr not in _SIZES:
        return None
    node: ast.AST = above[id(parent)] if parent.attr == "size" else parent
    holder = above.get(id(node))
    if isinstance(holder, ast.Assign) and holder.value is node:
        return _names_in(holder.targets[0])
    return None


def _unpacked(place: ast.Name, parent: ast.AST) -> int | None:
    return _names_in(parent.targets[0]) if isinstance(parent, ast.Assign) and parent.value is place else None


def _names_in(target: ast.expr) -> int | None:
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(each, ast.Starred) for each in target.elts):
        return None
    return len(target.elts)


def _parts(place: ast.Name, parent: ast.AST, above: dict[int, ast.AST]) -> int | None:
    """Return n for `x.chunk(n, -1)` and `torch.chunk(x, n, dim=-1)`."""
    call = above.get(id(parent)) if isinstance(parent, ast.Attribute) else parent
    if not isinstance(call, ast.Call) or _name(call.func) != "chunk":
        return None
    values = [each for each in (*call.args, *(each.value for each in call.keywords)) if each is not place]
    written = [ast.unparse(each) for each in values]
    return int(written[0]) if len(written) == 2 and written[0].isdecimal() and written[1] == "-1" else None


def _is_by_entry(parents: Sequence[tuple[ast.Name, ast.AST]], counters: frozenset[str]) -> bool:
    """Return True if a tensor is saved, and else only measured by `len` or indexed with a number or counter."""
    others = [parent for place, parent in parents if not _is_saved(place, parent)]
    single = [isinstance(each, ast.Subscript) and _is_number(each.slice, counters) for each in others]
    measured = [isinstance(each, ast.Call) and _name(each.func) == "len" for each in others]
    return len(others) < len(parents) and any(single) and all(map(operator.or_, single, measured))


def _is_number(index: ast.expr, counters: frozenset[str]) -> bool:
    parts = [node for node in ast.walk(index) if isinstance(node, ast.expr)]
    return all(
        isinstance(each, ast.BinOp | ast.UnaryOp)
        or (isinstance(each, ast.Name) and each.id in counters)
        or (isinstance(each, ast.Constant) and isinstance(each.value, int))
        for each in parts
    )


def _counters(tree: ast.AST) -> frozenset[str]:
    """Return the names that count in loops over a `range`."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension)]
    return frozenset(
        each.target.id
        for each in loops
        if isinstance(each.target, ast.Name) and isinstance(each.iter, ast.Call) and _name(each.iter.func) == "range"
    )


def _is_index(place: ast.Name, parent: ast.AST, above: dict[int, ast.AST]) -> bool:
    if isinstance(parent, ast.Tuple):
        place, parent = parent, above.get(id(parent), parent)  # type: ignore[assignment]
    return isinstance(parent, ast.Subscript) and parent.slice is place


def _is_saved(place: ast.Name, parent: ast.AST) -> bool:
    return isinstance(parent, ast.Call) and place in parent.args and _name(parent.func) == "save_for_backward"


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _returns(tree: ast.AST) -> Iterator[ast.Return]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None)


def _entries(value: ast.expr | None) -> list[ast.expr] | None:
    """Return the entries of a returned tuple up to a starred one; of `(None,) * 3`, none are known."""
    if not isinstance(value, ast.Tuple):
        return None if value is None or isinstance(value, ast.Name | ast.BinOp | ast.Call) else [value]
    starred = next((n for n, each in enumerate(value.elts) if isinstance(each, ast.Starred)), len(value.elts))
    return value.elts[:starred]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
