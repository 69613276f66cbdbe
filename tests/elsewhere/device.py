"""A device that every machine has: its tensors are computed on the CPU, and refuse to meet those of the CPU.

What runs on it never mixes devices, so that it would run on a GPU too, and every number that the host has to wait for
is counted. torch takes one such backend in a process, for as long as that lives: `register` is for processes of their
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor

NAME = "elsewhere"
WAITS: Counter[str] = Counter()  # how often the host had to wait for what, since this was cleared
KEPT: list[torch.library.Library] = []  # what is registered goes with these

# Operations whose result the host has to know before it can go on: a number, or how large a tensor is.
_WAITED_FOR = {
    "_local_scalar_dense",
    "equal",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
}
_COPIES = {"_to_copy", "copy_"}  # may have tensors on two devices
_INDEXED = {"index", "index_put", "index_put_", "_unsafe_index"}  # wait where an index is of booleans
_FACTORIES = [
    *("arange", "arange.start", "arange.start_step", "linspace", "randperm", "eye", "eye.m", "tril_indices"),
    *("triu_indices", "full", "scalar_tensor", "zeros", "ones", "randint", "randint.low", "rand", "randn"),
]


class Elsewhere(Tensor):
    """A tensor on that device, around one of the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Elsewhere:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(operation, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def tolist(self) -> Any:
        WAITS["tolist"] += 1
        return self.held.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"{NAME}: {self.held}"


def register() -> None:
    """Make the device known to torch, in this process."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME)
    torch.autograd.set_multithreading_enabled(False)  # backward in the thread that asks, where Python is at home
    aten = torch.library.Library("aten", "IMPL")
    for name, made in {"empty.memory_format": _empty, "empty_strided": _empty_strided, "_copy_from": _copied}.items():
        aten.impl(name, made, "PrivateUse1")
    for name in _FACTORIES:
        aten.impl(name, _factory(name), "PrivateUse1")
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(lambda operation, *args, **kwargs: _computed(operation, args, kwargs), "PrivateUse1")
    KEPT.extend((aten, everything))


def moved(value: Any) -> Any:
    """Return a value with all its tensors on the device, and modules copied there."""
    if isinstance(value, Tensor):
        return value.detach().to(NAME).requires_grad_(value.requires_grad)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(moved, value))
    if isinstance(value, list | tuple):
        return type(value)(map(moved, value))
    if isinstance(value, Mapping):
        return {key: moved(entry) for key, entry in value.items()}
    return value


@cache
def _known(operation: Any) -> tuple[str, bool]:
    """Return the name of an operation, and whether it changes the shape of a tensor itself; asking torch is slow."""
    return operation.overloadpacket.__name__, torch.Tag.inplace_view in operation.tags


def _computed(operation: Any, args: Any, kwargs: Any) -> Any:
    """Return what the CPU makes of the tensors that are held."""
    name, reshapes = _known(operation)
    given: list[Any] = []

    def held(value: Any) -> Any:
        given.append(value)
        return _held(value)

    plain_args, plain_kwargs = _each(args, held), _each(kwargs, held)
    tensors = [each for each in given if isinstance(each, Tensor)]
    if name not in _COPIES:
        _refuse(name, tensors)
    _count(name, tensors)
    target = kwargs.get("device")
    if name == "_to_copy" and target is not None and torch.device(target).type == "cpu":
        WAITS["copied to the CPU"] += 1
        return operation(*plain_args, **plain_kwargs)
    found = operation(*plain_args, **plain_kwargs)
    if reshapes:
        from torch.utils._mode_utils import no_dispatch

        with no_dispatch():
            operation(*args, **kwargs)
        return args[0]
    known = {id(each.held): each for each in tensors if type(each) is Elsewhere}
    return _each(found, lambda value: _ours(value, known))


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested tuples, lists and mappings with every value in them changed; torch's own `tree_map` is slow."""
    if isinstance(value, Tensor):  # the usual case
        return change(value)
    if isinstance(value, list):
        return [_each(part, change) for part in value]
    if isinstance(value, tuple):
        return tuple([_each(part, change) for part in value])
    if isinstance(value, dict):
        return {key: _each(part, change) for key, part in value.items()}
    return change(value)


def _refuse(name: str, tensors: Iterable[Tensor]) -> None:
    for each in tensors:
        if type(each) is not Elsewhere and (each.dim() > 0 or name in _INDEXED):
            raise RuntimeError(f"{name}: tensors on {NAME}:0 and on the CPU, of shape {tuple(each.shape)}")


def _count(name: str, tensors: Iterable[Tensor]) -> None:
    if name in _WAITED_FOR or (name in _INDEXED and any(each.dtype is torch.bool for each in tensors)):
        WAITS[name] += 1


def _held(value: Any) -> Any:
    if isinstance(value, Elsewhere):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value


def _ours(value: Any, known: Mapping[int, Elsewhere]) -> Any:
    if not isinstance(value, Tensor):
        return value
    if id(value) in known:
        return known[id(value)]
    # Whoever computes with what is held sees no zeros, conjugates or negatives that are only said to be so.
    if value._is_zerotensor():
        value = value.new_zeros(value.shape)
    elif value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    return Elsewhere(value)


def _empty(size: Any, dtype: Any = None, memory_format: Any = None, **_: Any) -> Tensor:
    held = torch.empty(size, dtype=dtype, memory_format=memory_format or torch.contiguous_format, device="cpu")
    return Elsewhere(held)


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Tensor:
    return Elsewhere(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copied(given: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    if not isinstance(into, Elsewhere):
        WAITS["copied to the CPU"] += 1
    _held(into).copy_(_held(given))
    return into


def _factory(name: str) -> Callable[..., Tensor]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def made(*args: Any, **kwargs: Any) -> Tensor:
        kwargs.pop("pin_memory", None)
        return Elsewhere(operation(*args, **{**kwargs, "device": "cpu"}))

    return made
