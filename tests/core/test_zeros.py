"""Derivatives that are zero but for rounding: no claim in their place passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.result import Verdict
from tests.core.support import double, gradcheck, with_backward


class WeightedMean(torch.autograd.Function):
    """The mean of a bag of one, Σ x w / Σ w: by w it does not move, which its backward forgets."""

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
@pytest.mark.parametrize("seed", range(12))
def test_a_claim_in_place_of_a_zero_that_rounding_moves_is_wrong(size: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, dtype=torch.float64, generator=generator).requires_grad_()
    w = (torch.rand(size, dtype=torch.float64, generator=generator) + 0.2).requires_grad_()
    wrong = gradcheck(WeightedMean.apply, x, w)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, size)
    right = gradcheck(lambda x, w: x * w / w, x, w)
    assert right.verdict is Verdict.PASS
    assert right.message.removesuffix(
        "; every derivative by y is zero"
    ) in (  # no error of so many times something that is rounding in place of a zero
        f"{2 * size * size} entries agree",
        f"{2 * size * size} entries agree; some are so small that differences cannot tell them from zero",
    )


class Planted(torch.autograd.Function):
    """A convolution by way of the Fourier transform, in one of whose zeros backward has something."""

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
@pytest.mark.parametrize("of", range(10))
def test_nothing_planted_in_a_zero_stays_unseen(of: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(10, dtype=torch.float64, generator=generator).requires_grad_()
    kernel = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
    assert gradcheck(_convolved, x, kernel).verdict is Verdict.PASS
    for wrt in range(10):
        if of < wrt or of > wrt + 3:
            wrong = gradcheck(lambda x, kernel: Planted.apply(x, kernel, (of, wrt)), x, kernel)  # type: ignore[no-untyped-call]  # noqa: B023
            assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


class Coupled(torch.autograd.Function):
    """Sines, to one of which another entry is added after it has been rounded; backward knows nothing of it."""

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
def test_a_leak_that_noise_drowns_from_close_by_is_a_leak(entries: int, size: float) -> None:
    x = torch.linspace(-1, 1, entries, dtype=torch.float64, requires_grad=True)
    result = gradcheck(lambda x: Coupled.apply(x, size), x)  # type: ignore[no-untyped-call]
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_what_a_sum_loses_that_other_inputs_make_scatter_is_not_accused() -> None:
    logits = double([[0.0, 22.0, -22.0]])  # the last one adds 8e-20 to a sum of 1
    result = gradcheck(lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([1])), logits)
    assert result.verdict == "inconclusive"


def test_a_leak_that_the_scatter_would_not_hide_is() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        probabilities = x.softmax(-1)
        probabilities[:, 1] -= 1
        probabilities[:, 2] += 1e-15
        return grad * probabilities

    loss = with_backward(lambda x: torch.nn.functional.cross_entropy(x, torch.tensor([1])), backward)
    assert gradcheck(loss, double([[0.0, 22.0, -22.0]])).verdict == "fail"


@pytest.mark.parametrize("fill", [-1e9, -1e16, torch.finfo(torch.float64).min, -torch.inf])
def test_what_a_mask_is_filled_with_hides_no_mistake_elsewhere(fill: float) -> None:
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


def test_a_mask_that_backward_forgets_is_found_beside_the_least_number() -> None:
    groups = torch.tensor([1, 1, 2, 2, 1, 2])

    class Largest(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.full((3,), torch.finfo(x.dtype).min, dtype=x.dtype).scatter_reduce(0, groups, x, "amax")

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad[groups]

    x = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    assert gradcheck(Largest.apply, x).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("function", [torch.sinh, torch.expm1, lambda x: x * x.exp(), lambda x: x + x**9])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.1, 1 + 1e-6])
def test_an_output_of_zero_is_no_noisier_than_the_largest_beside_it(function: Any, factor: float) -> None:
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
def test_an_overflow_is_no_mask(function: Any, point: list[float]) -> None:
    silent = with_backward(function, lambda grad, x: torch.zeros_like(x))
    assert gradcheck(silent, double(point)).verdict is Verdict.INCONCLUSIVE


class Chosen(torch.autograd.Function):
    """The two largest of four, normed; backward gives those that are not chosen some gradient too."""

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
def test_what_cancels_up_to_rounding_at_every_step_stands_still_for_a_reason(leak: float) -> None:
    x = double([[0.6614, 0.2669, 0.0617, 0.6213]])
    assert gradcheck(lambda x: Chosen.apply(x, 0.0), x).verdict is Verdict.PASS  # type: ignore[no-untyped-call]
    assert gradcheck(lambda x: Chosen.apply(x, leak), x).verdict is Verdict.FAIL  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["nothing", "the right number"])
def test_nothing_in_place_of_what_large_steps_alone_tell_is_wrong(share: float) -> None:
    """Of 20 + 1e-11 sin(x), steps of a hundredth show 1e-11 with a bar that is wider: all are looked at from afar."""
    x = torch.linspace(0.3, 1.2, 60, dtype=torch.float64).requires_grad_()
    weights = torch.ones_like(x).detach().index_fill(0, torch.tensor([20]), share)
    function = with_backward(lambda x: 20.0 + 1e-11 * x.sin().sum(), lambda grad, x: grad * 1e-11 * weights * x.cos())
    assert gradcheck(function, x).verdict is (Verdict.PASS if share else Verdict.FAIL)
