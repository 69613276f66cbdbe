"""Seeds derived from names: independent of order, process, platform and Python's hash seed."""

from __future__ import annotations

import hashlib

import torch


def derived_seed(*parts: str | int) -> int:
    """Return a seed below 2^63 that depends only on these words."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        word = str(part).encode("utf-8", "surrogatepass")
        digest.update(len(word).to_bytes(8, "little") + word)  # with the length, ("a", "bc") and ("ab", "c") differ
    return int.from_bytes(digest.digest(), "little") >> 1


def private_generator(*parts: str | int) -> torch.Generator:
    """Return a new CPU generator, seeded from these words."""
    return torch.Generator("cpu").manual_seed(derived_seed(*parts))
