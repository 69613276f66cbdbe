"""Give a tensor another memory layout with the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from gradverify.case import Layout
from gradverify.errors import InputError


def lay_out(tensor: Tensor, layout: Layout) -> Tensor:
    """Return a detached tensor with these values in this layout. EXPANDED repeats the first slice of a dimension.

    Raises InputError if the shape has no such layout.
    """
    return _LAYOUTS[layout](tensor.detach())


def _contiguous(tensor: Tensor) -> Tensor:
    return tensor.contiguous() if tensor.layout is torch.strided else tensor  # others have no order of entries


def _transposed(tensor: Tensor) -> Tensor:
    if tensor.dim() < 2:
        raise InputError(f"`layout: transposed` needs two dimensions, but the shape is {list(tensor.shape)}")
    return tensor.mT.contiguous().mT


def _strided(tensor: Tensor) -> Tensor:
    """Return a view of every second element of a wider tensor; the elements between are NaN, so that a read shows."""
    filler = torch.nan if tensor.is_floating_point() or tensor.is_complex() else 0
    if not tensor.dim():
        wide = tensor.new_full((3,), filler)
        view = wide[1]
    else:
        wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1] + 1), filler)
        view = wide[..., 1::2]
    return view.copy_(tensor)


def _expanded(tensor: Tensor) -> Tensor:
    """Repeat the first slice along the first dimension of size above 1, with stride 0."""
    repeated = next((dim for dim, size in enumerate(tensor.shape) if size > 1), None)
    if repeated is None:
        return tensor.contiguous()
    return tensor.narrow(repeated, 0, 1).contiguous().expand(tensor.shape)


def _channels_last(tensor: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if tensor.dim() not in formats:
        raise InputError(
            f"`layout: channels_last` needs four or five dimensions, but the shape is {list(tensor.shape)}"
        )
    return tensor.contiguous(memory_format=formats[tensor.dim()])


_LAYOUTS: Mapping[Layout, Callable[[Tensor], Tensor]] = MappingProxyType(
    {
        Layout.CONTIGUOUS: _contiguous,
        Layout.TRANSPOSED: _transposed,
        Layout.STRIDED: _strided,
        Layout.EXPANDED: _expanded,
        Layout.CHANNELS_LAST: _channels_last,
    }
)
