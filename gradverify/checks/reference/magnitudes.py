"""Sizes of the entries of one tensor, given as real coordinates (n,)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

POOLED = 0.25  # of the rms of a row or tensor that its entries have at least: a few samples may be small by accident


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
    """Return the roots of squares (n,), each at least POOLED times the rms over the last dimension of its tensor."""
    return torch.maximum(squares.sqrt(), rms_of_rows(squares, like).mul_(POOLED))


def rms_of_rows(squares: Tensor, like: Tensor) -> Tensor:
    """Return for each of the squares (n,) the root of their mean over the last dimension of the tensor."""
    if not squares.numel():
        return squares.clone()
    width = (like.shape[-1] if like.dim() else 1) * (2 if like.is_complex() else 1)
    rows = squares.reshape(-1, width)
    return rows.mean(dim=1, keepdim=True).sqrt_().repeat(1, width).reshape(-1)


def root_mean(squares: Tensor) -> float:
    return float(squares.mean()) ** 0.5 if squares.numel() else 0.0


def largest_of(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def rms_of(values: Tensor) -> float:
    return float((values @ values) / values.numel()) ** 0.5 if values.numel() else 0.0


def median_of(values: Tensor) -> float:
    return float(values.median()) if values.numel() else math.inf
