"""Thousands of wrong entries: found at a cost that hardly grows, and none accused that a ladder would excuse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.core.support import claimed, gradcheck, with_backward


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)


@pytest.mark.parametrize("batch", [3, 20])
def test_many_wrong_entries_climb_no_ladder_each(batch: int) -> None:
    size = 24
    transposed = with_backward(torch.matmul, lambda grad, x, w: (grad @ w.T, grad.T @ x))
    x, w = _normal(batch, size), _normal(size, size)
    result = gradcheck(transposed, x.requires_grad_(), w.requires_grad_())
    assert result.mismatched == 2 * batch * size * (size - 1)  # W[i, j] by output[b, k], unless i = k and j = k
    assert result.evaluations.forward < 20 * (x.numel() + w.numel())


def _mixed(value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a function whose every output depends on every input, with the right backward."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return slope(x) * (_normal(4, x.numel()).T @ grad)

    return with_backward(lambda x: _normal(4, x.numel()) @ value(x), backward)


def test_what_varies_too_quickly_for_any_step_is_not_accused_where_it_is_much() -> None:
    speed = 1e12

    def waves(x: Tensor) -> Tensor:
        return torch.sin(1e3 * torch.sin(speed * x))

    def slope(x: Tensor) -> Tensor:
        return 1e3 * speed * torch.cos(speed * x) * torch.cos(1e3 * torch.sin(speed * x))

    assert gradcheck(_mixed(waves, slope), _normal(60).requires_grad_()).verdict == "inconclusive"
    assert gradcheck(claimed(waves, slope), _normal(25_000).requires_grad_()).undetermined > 24_500


def test_rounding_in_place_of_zeros_is_not_accused_where_it_is_much() -> None:
    def noisy(grad: Tensor, x: Tensor) -> Tensor:
        return grad.sum() * torch.where(torch.arange(x.numel()) < 4, x.cos(), 1e-17)

    partly = with_backward(lambda x: x[:4].sin().sum().repeat(3), noisy)
    assert gradcheck(partly, _normal(100).requires_grad_()).verdict == "pass"
