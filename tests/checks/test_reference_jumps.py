"""References that jump where a number is rounded otherwise, and operations that round nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import Verdict
from tests.checks.test_reference import drawn, held_against, kernel, unchanged

LOW = (torch.float32, torch.float16, torch.bfloat16)
SEEDS = range(4)


def distance(x: Tensor, y: Tensor) -> Tensor:
    return (x - y).abs().mean()


def pooled(x: Tensor) -> Tensor:
    return functional.max_pool2d(x, 2)


def hinge(x: Tensor, y: Tensor) -> Tensor:
    return (1 - x * y).relu()


def quantised(x: Tensor) -> Tensor:
    """Round to quarters; the gradient passes as if nothing was rounded."""
    scaled = (4 * x).clamp(-8, 7)
    return (scaled + (scaled.round() - scaled).detach()) / 4


def half_more(gradient: Tensor) -> Tensor:
    return 1.5 * gradient


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    ("change", "verdict"), [(unchanged, Verdict.PASS), (half_more, Verdict.FAIL), (lambda g: -10 * g, Verdict.FAIL)]
)
def test_a_tie_hides_no_other_entry(dtype: torch.dtype, change: Callable[[Tensor], Tensor], verdict: Verdict) -> None:
    x, y = (drawn(20, 9, dtype=dtype, seed=seed) for seed in (0, 1))
    with torch.no_grad():
        x[0, 0] = y[0, 0] = 1.0
    assert held_against(kernel(distance, backward=change), distance, x, y).verdict is verdict


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("plain", "shapes"),
    [(distance, [(20, 9), (20, 9)]), (pooled, [(2, 3, 32, 32)]), (hinge, [(100,), (100,)]), (quantised, [(16, 33)])],
)
def test_numbers_that_bfloat16_makes_equal_hide_no_wrong_gradient(
    plain: Callable[..., Tensor], shapes: list[tuple[int, ...]], seed: int
) -> None:
    inputs = [drawn(*shape, dtype=torch.bfloat16, seed=10 * seed + place) for place, shape in enumerate(shapes)]
    assert held_against(kernel(plain), plain, *inputs).verdict is Verdict.PASS
    assert held_against(kernel(plain, backward=half_more), plain, *inputs).verdict is Verdict.FAIL
    assert held_against(kernel(plain, backward=torch.zeros_like), plain, *inputs).verdict is Verdict.FAIL


def test_an_output_on_the_edges_of_stairs_hides_no_factor() -> None:
    for seed in SEEDS:
        x = drawn(16, 33, dtype=torch.bfloat16, seed=seed)
        assert held_against(kernel(quantised, forward=half_more), quantised, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW[1:])
def test_rounding_that_cancels_is_not_measured_by_a_single_sample(dtype: torch.dtype) -> None:
    """The gradient by the largest entry is a sum over the row that is zero but for rounding."""
    plain = softmax_by_largest(lambda x: torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True))
    for seed in range(10, 20):
        assert held_against(kernel(plain), plain, drawn(6, 17, dtype=dtype, seed=seed)).verdict is Verdict.PASS


def softmax_by_largest(largest: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def softmax(x: Tensor) -> Tensor:
        raised = (x - largest(x)).exp()
        return raised / raised.sum(-1, keepdim=True)

    return softmax


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize(
    "largest",
    [
        lambda x: x.amax(-1, keepdim=True),
        lambda x: (1.3 * x).amax(-1, keepdim=True),
        lambda x: x.max(),
        lambda x: torch.linalg.vector_norm(x, torch.inf, -1, keepdim=True),
    ],
)
def test_the_largest_entry_is_not_rounded(dtype: torch.dtype, largest: Callable[[Tensor], Tensor]) -> None:
    plain = softmax_by_largest(largest)
    x = drawn(6, 17, dtype=dtype)
    assert held_against(kernel(plain), plain, x).verdict is Verdict.PASS
    assert held_against(kernel(plain, backward=half_more), plain, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("far", [-1e4, -1e9])
def test_a_mask_of_exact_numbers_is_not_rounded(dtype: torch.dtype, far: float) -> None:
    kept = torch.rand(6, 17, generator=torch.Generator().manual_seed(0)) > 0.3

    def masked(x: Tensor) -> Tensor:
        return (x + (1.0 - kept.to(x.dtype)) * far).softmax(-1)

    def as_kernel(x: Tensor) -> Tensor:
        return x.masked_fill(~kept, -torch.inf).softmax(-1)

    x = drawn(6, 17, dtype=dtype)
    assert held_against(kernel(as_kernel), masked, x).verdict is Verdict.PASS
    assert held_against(kernel(as_kernel, half_more, half_more), masked, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", LOW)
def test_exponents_that_are_counted_are_exact(dtype: torch.dtype) -> None:
    def powers(x: Tensor) -> Tensor:
        return x[:, None] ** torch.arange(4, dtype=x.dtype)

    x = drawn(9, dtype=dtype)
    assert held_against(kernel(powers), powers, x).verdict is Verdict.PASS
    assert held_against(kernel(powers, backward=half_more), powers, x).verdict is Verdict.FAIL
