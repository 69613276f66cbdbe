"""The operators of this folder in plain torch."""

from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root mean square norm along the rows of a matrix."""
    return x / ((x * x).mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def square_plus(x: Tensor, b: float) -> Tensor:
    """(x + √(x² + b)) / 2."""
    return (x + (x * x + b).sqrt()) / 2
