"""Saturated functions: right gradients do not fail, and wrong ones do."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import (
    claimed,
    double,
    gradcheck,
    wrong_at,
)


def test_a_saturated_slope_is_verified_to_the_same_tolerance() -> None:
    def slope(x: Tensor) -> Tensor:
        return x.sigmoid() * (1 + x * (-x).sigmoid())

    far = double([-33.4, 1.0, 0.3, -24.0, 2.0])
    assert gradcheck(claimed(torch.nn.functional.silu, slope), far).verdict is Verdict.PASS
    for error in (1e-6, 1e-4):
        for place in torch.eye(5, dtype=torch.float64)[[0, 3]]:
            wrong = claimed(torch.nn.functional.silu, lambda x, by=1 + error * place: slope(x) * by)  # type: ignore[misc]
            assert gradcheck(wrong, far).mismatched == 1


@pytest.mark.parametrize("logit", [22.0, 30.0, 36.0, 40.0])
def test_cancellation_in_backward_is_within_its_rounding(logit: float) -> None:
    def loss(x: Tensor) -> Tensor:
        return x.clamp(min=0) - x + (-x.abs()).exp().log1p()

    for point in ([logit], [logit, 0.3, -1.2]):
        assert gradcheck(claimed(loss, lambda x: x.sigmoid() - 1), double(point)).verdict is Verdict.PASS
    accurate = claimed(loss, lambda x: -(-x).sigmoid())
    assert gradcheck(accurate, double([logit])).verdict is Verdict.PASS
    for factor in (1 + 1e-6, 2.0) if logit < 36 else ():
        wrong = claimed(loss, lambda x, factor=factor: -(-x).sigmoid() * factor)  # type: ignore[misc]
        assert gradcheck(wrong, double([logit])).mismatched == 1


@pytest.mark.parametrize(("count", "scale"), [(30, 36.0), (100, 16.0), (100, 60.0), (400, 25.0)])
def test_cancellation_in_many_rows_of_backward_is_within_its_rounding(count: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(count)
    x = scale * torch.randn(count, generator=generator, dtype=torch.float64)
    loss = torch.nn.functional.logsigmoid
    assert gradcheck(claimed(loss, lambda x: 1 - x.sigmoid()), x.requires_grad_()).verdict is Verdict.PASS
    for factor in (1 + 1e-6, 1 - 1e-3):
        wrong = claimed(loss, lambda x, factor=factor: (-x).sigmoid() * factor)  # type: ignore[misc]
        assert gradcheck(wrong, x).mismatched == count


STAIRS = {
    "gelu far out": (torch.nn.functional.gelu, -8.37),
    "gelu by tanh far out": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), -7.185),
    "x(1 + tanh x) far out": (lambda x: x * (1 + torch.tanh(x)), -18.964),
    "log-cosh near zero": (lambda x: x + torch.nn.functional.softplus(-2 * x) - math.log(2), 1e-6),
}


@pytest.mark.parametrize("name", STAIRS)
def test_slope_within_stair_of_rounding_does_not_fail(name: str) -> None:
    function, place = STAIRS[name]
    assert gradcheck(function, double([place])).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
    wrong = claimed(function, lambda x: torch.full_like(x, 0.1))
    assert gradcheck(wrong, double([place])).verdict is not Verdict.PASS


# Draws with entries from -8 to -8.5, where the stairs of erf, times x, were once taken for the slope.
@pytest.mark.parametrize("seed", [2, 4, 8, 9, 11])
def test_gelu_passes_far_from_zero(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 20 * torch.rand(100, generator=generator, dtype=torch.float64) - 10
    assert gradcheck(torch.nn.functional.gelu, x.requires_grad_()).verdict is Verdict.PASS
    nearest = int(x.abs().argmin())
    assert gradcheck(wrong_at(torch.nn.functional.gelu, nearest, 1e-6), x).mismatched == 1


SATURATED: dict[str, Callable[[Tensor], Tensor]] = {
    "log(1 - sigmoid)": lambda x: torch.log(1 - torch.sigmoid(x)),
    "logit of sigmoid": lambda x: torch.logit(torch.sigmoid(x)),
    "atanh of tanh": lambda x: torch.atanh(torch.tanh(x / 2)),
}


# The sigmoid is 1 from 36.74 on; before that, it has a few values less than 1.
@pytest.mark.parametrize("point", [35.6466, 35.6846, 35.9, 36.3, 36.5, 36.7])
@pytest.mark.parametrize("name", SATURATED)
def test_last_stairs_before_infinity_do_not_fail(name: str, point: float) -> None:
    x = torch.tensor([point, 3.0, point], dtype=torch.float64, requires_grad=True)
    assert gradcheck(SATURATED[name], x).mismatched == 0
    assert gradcheck(wrong_at(SATURATED[name], 1, 1e-4), x).mismatched == 1
