"""Derivatives that are zero up to rounding: a nonzero claim fails."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck, normal, with_backward


class WeightedMean(torch.autograd.Function):
    """The weighted mean of one element, x w / w: it does not depend on w, but backward returns a gradient for w."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w / w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return grad, grad * x / w


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_nonzero_claim_for_a_zero_hidden_by_rounding_fails(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, dtype=torch.float64, generator=generator).requires_grad_()
    w = (torch.rand(size, dtype=torch.float64, generator=generator) + 0.2).requires_grad_()
    wrong = gradcheck(WeightedMean.apply, x, w)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, size)
    right = gradcheck(lambda x, w: x * w / w, x, w)
    assert right.verdict is Verdict.PASS
    assert right.message.removesuffix(
        "; every derivative by y is zero"
    ) in (  # a relative error of rounding beside a zero is not reported
        f"{2 * size * size} entries agree",
        f"{2 * size * size} entries agree; some are so small that differences cannot tell them from zero",
    )


class WrongZero(torch.autograd.Function):
    """A convolution by Fourier transforms; backward returns 30 for one entry of the Jacobian that is zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, place: tuple[int, int]) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.place = place
        return _convolved(x, kernel)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, kernel = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            by_x, by_kernel = torch.autograd.grad(_convolved(x, kernel), (x, kernel), grad)
        of, wrt = ctx.place
        by_x[wrt] += 30.0 * grad[of]
        return by_x, by_kernel, None


def _convolved(x: Tensor, kernel: Tensor) -> Tensor:
    size = 2 * len(x)
    result: Tensor = torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size), size)
    return result[: len(x)]


@pytest.mark.slow
@pytest.mark.parametrize("of", range(0, 10, 3))
def test_nonzero_claim_for_any_zero_entry_fails(of: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, dtype=torch.float64, generator=generator).requires_grad_()
    kernel = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
    assert gradcheck(_convolved, x, kernel).verdict is Verdict.PASS
    for wrt in range(10):
        if of < wrt or of > wrt + 3:
            wrong = gradcheck(lambda x, kernel: WrongZero.apply(x, kernel, (of, wrt)), x, kernel)  # type: ignore[no-untyped-call]  # noqa: B023
            assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


class Coupled(torch.autograd.Function):
    """sin(x), with x[20] rounded to float32 and added to output 7; backward ignores this term."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: float) -> Tensor:
        ctx.save_for_backward(x)
        result = x.sin()
        result[7] += size * x[20].float().double()
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * x.cos(), None


@pytest.mark.parametrize("entries", [32, 40, 200])
@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_missing_term_below_the_noise_at_small_steps_fails(entries: int, size: float) -> None:
    x = torch.linspace(-1, 1, entries, dtype=torch.float64, requires_grad=True)
    result = gradcheck(lambda x: Coupled.apply(x, size), x)  # type: ignore[no-untyped-call]
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_term_lost_to_rounding_in_a_sum_passes() -> None:
    logits = double([[0.0, 22.0, -22.0]])  # the last one contributes 8e-20 to a sum of 1
    result = gradcheck(lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([1])), logits)
    assert result.verdict is Verdict.PASS


def test_error_above_the_rounding_of_a_sum_fails() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        probabilities = x.softmax(-1)
        probabilities[:, 1] -= 1
        probabilities[:, 2] += 1e-14
        return grad * probabilities

    loss = with_backward(lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([1])), backward)
    assert gradcheck(loss, double([[0.0, 22.0, -22.0]])).verdict is Verdict.FAIL


@pytest.mark.parametrize("fill", [-1e9, -1e16, torch.finfo(torch.float64).min, -torch.inf])
def test_fill_value_of_a_mask_hides_no_error_elsewhere(fill: float) -> None:
    masked = torch.ones(6, 6).triu(1).bool()

    class Scores(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Tensor, k: Tensor, leak: float) -> Tensor:
            ctx.save_for_backward(q, k)
            ctx.leak = leak
            return (q @ k.mT).masked_fill(masked, fill)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
            q, k = ctx.saved_tensors
            grad = grad.masked_fill(masked, 0.0)
            return (grad + ctx.leak * grad.roll(1, 0)) @ k, grad.mT @ q, None

    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randn(6, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    assert gradcheck(Scores.apply, q, k, 0.0).verdict is Verdict.PASS
    assert gradcheck(Scores.apply, q, k, 1e-5).verdict is Verdict.FAIL


def test_mask_missing_in_backward_fails_beside_the_least_number() -> None:
    groups = torch.tensor([1, 1, 2, 2, 1, 2])

    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.full((3,), torch.finfo(x.dtype).min, dtype=x.dtype).scatter_reduce(0, groups, x, "amax")

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad[groups]

    x = normal(6, seed=1)
    assert gradcheck(Largest.apply, x).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("function", [torch.sinh, torch.expm1, lambda x: x * x.exp(), lambda x: x + x**9])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.1, 1 + 1e-6])
def test_wrong_entry_of_a_zero_output_fails_beside_a_large_one(function: Any, factor: float) -> None:
    def faulty(grad: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (right,) = torch.autograd.grad(function(leaf), leaf, grad)
        return torch.where(x == 0, factor * right, right)

    x = double([0.0, 0.3, -0.5, 40.0])
    assert gradcheck(function, x).verdict is Verdict.PASS
    assert gradcheck(with_backward(function, faulty), x).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("function", "point"),
    [
        (lambda x: x.exp().sum(-1).log(), [800.0, 801.0, 802.0]),
        (lambda x: (x * x).sum().reshape(1), [1e160, 1e160, 1e160]),
        (lambda x: x.exp().sum(), [800.0, 800.0, 800.0]),
    ],
)
def test_zero_claim_at_an_overflow_is_inconclusive(function: Any, point: list[float]) -> None:
    silent = with_backward(function, lambda grad, x: torch.zeros_like(x))
    assert gradcheck(silent, double(point)).verdict is Verdict.INCONCLUSIVE


class TopTwo(torch.autograd.Function):
    """The two largest probabilities of four, normalised; backward adds `leak` to the gradient of the others."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, leak: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.leak = leak
        chosen = x.softmax(-1).topk(2, -1).values
        return chosen / chosen.sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        values, places = x.softmax(-1).topk(2, -1)
        result = values / values.sum(-1, keepdim=True)
        total = (grad * result).sum(-1, keepdim=True)
        own = torch.zeros_like(x).scatter(-1, places, result * (grad - total))
        return own + ctx.leak * (own == 0) * total, None


@pytest.mark.parametrize("leak", [1e-2, 1e-3])
def test_leak_into_inputs_that_cancel_fails(leak: float) -> None:
    x = double([[0.6614, 0.2669, 0.0617, 0.6213]])
    assert gradcheck(lambda x: TopTwo.apply(x, 0.0), x).verdict is Verdict.PASS  # type: ignore[no-untyped-call]
    assert gradcheck(lambda x: TopTwo.apply(x, leak), x).verdict is Verdict.FAIL  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["nothing", "the right number"])
def test_zero_claim_for_a_derivative_only_large_steps_show_fails(share: float) -> None:
    """For 20 + 1e-11 sin(x), steps of 0.01 give error bars above 1e-11: only larger steps show the derivative."""
    x = torch.linspace(0.3, 1.2, 60, dtype=torch.float64).requires_grad_()
    weights = torch.ones_like(x).detach().index_fill(0, torch.tensor([20]), share)
    function = with_backward(lambda x: 20.0 + 1e-11 * x.sin().sum(), lambda grad, x: grad * 1e-11 * weights * x.cos())
    assert gradcheck(function, x).verdict is (Verdict.PASS if share else Verdict.FAIL)


@pytest.mark.parametrize("offset", [1e8, 1e12, 1e13])
def test_zero_claimed_beside_a_large_constant_part_fails(offset: float) -> None:
    def wave(slope: float) -> Any:
        return with_backward(lambda x: offset + x.sin(), lambda g, x: slope * g * x.cos())

    x = double([-1.0, 0.0, 1.0, 2.0])
    assert gradcheck(wave(1.0), x).verdict is Verdict.PASS
    assert gradcheck(wave(0.0), x).mismatched == 4


@pytest.mark.parametrize("offset", [0.0, 1e8, 1e13])
def test_zero_claimed_for_rounding_alone_passes(offset: float) -> None:
    circle = with_backward(lambda x: offset + x.sin() ** 2 + x.cos() ** 2, lambda g, x: torch.zeros_like(x))
    assert gradcheck(circle, double([-1.0, 0.0, 1.0, 2.0])).verdict is Verdict.PASS
