"""Many points in one call give the same outputs as single calls, or are evaluated one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import Verdict
from tests.core.support import (
    gradcheck,
    gradgradcheck,
    normal,
    one_by_one,
    with_backward,
    wrong_places,
)


def index_of(place: int, tensor: Tensor) -> tuple[int, ...]:
    """Return the index of the entry that is at `place` in memory order."""
    return tuple(int(index) for index in torch.unravel_index(torch.tensor(place), tensor.shape))


class Rows(torch.autograd.Function):
    """A hand-written softmax over rows, without vmap support."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True))


def mixing_at_seven(x: Tensor) -> Tensor:
    """Return 2 x with row 3 added to row 7, a term that vanishes at the point x = 0."""

    class Mixing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x * 2
            y[7] += x[3]
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            result = 2 * grad
            result[3] += grad[7]
            return result

    return Mixing.apply(x)  # type: ignore[no-any-return]


def product_backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    inner = grad * (1 - (x @ y).tanh() ** 2)
    return inner @ y.mT, x.mT @ inner


ONE_CALL: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "plain torch": (lambda x: x.sin().cumsum(-1), (normal(4, 40),)),
    "a function of a batch": (Rows.apply, (normal(8, 40),)),
    "complex": (lambda x: torch.view_as_complex(x).exp().cumsum(0), (normal(40, 2),)),
    "two outputs": (lambda x: (x.sin(), x.exp().sum()), (normal(40),)),
    "two inputs": (lambda x, y: (x.unsqueeze(-1) * y).exp().cumsum(0), (normal(3, 4), normal(4, 30, seed=1))),
    "a Function of two inputs": (
        with_backward(lambda x, y: (x @ y).tanh(), product_backward),
        (normal(3, 40), normal(40, 5, seed=1)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ONE_CALL)
def test_many_points_in_one_call_take_few_forwards_and_hide_no_error(name: str) -> None:
    function, inputs = ONE_CALL[name]
    together, apart = gradcheck(function, *inputs), gradcheck(one_by_one(function), *inputs)
    assert together.verdict is apart.verdict is Verdict.PASS
    assert together.evaluations.forward <= apart.evaluations.forward / 3
    off = with_backward(
        torch.clone, lambda grad, _: grad * (1 + 1e-6 * (torch.arange(grad.numel()) == 7).view_as(grad))
    )
    wrong = gradcheck(lambda x, *others: function(off(x), *others), *inputs)
    assert wrong.verdict is Verdict.FAIL
    assert wrong_places(wrong) == {("x", index_of(7, inputs[0]))}


ONE_BY_ONE: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "depends on the place in the batch": (mixing_at_seven, torch.zeros(9, 3, dtype=torch.float64).requires_grad_()),
    "normalised over the batch": (lambda x: Rows.apply(x.mT).mT, normal(8, 4)),
}


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_functions_that_mix_the_batch_are_evaluated_one_by_one(name: str) -> None:
    function, x = ONE_BY_ONE[name]
    mixing = one_by_one(function)
    assert gradcheck(mixing, x).verdict is Verdict.PASS
    wrong = with_backward(torch.clone, lambda grad, _: 1.001 * grad)
    assert gradcheck(lambda x: mixing(wrong(x)), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("count", range(4, 12))
def test_a_function_that_reverses_the_batch_is_judged_right(count: int) -> None:
    """The reverse of stacked points is the stack of the reversed points in reverse order."""
    right = with_backward(lambda x: x.flip(0), lambda grad, x: grad.flip(0))
    wrong = with_backward(lambda x: x.flip(0), lambda grad, x: grad)
    assert gradcheck(right, normal(count)).verdict is Verdict.PASS
    assert gradcheck(wrong, normal(count)).verdict is Verdict.FAIL


def test_a_vectorised_backward_is_compared_with_single_vjps() -> None:
    class Hasty(torch.autograd.Function):
        generate_vmap_rule = False

        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:
            return functional.linear(x, w)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            if torch._C._functorch.is_batchedtensor(grad):
                return torch.zeros_like(x), torch.zeros_like(w)
            return grad @ w, grad.mT @ x

    assert gradcheck(Hasty.apply, normal(5, 4), normal(6, 4, seed=1)).verdict is Verdict.PASS


def test_the_first_vjp_checks_the_vectorised_backward() -> None:
    result = gradcheck(torch.matmul, normal(8, 6), normal(6, 7, seed=1))
    assert result.verdict is Verdict.PASS
    assert result.evaluations.backward == 3  # the first vjp, all rows in one call, and one single vjp for comparison


def test_a_backward_that_overwrites_its_saved_tensors_gets_a_new_graph_for_each_vjp() -> None:
    class Once(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:
            return functional.linear(x, w)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.saved = [each.clone() for each in inputs]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved
            found = grad @ w, grad.mT @ x
            x.mul_(2)
            return found

    assert gradcheck(Once.apply, normal(5, 8), normal(6, 8, seed=1)).verdict is Verdict.PASS


def test_rows_that_interact_are_stacked_only_for_one_test_of_two_copies() -> None:
    batch_sizes = []

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            batch_sizes.append(len(x))
            ctx.save_for_backward(x)
            return (x @ x.mT).square() @ x

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            inner = 2 * (grad @ x.mT) * (x @ x.mT)
            return (x @ x.mT).square() @ grad + (inner + inner.mT) @ x

    assert gradcheck(Attention.apply, normal(12, 3)).verdict is Verdict.PASS
    assert max(batch_sizes) == 2 * 12  # two copies of 12 rows


def test_a_function_with_a_lengths_tensor_is_called_with_no_other_batch_size() -> None:
    batch_sizes = []

    class Segments(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, lengths: Tensor) -> Tensor:
            batch_sizes.append(len(x))
            return torch.cat([part.cumsum(0) for part in x.split(lengths.tolist())])

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            parts = grad.split([3, 5])
            return torch.cat([part.flip(0).cumsum(0).flip(0) for part in parts]), None

    assert gradcheck(Segments.apply, normal(8), torch.tensor([3, 5])).verdict is Verdict.PASS
    assert set(batch_sizes) == {8}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(12,), (4, 4), (8, 8), (6, 3)])
def test_a_maximum_over_the_batch_is_not_stacked(shape: tuple[int, ...]) -> None:
    scaled = with_backward(lambda x: x / x.abs().max(), lambda grad, x: grad / x.abs().max())
    for seed in range(12):
        assert gradcheck(scaled, normal(*shape, seed=seed)).verdict is Verdict.FAIL


def square_rounded_by_length(x: Tensor, by: float = 2.0**-52) -> Tensor:
    """Return x², rounded differently for more than three entries, as by a vectorised kernel."""
    y = x * x
    return y * (1.0 + by) if len(y) > 3 else y


def test_outputs_that_differ_by_rounding_are_stacked_and_others_are_not() -> None:
    """How exactly the outputs of stacked points are known is part of the error bars."""
    equal, rounded, different = (
        gradcheck(lambda x, by=by: square_rounded_by_length(x, by), normal(3)) for by in (0.0, 2.0**-52, 1e-9)
    )
    assert equal.verdict is rounded.verdict is different.verdict is Verdict.PASS
    assert max(equal.evaluations.forward, rounded.evaluations.forward) < different.evaluations.forward
    assert equal.detection_limit is not None and rounded.detection_limit is not None
    assert equal.detection_limit < rounded.detection_limit < 1e-6


def test_a_small_sigmoid_takes_at_most_five_forwards_and_its_error_is_found() -> None:
    x = normal(2, 3)
    right = gradcheck(with_backward(torch.sigmoid, lambda grad, x: grad * x.sigmoid() * (1 - x.sigmoid())), x)
    assert right.verdict is Verdict.PASS
    assert right.evaluations.forward <= 5
    off = torch.ones(2, 3, dtype=torch.float64)
    off[1, 2] += 1e-6
    wrong = gradcheck(with_backward(torch.sigmoid, lambda grad, x: off * grad * x.sigmoid() * (1 - x.sigmoid())), x)
    assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


def test_copies_with_equal_outputs_are_not_trusted() -> None:
    generator = torch.Generator().manual_seed(0)
    saturated = (1e4 * torch.randn(16, generator=generator, dtype=torch.float64)).requires_grad_()
    assert gradgradcheck(lambda x: x.softmax(0), saturated).verdict is Verdict.PASS


def without_rows_beyond(capacity: int, *, right: bool) -> Callable[..., Any]:
    """Return x W with the rows from `capacity` on set to zero, as of a layer of experts; its gradient, or zeros."""
    weights = normal(4, 4, seed=3).detach()

    def forward(x: Tensor) -> Tensor:
        y = x @ weights
        y[capacity:] = 0
        return y

    return with_backward(forward, lambda grad, x: grad @ weights.mT if right else torch.zeros_like(x))


@pytest.mark.parametrize("capacity", [16, 64, 96, 192, 384])
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_a_forward_that_drops_rows_beyond_a_number_that_only_stacks_have(rows: int, capacity: int) -> None:
    padding = torch.zeros(rows, 4, dtype=torch.float64, requires_grad=True)
    for x in (padding, normal(rows, 4)):
        assert gradcheck(without_rows_beyond(capacity, right=True), x).verdict is Verdict.PASS
        assert gradcheck(without_rows_beyond(capacity, right=False), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("kept", [1, 2, 3, 5, 8, 12])
def test_an_elementwise_forward_that_keeps_the_last_rows_only(kept: int) -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        result = 2 * x + y
        if len(x) > 40 * kept:
            result[: -40 * kept] = 0
        return result

    zeros = [torch.zeros(40, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert gradcheck(with_backward(forward, lambda grad, x, y: (2 * grad, grad)), *zeros).verdict is Verdict.PASS
    assert gradcheck(with_backward(forward, lambda grad, x, y: (0 * x, 0 * y)), *zeros).verdict is Verdict.FAIL


@pytest.mark.parametrize("limit", [10.5, 12.0, 13.5])
@pytest.mark.parametrize("slope", [1.0, 0.1, 0.09])
def test_a_norm_that_only_stacks_exceed_does_not_move_slopes_at_a_kink(slope: float, limit: float) -> None:
    x = normal(2, 4)
    x = torch.cat([torch.zeros_like(x[:1]), x[1:]]).detach().requires_grad_()
    most, weights = limit * float(x.detach().norm()), normal(4, 4, seed=9).detach()

    def forward(x: Tensor) -> Tensor:
        y = (x * (most / x.norm()).clamp(max=1.0)) @ weights
        return torch.where(y >= 0, y, 0.1 * y)

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        y = x @ weights
        slopes = torch.where(y > 0, 1.0, 0.1).to(y)
        return (grad * torch.where(y == 0, slope, slopes)) @ weights.mT

    found = gradcheck(with_backward(forward, backward), x)
    assert found.verdict is (Verdict.FAIL if slope < 0.1 else Verdict.PASS)


def ratio_of_medians(x: Tensor) -> Tensor:
    """Return the median over the batch of the ratios to the geometric mean of a row, one per column; as DESeq2 does."""
    return (x / x.log().mean(1, keepdim=True).exp()).median(0).values


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (5, 3), (7, 4), (9, 3)])
def test_a_statistic_of_the_batch_that_no_common_factor_changes_is_differentiated(shape: tuple[int, int]) -> None:
    for seed in range(3):
        x = (normal(*shape, seed=seed).detach().abs() + 0.5).requires_grad_()
        assert gradcheck(lambda x: x / ratio_of_medians(x), x).verdict is Verdict.PASS
        forgotten = with_backward(lambda x: x / ratio_of_medians(x), lambda grad, x: grad / ratio_of_medians(x))
        assert gradcheck(forgotten, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (3, 4)])
def test_a_branch_of_the_whole_batch_at_a_zero_is_not_accused(shape: tuple[int, int]) -> None:
    def branching(x: Tensor) -> Tensor:
        return x * x if bool((x >= 0).all()) else 0.5 * x * x + x

    x = normal(*shape).detach().abs()
    x[0, 0] = 0
    found = gradcheck(with_backward(branching, lambda grad, x: 2 * grad * x), x.requires_grad_())
    assert found.verdict is Verdict.INCONCLUSIVE  # the other outputs jump


@pytest.mark.parametrize("block", [16, 32, 64, 100, 128])
def test_a_last_block_of_rows_that_is_treated_otherwise(block: int) -> None:
    def in_blocks(x: Tensor) -> Tensor:
        parts = x.split(block)
        return torch.cat([part.sin() * (1.0 if len(part) == block or len(parts) == 1 else 1.001) for part in parts])

    assert gradcheck(with_backward(in_blocks, lambda grad, x: grad * x.cos()), normal(5, 3)).verdict is Verdict.PASS
    assert gradcheck(with_backward(in_blocks, lambda grad, x: grad * x.sin()), normal(5, 3)).verdict is Verdict.FAIL


@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("read", [lambda grad: grad.data.clone(), lambda grad: (grad + 0).data * 1.0])
def test_a_backward_that_reads_the_data_of_its_cotangent_is_called_for_each(
    read: Callable[[Tensor], Tensor], factor: float
) -> None:
    """Of a batched cotangent `.data` ends the process."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        data = read(grad)
        return factor * (data + data.T) @ x

    result = gradcheck(with_backward(lambda x: x @ x.T, backward), normal(4, 4, seed=1))
    assert (result.verdict is Verdict.PASS) is (factor == 1.0)


def test_a_backward_that_reads_the_data_of_a_saved_tensor_is_called_for_all_at_once() -> None:
    result = gradcheck(with_backward(lambda x: x @ x.T, lambda grad, x: (grad + grad.T) @ x.data), normal(4, 4, seed=1))
    assert result.verdict is Verdict.PASS
    assert result.evaluations.backward < 16  # outputs
