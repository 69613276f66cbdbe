"""Which precisions a computation goes through, by watching every operation of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes casts between floating dtypes by the narrower of the two: down where digits are lost, and up.

    And the largest number of every precision. What kernels of their own do inside nobody sees, and what is cast up may
    be a constant.
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
        if isinstance(result, Tensor) and _is_rounded(result.dtype) and result.numel():
            size = float(result.detach().abs().nan_to_num(0.0, 0.0, 0.0).amax())
            self.largest[result.dtype] = max(size, self.largest.get(result.dtype, 0.0))
        source = args[0] if args else None
        if isinstance(source, Tensor) and isinstance(result, Tensor) and source.dtype != result.dtype:
            self._note(source, result)
        return result

    def _note(self, source: Tensor, result: Tensor) -> None:
        if source.shape != result.shape:
            return
        if _is_narrower(result.dtype, source.dtype):
            if not torch.equal(result.to(source.dtype), source):
                self.down.add(result.dtype)
        elif _is_narrower(source.dtype, result.dtype) and source.dim() > 0:  # single numbers are constants
            self.up.add(source.dtype)


def _is_narrower(one: torch.dtype, other: torch.dtype) -> bool:
    return _is_rounded(one) and _is_rounded(other) and torch.finfo(one).eps > torch.finfo(other).eps


def _is_rounded(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex
