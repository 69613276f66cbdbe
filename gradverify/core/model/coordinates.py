"""Tensors as vectors of real coordinates: a complex entry has two, its real and its imaginary part.

A complex function is differentiated as a real function of twice as many variables. This agrees with torch's convention
(conjugate Wirtinger): for a real L, grad = dL/d(real) + i·dL/d(imag).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.core.model.problem import Named


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
    parts = [_coordinates(tensor.detach()) for tensor in tensors]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return torch.zeros(0, dtype=torch.float64)
    return torch.cat([part.to(parts[0].device) for part in parts])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return tensors of the shapes and dtypes of `like` whose coordinates are `vector`'s; inverse of `flatten`.

    If there are several, each has its own storage: torch.view_as_complex refuses odd offsets.
    """
    if len(like) == 1:
        return (_shaped(vector, like[0]),)
    sizes = [coordinates_in(tensor) for tensor in like]
    pieces = [piece.clone() if is_part(piece) else piece for piece in torch.split(vector, sizes)] if like else ()
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
    index = []
    for size in reversed(shape):
        position, remainder = divmod(position, size)
        index.append(remainder)
    return tuple(reversed(index))


def zero_outside(values: Tensor, where: slice | Tensor | int) -> Tensor:
    """Return a copy of the values with zeros except at some coordinates, which are along the last dimension."""
    part = torch.zeros_like(values)
    part[..., where] = values[..., where]
    return part


def _shaped(piece: Tensor, like: Tensor) -> Tensor:
    if like.is_complex():
        pairs = piece.reshape(*like.shape, 2).to(like.device)
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format)).to(like.dtype)
    shaped = piece.reshape(like.shape)
    same = shaped.dtype is like.dtype and shaped.device == like.device
    return shaped if same else shaped.to(device=like.device, dtype=like.dtype)


def _coordinates(tensor: Tensor) -> Tensor:
    flat = real_view(tensor).reshape(-1)
    return flat if flat.dtype is torch.float64 else flat.to(torch.float64)


def total(shape: Sequence[int]) -> int:
    """Return the number of entries of a tensor of this shape."""
    return math.prod(shape)
