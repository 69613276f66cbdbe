"""Forwards that compute one term in lower precision: right gradients do not fail, gradients without the term do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import Verdict
from tests.core.support import claimed, double, gradcheck, normal, with_backward, with_changed_gradient


@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("outside", [torch.float64, torch.float32])
@pytest.mark.parametrize("inside", [torch.float32, torch.float16, torch.bfloat16])
def test_gradient_without_the_low_precision_term_fails(size: int, outside: torch.dtype, inside: torch.dtype) -> None:
    if outside == inside:
        return
    x = torch.linspace(-1, 1.3, size, dtype=outside).requires_grad_()

    def both(x: Tensor) -> Tensor:
        return x.sin() + x.to(inside).sigmoid().to(x.dtype)

    def slope(x: Tensor) -> Tensor:
        return x.cos() + x.sigmoid() * (1 - x.sigmoid())

    right, wrong = (gradcheck(claimed(both, claim), x) for claim in (slope, torch.cos))
    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("inside", [torch.float16, torch.bfloat16])
def test_a_term_whose_casts_cannot_be_left_out_is_open_if_right(inside: torch.dtype) -> None:
    def both(x: Tensor) -> Tensor:
        narrow = x.to(inside)
        return (
            x.cos() + narrow.sin().to(x.dtype) + float(narrow.dtype is not inside)
        )  # elsewhere it is another function

    x = normal(4, 6)
    right, wrong = (gradcheck(claimed(both, lambda x, by=by: by * (x.cos() - x.sin())), x) for by in (1.0, 1.5))
    assert (right.verdict, wrong.verdict) == (Verdict.INCONCLUSIVE, Verdict.FAIL)


@pytest.mark.parametrize("seed", range(4))
def test_gradient_without_the_float32_term_fails(seed: int) -> None:
    x = normal(3, seed=seed)
    both = lambda x: x.sin() + (x.float() ** 2).double()  # noqa: E731
    assert gradcheck(claimed(both, lambda x: x.cos() + 2 * x), x).verdict is Verdict.PASS
    assert gradcheck(claimed(both, torch.cos), x).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("inside", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 8), (2, 40), (4, 16)])
def test_normalisation_with_low_precision_statistics_does_not_fail(inside: torch.dtype, shape: tuple[int, int]) -> None:
    def normalised(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.to(inside).square().mean(-1, keepdim=True)).to(x.dtype)

    x = normal(*shape, seed=36)
    assert gradcheck(normalised, x).verdict is Verdict.PASS
    detached = gradcheck(
        lambda x: x * torch.rsqrt(x.detach().to(inside).square().mean(-1, keepdim=True)).to(x.dtype), x
    )
    assert detached.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(3))
def test_error_bars_below_the_float32_tolerance_leave_few_entries_undetermined(seed: int) -> None:
    def norm(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * weight).to(x.dtype)

    x, weight = normal(3, 6, seed=seed, dtype=torch.float32), normal(6, seed=seed + 1, dtype=torch.float32)
    right = gradcheck(norm, x, weight)
    assert right.mismatched == 0
    assert right.undetermined <= 0.01 * right.entries
    wrong = with_changed_gradient(lambda x: norm(x, weight.detach()), lambda grad: 1.1 * grad)
    assert gradcheck(wrong, x).verdict is Verdict.FAIL


def test_output_constant_on_one_stair_passes_by_the_same_forward_in_float64() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x.bfloat16()).to(x.dtype)

    x = torch.tensor([1e-3, -2e-3, 5e-4], dtype=torch.float32).requires_grad_()
    assert gradcheck(claimed(loss, torch.sigmoid), x).verdict is Verdict.PASS
    assert gradcheck(claimed(loss, lambda x: 1.1 * x.sigmoid()), x).mismatched == 3


@pytest.mark.parametrize("seed", range(4))
def test_stair_height_grows_with_the_sampled_magnitude(seed: int) -> None:
    x = normal(60, seed=seed)
    result = gradcheck(lambda x: x + 1e-3 * x.half().double(), x)
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("offset", [1e4, 1e5])
def test_gradient_without_a_term_with_cancellation_fails(offset: float, size: int) -> None:
    """The stairs are hundreds of times the rounding of the output; within one stair only the other term changes."""
    x = normal(size, seed=1)
    both = lambda x: ((x + offset).float() - offset).double() + 0.1 * x  # noqa: E731
    assert gradcheck(claimed(both, lambda x: torch.full_like(x, 0.1)), x).verdict is Verdict.FAIL
    assert gradcheck(both, x).mismatched == 0


INSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "log(1 + |x|)": lambda x: (1 + x.float().abs()).log().double(),
    "exp(x) - 1": lambda x: (x.float().exp() - 1).double(),
    "beside 16": lambda x: ((x.sin() + 16).float() - 16).double(),
}


@pytest.mark.parametrize("name", INSIDE)
def test_zero_gradient_of_a_float32_term_with_cancellation_fails(name: str) -> None:
    x = (0.01 * torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    assert gradcheck(claimed(INSIDE[name], torch.zeros_like), x).verdict is Verdict.FAIL
    assert gradcheck(INSIDE[name], x).mismatched == 0


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.sin() * torch.tensor([1.0, 2.0, 3.0]),
        lambda x: x.sin() * torch.tensor([1.0, 2.0, 3.0]).double(),
    ],
)
def test_float32_constants_do_not_loosen_the_tolerance(forward: Callable[[Tensor], Tensor]) -> None:
    wrong = with_changed_gradient(forward, lambda gradient: gradient * (1 + 1e-6))
    assert gradcheck(wrong, double([-1.0, 0.5, 0.7])).mismatched == 3
    assert gradcheck(forward, double([-1.0, 0.5, 0.7])).verdict is Verdict.PASS


def _normalised(x: Tensor) -> Tensor:
    """Normalise two numbers, which hardly changes with them, and round the result to float32."""
    normed = (x - x.mean()) * (x.var() + 1e-5).rsqrt()
    return functional.gelu(normed.float().double())


def test_output_that_changes_by_less_than_a_stair_passes() -> None:
    assert gradcheck(_normalised, double([19.75, 99.68])).verdict is Verdict.PASS


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_claim_that_would_cross_a_stair_fails(size: float) -> None:
    wrong = with_backward(_normalised, lambda grad, x: size * grad)
    assert gradcheck(wrong, double([19.75, 99.68])).verdict is Verdict.FAIL
