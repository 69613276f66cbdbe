"""NaN and infinite numbers: in outputs, in derivatives, and in claims."""

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
    normal,
    one_by_one,
    with_backward,
)

SMALL = [0.0, 1.0, 2.0]


LARGE = [0.0, *(0.1 * k for k in range(1, 60))]  # enough inputs to search for a sparsity structure


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("function", [torch.sqrt, torch.reciprocal, torch.log, torch.rsqrt, lambda x: x**0.5])
def test_nan_beside_an_infinite_derivative_does_not_fail(
    function: Callable[[Tensor], Tensor], values: list[float]
) -> None:
    for check in (gradcheck, gradgradcheck):
        result = check(function, double(values))
        assert (result.verdict, result.mismatched) == (Verdict.INCONCLUSIVE, 0)


def test_nan_beside_an_infinite_derivative_is_explained() -> None:
    messages = [finding.message for finding in gradcheck(torch.sqrt, double(SMALL)).findings]
    assert any("2 entries" in text and "zero times the infinite derivative" in text for text in messages)


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_nan_fails_if_every_derivative_is_finite(values: list[float]) -> None:
    function = claimed(torch.sin, lambda x: torch.where(x == 0, torch.nan, x.cos()))
    result = gradcheck(function, double(values))
    assert result.verdict is Verdict.FAIL
    assert result.mismatched >= 1
    assert {finding.code for finding in result.findings} <= {"GV103"}


@pytest.mark.parametrize("values", [SMALL, LARGE], ids=["small", "large"])
def test_wrong_entry_beside_an_infinite_derivative_fails(values: list[float]) -> None:
    def slope(x: Tensor) -> Tensor:
        found = 0.5 / x.sqrt()
        return torch.where(x == 2.0 if len(x) == 3 else x == x.max(), found * (1 + 1e-6), found)

    result = gradcheck(claimed(torch.sqrt, slope), double(values))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_misplaced_term_beside_an_infinite_derivative_fails() -> None:
    function = claimed(lambda x: x.sqrt() + x.roll(1), lambda x: 0.5 / x.sqrt() + 1)
    result = gradcheck(function, double(SMALL))
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("function", [torch.sqrt, torch.log])
def test_nan_in_other_outputs_of_the_same_input_does_not_fail(function: Callable[[Tensor], Tensor]) -> None:
    factors = double([1.0, 2.0, -3.0]).detach()
    found = gradcheck(lambda x: torch.cat([function(x), factors * x, x.sum().reshape(1)]), double(SMALL))
    assert (found.verdict, found.mismatched) == (Verdict.INCONCLUSIVE, 0)


def test_nan_from_an_output_that_is_nan_does_not_fail() -> None:
    bases = double([2.0, -3.0, 4.0]).detach()
    found = gradcheck(lambda x: bases**x, double([0.5]))
    assert (found.verdict, found.mismatched) == (Verdict.INCONCLUSIVE, 0)


def test_nan_claimed_for_every_entry_fails() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.stack([x.floor().sum(), (x * x).sum()])

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad[1] * 2 * x * torch.nan

    assert gradcheck(with_backward(function, backward), double([1.0, 2.0])).verdict is Verdict.FAIL


@pytest.mark.parametrize("claim", [torch.nan, torch.inf])
def test_a_dense_jacobian_of_claims_that_are_not_finite_takes_few_forwards(claim: float) -> None:
    mixing, x = normal(30, 30).detach(), normal(30, seed=1)

    def forward(x: Tensor) -> Tensor:
        return (mixing @ x).tanh()

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad.sum() * torch.full_like(x, claim)

    result = gradcheck(one_by_one(with_backward(forward, backward)), x)
    assert result.verdict is Verdict.FAIL
    assert result.evaluations.forward < 30 * x.numel()  # thirty steps of each column would be 60 times as many


def test_point_outside_domain_is_inconclusive() -> None:
    result = gradcheck(torch.log, double([-1.0, 2.0]))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "the forward is not finite at the point" in result.findings[0].message


def test_minus_infinity_in_intermediate_passes_and_in_output_is_inconclusive() -> None:
    mask = torch.tensor([True, False, False])
    masked = [lambda x, of=of: of(x.masked_fill(mask, -torch.inf), 0) for of in (torch.softmax, torch.log_softmax)]
    inside, outside = (gradcheck(function, double([1.0, 2.0, 3.0])) for function in masked)
    assert inside.verdict is Verdict.PASS
    assert (outside.verdict, outside.undetermined) == (Verdict.INCONCLUSIVE, 2)  # it is constant in the masked input


def test_dead_zone_beside_infinity_has_zero_derivative() -> None:
    x = torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64, requires_grad=True)
    barrier = lambda x: -torch.log(1 - (x - 0.7).relu() * 2.5)  # noqa: E731
    assert gradcheck(barrier, x).verdict is Verdict.PASS
    assert gradcheck(claimed(barrier, torch.ones_like), x).verdict is Verdict.FAIL
