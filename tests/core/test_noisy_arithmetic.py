"""How far rounding on the way moves a result, by noisy arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.arithmetic.noisy import BOUNDS, amplification, noisy_arithmetic
from tests.core.support import double, normal

EPS = torch.finfo(torch.float64).eps
SURE = double([0.0, 22.0, -22.0]).detach()  # the softmax is 1 - 2.8e-10 in one place


def measured(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach()
    found, *bounds = (measure(lambda: function(x), function(x)) for measure in (amplification, *BOUNDS))
    assert all(torch.all(found <= bound) for bound in bounds)
    return found


def _with_gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().clone().requires_grad_()
    output = function(x)
    weights = torch.linspace(1, 2, output.numel(), dtype=torch.float64).view(output.shape).to(output.dtype)
    (gradient,) = torch.autograd.grad(output, x, weights)
    return output.detach(), gradient


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(0),
        lambda x: x.logsumexp(-1),
        lambda x: x.logsumexp((0, 1), keepdim=True),
    ],
)
def test_operations_step_by_step_give_what_torch_gives(function: Callable[[Tensor], Tensor]) -> None:
    x = normal(4, 5, scale=3.0).detach()
    x[1] = -torch.inf
    x[:, 2] = -torch.inf
    _assert_same_step_by_step(function, x)


def test_logsumexp_of_complex_numbers_step_by_step_is_torchs() -> None:
    _assert_same_step_by_step(lambda x: x.logsumexp(-1), normal(4, 5, scale=3.0, dtype=torch.complex128).detach())


def _assert_same_step_by_step(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    expected = _with_gradient(function, x)
    with noisy_arithmetic(torch.Generator(), EPS, 0.0):
        found = _with_gradient(function, x)
    torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "x", "least"),
    [
        (lambda x: 1 - torch.sigmoid(x), double([40.0]), 0.1),  # the sigmoid rounds to 1
        (lambda x: x + 1e10 - 1e10, double([0.5]), 1e9),  # the sum loses the input's digits
        (lambda x: x.log_softmax(-1)[1:2], SURE, 0.1),
    ],
)
def test_rounding_of_a_larger_number_on_the_way_is_seen(
    function: Callable[[Tensor], Tensor], x: Tensor, least: float
) -> None:
    assert least <= float(measured(function, x)) <= 100 * least


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.max().unsqueeze(0),  # chosen, not computed
        lambda x: (x > 1).double(),
        lambda x: torch.where(x.exp().log() > x, 1.0, 2.0).double(),  # noise decides between branches
    ],
)
def test_what_is_not_rounded_is_not_moved(function: Callable[[Tensor], Tensor]) -> None:
    assert not measured(function, SURE).any()
