"""Jumps at the point and edges of the domain."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradverify.result import ElementVerdict, Verdict
from tests.core.support import (
    claimed,
    double,
    elements,
    gradcheck,
    gradgradcheck,
)


@pytest.mark.parametrize("function", [torch.floor, torch.round, torch.sign])
def test_jump_at_point_is_inconclusive(function: object) -> None:
    assert callable(function)
    points = {torch.floor: 2.0, torch.round: 2.5, torch.sign: 0.0}
    result = gradcheck(function, double([points[function], 0.7]))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [element.input_index for element in elements(result, ElementVerdict.JUMP)] == [(0,)]


def test_straight_through_gradient_away_from_jump_fails() -> None:
    result = gradcheck(claimed(torch.round, torch.ones_like), double([1.3, 0.2]))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 2)


def test_edge_of_domain_is_judged_by_one_sided_derivative() -> None:
    right = claimed(lambda x: x**1.5, lambda x: 1.5 * x**0.5)
    wrong = claimed(lambda x: x**1.5 + x, lambda x: 1.5 * x**0.5 + 1.25)
    assert [e.verdict for e in elements(gradcheck(right, double([0.0, 1.0])), ElementVerdict.EDGE)] == ["edge"]
    assert gradcheck(right, double([0.0, 1.0])).verdict is Verdict.PASS
    assert gradcheck(wrong, double([0.0])).verdict is Verdict.FAIL


def test_vjp_jump_without_kink_of_forward_is_inconclusive_at_order_2() -> None:
    slope = claimed(lambda x: x * x, lambda x: 2 * x + (x >= 1))
    assert gradgradcheck(slope, double([1.0])).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("slope", "verdicts"),
    [
        (0.0, {Verdict.PASS}),
        (1e-3, {Verdict.FAIL, Verdict.INCONCLUSIVE}),
        (1.0, {Verdict.FAIL, Verdict.INCONCLUSIVE}),
    ],
)
def test_irregular_jumps_are_not_a_staircase(slope: float, verdicts: set[Verdict]) -> None:
    generator = torch.Generator().manual_seed(0)
    places, jumps = torch.randn(2, 40, dtype=torch.float64, generator=generator)
    x = torch.randn(6, dtype=torch.float64, generator=generator).requires_grad_()

    def jumping(x: Tensor) -> Tensor:
        return ((x.unsqueeze(-1) > places) * jumps).sum(-1).cumsum(0)

    assert gradcheck(claimed(jumping, lambda x: torch.full_like(x, slope)), x).verdict in verdicts
