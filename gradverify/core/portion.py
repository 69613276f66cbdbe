"""How many numbers are gone through at a time, where many small steps are taken with each of them."""

from __future__ import annotations

from torch import Tensor

_CACHED = 1 << 13  # of a vector: so many that a dozen such vectors stay in a cache
_LAUNCHED = 1 << 20  # on other devices, where a step costs the same for fewer


def portion(like: Tensor) -> int:
    """Return how many numbers to take at a time on this tensor's device."""
    return _CACHED if like.device.type == "cpu" else _LAUNCHED
