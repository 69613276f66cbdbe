"""Float64 arithmetic with a little more rounding: shows how intermediate results amplify it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

NOISE_EPS = 2.0**-36  # relative width of the noise: far above float64's rounding, far below where it is not linear
_WIDE = (torch.float64, torch.complex128)


@contextmanager
def noisy_arithmetic(generator: torch.Generator, eps: float) -> Iterator[None]:
    """Multiply the float64 results of every operation by 1 + u, u uniform within ±NOISE_EPS / 2.

    This is Monte Carlo arithmetic (Parker, Pierce & Eggert, Computing in Science & Engineering 2(4), 2000), with one
    such factor for each entry and one for each line along each dimension: inside a fused operation, a statistic that is
    common to a row is rounded too. Views and operations in place are left as they are.

    Values that are computed without the inputs, such as angles of positions, get the noise of float32 where `eps`, the
    precision that the noise stands for, is coarser: no kernel computes them in bfloat16.
    """
    with _Noisy(generator, min(1.0, torch.finfo(torch.float32).eps / eps)):
        yield


class _Noisy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, generator: torch.Generator, of_constants: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator
        self.of_constants = of_constants  # noise of values that do not depend on the inputs, as a share
        self.constants = WeakTensorKeyDictionary()  # those values; the keys matter only

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        literal = func is torch.ops.aten.lift_fresh.default  # what torch.tensor([…]) ends with
        constant = literal or all(value in self.constants for value in given)
        if not any(returned.alias_info is not None for returned in func._schema.returns):
            result = tree_map(lambda value: self._with_noise(value, self.of_constants if constant else 1.0), result)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._mark(value, constant)
        return result

    def _mark(self, value: Tensor, constant: bool) -> None:
        if constant:
            self.constants[value] = True
        else:
            self.constants.pop(value, None)  # type: ignore[no-untyped-call]

    def _with_noise(self, value: Any, share: float) -> Any:
        if not isinstance(value, Tensor) or value.dtype not in _WIDE or not value.numel():
            return value
        if value._is_zerotensor():  # as the gradient of sgn: it has no memory, and noise leaves zeros as they are
            return value
        noise = self._noise(value.shape, value.device)
        for dimension in range(value.dim()):
            line = [1 if place == dimension else size for place, size in enumerate(value.shape)]
            noise = noise.add_(self._noise(line, value.device))
        return value * noise.mul_(share * NOISE_EPS).add_(1)  # not value + value * noise: -inf stays -inf

    def _noise(self, shape: Sequence[int], device: torch.device) -> Tensor:
        source = self.generator.device
        found = torch.rand(list(shape), generator=self.generator, dtype=torch.float64, device=source)
        return found.to(device).sub_(0.5)
