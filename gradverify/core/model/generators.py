"""Random numbers: the generators that a forward may draw from, and vectors of which no entry is small."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

_SMALL = 1024  # entries of vectors that are kept
_HALF = torch.tensor(0.5, dtype=torch.float64, device="cpu")
_UNUSUAL = 24_301  # a backward that draws its mask anew from the seed 0 is not to be right by accident


def forward_seed(seed: int) -> int:
    """Return what a forward that draws is seeded with: a number that no code is likely to seed a generator with."""
    return seed + _UNUSUAL


def seed_everywhere(seed: int) -> None:
    """Seed all generators; CUDA's only where it is in use, since seeding it otherwise costs a millisecond."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def untouched(seed: int) -> bool:
    """Tell whether nothing was drawn from a generator of the CPU since `seed_everywhere(seed)`; draws from each itself.

    A state is large, and reading numpy's takes longer than a small forward.
    """
    drawn = float(torch.rand((), dtype=torch.float64, device="cpu")), random.random(), float(np.random.random_sample())
    return drawn == _first_numbers(seed)


@lru_cache(maxsize=64)
def _first_numbers(seed: int) -> tuple[float, float, float]:
    """Return what the generators give first after they were seeded."""
    torchs = torch.Generator().manual_seed(seed)
    return (
        float(torch.rand((), generator=torchs, dtype=torch.float64, device="cpu")),
        random.Random(seed).random(),
        float(np.random.RandomState(seed % 2**32).random_sample()),
    )


@contextmanager
def generators_kept(devices: Sequence[int]) -> Iterator[None]:
    """Put all generators back on leaving, those of these CUDA devices included."""
    pythons, numpys = random.getstate(), np.random.get_state(legacy=False)
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)


def scattered(scale: Tensor, generator: Generator) -> Tensor:
    """Return random entries of either sign, between half and one and a half times their scale; none is small."""
    return _spread(scale.shape, generator).to(scale.device).mul_(scale)


def scattered_from(scale: Tensor, seed: int) -> Tensor:
    """Return what `scattered` gives first of a generator seeded with `seed`, for a vector (n,)."""
    if scale.numel() > _SMALL:
        return scattered(scale, Generator().manual_seed(seed))
    return _units(scale.numel(), seed).to(scale.device) * scale


@lru_cache(maxsize=256)
def _units(count: int, seed: int) -> Tensor:
    return _spread(torch.Size([count]), Generator().manual_seed(seed))


def _spread(shape: torch.Size, generator: Generator) -> Tensor:
    """Return random numbers of either sign with magnitudes between 1/2 and 3/2, from 32 random bits each."""
    pairs = torch.empty((shape.numel() + 1) // 2, dtype=torch.long, device="cpu").random_(
        -(2**63), None, generator=generator
    )
    between = pairs.view(torch.int32)[: shape.numel()].reshape(shape).to(torch.float64)
    return torch.copysign(_HALF, between).add_(between, alpha=2.0**-31)
