"""Difference quotients that converge slowly, or grow with every smaller step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import (
    claimed,
    double,
    gradcheck,
    gradgradcheck,
)

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


def test_endlessly_growing_quotient_is_not_a_derivative() -> None:
    result = gradcheck(torch.log, double([1e-300, 1e-3, 1.0, 1e300]))
    assert result.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
