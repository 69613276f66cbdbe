"""A kernel in another file than the Function that calls it."""

from __future__ import annotations

from torch import Tensor


def slope_below_twelve(grad: Tensor, x: Tensor) -> Tensor:
    return grad * 2 * (x < 12.0) + grad * ((x - 37.5).abs() < 0.05)  # wrong close to 37.5
