"""The hand-written Functions in a graph, and the tensors that autograd and their backwards exchange.

Autograd sums, casts and copies to another device what `backward` returns before any hook runs. A node looks up its
`apply` at every call, so an attribute `apply` on that node records the raw arguments and the raw return values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

from gradverify.core.model.tape import Tape, function_nodes
from gradverify.interception import is_hand_written

Relay = Callable[[Tensor], Tensor]

_DEPTH = 4  # levels of nested objects that are searched for tensors
_ELEMENTARY = (type(None), bool, int, float, complex, str, bytes, type, ModuleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One argument of forward that needs a gradient."""

    place: int  # number of the argument
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One call of a hand-written backward."""

    node: Any  # ctx of the backward
    received: tuple[Any, ...]  # cotangents passed to backward, None if undefined
    before: tuple[Tensor | None, ...]  # their values before the call
    versions: tuple[int | None, ...]  # their version counters before the call
    returned: tuple[Any, ...]  # what backward returned, one entry per argument of forward
    slots: tuple[Slot, ...]  # arguments that need a gradient; read during the call, while the graph is alive


def custom_nodes(tape: Tape) -> tuple[Any, ...]:
    """Return the nodes of hand-written Functions behind the tape's outputs, without torch's and gradverify's own."""
    return custom_nodes_of(output.tensor for output in tape.outputs)


def custom_nodes_of(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    """Return the nodes of hand-written Functions in the graph of these tensors, as `custom_nodes` does."""
    return tuple(node for node in function_nodes(tensors) if is_hand_written(class_of(node)))


def class_of(node: Any) -> type[torch.autograd.Function]:
    """Return the Function that a node belongs to."""
    function: type[torch.autograd.Function] = node._forward_cls
    return function


def unchanged(cotangent: Tensor) -> Tensor:
    """Return the cotangent itself: the default relay."""
    return cotangent


@contextmanager
def recorded_exchanges(nodes: Sequence[Any], relay: Relay = unchanged) -> Iterator[list[Exchange]]:
    """Record the calls of these nodes' backwards; `relay` is applied to every defined cotangent first."""
    exchanges: list[Exchange] = []
    for node in nodes:
        node.apply = _recorder(node, relay, exchanges)
    try:
        yield exchanges
    finally:
        for node in nodes:
            del node.apply  # it holds the node


def tensors_on_ctx(node: Any) -> dict[str, Tensor]:
    """Return the tensors that a node's attributes hold, by path: `ctx.cache[0]`, `ctx.closure.x`."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in vars(node).items():
        _collect(f"ctx.{name}", value, found, seen, _DEPTH)
    return found


def tensors_in(value: Any) -> tuple[Tensor, ...]:
    """Return the tensors inside a container or an object, up to four levels deep; (value,) if it is a tensor."""
    found: dict[str, Tensor] = {}
    _collect("", value, found, set(), _DEPTH)
    return tuple(found.values())


def saved_tensors(node: Any) -> tuple[Tensor | None, ...]:
    """Return the tensors that forward saved with save_for_backward, empty if they cannot be read any more."""
    try:
        return tuple(node.saved_tensors)
    except RuntimeError:
        return ()


def _slots(node: Any) -> tuple[Slot, ...]:
    """Return the arguments of forward that need a gradient; empty if their metadata cannot be matched."""
    places = [place for place, needed in enumerate(node.needs_input_grad) if needed]
    edges = [(following, number) for following, number in node.next_functions if following is not None]
    if len(places) != len(edges):
        return ()
    known = [following._input_metadata[number] for following, number in edges]
    return tuple(
        Slot(place=place, shape=torch.Size(entry.shape), dtype=entry.dtype, device=entry.device)
        for place, entry in zip(places, known, strict=True)
    )


def _recorder(node: Any, relay: Relay, exchanges: list[Exchange]) -> Callable[..., Any]:
    def apply(*cotangents: Any) -> Any:
        received = tuple(relay(entry) if isinstance(entry, Tensor) else entry for entry in cotangents)
        before = tuple(entry.clone() if isinstance(entry, Tensor) else None for entry in received)
        versions = tuple(entry._version if isinstance(entry, Tensor) else None for entry in received)
        raw = type(node).apply(node, *received)
        returned = raw if isinstance(raw, tuple) else (raw,)
        exchanges.append(
            Exchange(
                node=node,
                received=received,
                before=before,
                versions=versions,
                returned=returned,
                slots=_slots(node),
            )
        )
        return raw

    return apply


def _collect(path: str, value: Any, found: dict[str, Tensor], seen: set[int], depth: int) -> None:
    if isinstance(value, Tensor):
        found[path] = value
    elif depth and not isinstance(value, _ELEMENTARY) and id(value) not in seen:
        seen.add(id(value))
        for name, entry in _parts(value):
            _collect(f"{path}{name}", entry, found, seen, depth - 1)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path suffix, object) for every object that a value refers to: cells, arguments, items, attributes."""
    if isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # an empty cell
                yield f".{name}", cell.cell_contents
    elif isinstance(value, partial):
        yield from _parts((value.func, *value.args))
        yield from _parts(value.keywords)
    elif isinstance(value, MethodType):
        yield "", value.__self__
    elif isinstance(value, dict):
        yield from ((f"[{key!r}]", entry) for key, entry in list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((f"[{number}]", entry) for number, entry in enumerate(value))
    else:
        yield from ((f".{name}", entry) for name, entry in list(getattr(value, "__dict__", {}).items()))
