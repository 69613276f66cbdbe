"""Float64 arithmetic with a little more rounding: shows how intermediate results amplify it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

NOISE_EPS = 2.0**-36  # relative width of the noise: far above float64's rounding, far below where it is not linear
_WIDE = (torch.float64, torch.complex128)


@contextmanager
def noisy_arithmetic(generator: torch.Generator) -> Iterator[None]:
    """Multiply the float64 results of every operation by 1 + u, u uniform within ±NOISE_EPS / 2.

    This is Monte Carlo arithmetic (Parker, Pierce & Eggert, Computing in Science & Engineering 2(4), 2000), with one
    such factor for each entry and one for each line along each dimension: inside a fused operation, a statistic that is
    common to a row is rounded too. Views and operations in place are left as they are.
    """
    with _Noisy(generator):
        yield


class _Noisy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if any(returned.alias_info is not None for returned in func._schema.returns):
            return result
        return tree_map(self._with_noise, result)

    def _with_noise(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype not in _WIDE or not value.numel():
            return value
        noise = self._noise(value.shape, value.device)
        for dimension in range(value.dim()):
            line = [1 if place == dimension else size for place, size in enumerate(value.shape)]
            noise = noise.add_(self._noise(line, value.device))
        return value * noise.mul_(NOISE_EPS).add_(1)  # not value + value * noise: -inf stays -inf

    def _noise(self, shape: Sequence[int], device: torch.device) -> Tensor:
        source = self.generator.device
        found = torch.rand(list(shape), generator=self.generator, dtype=torch.float64, device=source)
        return found.to(device).sub_(0.5)
