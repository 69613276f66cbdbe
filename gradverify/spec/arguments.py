"""The words of a command line to a spec of one case: a target, and `NAME:SHAPE` or `NAME=VALUE` for each input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradverify.case import INIT
from gradverify.errors import SpecError, Where
from gradverify.spec.document import compose
from gradverify.spec.files import spec_file
from gradverify.spec.identity import NO_FILE
from gradverify.spec.model import SpecCase
from gradverify.spec.node import Member, Node, Place, error, mapping_node
from gradverify.spec.read import Reading, read_documents
from gradverify.spec.wording import shortened

_WORD = re.compile(r"(?P<name>[^:=]*)(?P<sign>[:=])(?P<value>.*)", re.DOTALL)
_SIZES = re.compile(r"\s*(\d+\s*(,\s*\d+\s*)*)?")
_FORMS = "write NAME:SHAPE for a tensor, as x:2,3, or NAME=VALUE, as clip=1.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a command line says about one function."""

    target: str  # path.py:Name or package.module:Name
    inputs: tuple[str, ...]  # NAME:SHAPE or NAME=VALUE
    reference: str | None = None  # plain code to compare with, named as the target
    tolerances: Mapping[str, str] = field(default_factory=dict)  # `rtol` and `atol`, where they are given


def read_arguments(words: Words, path: Path | None) -> Reading:
    """Return a spec as the file at `path` would hold it, or the mistakes, each with the word that it is in.

    A value is read as YAML, as under `inputs`; `NAME:2,3` is a tensor of that shape, `NAME:` one without dimensions.
    `init.NAME=VALUE` is an argument of an nn.Module's constructor. Paths are relative to the working directory. If
    `path` is None, the spec is in no file, and its name is `check`.
    """
    errors: list[SpecError] = []
    where = _where(words.target)
    inputs: dict[str, Member] = {}
    init: dict[str, Member] = {}
    for word in words.inputs:
        named = _named(word, errors)
        if named is not None:
            name, member = named
            group, name = (init, name.removeprefix(INIT)) if name.startswith(INIT) else (inputs, name)
            errors += _twice(word, name, group)
            group.setdefault(name, member)
    keys = {"function": Node(where=where, plain=words.target), "inputs": mapping_node(where, inputs)}
    keys["seed"] = Node(
        where=where, plain=0
    )  # written, so that the same numbers are drawn in whatever file it is saved
    if words.reference is not None:
        keys["reference"] = Node(where=_where(words.reference), plain=words.reference)
    keys |= {key: _value(f"--{key} {text}", text, errors) for key, text in words.tolerances.items()}
    if init:
        keys["init"] = mapping_node(where, init)
    root = mapping_node(where, {name: Member(where=node.where, node=node) for name, node in keys.items()})
    file = spec_file(path or Path(NO_FILE))
    here = Path.cwd() / file.path.name  # paths of the document are relative to its folder
    reading = read_documents([root], replace(file, location=here, name=file.name if path else NO_FILE))
    errors += reading.errors
    specs = tuple(
        replace(spec, file=str(path or ""), cases=tuple(map(_in_line_one, spec.cases))) for spec in reading.specs
    )
    return Reading(specs=() if errors else specs, errors=tuple(errors))


def _in_line_one(case: SpecCase) -> SpecCase:
    return replace(case, line=1)


def _where(word: str) -> Where:
    return Where(file=shortened(word), line=0, column=0)


def _named(word: str, errors: list[SpecError]) -> tuple[str, Member] | None:
    """Return the name and the value in a word; None, and an error, if it has none."""
    parts = _WORD.fullmatch(word)
    problem = ""
    if parts is None:
        problem = "neither a tensor nor a value"
    elif not parts["name"].removeprefix(INIT).isidentifier():
        problem = f"`{shortened(parts['name'])}` is not the name of a parameter"
    elif parts["sign"] == ":" and not _SIZES.fullmatch(parts["value"]):
        problem = f"expected sizes with commas between them, found text '{shortened(parts['value'])}'"
    if problem or parts is None:
        errors.append(_error(word, problem, _FORMS))
        return None
    node = _tensor(word, parts["value"]) if parts["sign"] == ":" else _value(word, parts["value"], errors)
    return parts["name"], Member(where=_where(word), node=node)


def _tensor(word: str, sizes: str) -> Node:
    shape = _placed(compose(f"[{sizes}]", "").documents[0], _where(word))
    return mapping_node(_where(word), {"shape": Member(where=_where(word), node=shape)})


def _value(word: str, text: str, errors: list[SpecError]) -> Node:
    composed = compose(text, "")
    errors += [_error(word, reason.problem, reason.hint) for reason in composed.errors]
    documents: Sequence[Node] = composed.documents or [Node(where=_where(word), plain=None)]
    return _placed(documents[0], _where(word))


def _placed(node: Node, where: Where) -> Node:
    """Return the node with one place for everything in it."""
    members = (
        None
        if node.members is None
        else {name: Member(where=where, node=_placed(member.node, where)) for name, member in node.members.items()}
    )
    items = None if node.items is None else tuple(_placed(item, where) for item in node.items)
    return replace(node, where=where, members=members, items=items)


def _twice(word: str, name: str, group: dict[str, Member]) -> list[SpecError]:
    return [_error(word, f"`{name}` is given twice", f"first as {group[name].where}")] if name in group else []


def _error(word: str, problem: str, hint: str) -> SpecError:
    return error(Place(where=_where(word), path=""), problem, hint)
