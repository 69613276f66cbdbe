"""Sizes of the entries of one tensor, given as real coordinates (n,)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_POOLED = 0.25  # of a row's rms that each of its entries has at least: a few samples may be small by accident


def common_factor(error: Tensor, exact: Tensor) -> float:
    """Return <error, exact> / <exact, exact>, 0 if the reference is zero."""
    square = float(exact @ exact)
    return float(error @ exact) / square if square else 0.0


def moduli(values: Tensor, like: Tensor) -> Tensor:
    """Return magnitudes (n,); both coordinates of a complex number get its modulus, since rounding mixes them."""
    if not like.is_complex():
        return values.abs()
    pairs = values.reshape(-1, 2)
    return pairs.square().sum(dim=1, keepdim=True).sqrt().expand_as(pairs).reshape(-1)


def pooled(squares: Tensor, like: Tensor) -> Tensor:
    """Return the roots of squares (n,), each at least _POOLED times the rms over the last dimension of its tensor."""
    if not squares.numel():
        return squares.clone()
    width = (like.shape[-1] if like.dim() else 1) * (2 if like.is_complex() else 1)
    rows = squares.reshape(-1, width)
    return torch.maximum(rows, _POOLED**2 * rows.mean(dim=1, keepdim=True)).sqrt_().reshape(-1)


def largest_of(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def rms_of(values: Tensor) -> float:
    return float((values @ values) / values.numel()) ** 0.5 if values.numel() else 0.0


def median_of(values: Tensor) -> float:
    return float(values.median()) if values.numel() else math.inf
