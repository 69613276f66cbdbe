"""The same values, lying in memory in other ways."""

from __future__ import annotations

import torch
from torch import Tensor

from gradverify.checks.contract.nodes import Relay

_GARBAGE = 12345.0  # what lies between the entries


def transposed(tensor: Tensor) -> Tensor:
    """Return the values in column-major order."""
    if tensor.dim() < 2:
        return tensor
    return tensor.permute(_reversed(tensor)).contiguous().permute(_reversed(tensor))


def strided(tensor: Tensor) -> Tensor:
    """Return every second entry of a tensor twice as long in its last dimension."""
    if tensor.dim() == 0:
        return tensor
    wide = tensor.new_full((*tensor.shape[:-1], 2 * tensor.shape[-1]), _GARBAGE)
    return wide[..., ::2].copy_(tensor)


def sliced(tensor: Tensor) -> Tensor:
    """Return a slice that starts in the middle of its storage."""
    long = tensor.new_full((tensor.numel() + 6,), _GARBAGE)
    return long[3:-3].view(tensor.shape).copy_(tensor)


def channels_last(tensor: Tensor) -> Tensor:
    """Return images with their channels last."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    found = formats.get(tensor.dim())
    return tensor if found is None else tensor.contiguous(memory_format=found)


def conjugated(tensor: Tensor) -> Tensor:
    """Return a complex tensor as the lazy conjugate of another."""
    return tensor.conj().resolve_conj().conj() if tensor.is_complex() else tensor


def expanded(tensor: Tensor) -> Tensor:
    """Return a constant tensor with stride 0, others as they are."""
    flat = tensor.reshape(-1)
    if tensor.numel() < 2 or not bool((flat == flat[0]).all()):
        return tensor
    return flat[0].clone().expand(tensor.shape)


LAYOUTS: dict[str, Relay] = {
    "transposed": transposed,
    "strided": strided,
    "sliced with an offset": sliced,
    "channels-last": channels_last,
    "conjugated": conjugated,
}


def _reversed(tensor: Tensor) -> tuple[int, ...]:
    return tuple(range(tensor.dim() - 1, -1, -1))
