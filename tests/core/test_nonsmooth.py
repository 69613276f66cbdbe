"""Kinks, jumps and edges are distinguished from wrong gradients, at the point and close to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.result import ElementVerdict, Verdict
from tests.core.support import (
    ALONE,
    claimed,
    double,
    elements,
    gradcheck,
    gradgradcheck,
    problem_of,
    with_backward,
)

DISTANCES = [1e-12, 1e-8, 1e-5, 1e-3]


def step(x: Tensor) -> Tensor:
    return (x > 1).double()


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("side", [-1, 1])
def test_correct_gradient_close_to_kink_passes(distance: float, side: int) -> None:
    ramp = claimed(lambda x: (x - 1).clamp(min=0), step)
    assert gradcheck(ramp, double([1 + side * distance, 3.0])).verdict == "pass"


@pytest.mark.parametrize("distance", [1e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("side", [-1, 1])
def test_derivative_of_other_side_close_to_kink_fails(distance: float, side: int) -> None:
    ramp = claimed(lambda x: (x - 1).clamp(min=0), lambda x: 1 - step(x))
    result = gradcheck(ramp, double([1 + side * distance]))
    assert result.verdict == "fail"


@pytest.mark.parametrize("value", [0.0, 0.25, 0.5, 1.0])
def test_kink_at_point_accepts_value_between_slopes(value: float) -> None:
    result = gradcheck(claimed(torch.relu, lambda x: torch.full_like(x, value)), double([0.0]))
    assert (result.verdict, result.kinks) == ("pass", 1)


@pytest.mark.parametrize("value", [-1e-5, 1 + 1e-5, -0.5, 2.0])
def test_kink_at_point_rejects_value_outside_slopes(value: float) -> None:
    result = gradcheck(claimed(torch.relu, lambda x: torch.full_like(x, value)), double([0.0]))
    assert (result.verdict, result.mismatched) == ("fail", 1)


@pytest.mark.parametrize(
    "function", [torch.abs, torch.relu, lambda x: x.max(), lambda x: x.sort().values, lambda x: x.norm()]
)
def test_kinks_at_zero_and_at_ties_pass(function: object) -> None:
    assert callable(function)
    result = gradcheck(function, double([0.0, 0.0, 0.0]))
    assert result.verdict == "pass"
    assert result.kinks > 0


@pytest.mark.parametrize("function", [torch.floor, torch.round, torch.sign])
def test_jump_at_point_is_inconclusive(function: object) -> None:
    assert callable(function)
    points = {torch.floor: 2.0, torch.round: 2.5, torch.sign: 0.0}
    result = gradcheck(function, double([points[function], 0.7]))
    assert result.verdict == "inconclusive"
    assert [element.input_index for element in elements(result, ElementVerdict.JUMP)] == [(0,)]


def test_straight_through_gradient_away_from_jump_fails() -> None:
    result = gradcheck(claimed(torch.round, torch.ones_like), double([1.3, 0.2]))
    assert (result.verdict, result.mismatched) == ("fail", 2)


@pytest.mark.parametrize("width", [0.1, 1e-3])
def test_zero_gradient_on_narrow_stair_does_not_fail(width: float) -> None:
    stairs = claimed(lambda x: torch.trunc(x / width), torch.zeros_like)
    assert gradcheck(stairs, double([1.234567, -3.1415926])).verdict in ("pass", "inconclusive")


def test_zero_gradient_of_float32_forward_fails() -> None:
    result = gradcheck(claimed(lambda x: x.float().sin().double(), torch.zeros_like), double([0.7, 1.1]))
    assert (result.verdict, result.mismatched) == ("fail", 2)


def test_rounding_error_claimed_for_zero_gradient_passes() -> None:
    def of_one(x: Tensor, weight: Tensor) -> Tensor:
        return torch.native_layer_norm(x, (1,), weight, None, 1e-5)[0]

    assert gradcheck(of_one, double([-4.8270]), double([-4.8270])).verdict == "pass"
    assert gradcheck(claimed(torch.zeros_like, lambda x: x * 1e-9), double([1.5])).verdict == "fail"


def test_edge_of_domain_is_judged_by_one_sided_derivative() -> None:
    right = claimed(lambda x: x**1.5, lambda x: 1.5 * x**0.5)
    wrong = claimed(lambda x: x**1.5 + x, lambda x: 1.5 * x**0.5 + 1.25)
    assert [e.verdict for e in elements(gradcheck(right, double([0.0, 1.0])), ElementVerdict.EDGE)] == ["edge"]
    assert gradcheck(right, double([0.0, 1.0])).verdict == "pass"
    assert gradcheck(wrong, double([0.0])).verdict == "fail"


def test_point_outside_domain_is_inconclusive() -> None:
    result = gradcheck(torch.log, double([-1.0, 2.0]))
    assert result.verdict == "inconclusive"
    assert "the forward is not finite at the point" in result.findings[0].message


def test_minus_infinity_in_intermediate_passes_and_in_output_is_inconclusive() -> None:
    mask = torch.tensor([True, False, False])
    masked = [lambda x, of=of: of(x.masked_fill(mask, -torch.inf), 0) for of in (torch.softmax, torch.log_softmax)]
    inside, outside = (gradcheck(function, double([1.0, 2.0, 3.0])) for function in masked)
    assert inside.verdict == "pass"
    assert (outside.verdict, outside.undetermined) == ("inconclusive", 2)  # it is constant in the masked input


def test_vjp_jump_at_kink_of_forward_counts_as_kink_at_order_2() -> None:
    result = gradgradcheck(torch.relu, double([-1.0, 0.0, 2.0]))
    assert result.verdict == "pass"
    assert result.kinks > 0


def test_vjp_jump_without_kink_of_forward_is_inconclusive_at_order_2() -> None:
    slope = claimed(lambda x: x * x, lambda x: 2 * x + (x >= 1))
    assert gradgradcheck(slope, double([1.0])).verdict == "inconclusive"


def test_function_that_varies_too_quickly_is_not_reported_as_jump() -> None:
    result = gradcheck(lambda x: torch.sin(1e11 * x), double([0.7]))
    assert not elements(result, ElementVerdict.JUMP)


@pytest.mark.parametrize("seed", range(6))
def test_ties_of_many_inputs_are_kinks_for_any_seed(seed: int) -> None:
    tied = torch.relu(torch.randn(16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    for function, x in (
        (lambda x: x.sort().values, tied.requires_grad_()),
        (torch.median, double([0.0] * 7)),
        (lambda x: x.topk(3).values, double([1.0] * 5)),
    ):
        result = run_check("gradcheck", problem_of(function, x), replace(ALONE, seed=seed))
        assert (result.verdict, result.kinks > 0) == ("pass", True)


def test_pieces_reached_by_several_inputs_together_are_found() -> None:
    tied = double([2.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    for function, x in (
        (lambda x: x.sort().values.diff(), tied),
        (lambda x: torch.maximum(x.amin(), x.new_zeros(())), double([0.0] * 8)),
    ):
        result = gradcheck(function, x)
        assert (result.verdict, result.kinks > 0) == ("pass", True)


def test_value_of_no_piece_fails_at_tie() -> None:
    class Greedy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.sort().values

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return 2 * grad

    assert gradcheck(Greedy.apply, double([1.0] * 5)).verdict == "fail"


STAIRS = {
    "gelu far out": (torch.nn.functional.gelu, -8.37),
    "gelu by tanh far out": (lambda x: torch.nn.functional.gelu(x, approximate="tanh"), -7.185),
    "x(1 + tanh x) far out": (lambda x: x * (1 + torch.tanh(x)), -18.964),
    "log-cosh near zero": (lambda x: x + torch.nn.functional.softplus(-2 * x) - math.log(2), 1e-6),
}


@pytest.mark.parametrize("name", STAIRS)
def test_slope_within_stair_of_rounding_does_not_fail(name: str) -> None:
    function, place = STAIRS[name]
    assert gradcheck(function, double([place])).verdict in ("pass", "inconclusive")


@pytest.mark.parametrize("seed", [2, 4, 8, 9, 11])
def test_gelu_passes_far_from_zero(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 20 * torch.rand(100, generator=generator, dtype=torch.float64) - 10
    assert gradcheck(torch.nn.functional.gelu, x.requires_grad_()).verdict == "pass"


@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_wrong_claim_for_tiny_slope_fails(factor: float) -> None:
    tiny = claimed(lambda x: 1e-20 * x.sin(), lambda x: factor * 1e-20 * x.cos())
    assert gradcheck(tiny, double([0.7, 1.1])).verdict == "fail"


def test_cancellation_in_backward_does_not_fail_at_order_2() -> None:
    for function, x in ((lambda x: x.softmax(-1), double([0.0, 35.0])), (torch.tanh, double([17.54]))):
        assert gradgradcheck(function, x).verdict in ("pass", "inconclusive")


@pytest.mark.parametrize("size", [1e-12, 1e-16, 1e-25, 1e-100, 1e-300, 5e-324])
@pytest.mark.parametrize("function", [torch.relu, torch.abs, torch.nn.functional.selu])
def test_kink_next_to_point_passes_beside_large_inputs(function: Any, size: float) -> None:
    for point in ([size, -2.3, 0.31], [-size, -2.3, 0.31]):
        assert gradcheck(function, double(point)).verdict == "pass"
        assert gradgradcheck(function, double(point)).verdict == "pass"


@pytest.mark.parametrize("distance", [1e-12, -1e-12, 1e-10])
def test_value_just_outside_slopes_close_to_kink_fails(distance: float) -> None:
    point = double([3 + distance, 3 - distance])
    for share in (1.01, 1 + 1e-6):
        wrong = claimed(lambda x: (x - 3).abs(), lambda x, share=share: (x - 3).sign() * share)
        result = gradcheck(wrong, point)
        assert (result.verdict, result.mismatched) == ("fail", 2)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_intermediate_is_inconclusive(precision: torch.dtype) -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q.to(precision) @ k.to(precision).mT).softmax(-1)
        return (weights @ v.to(precision)).double()

    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((3, 4), (5, 4), (5, 2))]
        assert gradcheck(attention, *(each.requires_grad_() for each in inputs)).verdict == "inconclusive"


def test_point_on_float32_stair_is_not_in_dead_zone() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none")

    for value in (4.0, 8.0, 10.0):
        assert gradgradcheck(loss, torch.tensor([value], requires_grad=True)).verdict == "pass"


def test_straight_through_gradient_in_dead_zone_fails() -> None:
    wrong = claimed(lambda x: torch.nn.functional.softshrink(x, 0.5), torch.ones_like)
    assert gradcheck(wrong, double([0.1, -0.2, 1.0])).mismatched == 2


def test_endlessly_growing_quotient_is_not_a_derivative() -> None:
    result = gradcheck(torch.log, double([1e-300, 1e-3, 1.0, 1e300]))
    assert result.verdict in ("pass", "inconclusive")


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("function", [torch.linalg.eigvalsh, torch.linalg.svdvals])
def test_repeated_eigenvalues_accept_gradient_of_any_order(function: Any, size: int) -> None:
    point = torch.eye(size, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a: function((a + a.mT) / 2), point).verdict == "pass"


@pytest.mark.parametrize("distance", [1e-9, 1e-10, 1e-11])
def test_missing_mask_next_to_kink_is_found_beside_ordinary_inputs(distance: float) -> None:
    wrong = claimed(torch.relu, torch.ones_like)
    assert gradcheck(wrong, double([0.7, 1.9, -distance])).mismatched == 1


@pytest.mark.parametrize("width", [1e-1, 1e-2, 1e-4])
@pytest.mark.parametrize("shrink", [torch.nn.functional.softshrink, torch.nn.functional.hardshrink])
def test_single_dead_zone_is_not_a_staircase(shrink: Any, width: float) -> None:
    wrong = claimed(lambda x: shrink(x, width), torch.ones_like)
    assert gradcheck(wrong, double([1.3, -0.4, 0.3 * width, -0.6 * width])).mismatched >= 1


@pytest.mark.parametrize(
    "function", [torch.tanh, torch.nn.functional.softsign, lambda x: x + x**3, lambda x: x.sign() * x.abs().log1p()]
)
def test_zero_gradient_of_function_rising_through_zero_fails(function: Any) -> None:
    result = gradcheck(claimed(function, torch.zeros_like), double([0.0, 0.0]))
    assert (result.verdict, result.mismatched) == ("fail", 2)
    assert gradcheck(claimed(function, torch.ones_like), double([0.0, 0.0])).verdict == "pass"


def test_zero_gradient_of_stairs_does_not_fail() -> None:
    def stairs(x: Tensor) -> Tensor:
        return torch.round(2**12 * x) / 2**12

    assert gradcheck(claimed(stairs, torch.zeros_like), double([0.0, 0.0])).verdict in ("pass", "inconclusive")


def test_ripple_in_one_input_is_not_a_stair_in_another() -> None:
    rippling = with_backward(
        lambda x, t: 1 + x.relu() + 0.01 * (300 * t).sin(),
        lambda grad, x, t: (grad.clone(), 3 * grad * (300 * t).cos()),
    )
    assert gradcheck(rippling, double([-0.3, -0.1]), double([0.8, 1.1])).mismatched == 2


@pytest.mark.parametrize("near", [1e-6, 1e-7])
def test_sort_of_nearly_equal_numbers_passes(near: float) -> None:
    generator = torch.Generator().manual_seed(1)
    x, weights = (torch.randn(8, generator=generator, dtype=torch.float64) for _ in range(2))
    point = (1 + near * x).requires_grad_()
    assert gradcheck(lambda x: (x.sort().values * weights).sum(), point).verdict == "pass"


@pytest.mark.parametrize("share", [1e-3, 1e-4])
def test_kinks_in_one_input_hide_no_error_in_another(share: float) -> None:
    weights = torch.linspace(-1, 1, 8, dtype=torch.float64)

    def wrong(grad: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        ranked = torch.zeros_like(x).scatter_(0, x.argsort(), weights)
        return grad * ranked * z.sin(), (1 + share) * grad * (x.sort().values * weights).sum() * z.cos()

    ranked = with_backward(lambda x, z: (x.sort().values * weights).sum() * z.sin(), wrong)
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        x = (1 + 1e-5 * torch.randn(8, generator=generator, dtype=torch.float64)).requires_grad_()
        assert gradcheck(ranked, x, double(0.7)).verdict == "fail"


@pytest.mark.parametrize("share", [1 + 1e-6, 1 + 1e-4])
def test_enormous_input_hides_no_error_in_others(share: float) -> None:
    class Stamped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(w)
            return w * w.sin(), 2 * t

        @staticmethod
        def backward(ctx: Any, grad: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
            (w,) = ctx.saved_tensors
            return share * grad * (w.sin() + w * w.cos()), 2 * other

    assert gradcheck(Stamped.apply, double([0.6, 1.4]), double([1.7e9])).mismatched == 2


@pytest.mark.parametrize("function", [torch.norm, torch.std, lambda x: torch.dist(x, x.flip(0))])
def test_all_zero_gradient_at_kink_is_compared(function: Any) -> None:
    assert gradgradcheck(function, double([0.0, 0.0, 0.0])).entries == 12  # 3 gradients by 3 inputs and 1 cotangent


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5, 6, 8, 12])
def test_maxima_over_different_subsets_of_ties_pass(count: int) -> None:
    ties = double([1.0] * count)
    for fewer in range(1, count):
        assert gradcheck(lambda x, fewer=fewer: x.amax() - x[:fewer].amax(), ties).verdict == "pass"
        assert gradcheck(lambda x, fewer=fewer: x[fewer:].amax() - x[: fewer + 1].amax(), ties).verdict == "pass"


@pytest.mark.parametrize(("step", "verdict"), [(1.0, "fail"), (0.3, "fail"), (0.02, "inconclusive")])
@pytest.mark.parametrize("seed", range(6))
def test_verdict_on_stairs_does_not_depend_on_the_point(step: float, verdict: str, seed: int) -> None:
    x = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    for stairs in (lambda x: (x / step).round() * step, lambda x: (x / step).floor() * step):
        assert gradcheck(claimed(stairs, torch.ones_like), x).verdict == verdict


def test_nan_claimed_at_kink_is_compared_with_midpoint_of_slopes() -> None:
    wrong = claimed(torch.abs, lambda x: x / x.abs())
    result = gradcheck(wrong, double([0.0]))
    assert result.verdict == "fail"
    (element,) = elements(result, ElementVerdict.MISMATCH)
    assert element.numeric == pytest.approx(0.0, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_relu_network_passes_at_order_2(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((16, 10), (10, 20), (20, 4))
    inputs = [torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in shapes]
    assert gradgradcheck(lambda x, w, v: (x @ w).relu() @ v, *inputs).verdict == "pass"


@pytest.mark.parametrize(
    ("slope", "verdicts"), [(0.0, {"pass"}), (1e-3, {"fail", "inconclusive"}), (1.0, {"fail", "inconclusive"})]
)
def test_irregular_jumps_are_not_a_staircase(slope: float, verdicts: set[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    places, jumps = torch.randn(2, 40, dtype=torch.float64, generator=generator)
    x = torch.randn(6, dtype=torch.float64, generator=generator).requires_grad_()

    def jumping(x: Tensor) -> Tensor:
        return ((x.unsqueeze(-1) > places) * jumps).sum(-1).cumsum(0)

    assert gradcheck(claimed(jumping, lambda x: torch.full_like(x, slope)), x).verdict in verdicts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("function", [np.exp, np.tanh, lambda x: x**3])
def test_zero_gradient_of_hidden_half_precision_does_not_pass(function: Callable[..., Any], seed: int) -> None:
    x = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()

    def rounded(x: Tensor) -> Tensor:
        return torch.from_numpy(function(x.detach().numpy().astype("float16").astype("float64")).cumsum())

    assert gradcheck(claimed(rounded, torch.zeros_like), x).verdict != "pass"


@pytest.mark.slow
def test_zero_gradient_of_rounded_mantissa_rarely_passes() -> None:
    def short(x: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(x)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)

    points = torch.rand(24, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 4 - 2
    verdicts = [gradcheck(claimed(short, torch.zeros_like), x.clone().requires_grad_()).verdict for x in points]
    assert verdicts.count(Verdict.PASS) <= 1


@pytest.mark.parametrize("off", [1e-16, 2e-16])
def test_rounding_error_at_the_point_alone_is_not_a_jump(off: float) -> None:
    x = torch.linspace(0.3, 1.3, 7, dtype=torch.float64)
    point = x.clone()
    for factor, verdict in ((1.0, Verdict.PASS), (1 + 1e-6, Verdict.FAIL), (2.0, Verdict.FAIL)):
        wrong = claimed(lambda x: 0.04 * x.sin() + off * (x == point), lambda x: factor * 0.04 * x.cos())  # noqa: B023
        assert gradcheck(wrong, x.requires_grad_()).verdict is verdict


SATURATED: dict[str, Callable[[Tensor], Tensor]] = {
    "log(1 - sigmoid)": lambda x: torch.log(1 - torch.sigmoid(x)),
    "logit of sigmoid": lambda x: torch.logit(torch.sigmoid(x)),
    "atanh of tanh": lambda x: torch.atanh(torch.tanh(x / 2)),
}


@pytest.mark.parametrize("point", [35.6466, 35.6846, 35.9, 36.3, 36.5, 36.7])
@pytest.mark.parametrize("name", SATURATED)
def test_last_stairs_before_infinity_do_not_fail(name: str, point: float) -> None:
    x = torch.tensor([point, 3.0, point], dtype=torch.float64, requires_grad=True)
    assert gradcheck(SATURATED[name], x).mismatched == 0


def test_dead_zone_beside_infinity_has_zero_derivative() -> None:
    x = torch.tensor([0.4, 0.5, 0.6], dtype=torch.float64, requires_grad=True)
    barrier = lambda x: -torch.log(1 - (x - 0.7).relu() * 2.5)  # noqa: E731
    assert gradcheck(barrier, x).verdict is Verdict.PASS
    assert gradcheck(claimed(barrier, torch.ones_like), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("scale", [1e3, 1e5])
def test_zero_gradient_of_truncation_does_not_fail(scale: float) -> None:
    x = torch.tensor([0.10542046159923193, 1.04783090398278, -0.71], dtype=torch.float64, requires_grad=True)
    assert gradcheck(claimed(lambda x: torch.trunc(scale * x), torch.zeros_like), x).mismatched == 0
