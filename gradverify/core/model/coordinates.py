"""Tensors as the numerics see them: plain, dense, and as vectors of real coordinates.

A complex entry has two coordinates, its real and its imaginary part. A complex function is differentiated as a real
function of twice as many variables. This agrees with torch's convention (conjugate Wirtinger): for a real L,
grad = dL/d(real) + i·dL/d(imag).

Tensors may be freed, sparse, nested, or of a subclass. A function under test gets its inputs in their original class
with their attributes, and its outputs are read as plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradverify.nested import Named

_PLAIN = (Tensor, torch.nn.Parameter)  # classes whose tensors hold nothing but entries and instance attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The coordinates of one real tensor, or of the real or imaginary part of a complex one."""

    name: str  # x, z.real, z.imag
    tensor: int  # index of the tensor it belongs to
    start: int  # first coordinate, counted over all tensors
    stop: int
    step: int  # 1, or 2 for a complex tensor, whose real and imaginary parts alternate
    shape: tuple[int, ...]

    @property
    def coordinates(self) -> slice:
        """Slice of the block in the flat vector over all tensors."""
        return slice(self.start, self.stop, self.step)

    def index(self, position: int) -> tuple[int, ...]:
        """Return the tensor index of the block's entry at `position`."""
        return unravel(position, self.shape)


def blocks(named: Iterable[Named]) -> tuple[Block, ...]:
    """Return the blocks of the named tensors in the order that `flatten` lays them out."""
    result: list[Block] = []
    offset = 0
    for index, entry in enumerate(named):
        size = entry.tensor.numel()
        parts = ("real", "imag") if entry.tensor.is_complex() else ("",)
        for part, suffix in enumerate(parts):
            result.append(
                Block(
                    name=f"{entry.name}.{suffix}" if suffix else entry.name,
                    tensor=index,
                    start=offset + part,
                    stop=offset + size * len(parts),
                    step=len(parts),
                    shape=tuple(entry.tensor.shape),
                )
            )
        offset += size * len(parts)
    return tuple(result)


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Return all real coordinates as one float64 vector (n,) on the first tensor's device.

    It may share memory with a single contiguous tensor.
    """
    parts = [real_view(tensor.detach()).reshape(-1).to(torch.float64) for tensor in tensors]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return torch.zeros(0, dtype=torch.float64)
    return torch.cat([part.to(parts[0].device) for part in parts])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return tensors of the shapes and dtypes of `like` whose coordinates are `vector`'s; inverse of `flatten`.

    Vectors (..., n) give tensors with the same leading dimensions. If there are several tensors, each has its own
    storage: torch.view_as_complex refuses odd offsets.
    """
    if len(like) == 1:
        return (_shaped(vector, like[0]),)
    sizes = [coordinates_in(tensor) for tensor in like]
    pieces = (
        [piece.clone() if is_part(piece) else piece for piece in torch.split(vector, sizes, dim=-1)] if like else ()
    )
    return tuple(_shaped(piece, tensor) for piece, tensor in zip(pieces, like, strict=True))


def is_part(tensor: Tensor) -> bool:
    """True if the tensor is a part of a larger storage, which a function that frees its input would free as a whole."""
    return tensor.untyped_storage().nbytes() > tensor.nbytes


def real_view(tensor: Tensor) -> Tensor:
    """Return the dense tensor, or for a complex one its real view with a last dimension (real, imaginary)."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def coordinates_in(tensor: Tensor) -> int:
    """Return the number of real coordinates of the tensor."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of the entry at `position` in row-major order."""
    return tuple(map(int, np.unravel_index(position, shape)))


def zero_outside(values: Tensor, where: slice | Tensor | int) -> Tensor:
    """Return a copy of the values with zeros except at some coordinates, which are along the last dimension."""
    part = torch.zeros_like(values)
    part[..., where] = values[..., where]
    return part


def total(shape: Sequence[int]) -> int:
    """Return the number of entries of a tensor of this shape."""
    return math.prod(shape)


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


def _shaped(piece: Tensor, like: Tensor) -> Tensor:
    shape = (*piece.shape[:-1], *like.shape)
    if like.is_complex():
        pairs = piece.reshape(*shape, 2).to(like.device)
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format)).to(like.dtype)
    return piece.reshape(shape).to(device=like.device, dtype=like.dtype)


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
