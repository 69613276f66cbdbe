"""YAML values that remember where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradverify.errors import SpecError, Where
from gradverify.spec.wording import visible

Step = str | int  # a key or an index
Loc = tuple[Step, ...]

_NAMELESS = "''"  # how a path shows a key of no characters


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """One YAML value; a node is equal only to itself, so that it can be a key of a dictionary."""

    where: Where  # its first character
    plain: Any  # the value without its places: None, bool, int, float, str, list or dict
    members: Mapping[str, Member] | None = None  # of a mapping
    items: tuple[Node, ...] | None = None  # of a list
    size: int = 1  # nodes in it, aliases followed
    depth: int = 1  # levels in it, aliases followed
    origin: str = ""  # path of the case that was merged into this mapping, where it is the root of a path
    keys: int = 0  # keys of this mapping and of the mappings in it


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One key of a mapping with its value."""

    where: Where  # of the key
    node: Node
    origin: str | None = None  # path of the case ("" for the document) that a merge took it from


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a key or a value stands, and its dotted path."""

    where: Where
    path: str


def mapping_node(where: Where, members: Mapping[str, Member]) -> Node:
    """Return a mapping with these members."""
    return Node(
        where=where,
        plain={name: member.node.plain for name, member in members.items()},
        members=members,
        size=1 + sum(member.node.size for member in members.values()),
        depth=1 + max((member.node.depth for member in members.values()), default=0),
        keys=len(members) + sum(member.node.keys for member in members.values()),
    )


def value_place(root: Node, loc: Loc) -> Place:
    """Return the place of the value at `loc`; where it is absent, that of the mapping it is absent from."""
    return _place(root, loc)[1]


def key_place(root: Node, loc: Loc) -> Place:
    """Return the place of the last key of `loc`; where it is absent, that of the mapping it is absent from."""
    return _place(root, loc)[0]


def error(place: Place, problem: str, hint: str = "") -> SpecError:
    """Return a SpecError whose every part is safe to print."""
    return SpecError(where=place.where, path=visible(place.path), problem=visible(problem), hint=visible(hint))


def _place(root: Node, loc: Loc) -> tuple[Place, Place]:
    node, key_where, origin = root, root.where, root.origin
    for step in loc:
        if isinstance(step, str):
            member = (node.members or {}).get(step)
            if member is None:
                key_where = node.where
                break
            node, key_where = member.node, member.where
            origin = origin if member.origin is None else member.origin
        elif node.items is not None and step < len(node.items):
            node = node.items[step]
            key_where = node.where
        else:
            break
    path = dotted(origin, loc)
    return Place(where=key_where, path=path), Place(where=node.where, path=path)


def dotted(origin: str, loc: Loc) -> str:
    """Return a path as messages show it: `cases.vector.inputs.x.shape[1]`."""
    path = origin
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step or _NAMELESS}" if path else step or _NAMELESS
    return path
