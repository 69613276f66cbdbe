"""Code that casts to other dtypes on its way: the coarsest dtype it computes in, and the same code in float64."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_COPIES = {torch.ops.aten._to_copy, torch.ops.aten.clone, torch.ops.aten.copy_, torch.ops.aten.detach}
_WIDE = {torch.float64, torch.complex128}


class WithoutNarrowing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Casts numbers in float64 and complex128 to no narrower dtypes than these."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.has_narrowed = False  # True once a cast was left out

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly: torch's own method imports its compiler first, which takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: dict[str, Any] = dict(kwargs or {})
        target: Any = given.get("dtype")
        narrows = target is not None and (target.is_floating_point or target.is_complex) and target not in _WIDE
        if func is torch.ops.aten._to_copy.default and narrows and args[0].dtype in _WIDE:
            given["dtype"] = torch.complex128 if target.is_complex else torch.float64
            self.has_narrowed = True
        return func(*args, **given)


def casts_left_out(are_left_out: bool) -> AbstractContextManager[object]:
    """Return `WithoutNarrowing` if casts are to be left out, else a context without effect."""
    return WithoutNarrowing() if are_left_out else nullcontext()


class _Arithmetic(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the coarsest dtype among the results of operations, casts and copies left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.eps: float = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False directly, as WithoutNarrowing does."""
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
