"""Seeds that depend on names alone: never on order, process, platform or Python's own hash."""

from __future__ import annotations

import hashlib

import torch


def derived_seed(*parts: str | int) -> int:
    """Return a seed below 2^63 for these words, the same everywhere."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        word = str(part).encode("utf-8", "surrogatepass")
        digest.update(len(word).to_bytes(8, "little") + word)  # the length keeps ("a", "bc") apart from ("ab", "c")
    return int.from_bytes(digest.digest(), "little") >> 1


def private_generator(*parts: str | int) -> torch.Generator:
    """Return a CPU generator of its own, seeded from these words."""
    return torch.Generator("cpu").manual_seed(derived_seed(*parts))
