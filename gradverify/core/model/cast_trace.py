"""Which precisions a computation goes through, by watching every operation of torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class CastTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes casts between floating dtypes by the narrower of the two: down where digits are lost, and up.

    And the largest number of every precision coarser than float64. What kernels of their own do inside nobody sees, and
    what is cast up may be a constant.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.down: set[torch.dtype] = set()
        self.up: set[torch.dtype] = set()
        self.largest: dict[torch.dtype, float] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Answer for torch, which would import its compiler for two seconds to see that there is nothing to skip."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and _is_coarse(result.dtype):
            self._measure(result)
        source = args[0] if args else None
        if isinstance(source, Tensor) and isinstance(result, Tensor) and source.dtype != result.dtype:
            self._note(source, result)
        return result

    def _measure(self, result: Tensor) -> None:
        if result.layout is torch.strided and result.numel():
            size = float(result.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax())
            self.largest[result.dtype] = max(size, self.largest.get(result.dtype, 0.0))

    def _note(self, source: Tensor, result: Tensor) -> None:
        if source.shape != result.shape:
            return
        if _is_narrower(result.dtype, source.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.down.add(result.dtype)
        elif _is_narrower(source.dtype, result.dtype) and source.dim() > 0:  # single numbers are constants
            self.up.add(source.dtype)


def coarsest(run: Callable[[], object], own: Collection[torch.dtype]) -> tuple[float, float]:
    """Return the eps of the coarsest precision that a computation rounds to, but for its tensors' `own`.

    And what rounding leaves of the largest number in any that is coarser than float64. Both are 0 where there is none,
    or not everything can be watched.
    """
    try:
        with CastTrace() as watch:
            run()
    except RuntimeError:
        return 0.0, 0.0
    eps = max((torch.finfo(dtype).eps for dtype in watch.down - {*own}), default=0.0)
    return eps, max((torch.finfo(dtype).eps * size for dtype, size in watch.largest.items()), default=0.0)


def _is_narrower(one: torch.dtype, other: torch.dtype) -> bool:
    return _is_rounded(one) and _is_rounded(other) and torch.finfo(one).eps > torch.finfo(other).eps


def _is_rounded(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _is_coarse(dtype: torch.dtype) -> bool:
    return _is_rounded(dtype) and torch.finfo(dtype).eps > torch.finfo(torch.float64).eps
