"""The same values in other memory layouts."""

from __future__ import annotations

from itertools import count

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import Relay

_GARBAGE = 12345.0  # value of the memory between the entries


def transposed(tensor: Tensor) -> Tensor:
    """Return the tensor in column-major order; unchanged below two dimensions."""
    if tensor.dim() < 2:
        return tensor
    return tensor.permute(_reversed(tensor)).contiguous().permute(_reversed(tensor))


def strided(tensor: Tensor) -> Tensor:
    """Return the tensor with stride 2 in its last dimension."""
    if tensor.dim() == 0:
        return tensor
    wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), _GARBAGE)
    return wide[..., ::2].copy_(tensor)


def padded(tensor: Tensor) -> Tensor:
    """Return the tensor with gaps between its rows, which are dense; unchanged below two dimensions."""
    if tensor.dim() < 2:
        return tensor
    wide = tensor.new_full((*tensor.shape[:-1], tensor.shape[-1] + 3), _GARBAGE)
    return wide[..., :-3].copy_(tensor)


def rows_exchanged(tensor: Tensor) -> Tensor:
    """Return the tensor with dimensions -3 and -2 exchanged in memory, as of heads and positions; rows stay dense."""
    return tensor.transpose(-3, -2).contiguous().transpose(-3, -2) if tensor.dim() > 2 else tensor


def sliced(tensor: Tensor) -> Tensor:
    """Return the tensor as a slice with a storage offset of 3."""
    padded = tensor.new_full((tensor.numel() + 6,), _GARBAGE)
    return padded[3:-3].view(tensor.shape).copy_(tensor)


def channels_last(tensor: Tensor) -> Tensor:
    """Return a tensor of 4 or 5 dimensions in the channels-last format, others unchanged."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    found = formats.get(tensor.dim())
    return tensor if found is None else tensor.contiguous(memory_format=found)


def conjugated(tensor: Tensor) -> Tensor:
    """Return a complex tensor with its conjugate bit set, a real one unchanged."""
    return tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor


def expanded(tensor: Tensor) -> Tensor:
    """Return a tensor of equal entries, or of equal slices, with stride 0; others unchanged."""
    if tensor.numel() < 2:
        return tensor
    parts = (tensor.reshape(-1)[0], tensor[:1], tensor[..., :1])
    equal = (part for part in parts if part.numel() < tensor.numel() and bool((tensor == part).all()))
    part = next(equal, None)
    return tensor if part is None else part.clone().expand(tensor.shape)


def reordered(tensor: Tensor) -> Tensor:
    """Return the tensor in column-major order, or with stride 2 if it has one dimension."""
    return transposed(tensor) if tensor.dim() > 1 else strided(tensor)


def every_second(first: int) -> Relay:
    """Return a function that reorders every second tensor that it gets: the `first`, 0 or 1, and then every other."""
    places = count()
    return lambda tensor: reordered(tensor) if next(places) % 2 == first else tensor


LAYOUTS: dict[str, Relay] = {
    "transposed": transposed,
    "strided": strided,
    "rows of a wider tensor": padded,
    "transposed in its leading dimensions": rows_exchanged,
    "sliced with an offset": sliced,
    "channels-last": channels_last,
    "conjugated": conjugated,
}


def _reversed(tensor: Tensor) -> tuple[int, ...]:
    return tuple(range(tensor.dim() - 1, -1, -1))
