"""Detected sparsity is a hypothesis: it is used if it holds, dropped if a test contradicts it, and causes no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import Method, Verdict
from tests.core.support import (
    gradcheck,
    gradgradcheck,
    normal,
    scaled_at,
    with_backward,
    with_changed_gradient,
    wrong_places,
)

STRUCTURED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise": (torch.sin, ((200,),)),
    "elementwise square": (torch.tanh, ((12, 12),)),
    "relu": (torch.relu, ((15, 20),)),
    "layer norm": (lambda x: functional.layer_norm(x, (4,)), ((30, 4),)),
    "softmax": (lambda x: x.softmax(0), ((4, 30),)),
    "matmul": (torch.matmul, ((9, 8), (8, 7))),
    "convolution": (functional.conv2d, ((1, 2, 9, 9), (2, 2, 3, 3))),
    "strided convolution": (lambda x: functional.conv1d(x, torch.ones(1, 1, 3).double(), stride=2), ((1, 1, 51),)),
    "pooling": (lambda x: functional.avg_pool1d(x, 2), ((2, 1, 20),)),
    "broadcast": (lambda x, y: x * y, ((20, 3), (3,))),
    "rows": (lambda x: (x * x).sum(1), ((20, 3),)),
    "two outputs": (lambda x: (x.sin(), x.exp().sum(1)), ((20, 3),)),
    "complex": (lambda x: x * x.conj() * x, ((20,),)),
}


@pytest.mark.parametrize("name", STRUCTURED)
def test_sparse_jacobian_is_compared_by_structure(name: str) -> None:
    function, shapes = STRUCTURED[name]
    dtype = torch.complex128 if name == "complex" else torch.float64
    result = gradcheck(function, *(normal(*shape, seed=1, dtype=dtype) for shape in shapes))
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)


@pytest.mark.parametrize("name", ["elementwise", "layer norm", "softmax"])
@pytest.mark.parametrize("place", [0, 7, -1])
def test_wrong_element_is_found_at_its_index(name: str, place: int) -> None:
    function, (shape,) = STRUCTURED[name]
    result = gradcheck(with_changed_gradient(function, scaled_at(place, 1e-5)), normal(*shape))
    assert result.verdict is Verdict.FAIL
    size = torch.Size(shape).numel()
    assert wrong_places(result) == {
        ("x", tuple(map(int, torch.arange(size).view(shape).eq(place % size).nonzero()[0])))
    }


def _by_column(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [64, 200])
def test_single_entries_are_compared_after_random_sums_agree(rows: int) -> None:
    right = gradcheck(_by_column, normal(rows, 32))
    assert (right.verdict, right.method) == (Verdict.PASS, Method.STRUCTURED)
    assert right.detection_limit is not None and right.detection_limit < 1e-6
    wrong = gradcheck(with_changed_gradient(_by_column, scaled_at(5 * 32 + 3, 2e-6)), normal(rows, 32))
    assert wrong.verdict is Verdict.FAIL
    assert wrong_places(wrong) == {("x", (5, 3))}


@pytest.mark.slow
def test_float32_entries_after_sums_agree_are_compared_in_float64() -> None:
    x, weight = normal(1, 1, 60, 60, dtype=torch.float32), normal(1, 1, 11, 11, seed=1, dtype=torch.float32).detach()
    result = gradcheck(lambda x, weight: functional.conv2d(x.sin(), weight, padding=5), x, weight)
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)
    assert result.max_error_bar < 1e-6


def test_no_comparison_by_structure_after_sums_differ() -> None:
    result = gradcheck(with_changed_gradient(_by_column, lambda right: 1.0001 * right), normal(200, 32))
    assert (result.verdict, result.method) == (Verdict.FAIL, Method.PROBED)
    assert result.evaluations.forward < 2_000


def test_many_column_groups_are_compared_by_sums_only() -> None:
    assert gradcheck(_by_column, normal(300, 8)).method is Method.STRUCTURED
    assert gradcheck(_by_column, normal(400, 8)).method is Method.PROBED


def test_many_large_column_groups_are_compared_by_sums_only() -> None:
    assert gradcheck(_by_column, normal(1000, 32)).method is Method.PROBED


@pytest.mark.parametrize("leak", [1.0, 1e-3, 1e-5])
def test_stray_entry_in_backward_is_found(leak: float) -> None:
    def change(grad: Tensor) -> Tensor:
        wrong = grad.clone()
        wrong[7] += leak * grad[60]
        return wrong

    result = gradcheck(with_changed_gradient(torch.exp, change), normal(100))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    element = result.findings[0].elements[0]
    assert (element.output_index, element.input_index) == ((60,), (7,))


@pytest.mark.parametrize("index", [3, 77])
def test_right_gradient_of_almost_elementwise_function_passes(index: int) -> None:
    def mixing(x: Tensor) -> Tensor:
        result = x.sin()
        return torch.cat([result[:index], (x[index] * x[0]).reshape(1), result[index + 1 :]])

    assert gradcheck(mixing, normal(120)).verdict is Verdict.PASS


def test_missing_off_diagonal_entry_is_found() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x * x
            result[77] = x[77] * x[0]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            right = 2 * x * grad
            right[77] = x[0] * grad[77]
            return right  # lacks d out[77] / d x[0]

    result = gradcheck(Forgets.apply, normal(120))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    element = result.findings[0].elements[0]
    assert (element.output_index, element.input_index) == ((77,), (0,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(0),
        lambda x: x.cumsum(0),
        lambda x: x[torch.arange(40).roll(3)],
        lambda x: torch.cat([x, x * 2]),
        lambda x: x.sort().values,
        lambda x: x[:1] * x,
        lambda x: x.reshape(5, 8).T.reshape(-1).sin(),
        lambda x: x - x.mean(),
        lambda x: torch.where(x > x.median(), x, x * x),
    ],
)
def test_misleading_structure_changes_no_verdict(function: Callable[..., Any]) -> None:
    assert gradcheck(function, normal(40)).verdict is Verdict.PASS
    assert gradcheck(with_changed_gradient(function, lambda grad: grad * 1.0001), normal(40)).verdict is Verdict.FAIL


@pytest.mark.parametrize("size", [20, 40, 200])
def test_kink_does_not_hide_missing_entry(size: int) -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x.clamp(min=0)
            result[size // 2] -= 1e-2 * x[size // 3]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * (ctx.saved_tensors[0] > 0)

    x = normal(size).detach()
    x[size // 2] = 0.0
    result = gradcheck(Forgets.apply, x.requires_grad_())
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.slow
def test_kink_in_dense_row_does_not_hide_missing_entry() -> None:
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            result = x.clamp(min=0) + 1e-3 * x.sum(1, keepdim=True)
            result[40, 0] -= 1e-2 * x[11, 0]
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * (x > 0) + 1e-3 * grad.sum(1, keepdim=True)

    x = normal(60, 4).detach()
    x[torch.rand(60, 4, generator=torch.Generator().manual_seed(2)) < 0.5] = 0.0
    x[40, 0] = x[11, 0] = 0.0
    result = gradcheck(Forgets.apply, x.requires_grad_())
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_stray_entry_in_small_row_is_found_beside_large_rows() -> None:
    def change(grad: Tensor) -> Tensor:
        wrong = grad.clone()
        wrong[39] += 1e-3 * grad[0]
        return wrong

    x = torch.linspace(-10, 10, 40, dtype=torch.float64).requires_grad_()
    assert gradcheck(with_changed_gradient(torch.exp, change), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("function", [torch.nn.functional.hardtanh, lambda x: x.reshape(12, 5).amax(1)])
def test_order_2_at_many_kinks_passes(function: Callable[..., Any]) -> None:
    x = torch.arange(-30, 30).remainder(5).sub(2).double().requires_grad_()
    assert gradgradcheck(function, x).verdict is Verdict.PASS


def test_overlapping_memory_layouts_pass() -> None:
    unfolded = normal(20).detach().unfold(0, 3, 1).requires_grad_()
    expanded = normal(1, 3).detach().expand(6, 3).requires_grad_()
    assert gradcheck(torch.sin, unfolded).verdict is Verdict.PASS
    assert gradcheck(torch.sin, expanded).verdict is Verdict.PASS


def test_order_2_is_compared_by_structure() -> None:
    result = gradgradcheck(torch.sin, normal(60))
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)


def test_cost_of_elementwise_function_does_not_grow_with_its_size() -> None:
    small, large = (gradcheck(torch.exp, normal(size)) for size in (100, 20_000))
    assert large.entries == 20_000**2
    assert large.evaluations.forward <= 2 * small.evaluations.forward
    assert large.evaluations.backward == small.evaluations.backward


def sum_of_three(x: Tensor) -> Tensor:
    """Return the sum of each entry and its two neighbours."""
    zero = x.new_zeros(1)
    return x + torch.cat([x[1:], zero]) + torch.cat([zero, x[:-1]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_kinks", "mismatched", "row", "column"),
    [(0.0, 1, 8, 3), (0.0, 1, 8, 6), (0.0, 1, 16, 5), (0.0, 1, 32, 50), (0.0, 1, 31, 40), (2.0, 191, 8, 3)],
)
def test_one_more_input_is_found_where_all_outputs_are_at_kinks(
    at_kinks: float, mismatched: int, row: int, column: int
) -> None:
    function = with_backward(
        lambda x: sum_of_three(x.relu()) + 5 * x[column] * (torch.arange(64) == row),
        lambda grad, x: at_kinks * sum_of_three(grad),
    )
    result = gradcheck(function, torch.zeros(64, dtype=torch.float64, requires_grad=True))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, mismatched)


@pytest.mark.slow
@pytest.mark.parametrize(("row", "column"), [(8, 9), (20, 28), (51, 50)])
def test_one_more_input_that_counts_to_one_side_is_found_where_all_outputs_are_at_kinks(row: int, column: int) -> None:
    function = with_backward(
        lambda x: x.clamp(0, 1) + 5 * x[column].relu() * (torch.arange(64) == row),
        lambda grad, x: torch.where(torch.arange(64) == row, 2.0, 1.0) * grad,
    )
    result = gradcheck(function, torch.zeros(64, dtype=torch.float64, requires_grad=True))
    assert (result.verdict, wrong_places(result)) == (Verdict.FAIL, {("x", (row,))})
