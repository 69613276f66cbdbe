"""Where each operator is reached: a spec names it as an attribute of a module whose import registers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gradverify.author.finding.model import Found, Imported, Module, Operator, target_in
from gradverify.author.finding.reading import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A way to an operator."""

    rank: int  # the lower, the better
    module: Module
    attribute: str


def operators_of(
    modules: Sequence[Module], texts: Mapping[str, Text], imported: Mapping[str, Imported]
) -> tuple[Found, ...]:
    """Return each operator once, at the module that defines it, else at one that mentions its namespace.

    An operator of a namespace that no text mentions belongs to another package.
    """
    mentioned = frozenset(name for text in texts.values() for name in text.namespaces)
    ways: dict[str, list[_Way]] = {}
    for module in modules:
        found = imported.get(module.path)
        for operator in found.operators if found is not None else ():
            assert found is not None
            here = operator.qualified.partition("::")[0] in texts[module.path].namespaces
            ways.setdefault(operator.qualified, []).extend(_ways(operator, module, found, mentions=here))
    return tuple(
        _found(min(each, key=lambda way: way.rank))
        for qualified, each in ways.items()
        if each and qualified.partition("::")[0] in mentioned
    )


def _ways(operator: Operator, module: Module, found: Imported, *, mentions: bool) -> list[_Way]:
    if operator.attributes:
        rank = 0 if operator.defined_here else 1 if mentions else 2
        return [_Way(rank=rank, module=module, attribute=operator.attributes[0])]
    if not found.has_torch:
        return []
    namespace, _, name = operator.qualified.partition("::")
    rank = 3 if operator.defined_here else 4 if mentions else 5
    return [_Way(rank=rank, module=module, attribute=f"torch.ops.{namespace}.{name}")]


def _found(way: _Way) -> Found:
    return Found(target=target_in(way.module, way.attribute), module=way.module, line=0)
