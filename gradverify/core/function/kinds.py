"""Tensors whose entries are not simply there: memory that was freed, sparse and nested layouts, subclasses."""

from __future__ import annotations

import torch
from torch import Tensor


def is_freed(tensor: Tensor) -> bool:
    """Return True if a tensor with entries has no memory for them any more; reading it may end the process."""
    dense = tensor.layout is torch.strided and not tensor.is_nested
    return dense and tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


def entries_of(tensor: Tensor) -> Tensor | None:
    """Return the values as a plain dense tensor without a graph, None if the tensor does not give them out."""
    if tensor.is_nested or is_freed(tensor):
        return None
    try:
        dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
        dense = dense.int_repr() if dense.is_quantized else dense
        if type(dense) is not Tensor:
            plain = torch.empty(dense.shape, dtype=dense.dtype, device=dense.device)
            plain.copy_(dense)
            return plain
        return dense.resolve_conj().resolve_neg()
    except Exception:  # a class of its own may raise anything
        return None
