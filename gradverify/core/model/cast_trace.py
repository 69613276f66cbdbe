"""Floating-point precisions that a computation passes through, recorded at every torch operation."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class CastTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that records casts between floating-point dtypes.

    `down` holds the target dtypes of narrowing casts that changed a value, `up` the source dtypes of widening casts,
    and `largest` the largest finite magnitude in each dtype coarser than float64. Casts inside custom kernels are not
    seen, and a tensor that is widened may be a constant.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.down: set[torch.dtype] = set()
        self.up: set[torch.dtype] = set()
        self.largest: dict[torch.dtype, float] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes two seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and _is_coarse(result.dtype):
            self._record_magnitude(result)
        source = args[0] if args else None
        if isinstance(source, Tensor) and isinstance(result, Tensor) and source.dtype != result.dtype:
            self._record_cast(source, result)
        return result

    def _record_magnitude(self, result: Tensor) -> None:
        if result.layout is torch.strided and result.numel():
            size = float(result.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax())
            self.largest[result.dtype] = max(size, self.largest.get(result.dtype, 0.0))

    def _record_cast(self, source: Tensor, result: Tensor) -> None:
        if source.shape != result.shape:
            return
        if _is_narrower(result.dtype, source.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.down.add(result.dtype)
        elif _is_narrower(source.dtype, result.dtype) and source.dim() > 0:  # 0-d tensors are taken for constants
            self.up.add(source.dtype)


def rounding_of_casts(run: Callable[[], object], own: Collection[torch.dtype]) -> tuple[float, float]:
    """Return the coarsest eps that a computation rounds to, and its largest rounding error in low precision.

    The first leaves out the dtypes `own`. The second is the maximum of eps times the largest magnitude, over all dtypes
    coarser than float64. Both are 0 if no such dtype occurs or the computation raises RuntimeError.
    """
    try:
        with CastTrace() as trace:
            run()
    except RuntimeError:
        return 0.0, 0.0
    eps = max((torch.finfo(dtype).eps for dtype in trace.down - {*own}), default=0.0)
    return eps, max((torch.finfo(dtype).eps * size for dtype, size in trace.largest.items()), default=0.0)


def _is_narrower(one: torch.dtype, other: torch.dtype) -> bool:
    return _is_rounded(one) and _is_rounded(other) and torch.finfo(one).eps > torch.finfo(other).eps


def _is_rounded(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _is_coarse(dtype: torch.dtype) -> bool:
    return _is_rounded(dtype) and torch.finfo(dtype).eps > torch.finfo(torch.float64).eps
