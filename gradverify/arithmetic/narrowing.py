"""Code that casts to other dtypes on its way: the coarsest of them, and the same code without the casts."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradverify.arithmetic.unrounded import WIDE

_NARROW = {torch.float32, torch.float16, torch.bfloat16, torch.complex64}  # not float8, which is for storage only


class Narrowing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations that cast to a dtype with fewer digits, and leaves out casts of float64 if that is wanted."""

    def __init__(self, *, leave_out: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.leave_out = leave_out
        self.eps = 0.0  # of the coarsest dtype that was cast to; 0 if there was no such cast
        self.rounds = False  # True once an operation has stored float64 in a tensor of a narrower dtype

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = dict(kwargs or {})
        target: Any = given.get("dtype")
        source = args[0].dtype if args and isinstance(args[0], Tensor) else None
        if target in _NARROW and source in _NARROW | WIDE and torch.finfo(target).eps > torch.finfo(source).eps:
            self.eps = max(self.eps, torch.finfo(target).eps)
            if self.leave_out and source in WIDE:
                given["dtype"] = torch.complex128 if target.is_complex else torch.float64
        result = func(*args, **given)
        if isinstance(result, Tensor) and result.dtype in _NARROW and not self.rounds:
            self.rounds = any(isinstance(each, Tensor) and each.dtype in WIDE for each in args)
        return result


def casts_left_out(are_left_out: bool) -> AbstractContextManager[object]:
    """Return a context in which casts to narrower dtypes are left out, or one without effect."""
    return Narrowing(leave_out=True) if are_left_out else nullcontext()
