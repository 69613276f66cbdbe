"""The ladder of steps: error bars at its finest rungs, its span, and differences that converge slowly or never."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import ElementVerdict, Verdict
from tests.core.support import claimed, double, elements, gradcheck, gradgradcheck, normal


@pytest.mark.slow
@pytest.mark.parametrize("factor", [700.0, 1000.0, 3e4])
def test_bars_cover_evenly_growing_rounding_of_products(factor: float) -> None:
    """The rounding of factor · x grows by the same amount from sample to sample, so that no difference shows it."""

    def slope(x: Tensor) -> Tensor:
        return factor * torch.cos(factor * x)

    x = (1500 + 150 * normal(60).detach()).requires_grad_()
    assert gradcheck(claimed(lambda x: torch.sin(factor * x), slope), x).verdict is Verdict.PASS
    refused = gradcheck(claimed(lambda x: torch.sin(factor * x), lambda x: -slope(x)), x)
    exact, found = slope(x.detach()), elements(refused, ElementVerdict.MISMATCH)
    assert len(found) == 60
    for element in found:
        assert abs(element.numeric - float(exact[element.input_index])) <= 10 * element.error_bar
        assert 10 * element.error_bar <= 1e-3 * factor  # and the bars are still informative


@pytest.mark.parametrize("point", [[1e150, 1e-160], [1e153, 1e-300, 1.0], [1e150, 5e-324], [1e150, 0.0]])
def test_ladder_reaches_smallest_and_largest_floats(point: list[float]) -> None:
    assert gradcheck(claimed(torch.square, lambda x: 2.02 * x), double(point)).verdict == "fail"


GUARDED: dict[str, Callable[[Tensor, float], Tensor]] = {
    "x log(|x| + e)": lambda x, guard: x * torch.log(x.abs() + guard),
    "x log(x² + e)": lambda x, guard: x * torch.log(x * x + guard),
    "x log(x + e)": lambda x, guard: x * torch.log(x + guard),
    "entropy": lambda x, guard: -(x * torch.log(x + guard)).sum(),
}


@pytest.mark.parametrize("guard", [torch.finfo(torch.float64).tiny, 1e-38, 1e-30, 1e-20, 1e-12])
@pytest.mark.parametrize("name", GUARDED)
def test_correct_gradient_passes_if_quotients_grow_with_log_of_step(name: str, guard: float) -> None:
    result = gradcheck(lambda x: GUARDED[name](x, guard), double([0.0, 0.25, 0.75]))
    assert result.mismatched == 0


@pytest.mark.parametrize("guard", [1e-300, 1e-30])
def test_correct_second_derivative_passes_if_quotients_grow_with_log_of_step(guard: float) -> None:
    result = gradgradcheck(lambda x: x * x * torch.log(x * x + guard), double([0.0, 0.25, 0.75]))
    assert result.mismatched == 0


@pytest.mark.parametrize("guard", [1e-2, 1e-5])
def test_wrong_derivative_is_found_if_quotients_stop_growing(guard: float) -> None:
    def loss(x: Tensor) -> Tensor:
        return x * torch.log(x * x + guard)

    def slope(x: Tensor) -> Tensor:
        return torch.log(x * x + guard) + 2 * x * x / (x * x + guard)

    x = double([0.0, 0.25, 0.75])
    assert gradcheck(claimed(loss, slope), x).verdict is Verdict.PASS
    assert gradcheck(claimed(loss, lambda x: slope(x) * (1 + 1e-6 * (x == 0))), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("power", [1.5, 1.25])
def test_slowly_converging_quotients_find_wrong_derivative(power: float) -> None:
    assert gradcheck(lambda x: x.abs() ** power, double([0.0, 0.25, -0.75])).mismatched == 0
    wrong = claimed(lambda x: x.abs() ** power, lambda x: power * x.abs() ** (power - 1) * x.sign() + 1.0)
    assert gradcheck(wrong, double([0.0, 0.25, -0.75])).verdict is Verdict.FAIL
