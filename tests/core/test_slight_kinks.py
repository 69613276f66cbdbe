"""Kinks smaller than the curvature of the function, and wrong gradients with errors of the same size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck, with_backward

CURVED: dict[str, Callable[[Tensor], Tensor]] = {
    "fourth power": lambda x: 100 * x**4,
    "exponential": torch.exp,
    "wave": lambda x: (5 * x).sin(),
    "reciprocal": torch.reciprocal,
}
DISTANCES = (0.0, 1e-13, 1e-11, 1e-9)


def with_kink(curve: Callable[[Tensor], Tensor], weight: float, threshold: float) -> Callable[[Tensor], Tensor]:
    return lambda x: curve(x) + weight * (x - threshold).relu()


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("weight", [1e-6, 1e-5, 1e-4])
@pytest.mark.parametrize("distance", [*DISTANCES, *(-distance for distance in DISTANCES[1:])])
def test_gradient_of_either_side_passes_at_a_slight_kink(name: str, weight: float, distance: float) -> None:
    result = gradcheck(with_kink(CURVED[name], weight, 1.0 + distance), double([1.0]))
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("side", [-1.0, 2.0])
def test_claim_outside_both_slopes_fails(name: str, side: float) -> None:
    weight = 1e-4

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            copy = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(CURVED[name](copy).sum(), copy)
        return grad * (slope + side * weight)

    wrong = with_backward(with_kink(CURVED[name], weight, 1.0), backward)
    assert gradcheck(wrong, double([1.0])).verdict is Verdict.FAIL


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("relative", [1e-6, -1e-5, 1e-4])
def test_small_error_of_a_smooth_function_fails(name: str, relative: float) -> None:
    curve = CURVED[name]
    wrong = with_backward(torch.clone, lambda grad, x: grad * (1 + relative))
    for point in (1.0, 0.3, 1.7):
        result = gradcheck(lambda x: curve(wrong(x)), double([point]))
        assert (result.verdict, result.kinks) == (Verdict.FAIL, 0)


@pytest.mark.parametrize("relative", [1e-6, 1e-5, 9e-5])
@pytest.mark.parametrize("width", [1e-12, 1e-14])
def test_small_error_at_a_rounded_corner_fails(relative: float, width: float) -> None:
    def corner(x: Tensor) -> Tensor:
        return 3 * x + torch.sqrt(x * x + width)

    wrong = with_backward(corner, lambda grad, x: grad * (3 + x / torch.sqrt(x * x + width)) * (1 + relative))
    assert gradcheck(wrong, double([0.0])).verdict is Verdict.FAIL
