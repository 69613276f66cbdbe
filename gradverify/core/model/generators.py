"""Generators of random numbers that a forward may use, and random vectors without small entries."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from torch import Generator, Tensor

MAGNITUDES = (0.5, 1.5)  # smallest and largest, of random numbers around 1
_LEAST = torch.tensor(MAGNITUDES[0], dtype=torch.float64, device="cpu")
_SEED_OFFSET = 24_301  # a backward that draws its mask again from seed 0 must not be right by accident


def own_seed(seed: int) -> int:
    """Return a seed that user code is unlikely to use itself: its numbers are not those of an input or a mask."""
    return seed + _SEED_OFFSET


def seed_everywhere(seed: int) -> None:
    """Seed all generators; CUDA's only if it is initialised, since seeding it otherwise takes a millisecond."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


def generators_unused(seed: int) -> bool:
    """Return True if no CPU generator was used since `seed_everywhere(seed)`; draws one number from each.

    Comparing states would be slower: reading numpy's alone takes longer than a small forward.
    """
    first = float(torch.rand((), dtype=torch.float64, device="cpu")), random.random(), float(np.random.random_sample())
    return first == _first_numbers(seed)


@lru_cache(maxsize=64)
def _first_numbers(seed: int) -> tuple[float, float, float]:
    """Return the first number of torch's, Python's and numpy's generators after seeding."""
    generator = torch.Generator().manual_seed(seed)
    return (
        float(torch.rand((), generator=generator, dtype=torch.float64, device="cpu")),
        random.Random(seed).random(),
        float(np.random.RandomState(seed % 2**32).random_sample()),
    )


@contextmanager
def restored_generators(devices: Sequence[int]) -> Iterator[None]:
    """Restore the state of all generators on exit, including those of the CUDA `devices`."""
    python_state, numpy_state = random.getstate(), np.random.get_state(legacy=False)
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def shuffled(indices: Tensor) -> Tensor:
    """Return the indices (k,) in a random order, always the same one of so many: errors may be periodic."""
    order = torch.randperm(len(indices), generator=Generator().manual_seed(len(indices)))
    return indices[order.to(indices.device)]


def random_magnitudes(scale: Tensor, generator: Generator) -> Tensor:
    """Return random numbers of random sign with magnitudes between 1/2 and 3/2 of `scale`, from 32 random bits each."""
    pairs = torch.empty((scale.numel() + 1) // 2, dtype=torch.long, device="cpu").random_(
        -(2**63), None, generator=generator
    )
    integers = pairs.view(torch.int32)[: scale.numel()].reshape(scale.shape).to(torch.float64)
    return torch.copysign(_LEAST, integers).add_(integers, alpha=2.0**-31).to(scale.device).mul_(scale)


def random_magnitudes_from(scale: Tensor, seed: int) -> Tensor:
    """Return the first result of `random_magnitudes` with a generator seeded with `seed`; `scale` is (n,)."""
    return random_magnitudes(scale, Generator().manual_seed(seed))
