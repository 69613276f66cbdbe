"""Tensors inside nested lists, tuples, dicts and dataclasses."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """One tensor of a nested structure and the path to it."""

    name: str
    tensor: Tensor


def named_tensors(name: str, value: Any, inside: tuple[int, ...] = ()) -> list[Named]:
    """Return every tensor inside nested lists, tuples, dicts and dataclasses, named by its path.

    `inside` holds the ids of the objects on the path, which may lead back to them.
    """
    if isinstance(value, Tensor):
        return [Named(name=name, tensor=value)]
    result = []
    if isinstance(value, list | tuple):
        for number, entry in enumerate(value):
            result += named_tensors(f"{name}[{number}]", entry, inside)
    elif id(value) not in inside:
        entries = value if isinstance(value, Mapping) else _fields_of(value)
        for key, entry in entries.items():
            result += named_tensors(f"{name}.{key}" if name else str(key), entry, (*inside, id(value)))
    return result


def map_tensors(value: Any, change: Callable[[Tensor], Tensor], above: Mapping[int, Any] | None = None) -> Any:
    """Return `value` with `change` applied to every tensor in nested lists, tuples, dicts and dataclasses.

    `above` holds the copies of the dataclasses on the path, by the ids of these, which it may lead back to.
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(entry, change, above) for entry in value))
    if type(value) in (list, tuple):
        return type(value)(map_tensors(entry, change, above) for entry in value)
    if type(value) is dict:
        return {key: map_tensors(entry, change, above) for key, entry in value.items()}
    if isinstance(value, MutableMapping) and named_tensors("", value):
        changed = copy.copy(value)
        for key, entry in value.items():
            changed[key] = map_tensors(entry, change, above)
        return changed
    known = above or {}
    if id(value) in known or not (_fields_of(value) and named_tensors("", value)):
        return known.get(id(value), value)
    changed = object.__new__(type(value))  # neither its constructor nor its own way of copying is asked
    for name, entry in (vars(value) if hasattr(value, "__dict__") else {}).items():
        object.__setattr__(changed, name, entry)
    for name, entry in _fields_of(value).items():  # it may be frozen
        object.__setattr__(changed, name, map_tensors(entry, change, {**known, id(value): changed}))
    return changed


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that can be read, by name; none for anything else and for modules."""
    found: dict[str, Any] = {}
    if is_dataclass(value) and not isinstance(value, type | torch.nn.Module):
        for each in fields(value):
            with suppress(Exception):
                found[each.name] = getattr(value, each.name)
    return found
