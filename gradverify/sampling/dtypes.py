"""Look up dtypes by name, and choose the dtype of an input."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.errors import InputError

_COMPLEX_OF = {
    torch.float64: torch.complex128,
    torch.float32: torch.complex64,
    torch.float16: torch.complex32,
    torch.bfloat16: torch.complex64,  # torch has no complex dtype of two bfloat16
}


def dtype_named(name: str) -> torch.dtype:
    """Return the dtype called `name`, with or without `torch.`. Raises InputError."""
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise InputError(f"torch has no dtype called `{name}`")
    return found


def is_differentiable(dtype: torch.dtype) -> bool:
    """True if tensors of this dtype can require grad."""
    return dtype.is_floating_point or dtype.is_complex


def dtype_for(values: Tensor, own: str | None, case: str) -> torch.dtype:
    """Return the dtype to cast `values` to: `own` if given, else the case's dtype for floating and complex values."""
    if own is not None:
        return dtype_named(case if own == "case" else own)
    if not is_differentiable(values.dtype):
        return values.dtype
    dtype = dtype_named(case)
    return _COMPLEX_OF.get(dtype, dtype) if values.is_complex() else dtype
