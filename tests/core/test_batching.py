"""Many points in one call give the same outputs as single calls, or are evaluated one by one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.core.estimate.stencil import initial_samples
from gradverify.core.forward.batching import evaluate
from gradverify.core.forward.length_scales import scales
from gradverify.core.forward.sampler import Sampler, outputs_at, sampler
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import gradcheck, gradgradcheck, problem_of, with_backward

COUNT = 20


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def sampled_of(function: Callable[..., Any], *inputs: Tensor) -> Sampler:
    problem = problem_of(function, *inputs)
    return sampler(problem, record(problem))


def points_of(sampled: Sampler) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return sampled.point + 0.01 * torch.randn(COUNT, len(sampled.point), generator=generator, dtype=torch.float64)


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
            y = x * 2 if float(x[0, 0]) > -torch.inf else x  # data-dependent branch, which vmap rejects
            y[7] += x[3]
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            result = 2 * grad
            result[3] += grad[7]
            return result

    return Mixing.apply(x)  # type: ignore[no-any-return]


ONE_CALL = {
    "plain torch": (lambda x: x.sin().cumsum(-1), (drawn(8, 4),)),
    "a function of a batch": (Rows.apply, (drawn(8, 4),)),
    "complex": (lambda x: torch.view_as_complex(x).exp(), (drawn(8, 2),)),
    "two outputs": (lambda x: (x.sin(), x.sum()), (drawn(8, 4),)),
    "two inputs": (lambda x, y: x @ y, (drawn(3, 4), drawn(4, 5, seed=1))),
    "a Function of two inputs": (
        with_backward(lambda x, y: (x @ y).tanh(), lambda g, x, y: (g @ y.mT, x.mT @ g)),
        (drawn(3, 4), drawn(4, 5, seed=1)),
    ),
}
ONE_BY_ONE = {
    "depends on the place in the batch": (mixing_at_seven, (torch.zeros(9, 3, dtype=torch.float64).requires_grad_(),)),
    "normalised over the batch": (
        lambda x: Rows.apply(x.mT).mT if float(x.detach()[0, 0]) > -torch.inf else x,
        (drawn(8, 4),),
    ),
}


@pytest.mark.parametrize("name", [*ONE_CALL, *ONE_BY_ONE])
def test_outputs_equal_those_of_single_calls(name: str) -> None:
    function, inputs = {**ONE_CALL, **ONE_BY_ONE}[name]
    sampled = sampled_of(function, *inputs)
    points = points_of(sampled)
    expected = torch.stack([outputs_at(sampled, point.clone()) for point in points])
    into = torch.empty_like(expected)
    evaluate(sampled, points, into)
    assert torch.equal(into, expected)


@pytest.mark.parametrize("name", ONE_CALL)
def test_vectorisable_functions_take_few_calls(name: str) -> None:
    function, inputs = ONE_CALL[name]
    sampled = sampled_of(function, *inputs)
    points = points_of(sampled)
    before = sampled.problem.meter.forward
    evaluate(sampled, points, torch.empty(COUNT, len(sampled.value), dtype=torch.float64))
    assert sampled.problem.meter.forward - before <= 6


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_functions_that_mix_the_batch_are_evaluated_one_by_one(name: str) -> None:
    function, inputs = ONE_BY_ONE[name]
    sampled = sampled_of(function, *inputs)
    points = points_of(sampled)
    evaluate(sampled, points, torch.empty(COUNT, len(sampled.value), dtype=torch.float64))
    assert sampled.vectorisation.ways == []
    assert gradcheck(function, *inputs).verdict is Verdict.PASS


@pytest.mark.parametrize("count", range(4, 12))
def test_a_function_that_reverses_the_batch_is_not_stacked(count: int) -> None:
    reverse = with_backward(lambda x: x.flip(0), lambda grad, x: grad.flip(0))
    sampled = sampled_of(reverse, drawn(5))
    points = points_of(sampled)[:count]
    into = torch.empty(count, 5, dtype=torch.float64)
    evaluate(sampled, points.clone(), into)
    assert torch.equal(into, points.flip(1))


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

    assert gradcheck(Hasty.apply, drawn(5, 4), drawn(6, 4, seed=1)).verdict is Verdict.PASS


def test_the_first_vjp_checks_the_vectorised_backward() -> None:
    result = gradcheck(torch.matmul, drawn(8, 6), drawn(6, 7, seed=1))
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

    assert gradcheck(Once.apply, drawn(5, 8), drawn(6, 8, seed=1)).verdict is Verdict.PASS


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

    assert gradcheck(Attention.apply, drawn(12, 3)).verdict is Verdict.PASS
    assert max(batch_sizes) == 24


def test_slow_functions_are_evaluated_one_by_one() -> None:
    def busy(x: Tensor) -> Tensor:
        end = time.thread_time() + 3e-3
        while time.thread_time() < end:
            pass
        return x.square()

    sampled = sampled_of(busy, drawn(4, 3))
    before = sampled.problem.meter.forward
    evaluate(sampled, points_of(sampled), torch.empty(COUNT, 12, dtype=torch.float64))
    assert sampled.problem.meter.forward - before == COUNT


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

    assert gradcheck(Segments.apply, drawn(8), torch.tensor([3, 5])).verdict is Verdict.PASS
    assert set(batch_sizes) == {8}


@pytest.mark.parametrize("shape", [(12,), (4, 4), (8, 8), (6, 3)])
def test_a_maximum_over_the_batch_is_not_stacked(shape: tuple[int, ...]) -> None:
    scaled = with_backward(lambda x: x / x.abs().max(), lambda grad, x: grad / x.abs().max())
    for seed in range(12):
        assert gradcheck(scaled, drawn(*shape, seed=seed)).verdict == "fail"


def square_rounded_by_length(x: Tensor, by: float = 2.0**-52) -> Tensor:
    """Return x², rounded differently for more than three entries, as by a vectorised kernel."""
    y = x * x
    return y * (1.0 + by) if len(y) > 3 else y


def test_outputs_that_differ_by_rounding_are_stacked_only_with_roughly() -> None:
    sampled = sampled_of(square_rounded_by_length, drawn(3))
    points = points_of(sampled)
    alone = torch.stack([outputs_at(sampled, point.clone()) for point in points])
    before = sampled.problem.meter.forward
    found = torch.empty_like(alone)
    evaluate(sampled, points.clone(), found, roughly=True)
    assert (
        sampled.problem.meter.forward - before == 5
    )  # two single test points, both stacked, many stacked, and the points
    assert not torch.equal(found, alone)
    assert torch.allclose(found, alone, rtol=1e-15)
    assert 1.0 < sampled.vectorisation.largest_difference <= 4.0
    evaluate(sampled, points.clone(), found)
    assert torch.equal(found, alone)


def test_the_difference_of_stacked_outputs_counts_as_noise() -> None:
    smooth, rough = sampled_of(lambda x: x * x, drawn(3)), sampled_of(square_rounded_by_length, drawn(3))
    levels = [initial_samples(sampled, scales(sampled), 0).noise.level for sampled in (smooth, rough)]
    assert bool((levels[1] >= rough.vectorisation.largest_difference / 2**53 * rough.value).all())
    assert bool((levels[1] < 100 * levels[0]).all())


@pytest.mark.parametrize("by", [1e-14, 1e-9])
def test_outputs_that_differ_by_more_than_rounding_are_not_stacked(by: float) -> None:
    sampled = sampled_of(lambda x: square_rounded_by_length(x, by), drawn(3))
    points = points_of(sampled)
    alone = torch.stack([outputs_at(sampled, point.clone()) for point in points])
    found = torch.empty_like(alone)
    evaluate(sampled, points.clone(), found, roughly=True)
    assert torch.equal(found, alone)
    assert sampled.vectorisation.largest_difference == 0.0


def test_a_small_sigmoid_takes_at_most_five_forwards_and_its_error_is_found() -> None:
    x = drawn(2, 3)
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
