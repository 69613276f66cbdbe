"""Bytes that a graph keeps for backward, and the most that forward and backward allocate at one time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from gradverify.checks.contract.nodes import custom_nodes, tensors_on_ctx
from gradverify.errors import InputError
from gradverify.interception import OperatorMode
from gradverify.run.usage.sides import Side, new_leaves, ones_for, run_backward, run_forward
from gradverify.usage import Usage

_NOT_PLAIN = "some `apply` cannot be run as plain code; name a `reference`"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The memory of one forward and backward."""

    usage: Usage
    without_gradient: frozenset[str]  # inputs for which autograd has no gradient


def memory_of(side: Side) -> MemoryUse:
    """Run one forward and backward and return its memory; raises what they raise, and InputError if it is not plain.

    Inputs, outputs and weights that the graph keeps are counted like any other tensor: the graph keeps them alive when
    the caller drops them.
    """
    leaves = new_leaves(side)
    with _watched_peak(leaves) as peak:
        with _watched_saving() as kept:
            tape = run_forward(side, leaves)
        nodes = custom_nodes(tape)
        if side.plain and nodes:
            raise InputError(_NOT_PLAIN)
        saved = _bytes([*kept(), *_on_ctx(nodes)])
        gradients = run_backward(side, tape, ones_for(tape))
        usage = Usage(saved_bytes=saved, peak_bytes=peak())
    names = [primal.name for primal in side.problem.primals if primal.name in side.names]
    missing = frozenset(name for name, gradient in zip(names, gradients, strict=True) if gradient is None)
    return MemoryUse(usage=usage, without_gradient=missing)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class _Saved:
    """A tensor that a node keeps; freed with the node."""

    tensor: Tensor


@contextmanager
def _watched_saving() -> Iterator[Callable[[], list[Tensor]]]:
    """Yield a function that returns the tensors saved in this block whose nodes are still alive."""
    held: weakref.WeakSet[_Saved] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Saved:
        saved = _Saved(tensor=tensor.detach())  # the node of an output that is kept with its graph is never freed
        held.add(saved)
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved.tensor):
        yield lambda: [saved.tensor for saved in held]


def _on_ctx(nodes: Iterable[Any]) -> list[Tensor]:
    """Return the tensors that hand-written Functions keep as attributes of ctx."""
    return [tensor for node in nodes for tensor in tensors_on_ctx(node).values()]


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' storages, each counted once."""
    return sum({storage._cdata: storage.nbytes() for storage in _storages(tensors)}.values())


def _storages(values: Iterable[Any]) -> Iterator[torch.UntypedStorage]:
    """Yield the storages of tensors, also of those in lists, tuples and dicts: arguments and results of operations."""
    for value in values:
        if isinstance(value, Tensor):
            yield value.untyped_storage()
        elif isinstance(value, list | tuple):
            yield from _storages(value)
        elif isinstance(value, dict):
            yield from _storages(value.values())


@contextmanager
def _watched_peak(leaves: tuple[Tensor, ...]) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most bytes allocated in this block at one time."""
    device = leaves[0].device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield lambda: torch.cuda.max_memory_allocated(device) - before
        return
    with _Allocations() as seen:
        yield lambda: seen.peak


class _Allocations(OperatorMode):
    """Adds up the storages that operations return, from then until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # by the storage's id
        self.total = 0  # bytes
        self.peak = 0  # bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        for storage in _storages((args, given)):
            self._follow(storage, 0)
        result = func(*args, **given)
        for storage in _storages((result,)):
            self._follow(storage, storage.nbytes())
        return result

    def _follow(self, storage: torch.UntypedStorage, size: int) -> None:
        """Count a storage that has not been seen before; one that an operation receives first was there before."""
        key = id(storage)
        if key in self.known:
            return

        def free(_: object) -> None:
            del self.known[key]
            self.total -= size

        self.known[key] = weakref.ref(storage, free)
        self.total += size
        self.peak = max(self.peak, self.total)
