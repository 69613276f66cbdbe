"""The cotangents for which gradients are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.coordinates import coordinates_in, flatten, unflatten
from gradverify.core.model.generators import random_magnitudes

_RANDOM = 3
_LARGE = 64.0  # the single large entry, times the others


@dataclass(frozen=True, slots=True, kw_only=True)
class Cotangent:
    """One cotangent for all outputs."""

    name: str  # for messages: "a random cotangent"
    tensors: tuple[Tensor, ...]  # one per output, in its dtype


def cotangents_for(outputs: Sequence[Tensor], seed: int) -> tuple[Cotangent, ...]:
    """Return three random cotangents, ones as `.sum()` sends them, and a random one with a single large entry."""
    generator = torch.Generator().manual_seed(seed)
    random = [_random(outputs, generator) for _ in range(_RANDOM + 1)]
    ones = tuple(torch.ones((), dtype=output.dtype, device=output.device).expand(output.shape) for output in outputs)
    return (
        *(Cotangent(name="a random cotangent", tensors=_tensors(values, outputs)) for values in random[:_RANDOM]),
        Cotangent(name="ones", tensors=ones),
        Cotangent(
            name="a cotangent with one large entry",
            tensors=_tensors(_with_large_entry(random[-1], generator), outputs),
        ),
    )


def _random(outputs: Sequence[Tensor], generator: torch.Generator) -> Tensor:
    count = sum(coordinates_in(output) for output in outputs)
    return random_magnitudes(torch.ones(count, dtype=torch.float64, device=outputs[0].device), generator)


def _with_large_entry(values: Tensor, generator: torch.Generator) -> Tensor:
    if values.numel():
        values[int(torch.randint(values.numel(), (), generator=generator))] *= _LARGE
    return values


def _tensors(values: Tensor, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the cotangents as new tensors in the dtypes of the outputs; a backward may overwrite them."""
    return tuple(tensor.clone() for tensor in unflatten(values, outputs))


def in_float64(tensors: Sequence[Tensor]) -> Tensor:
    """Return the coordinates of all tensors as one float64 vector that shares no memory with them."""
    return flatten(tensors).clone()
