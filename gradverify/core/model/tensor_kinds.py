"""Tensors that are not plain and dense: freed, sparse, nested, or of a subclass.

The numerics compute with plain dense tensors. A function under test gets its inputs in their original class with their
attributes, and its outputs are read as plain tensors.
"""

from __future__ import annotations

import torch
from torch import Tensor

_PLAIN = (Tensor, torch.nn.Parameter)  # classes whose tensors hold nothing but entries and instance attributes


def is_freed(tensor: Tensor) -> bool:
    """Return True if a tensor's memory has been freed although it has entries; reading it may crash the process."""
    dense = tensor.layout is torch.strided and not tensor.is_nested
    return dense and tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


def entries_of(tensor: Tensor) -> Tensor | None:
    """Return the stored entries as a plain dense tensor without a graph, None if they cannot be read."""
    if tensor.is_nested or is_freed(tensor):
        return None
    try:
        dense = _stored(as_plain(tensor).detach())
    except Exception:  # a subclass may raise anything
        return None
    return dense.resolve_conj().resolve_neg() if _is_plain(dense) else None


def as_plain(tensor: Tensor) -> Tensor:
    """Return a subclass's entries as a plain tensor, differentiably; the tensor itself if they cannot be read."""
    if _is_plain(tensor) or tensor.is_nested:
        return tensor
    if _has_memory(tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.as_subclass(Tensor)
    try:
        plain = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        plain.copy_(tensor)
    except Exception:  # a subclass may raise anything
        return tensor
    return plain


def in_class_of(original: Tensor, tensor: Tensor) -> Tensor:
    """Return a plain tensor's entries in the class and with the attributes of `original`, differentiably."""
    if not _is_plain(original) and not _has_memory(original):
        return copied(original).copy_(tensor)
    result: Tensor = tensor if _is_plain(original) else tensor.as_subclass(type(original))
    vars(result).update(vars(original))
    return result


def copied(tensor: Tensor) -> Tensor:
    """Return a copy without a graph, of the same class and with the same attributes; the tensor itself on failure.

    Attributes that `clone` of the class does not copy are shared.
    """
    try:
        with torch.no_grad():
            copy = tensor.detach().clone() if _is_plain(tensor) else tensor.clone()
    except Exception:  # a subclass may raise anything
        return tensor
    if type(copy) is not type(tensor) and not _is_plain(tensor):
        return tensor
    for name, value in vars(tensor).items():
        vars(copy).setdefault(name, value)
    return copy


def is_special(tensor: Tensor) -> bool:
    """Return True if a plain copy of a tensor lacks its class or attributes, which a function may read."""
    return bool(vars(tensor)) if type(tensor) in _PLAIN else not _is_plain(tensor)


def plain_point(tensor: Tensor) -> Tensor:
    """Return the entries as a plain tensor without a graph; the tensor itself if its class cannot be rebuilt."""
    if _is_plain(tensor):
        return tensor.detach()
    try:
        with torch.no_grad():
            point = as_plain(tensor).detach()
            rebuilt = in_class_of(tensor, point)
            values = as_plain(rebuilt)
            is_rebuilt = type(rebuilt) is type(tensor) and _is_plain(values)
            same = is_rebuilt and bool(((values == point) | point.isnan()).all())
    except Exception:  # a subclass may raise anything
        return tensor
    return point if same else tensor


def why_unreadable(tensor: Tensor) -> str:
    """Return why a tensor's entries cannot be perturbed and compared one by one, "" if they can."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    return "" if _is_plain(tensor) else f"a {type(tensor).__name__} whose entries cannot be replaced with copy_"


def readable(tensor: Tensor) -> Tensor:
    """Return a plain dense tensor, empty if the tensor is sparse or nested or its entries cannot be read."""
    plain = as_plain(tensor)
    return torch.empty(0) if why_unreadable(plain) else plain


def _stored(tensor: Tensor) -> Tensor:
    """Return the values that a tensor stores, never a dense copy of a sparse tensor, which may be huge."""
    if tensor.is_quantized:
        return tensor.int_repr()
    if tensor.layout is torch.sparse_coo:
        return tensor._values()
    if tensor.layout is torch.strided:
        return tensor
    return tensor.to_dense() if tensor.is_mkldnn else tensor.values()


def _is_plain(tensor: Tensor) -> bool:
    """Return True if a tensor's class is torch's own or the class that torch gives to all tensors on its device."""
    return type(tensor) in _PLAIN or type(tensor) is type(torch.empty(0, device=tensor.device))


def _has_memory(tensor: Tensor) -> bool:
    """Return True if a strided tensor has memory of its own; False for a subclass that wraps other tensors."""
    try:
        tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return False
    return tensor.layout is torch.strided
