"""Second derivatives of saturated functions: rounding of the vjp excuses no error above it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem
from gradverify.result import Verdict
from tests.core.support import (
    ALONE,
    double,
    gradgradcheck,
    normal,
    problem_of,
    with_backward,
    with_scaled_gradient,
)
from tests.zoo.saturation import Logit

ON_A_STAIR = -0.0345158688  # where small steps see a stair of the sigmoid, which is 1 - 3e-13


@pytest.mark.parametrize("point", [ON_A_STAIR, 0.04])
@pytest.mark.parametrize("others", [(), (0.5, 1.0, 2.0)], ids=["alone", "beside others"])
def test_claim_that_larger_steps_agree_with_does_not_fail(point: float, others: tuple[float, ...]) -> None:
    assert gradgradcheck(Logit.apply, double([point, *others]), 1.0).verdict is not Verdict.FAIL


def _attention(factor: float) -> Callable[..., Tensor]:
    """Return softmax(q kᵀ / √d) v whose second derivatives through the scores are multiplied by `factor`."""
    scaled = with_scaled_gradient(lambda x: x.clone(), factor)

    def weights(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)

    def backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        p, by_p = weights(q, k), grad @ v.mT
        by_scores = scaled(p * (by_p - (p * by_p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1]))
        return by_scores @ k, by_scores.mT @ q, p.mT @ grad

    return with_backward(lambda q, k, v: weights(q, k) @ v, backward)


# Where a weight is 1 - 1e-28, the gradient by its score is the difference of two numbers around 1 that are equal.
@pytest.mark.parametrize(("seed", "scale"), [(4, 3.0), (2, 20.0), (6, 10.0), (3, 6.0)])
def test_cancellation_in_the_gradient_of_attention_is_within_its_rounding(seed: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        (size * torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)).requires_grad_()
        for size in (scale, scale, 1.0)
    )
    assert gradgradcheck(_attention(1.0), q, k, v).verdict is Verdict.PASS
    assert gradgradcheck(_attention(1 + 1e-5), q, k, v).verdict is Verdict.FAIL


def _weights_in_float32(factor: float, drawn: int) -> Problem:
    """Return softmax(q kᵀ / √d) of float32 scores 3 apart, whose second derivatives are multiplied by `factor`."""
    scaled = with_scaled_gradient(lambda x: x.clone(), factor)

    def weights(q: Tensor, k: Tensor) -> Tensor:
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)

    def backward(grad: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        p = weights(q, k)
        by_scores = scaled(p * (grad - (grad * p).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1]))
        return by_scores @ k, by_scores.mT @ q

    generator = torch.Generator().manual_seed(drawn)
    q, k = ((3 * torch.randn(3, 3, generator=generator)).requires_grad_() for _ in range(2))
    return problem_of(with_backward(weights, backward), q, k)


# Below steps of 1e-8 the samples lie between two stairs of rounding, on a line with another slope.
@pytest.mark.parametrize("drawn", [8, 15])
@pytest.mark.parametrize("seed", range(3))
def test_slope_between_two_stairs_of_rounding_is_no_derivative(drawn: int, seed: int) -> None:
    right, wrong = (
        run_check("gradgradcheck", _weights_in_float32(factor, drawn), replace(ALONE, seed=seed))
        for factor in (1.0, 1.1)
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("factor", [1.5, 0.5, -1.0, 0.0])
def test_claim_that_larger_steps_contradict_fails(factor: float) -> None:
    assert gradgradcheck(Logit.apply, double([ON_A_STAIR]), factor).verdict is Verdict.FAIL
    assert gradgradcheck(Logit.apply, double([ON_A_STAIR]), 1.0).verdict is Verdict.PASS


def test_wrong_branch_in_a_narrow_region_fails() -> None:
    """A smoothed absolute value has the second derivative 100 for |x| < 0.01, and 0 outside."""

    class Bend(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, grad: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return grad * (x / 0.01).clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, again: Tensor) -> tuple[Tensor, Tensor]:
            (x,) = ctx.saved_tensors
            return again * (x / 0.01).clamp(-1, 1), torch.zeros_like(x)

    class Smooth(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.where(x.abs() < 0.01, x * x / 0.02, x.abs() - 0.005)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return Bend.apply(grad, *ctx.saved_tensors)

    assert gradgradcheck(Smooth.apply, double([0.004, 0.7])).verdict is Verdict.FAIL


def test_cross_entropy_of_a_confident_prediction_passes_at_order_2() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(torch.stack([x, -x], 1), torch.zeros(len(x), dtype=torch.long))

    for logit in (19.2, 21.3, 24.0):
        assert gradgradcheck(loss, double([logit, 0.3])).verdict is Verdict.PASS


def written_out_gelu(error: float) -> Callable[[Tensor], Tensor]:
    """Return gelu with the textbook derivative, whose own derivative is wrong by a relative `error`."""

    def density(x: Tensor) -> Tensor:
        return (-x * x / 2).exp() / math.sqrt(2 * math.pi)

    inner = with_backward(
        lambda g, x: g * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density(x)),
        lambda h, g, x: (
            h * ((1 + torch.erf(x / math.sqrt(2))) / 2 + x * density(x)),
            h * g * density(x) * (2 - x * x) * (1 + error),
        ),
    )
    return with_backward(torch.nn.functional.gelu, lambda g, x: inner(g, x))


@pytest.mark.slow
def test_a_saturated_term_in_backward_passes_at_order_2() -> None:
    for place in (-8.5, -10.0, -16.0):
        assert gradgradcheck(written_out_gelu(0.0), double([place])).verdict is Verdict.PASS
        assert gradgradcheck(written_out_gelu(0.0), double([place, 0.3])).verdict is Verdict.PASS
    for place in (-2.0, -4.0):
        assert gradgradcheck(written_out_gelu(1e-6), double([place, 0.3])).verdict is Verdict.FAIL


# Draws with an entry on whose stair the second derivative is the slope of the other term.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [105, 128])
def test_rounding_stairs_of_backward_pass_at_order_2(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.randn(64, generator=generator, dtype=torch.float64)
    assert gradgradcheck(written_out_gelu(0.0), x.requires_grad_()).verdict is Verdict.PASS
    for error in (1e-6, -1e-3):
        x = torch.cat([x.detach(), torch.tensor([-5.0])])
        assert gradgradcheck(written_out_gelu(error), x.requires_grad_()).verdict is Verdict.FAIL


@pytest.mark.slow
def test_saturation_in_one_input_does_not_fail_another_at_order_2() -> None:
    def tanh(error: float) -> Callable[[Tensor], Tensor]:
        scaled = with_backward(torch.clone, lambda h, _: h * (1 + error))
        return with_backward(torch.tanh, lambda g, z: scaled(g * (1 - z.tanh().square()).conj()))

    def at(*places: complex) -> Tensor:
        return torch.tensor(places, dtype=torch.complex128, requires_grad=True)

    for place in (26 + 17j, 30 + 0.3j):
        assert gradgradcheck(tanh(0.0), at(place)).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
    for place in (5 + 1j, 0.3 + 17j):
        assert gradgradcheck(tanh(0.0), at(place)).verdict is Verdict.PASS
        assert gradgradcheck(tanh(1e-6), at(place)).verdict is Verdict.FAIL


def test_cancellation_in_backward_does_not_fail_at_order_2() -> None:
    for function, x in ((lambda x: x.softmax(-1), double([0.0, 35.0])), (torch.tanh, double([17.54]))):
        assert gradgradcheck(function, x).verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)


class ScaledSlope(torch.autograd.Function):
    """The vjp of tanh; one entry of each of its own two derivatives is multiplied by a factor."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, x: Tensor, by: tuple[float, float]) -> Tensor:
        ctx.save_for_backward(g, x)
        ctx.by = by
        return g * (1 - x.tanh() ** 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        g, x = ctx.saved_tensors
        slope = 1 - x.tanh() ** 2
        of_g, of_x = grad * slope, -2 * grad * g * x.tanh() * slope
        of_x[_PLACE] *= ctx.by[0]
        of_g[_PLACE] *= ctx.by[1]
        return of_g, of_x, None


class Tanh(torch.autograd.Function):
    """tanh with a vjp that has a hand-written derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, by: tuple[float, float]) -> Tensor:
        ctx.save_for_backward(x)
        ctx.by = by
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ScaledSlope.apply(grad, *ctx.saved_tensors, ctx.by), None


_PLACE = 14


@pytest.mark.parametrize("saturated", [5.24, 6.06])
@pytest.mark.parametrize("by", [(0.99, 1.0), (1.0, 0.9), (1.0, 0.0), (1.0, 1.1)])
def test_rounding_in_a_saturated_second_derivative_is_no_kink(saturated: float, by: tuple[float, float]) -> None:
    with torch.no_grad():
        x = normal(16, seed=0)
        x[_PLACE] = saturated
    wrong = gradgradcheck(lambda x: Tanh.apply(x, by), x)
    assert (wrong.verdict, wrong.mismatched, wrong.kinks) == (Verdict.FAIL, 1, 0)
    assert gradgradcheck(lambda x: Tanh.apply(x, (1.0, 1.0)), x).verdict is Verdict.PASS


# Beside many others, an entry is moved by the part of its length scale that a random direction gives it.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_rounding_stairs_of_backward_pass_beside_a_thousand_entries(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    saturated = -8.5 + 0.8 * torch.rand(100, generator=generator, dtype=torch.float64)
    x = torch.cat([4 * torch.randn(2000, generator=generator, dtype=torch.float64), saturated])
    assert gradgradcheck(written_out_gelu(0.0), x.requires_grad_()).verdict is Verdict.PASS
