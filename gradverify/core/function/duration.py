"""How long a forward takes: what keeps optional work from being done thousands of times."""

from __future__ import annotations

import time

import torch

from gradverify.core.function.sampler import Sampler, along

_TIMES = 3  # that it is called: the first call may be slow for other reasons


def seconds(sampled: Sampler) -> float:
    """Return the shortest time of a few calls at the point, waiting included."""
    return min(_once(sampled) for _ in range(_TIMES))


def _once(sampled: Sampler) -> float:
    begun = time.perf_counter()
    along(sampled, torch.zeros_like(sampled.point))[:1].tolist()  # a GPU is waited for by who reads a number
    return time.perf_counter() - begun
