"""Sizes in bytes, read and written with units, which are powers of 1024."""

from __future__ import annotations

import re
from types import MappingProxyType

_UNITS = MappingProxyType({"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40})
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]+)?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)

MOST_MEMORY = 1 << 60  # bytes, the largest limit: the kernel counts in 64 bits


def size_of(text: str) -> int | None:
    """Return the bytes of `512M`, `1.5G` or `2GiB`, rounded down to whole ones; None if the text is no size."""
    size = exact_size_of(text)
    return None if size is None else int(size)


def exact_size_of(text: str) -> float | None:
    """Return the bytes of a size that may be no whole number of them, None if the text is no size."""
    match = _SIZE.fullmatch(text.strip())
    return float(match[1]) * _UNITS[match[2].upper()] if match else None


def size_text(size: int) -> str:
    """Return the shortest text for which `size_of` returns exactly this size."""
    unit, factor = next((unit, factor) for unit, factor in reversed(tuple(_UNITS.items())) if size % factor == 0)
    return f"{size // factor}{unit}"


def bytes_text(size: int) -> str:
    """Return bytes as `24 B` or `1.5 MiB`, with four significant digits from 1 KiB on."""
    if size < 1 << 10:
        return f"{size} B"
    unit, factor = next((unit, factor) for unit, factor in reversed(tuple(_UNITS.items())) if size >= factor)
    return f"{size / factor:.4g} {unit}iB"
