"""Sizes with names, small and distinct first. No torch."""

from __future__ import annotations

from collections.abc import Mapping

Shape = tuple[str | int, ...]
# b: batch, c: channels, n: rows, d: entries of a row, e: of a fifth dimension, m: a size of its own, as of features.
TABLES: tuple[Mapping[str, int], ...] = (
    {"b": 2, "c": 5, "n": 3, "d": 4, "e": 7, "m": 6},
    {"b": 2, "c": 4, "n": 6, "d": 8, "e": 5, "m": 3},
    {"b": 2, "c": 4, "n": 4, "d": 4, "e": 4, "m": 4},  # square matrices
    {"b": 1, "c": 2, "n": 16, "d": 16, "e": 16, "m": 16},  # the least that many kernels take
    {"b": 2, "c": 8, "n": 16, "d": 32, "e": 4, "m": 64},
)
BASES: Mapping[int, Shape] = {
    0: (),
    1: ("n",),
    2: ("n", "d"),
    3: ("b", "n", "d"),
    4: ("b", "c", "n", "d"),
    5: ("b", "c", "n", "d", "e"),
}


def sizes_of(shape: Shape, table: Mapping[str, int]) -> list[int]:
    """Return the numbers of a shape."""
    return [number_of(size, table) for size in shape]


def name_of(size: str) -> str:
    """Return the name in a size such as `d` or `3 * d`."""
    return size.rpartition(" ")[2]


def number_of(size: str | int, table: Mapping[str, int]) -> int:
    """Return the number of a size such as `3 * d`."""
    if isinstance(size, int):
        return size
    factor, _, name = size.rpartition(" * ")
    return int(factor or 1) * table[name]
