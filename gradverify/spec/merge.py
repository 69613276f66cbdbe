"""One entry of `cases` merged over the keys above it.

Mappings are merged key by key, everything else is replaced. Two exceptions: `expect` is replaced as a whole, and an
input that names another source of values drops the one above, so that no case has to repeat or unset what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from gradverify.spec.forms import ARGUMENT_FORMS, DISTRIBUTIONS, OTHER_SOURCES
from gradverify.spec.node import Member, Node, mapping_node

_Merge = Callable[[Node, Node, str], Node]


def merge_case(above: Node, case: Node, origin: str) -> Node:
    """Return the mapping `case`, whose path in the document is `origin`, merged over the mapping `above`."""
    return replace(_merge(above, case, origin, _rule), origin=origin)


def _rule(name: str) -> _Merge:
    return {"expect": _replace, "inputs": _merge_inputs}.get(name, _merge_deep)


def _merge(above: Node, case: Node, origin: str, rule: Callable[[str], _Merge]) -> Node:
    assert above.members is not None and case.members is not None
    members = {
        name: Member(where=upper.where, node=upper.node, origin=upper.origin or "")
        for name, upper in above.members.items()
    }
    for name, lower in case.members.items():
        node, upper = lower.node, above.members.get(name)
        if upper is not None and upper.node.members is not None and node.members is not None:
            node = rule(name)(upper.node, node, origin)
        members[name] = Member(where=lower.where, node=node, origin=origin)
    return mapping_node(case.where, members)


def _replace(_: Node, case: Node, __: str) -> Node:
    return case


def _merge_deep(above: Node, case: Node, origin: str) -> Node:
    return _merge(above, case, origin, lambda _: _merge_deep)


def _merge_inputs(above: Node, case: Node, origin: str) -> Node:
    return _merge(above, case, origin, lambda _: _merge_input)


def _merge_input(above: Node, case: Node, origin: str) -> Node:
    assert above.members is not None and case.members is not None
    dropped = _dropped(above.members.keys(), case.members.keys())
    kept = {name: member for name, member in above.members.items() if name not in dropped}
    return _merge_deep(mapping_node(above.where, kept), case, origin)


def _dropped(above: Collection[str], case: Collection[str]) -> Collection[str]:
    argument = any(above == {form} for form in ARGUMENT_FORMS) or any(form in case for form in ARGUMENT_FORMS[1:])
    if argument:
        return above if set(above) != set(case) else ()
    if any(source in case for source in OTHER_SOURCES):
        return {"shape", "avoid", "args", *DISTRIBUTIONS, *OTHER_SOURCES}
    if any(source in case for source in DISTRIBUTIONS):
        return {"args", *DISTRIBUTIONS, *OTHER_SOURCES}
    return {"args", *OTHER_SOURCES} if "shape" in case else ()
