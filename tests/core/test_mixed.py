"""Forwards that compute a part in lower precision: right gradients are not accused, and none that forget it pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.core.forward.sampler import sampler
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import claimed, double, gradcheck, problem_of, with_backward


@pytest.mark.parametrize("size", [1, 3, 40])
@pytest.mark.parametrize("outside", [torch.float64, torch.float32])
@pytest.mark.parametrize("inside", [torch.float32, torch.float16, torch.bfloat16])
def test_a_smooth_term_beside_stairs_does_not_move_alone(size: int, outside: torch.dtype, inside: torch.dtype) -> None:
    if outside == inside:
        return
    x = torch.linspace(-1, 1.3, size, dtype=outside).requires_grad_()

    def both(x: Tensor) -> Tensor:
        return x.sin() + x.to(inside).sigmoid().to(x.dtype)

    def slope(x: Tensor) -> Tensor:
        return x.cos() + x.sigmoid() * (1 - x.sigmoid())

    right, wrong = (gradcheck(claimed(both, claim), x) for claim in (slope, torch.cos))
    assert right.verdict is (Verdict.PASS if inside is torch.float32 else Verdict.INCONCLUSIVE)
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(8))
def test_one_term_in_float32_among_others_is_not_forgotten(seed: int) -> None:
    x = torch.randn(3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    both = lambda x: x.sin() + (x.float() ** 2).double()  # noqa: E731
    assert gradcheck(claimed(both, lambda x: x.cos() + 2 * x), x).verdict is Verdict.PASS
    assert gradcheck(claimed(both, torch.cos), x).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("inside", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 8), (2, 40), (4, 32)])
def test_statistics_in_lower_precision_accuse_nobody(inside: torch.dtype, shape: tuple[int, int]) -> None:
    def normalised(x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.to(inside).square().mean(-1, keepdim=True)).to(x.dtype)

    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(36)).requires_grad_()
    right = gradcheck(normalised, x)
    assert right.verdict is (Verdict.PASS if inside is torch.float32 else Verdict.INCONCLUSIVE)
    detached = gradcheck(
        lambda x: x * torch.rsqrt(x.detach().to(inside).square().mean(-1, keepdim=True)).to(x.dtype), x
    )
    assert detached.verdict is Verdict.FAIL


def test_an_output_that_stays_on_one_stair_of_its_precision_is_left_open() -> None:
    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x.bfloat16()).to(x.dtype)

    x = torch.tensor([1e-3, -2e-3, 5e-4], dtype=torch.float32).requires_grad_()
    result = gradcheck(claimed(loss, torch.sigmoid), x)
    assert (result.verdict, result.mismatched) == (Verdict.INCONCLUSIVE, 0)


@pytest.mark.parametrize("seed", range(4))
def test_stairs_grow_with_the_samples_that_are_taken_of_them(seed: int) -> None:
    x = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    result = gradcheck(lambda x: x + 1e-3 * x.half().double(), x)
    assert result.verdict is Verdict.PASS


@pytest.mark.slow
@pytest.mark.parametrize("x", [4.745931004809948, 3.3, 0.61, 1.7, 8.4, 33.3])
def test_what_varies_quickly_is_not_taken_for_rounding_that_nothing_explains(x: float) -> None:
    """The sawtooth of a fraction is as loud at many distances, and a million times as loud as float32's stairs."""
    point = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    for sawtooth in (lambda x: x.square().float().double().frac(), lambda x: (19.3 * x).float().double().frac()):
        assert gradcheck(sawtooth, point).mismatched == 0
        (right,) = torch.autograd.grad(sawtooth(point), point)
        twice = gradcheck(claimed(sawtooth, lambda x: 2 * right), point)  # noqa: B023
        assert twice.verdict is not Verdict.PASS


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("offset", [1e4, 1e5])
def test_a_term_whose_stairs_cancelling_has_raised_is_not_forgotten(offset: float, size: int) -> None:
    """They are hundreds of times as high as rounding of the output is, and within one only the other term moves."""
    x = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    both = lambda x: ((x + offset).float() - offset).double() + 0.1 * x  # noqa: E731
    assert gradcheck(claimed(both, lambda x: torch.full_like(x, 0.1)), x).verdict is Verdict.FAIL
    assert gradcheck(both, x).mismatched == 0


INSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "log(1 + |x|)": lambda x: (1 + x.float().abs()).log().double(),
    "exp(x) - 1": lambda x: (x.float().exp() - 1).double(),
    "beside 16": lambda x: ((x.sin() + 16).float() - 16).double(),
}


@pytest.mark.parametrize("name", INSIDE)
def test_zeros_for_what_float32_computes_are_wrong_where_it_cancels(name: str) -> None:
    x = (0.01 * torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).requires_grad_()
    assert gradcheck(claimed(INSIDE[name], torch.zeros_like), x).verdict is Verdict.FAIL
    assert gradcheck(INSIDE[name], x).mismatched == 0


def _narrow(function: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return what the forward is seen to round to on its way."""
    problem = problem_of(function, x)
    return sampler(problem, record(problem)).narrow()


def test_only_what_is_rounded_on_the_way_counts() -> None:
    x = torch.tensor([-1.0, 0.5], dtype=torch.float64).requires_grad_()
    constants = torch.tensor([1.0, 2.0])
    assert _narrow(lambda x: x.float().sin().double(), x) == torch.finfo(torch.float32).eps
    assert _narrow(lambda x: x.half().double() + x.float(), x) == torch.finfo(torch.float16).eps
    assert _narrow(lambda x: x * constants.double(), x) == 0.0
    assert _narrow(lambda x: x * constants, x) == 0.0
    assert _narrow(torch.relu, x.detach().float().requires_grad_()) == 0.0


def _normed(x: Tensor) -> Tensor:
    """Norm two numbers, which hardly moves with them, and round to float32 on the way."""
    normed = (x - x.mean()) * (x.var() + 1e-5).rsqrt()
    return functional.gelu(normed.float().double())


def test_what_moves_by_less_than_a_stair_on_the_way_may_stand_still() -> None:
    assert gradcheck(_normed, double([19.75, 99.68])).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_but_not_what_would_have_climbed_a_stair(size: float) -> None:
    wrong = with_backward(_normed, lambda grad, x: size * grad)
    assert gradcheck(wrong, double([19.75, 99.68])).verdict is Verdict.FAIL
