"""Fused operations inside which terms cancel or are lost, step by step: softmax and GELU, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_CUBIC = 0.044715  # of GELU's approximation by tanh


def _softmax(x: Tensor, dim: int, *_: object) -> Tensor:
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, *_: object) -> Tensor:
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


def _logsumexp(x: Tensor, dim: list[int], keepdim: bool = False) -> Tensor:
    largest = (x.real if x.is_complex() else x).amax(dim, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0)  # as torch does, so that a row of -inf is not nan
    found = (x - largest).exp().sum(dim, keepdim=True).log() + largest
    return found if keepdim else found.squeeze(tuple(dim))


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, *_: object) -> Tensor:
    weighted = grad * output
    return weighted - output * weighted.sum(dim, keepdim=True)


def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, *_: object) -> Tensor:
    return grad - output.exp() * grad.sum(dim, keepdim=True)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return x * _gate(x, approximate)


def _gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "none":
        slope = (-x * x / 2).exp() / math.sqrt(2 * math.pi)
    else:
        rise = math.sqrt(2 / math.pi) * (1 + 3 * _CUBIC * x * x)
        slope = 0.5 * (1 - _tanh_of_cubic(x) ** 2) * rise
    return grad * (_gate(x, approximate) + x * slope)


def _gate(x: Tensor, approximate: str) -> Tensor:
    """Return what GELU multiplies its input by."""
    return 0.5 * (1 + (torch.erf(x / math.sqrt(2)) if approximate == "none" else _tanh_of_cubic(x)))


def _tanh_of_cubic(x: Tensor) -> Tensor:
    return torch.tanh(math.sqrt(2 / math.pi) * (x + _CUBIC * x * x * x))


# By the operation of torch, a function of the same arguments.
STEPS: Mapping[Any, Callable[..., Tensor]] = {
    torch.ops.aten._softmax.default: _softmax,
    torch.ops.aten._log_softmax.default: _log_softmax,
    torch.ops.aten.logsumexp.default: _logsumexp,
    torch.ops.aten._softmax_backward_data.default: _softmax_backward,
    torch.ops.aten._log_softmax_backward_data.default: _log_softmax_backward,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten.gelu_backward.default: _gelu_backward,
}
