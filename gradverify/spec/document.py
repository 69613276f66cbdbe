"""YAML text to nodes: every mistake that can be seen without knowing what the keys mean.

Nodes are composed here from the parser's events. PyYAML's own composer keeps the last of two equal keys, follows
aliases without end, and constructs Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml

from gradverify.errors import SpecError, Where
from gradverify.spec.limits import MAX_DEPTH, MAX_DOCUMENTS, MAX_ERRORS, MAX_KEYS, MAX_NODES
from gradverify.spec.node import Loc, Member, Node, Place, dotted, error, mapping_node
from gradverify.spec.scalar import Scalar, UnreadableScalarError, resolve
from gradverify.spec.wording import found, shortened, visible

# A PyYAML that was built without libyaml reads the same language, slowly.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_DEPTH_PROBLEM = "exceeded maximum nesting depth"  # since PyYAML 6.0.4, at 1,000 levels
_TAGS = "tag:yaml.org,2002:"
_TEXT_TAGS = ("!", f"{_TAGS}str")
_HARMLESS_TAGS = (None, "!", f"{_TAGS}map", f"{_TAGS}seq")
_SYNTAX_HINTS = (
    ("mapping values are not allowed", "text with `: ` in it needs quotes, and each key its own line"),
    ("found unexpected end of stream", "a quote or a bracket is not closed"),
    ("could not find expected ':'", "a key needs a `:` after it"),
    ("did not find expected key", "keys of one mapping start in the same column"),
    ("did not find expected ',' or", "a bracket is not closed, or a comma is missing"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """The documents of one file; those that are empty are left out."""

    documents: tuple[Node, ...]
    errors: tuple[SpecError, ...]  # also of values that stand in `documents` as text, for want of a better value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What is known while events are taken from the parser."""

    loader: Any  # the parser
    file: str  # for places
    anchors: dict[str, Node] = field(default_factory=dict)  # complete nodes of this document
    errors: list[SpecError] = field(default_factory=list)


def compose(text: str, file: str) -> Composed:
    """Return the documents of a spec's text; a syntax error ends the reading, any other mistake does not."""
    documents: list[Node] = []
    source = _Source(loader=_Loader(text), file=visible(file))
    try:
        _compose_documents(source, documents)
    except SpecError as reason:
        source.errors.append(reason)
    except yaml.YAMLError as reason:
        read = _read_before_depth_limit(text, reason)
        if read is not None:
            return compose(read, file)
        source.errors.append(_syntax_error(source, text, reason))
    finally:
        source.loader.dispose()
    return Composed(documents=tuple(documents), errors=tuple(source.errors))


def _read_before_depth_limit(text: str, reason: yaml.YAMLError) -> str | None:
    """Return the text before the place where libyaml refuses to nest deeper; None for any other error.

    libyaml looks ahead, so its own limit is reached before the event of the first level beyond ours is emitted. The
    text before that place exceeds our lower limit too, and our message names where it does.
    """
    mark = getattr(reason, "problem_mark", None)
    if mark is None or getattr(reason, "problem", None) != _DEPTH_PROBLEM or mark.index >= len(text):
        return None
    return text[: mark.index]


def _compose_documents(source: _Source, documents: list[Node]) -> None:
    size = count = 0
    while not source.loader.check_event(yaml.StreamEndEvent):
        if not isinstance(source.loader.get_event(), yaml.DocumentStartEvent):
            continue
        source.anchors.clear()
        node = _compose_node(source, ())
        source.loader.get_event()
        size, count = size + node.size, count + 1
        if size > MAX_NODES:
            raise _too_many(node.where, ())
        if count > MAX_DOCUMENTS:
            raise _error(node.where, (), f"more than {MAX_DOCUMENTS:,} documents in one file")
        if node.plain is not None:
            documents.append(node)


def _compose_node(source: _Source, loc: Loc) -> Node:
    event = source.loader.get_event()
    where = _where(source, event.start_mark)
    if isinstance(event, yaml.AliasEvent):
        return _alias(source, str(event.anchor), where, loc)
    if isinstance(event, yaml.ScalarEvent):
        node = Node(where=where, plain=_scalar(source, event, where, loc))
    else:
        if len(loc) >= MAX_DEPTH:
            raise _too_deep(where)
        _refuse_tag(source, event, where, loc)
        compose_collection = _mapping if isinstance(event, yaml.MappingStartEvent) else _list
        node = compose_collection(source, where, loc)
        if node.depth > MAX_DEPTH:
            raise _too_deep(where)
    if event.anchor is not None:
        source.anchors[str(event.anchor)] = node
    return node


def _mapping(source: _Source, where: Where, loc: Loc) -> Node:
    members: dict[str, Member] = {}
    size = 1
    while not source.loader.check_event(yaml.MappingEndEvent):
        plain = source.loader.check_event(yaml.ScalarEvent) and source.loader.peek_event().implicit[0]
        key = _compose_node(source, (*loc, "?"))
        value = _compose_node(source, (*loc, str(key.plain)))
        size += value.size
        if size > MAX_NODES or len(members) > MAX_KEYS:
            raise _too_many(key.where, loc)
        problem, hint = _key_problem(key, plain, members)
        if problem:
            _note(source, _error(key.where, loc, problem, hint))
        else:
            members[key.plain] = Member(where=key.where, node=value)
    source.loader.get_event()
    return mapping_node(where, members)


def _key_problem(key: Node, plain: bool, members: dict[str, Member]) -> tuple[str, str]:
    name = key.plain
    if not isinstance(name, str):
        hint = "" if isinstance(name, list | dict) else "write it in quotes"
        return f"a key must be text, found {found(name)}", hint
    if name == "<<" and plain:
        return "merge keys (`<<`) are not supported", "put what cases share above `cases`"
    if name in members:
        first = members[name].where
        return f"`{shortened(name)}` is given twice", f"first at line {first.line}, column {first.column}"
    return "", ""


def _list(source: _Source, where: Where, loc: Loc) -> Node:
    items: list[Node] = []
    size = 1
    while not source.loader.check_event(yaml.SequenceEndEvent):
        items.append(_compose_node(source, (*loc, len(items))))
        size += items[-1].size
        if size > MAX_NODES:
            raise _too_many(items[-1].where, loc)
    source.loader.get_event()
    depth = 1 + max((item.depth for item in items), default=0)
    return Node(where=where, plain=[item.plain for item in items], items=tuple(items), size=size, depth=depth)


def _alias(source: _Source, name: str, where: Where, loc: Loc) -> Node:
    node = source.anchors.get(name)
    if node is None:
        problem = f"`*{shortened(name)}` is not defined above, or stands inside its own definition"
        _note(source, _error(where, loc, problem))
        return Node(where=where, plain=f"*{name}")
    return node


def _scalar(source: _Source, event: Any, where: Where, loc: Loc) -> Scalar:
    if event.tag in _TEXT_TAGS or (event.tag is None and not event.implicit[0]):
        return str(event.value)
    if event.tag is not None:
        _refuse_tag(source, event, where, loc)
        return str(event.value)
    try:
        return resolve(event.value)
    except UnreadableScalarError as reason:
        _note(source, _error(where, loc, str(reason), "write it in quotes if it is text"))
        return str(event.value)


def _refuse_tag(source: _Source, event: Any, where: Where, loc: Loc) -> None:
    if event.tag not in _HARMLESS_TAGS:
        tag = shortened(event.tag.replace(_TAGS, "!!", 1))
        _note(source, _error(where, loc, f"the tag `{tag}` is not allowed", "a spec holds plain values only"))


def _syntax_error(source: _Source, text: str, reason: yaml.YAMLError) -> SpecError:
    mark = getattr(reason, "problem_mark", None) or getattr(reason, "context_mark", None)
    problem = getattr(reason, "problem", None) or str(reason)
    where = Where(file=source.file) if mark is None else _where(source, mark)
    if _line(text, where.line)[where.column - 1 :].startswith("\t"):
        return _error(where, (), "a tab where YAML allows only spaces", "indent with spaces")
    hint = next((hint for start, hint in _SYNTAX_HINTS if problem.startswith(start)), "")
    context_mark = getattr(reason, "context_mark", None)
    if not hint and context_mark is not None and context_mark.line + 1 != where.line:
        hint = f"{reason.context} that starts at line {context_mark.line + 1}"  # type: ignore[attr-defined]
    return _error(where, (), f"not valid YAML: {problem}", hint)


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1] if number <= len(lines) else ""


def _too_many(where: Where, loc: Loc) -> SpecError:
    problem = f"more than {MAX_NODES:,} values, or more than {MAX_KEYS:,} keys in one mapping"
    return _error(where, loc, problem, "aliases count as often as they are used; large values belong into a `file:`")


def _too_deep(where: Where) -> SpecError:
    return _error(where, (), f"nested more than {MAX_DEPTH} levels deep")


def _note(source: _Source, reason: SpecError) -> None:
    source.errors.append(reason)
    if len(source.errors) > MAX_ERRORS:
        raise _error(reason.where, (), "too many mistakes to read on")


def _where(source: _Source, mark: Any) -> Where:
    return Where(file=source.file, line=mark.line + 1, column=mark.column + 1)


def _error(where: Where, loc: Loc, problem: str, hint: str = "") -> SpecError:
    return error(Place(where=where, path=dotted("", loc)), problem, hint)
