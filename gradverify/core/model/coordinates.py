"""Tensors as real coordinates: a complex entry counts as two, its real and its imaginary part.

The derivative of a complex function is judged as that of a real one in twice as many variables, which is what
torch's convention (conjugate Wirtinger) amounts to: for a real L, grad = dL/d(real) + i·dL/d(imag).
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
    tensor: int  # number of the tensor it belongs to
    start: int  # first coordinate, counted over all tensors
    stop: int
    step: int  # 1, or 2 where real and imaginary parts alternate
    shape: tuple[int, ...]

    @property
    def coordinates(self) -> slice:
        """The block's places in a flat vector over all tensors."""
        return slice(self.start, self.stop, self.step)

    def index(self, position: int) -> tuple[int, ...]:
        """Return the tensor index of the block's entry at `position`."""
        return unravel(position, self.shape)


def blocks(named: Iterable[Named]) -> tuple[Block, ...]:
    """Return the blocks of the named tensors in the order that `flatten` lays them out."""
    found: list[Block] = []
    offset = 0
    for number, entry in enumerate(named):
        size = entry.tensor.numel()
        parts = ("real", "imag") if entry.tensor.is_complex() else ("",)
        for part, suffix in enumerate(parts):
            found.append(
                Block(
                    name=f"{entry.name}.{suffix}" if suffix else entry.name,
                    tensor=number,
                    start=offset + part,
                    stop=offset + size * len(parts),
                    step=len(parts),
                    shape=tuple(entry.tensor.shape),
                )
            )
        offset += size * len(parts)
    return tuple(found)


def flatten(tensors: Iterable[Tensor]) -> Tensor:
    """Return all real coordinates as one float64 vector on the first tensor's device; (total,).

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

    Each of several begins where its memory does: a function may count on that, as one that views numbers as complex.
    """
    if len(like) == 1:
        return (_shaped(vector, like[0]),)
    sizes = [coordinates_in(tensor) for tensor in like]
    pieces = (
        [piece.clone() if piece.storage_offset() else piece for piece in torch.split(vector, sizes)] if like else ()
    )
    return tuple(_shaped(piece, tensor) for piece, tensor in zip(pieces, like, strict=True))


def real_view(tensor: Tensor) -> Tensor:
    """Return the tensor itself, or for a complex one its view with a last dimension (real, imaginary)."""
    dense = tensor if tensor.layout is torch.strided else tensor.to_dense()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


def coordinates_in(tensor: Tensor) -> int:
    """Return how many real coordinates the tensor has."""
    return tensor.numel() * (2 if tensor.is_complex() else 1)


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of the entry at `position` in row-major order."""
    index = []
    for size in reversed(shape):
        position, remainder = divmod(position, size)
        index.append(remainder)
    return tuple(reversed(index))


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
