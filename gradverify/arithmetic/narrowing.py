"""Code that casts to other dtypes on its way: the coarsest dtype it computes in, and the same code in float64."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gradverify.arithmetic.unrounded import WIDE

_COPIES = {torch.ops.aten._to_copy, torch.ops.aten.clone, torch.ops.aten.copy_, torch.ops.aten.detach}
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


class _Arithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the coarsest dtype among the results of operations, casts and copies left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps: float = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly, as Narrowing does."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket not in _COPIES and not func.is_view:
            found = [each.dtype for each in tree_leaves(result) if isinstance(each, Tensor)]
            floating = (torch.finfo(dtype).eps for dtype in found if dtype.is_floating_point or dtype.is_complex)
            self.eps = max((self.eps, *floating))
        return result


def eps_computed_in(run: Callable[[], object]) -> float:
    """Return the eps of the coarsest dtype that operations in `run()` compute in; 0 if none has floating results.

    An extension counts as one operation, and so does what numpy computes, by the dtype of its result.
    """
    seen = _Arithmetic()
    with seen:
        run()
    return seen.eps
