"""Functions to watch. Tests refer to lines by the text that stands on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 64
NOT_READ = 48


class Clipped(torch.autograd.Function):
    """min(x, 6), with a bias that may be left out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None) -> Tensor:
        mask = x > 6
        ctx.save_for_backward(mask)
        y = torch.where(mask, torch.full_like(x, 6), x)
        if bias is not None:
            y = y + bias
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        (mask,) = ctx.saved_tensors
        return torch.where(mask, 0.0, grad), grad if ctx.needs_input_grad[1] else None


def clamped(x: Tensor) -> Tensor:
    """Return x between bounds."""
    return x.clamp(
        -1,
        3,
    )


def calling(x: Tensor) -> Tensor:
    """Return what another function of this file does."""
    return halved(x) if x.shape[0] % BLOCK else x


def halved(x: Tensor) -> Tensor:
    """Return half of what is above two."""
    return torch.where(x >= 2.0, x / 2, x)


def with_ties(x: Tensor) -> Tensor:
    """Return the largest entry, and the entries in order."""
    return x.max() + x.sort().values


def composite(x: Tensor) -> Tensor:
    """Return something that torch computes with comparisons of its own."""
    return functional.relu6(x) + torch.isclose(x, x.flip(0))


def ignoring(x: Tensor, target: Tensor, ignore_index: int = -100) -> Tensor:
    """Return x where the target counts."""
    if ignore_index == -7:
        return x
    return x * (target != ignore_index)


def not_negative(x: Tensor) -> Tensor:
    """Return x divided by its norm."""
    norm = x.square().sum()
    return torch.where(norm > 0, x / norm, x)


def compared_with_tensor(x: Tensor) -> Tensor:
    """Return x below a bound that is a tensor."""
    return torch.minimum(x, torch.tensor(2.5))
