"""Fused operations inside which terms cancel or are lost, step by step: the softmax, its logarithm, their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


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


# By the operation of torch, a function of the same arguments.
STEPS: Mapping[Any, Callable[..., Tensor]] = {
    torch.ops.aten._softmax.default: _softmax,
    torch.ops.aten._log_softmax.default: _log_softmax,
    torch.ops.aten.logsumexp.default: _logsumexp,
    torch.ops.aten._softmax_backward_data.default: _softmax_backward,
    torch.ops.aten._log_softmax_backward_data.default: _log_softmax_backward,
}
