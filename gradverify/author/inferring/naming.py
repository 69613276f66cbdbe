"""Sizes of inferred inputs as names of `dims`, where inputs share them, and as numbers elsewhere. No torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gradverify.author.inferring.sizes import name_of, number_of

Inputs = Mapping[str, Any]
_SIZES = ("shape", "size")


def shared_names(inputs: Inputs) -> tuple[str, ...]:
    """Return the names of sizes that more than one tensor has, unless an input has that name itself."""
    tensors = [each for value in inputs.values() for each in (value if isinstance(value, list) else [value])]
    counts = Counter(name for tensor in tensors for name in set(_names_in(tensor)))
    return tuple(name for name, count in counts.items() if count > 1 and name not in inputs)


def with_sizes(inputs: Inputs, table: Mapping[str, int], kept: Collection[str]) -> dict[str, Any]:
    """Return the inputs with numbers for all names of sizes except those that are kept."""
    return {name: _with_sizes(value, table, kept) for name, value in inputs.items()}


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (name_of(size) for key in _SIZES for size in value.get(key, ()) if isinstance(size, str))


def _with_sizes(value: Any, table: Mapping[str, int], kept: Collection[str]) -> Any:
    if isinstance(value, list):
        return [_with_sizes(each, table, kept) for each in value]
    if not isinstance(value, dict):
        return value
    sized = {key: [_with_size(size, table, kept) for size in value[key]] for key in _SIZES if key in value}
    return {**value, **sized}


def _with_size(size: str | int, table: Mapping[str, int], kept: Collection[str]) -> str | int:
    return size if isinstance(size, str) and name_of(size) in kept else number_of(size, table)
