"""What decides about a try: contract and second derivative where they matter, rules that no spec declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import gradverify
from gradverify.exploration.change import Change
from gradverify.exploration.propose import pairs
from gradverify.result import Exploration
from tests.exploration.hidden_mistakes import points, saving

pytestmark = pytest.mark.slow


def codes(found: Exploration) -> set[str]:
    return {finding.code for failure in found.failures for check in failure.checks for finding in check.findings}


def scaled(*, once: bool) -> type[torch.autograd.Function]:
    """Return x·a·b, with a gradient that is wrong for a = b = 2 only, which takes two changes."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, a: int, b: int) -> Tensor:
            ctx.factors = a, b
            return x * a * b

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            a, b = ctx.factors
            return grad * (5 if (a, b) == (2, 2) else a * b), None, None

    if once:
        Scaled.backward = staticmethod(once_differentiable(Scaled.backward))  # type: ignore[method-assign]
    return Scaled


def test_pairs_are_tried_where_backward_is_differentiable_once() -> None:
    for once in (False, True):
        found = gradverify.explore(scaled(once=once), (points(4), 1, 1))
        assert found.failures, once


def test_second_derivative_is_judged_at_a_stationary_point() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return grad * torch.where(x == 0, torch.zeros_like(x), -x.sin())  # its derivative at 0 is 0, not -1

    found = gradverify.explore(saving(lambda x: x.cos(), backward), (points(3),), budget=60)
    assert {check.check for failure in found.failures for check in failure.checks} == {"gradgradcheck"}


def test_second_derivative_is_not_judged_at_a_kink() -> None:
    found = gradverify.explore(lambda x: x.relu(), (points(3),), budget=60)
    assert found.failures == ()


class Padded(torch.autograd.Function):
    """Rows of x, but for those with the padding's label; backward writes into its cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, labels: Tensor, padding: int) -> Tensor:
        ctx.padded = labels == padding
        return torch.where(ctx.padded, 0.0, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.padded.any():
            grad[ctx.padded] = 0.0
        return grad.clone(), None, None


def test_cotangent_that_is_written_to_at_some_values_only_is_found() -> None:
    found = gradverify.explore(Padded, (points(4), torch.tensor([1, 2, 4, 3]), 0))
    assert codes(found) == {"GV306"}
    assert len(found.failures) == 1  # for one mistake, whatever change shows it
    assert gradverify.explore(Padded, (points(4), torch.tensor([1, 2, 4, 3]), 0), checks=("gradcheck",))


class MaybeInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, inplace: bool) -> Tensor:
        ctx.save_for_backward(x.detach().clone())
        return x.sin_().clone() if inplace else x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * ctx.saved_tensors[0].cos(), None


def test_contract_is_asked_where_a_flag_has_changed() -> None:
    found = gradverify.explore(MaybeInPlace, (points(3), False), budget=20)
    assert codes(found) == {"GV401"}
    assert found.failures[0].changes[0] == "inplace: true (was false)"


class SometimesInPlace(torch.autograd.Function):
    """The sine of x, or of 2 x in place: for five entries, which a line of its own says, or for a count of 3."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int) -> Tensor:
        ctx.factor = 2 if len(x) == 5 or count == 3 else 1
        ctx.save_for_backward(x * ctx.factor)
        SometimesInPlace.double_five(x)
        return (x.mul_(2) if count == 3 else x).sin()

    @staticmethod
    def double_five(x: Tensor) -> None:
        if len(x) == 5:
            x.mul_(2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * ctx.factor * ctx.saved_tensors[0].cos(), None


def test_contract_is_asked_where_a_line_runs_for_the_first_time() -> None:
    found = gradverify.explore(SometimesInPlace, (points(4), 2), fixed=["count"], budget=40)
    assert [failure.changes[0] for failure in found.failures] == ["x: shape [5] (was [4])"]
    assert codes(found) == {"GV401"}


def test_contract_is_asked_at_the_first_whole_numbers() -> None:
    found = gradverify.explore(SometimesInPlace, (points(4), 2), fixed=["x"], budget=40)
    assert [failure.changes[0] for failure in found.failures] == ["count: 3 (was 2)"]
    assert codes(found) == {"GV401"}


class KeepsValues(torch.autograd.Function):
    """Breaks the contract whatever `negative` is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, negative: bool) -> Tensor:
        ctx.x, ctx.negative = x, negative
        return -x.sin() if negative else x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad.mul_(-ctx.x.cos() if ctx.negative else ctx.x.cos()), None


class KeepsValuesOnce(KeepsValues):
    backward = staticmethod(once_differentiable(KeepsValues.backward))


@pytest.mark.parametrize("function", [KeepsValues, KeepsValuesOnce])
def test_what_the_contract_finds_as_written_is_no_discovery(function: type[torch.autograd.Function]) -> None:
    assert not gradverify.verify(function, (points(3), False), checks=["contract"])
    found = gradverify.explore(function, (points(3), False), checks=["gradcheck", "contract"], budget=120)
    assert (found.failures, found.message) == ((), "")
    assert found.tries > 40


class Optional(torch.autograd.Function):
    """Modifies its input where there is no weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x.detach().clone(), *(() if weight is None else (weight,)))
        return x.sin_().clone() if weight is None else x.sin() * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, *weight = ctx.saved_tensors
        return (grad * x.cos() * weight[0], grad * x.sin()) if weight else (grad * x.cos(), None)


def test_contract_is_asked_where_an_optional_tensor_is_left_out() -> None:
    assert codes(gradverify.explore(Optional, (points(3), points(3)), budget=20)) == {"GV401"}


@pytest.mark.parametrize("constant", [np.array([1.0, 2.0, 3.0]), torch.eye(3, dtype=torch.float64).to_sparse()])
def test_arguments_of_other_kinds_are_no_obstacle(constant: object) -> None:
    found = gradverify.explore(lambda x, other: x.sin(), (points(3), constant), budget=20)
    assert (found.tries, found.failures) == (20, ())


def test_choices_of_other_kinds_are_tried() -> None:
    pair = np.array([1.0, 2.0]), np.array([3.0, 2.0])
    wrong = saving(lambda x, c: x.sin() * float(c[0]), lambda grad, x, c: grad * x.cos())
    assert gradverify.explore(wrong, (points(3), pair[0]), choices={"c": pair}, budget=30).failures


def test_second_derivative_that_does_not_exist_is_told() -> None:
    found = gradverify.explore(scaled(once=True), (points(3), 1, 1), checks=["gradgradcheck"])
    assert (found.tries, found.message) == (0, "the second derivative does not exist at the inputs as written")


def test_second_derivative_is_not_judged_where_it_is_infinite() -> None:
    assert gradverify.explore(lambda x: x.abs() ** 1.5, (points(4),), budget=100).failures == ()


def test_flag_that_was_none_is_tried() -> None:
    def forward(x: Tensor, corners: bool | None) -> Tensor:
        if not isinstance(corners, bool | None):
            raise TypeError("a flag")
        return 2 * x.sin() if corners else x.sin()

    wrong = saving(forward, lambda grad, x, corners: grad * x.cos())
    assert gradverify.explore(wrong, (points(3), None), budget=40).failures[0].changes[0] == "corners: true (was none)"


def test_texts_that_are_wrong_in_different_ways_are_two_mistakes() -> None:
    factors = {"mean": 1.0, "sum": 2.0, "none": 3.0}
    wrong = saving(
        lambda x, mode: x.sin() * factors[mode],
        lambda grad, x, mode: grad * {"mean": x.cos(), "sum": x.exp(), "none": x.tanh()}[mode],
    )
    found = gradverify.explore(wrong, (points(5), "mean"), budget=40)
    assert {failure.changes[0] for failure in found.failures} == {"mode: sum (was mean)", "mode: none (was mean)"}


def weighted(x: Tensor, weight: Tensor | None) -> Tensor:
    return x.sin() if weight is None else x.sin() * weight


def test_tensor_in_place_of_none_may_be_a_constant() -> None:
    right = saving(weighted, lambda grad, x, weight: grad * x.cos() * (1.0 if weight is None else weight))
    found = gradverify.explore(right, (points(3), None), budget=100)
    assert found.failures == ()
    assert "backward returns no gradient for weight" in found.questions[0].message
    wrong = saving(weighted, lambda grad, x, weight: grad * x.cos())
    found = gradverify.explore(wrong, (points(3), None), budget=100)
    assert "GV101" in codes(found)
    assert any("requires_grad: false" in failure.inputs for failure in found.failures)


def row_losses(x: Tensor, target: Tensor) -> Tensor:
    """Return a loss of rows that takes a single target without meaning to: some of its terms repeat it."""
    return x.logsumexp(-1) - x[torch.arange(len(target)), target]


def gathered(x: Tensor, target: Tensor) -> Tensor:
    """Return a loss that takes fewer targets than rows without meaning to."""
    return -x.log_softmax(-1).gather(1, target[:, None]).squeeze(1)


def of_rows(grad: Tensor, x: Tensor, target: Tensor) -> Tensor:
    found = x.softmax(-1)
    found[torch.arange(len(target)), target] -= 1
    return found * grad.unsqueeze(-1)


@pytest.mark.parametrize("forward", [row_losses, gathered])
def test_size_of_one_that_forward_does_not_broadcast_is_no_try(forward: Any) -> None:
    x = points(4, 5).detach().pow(3).requires_grad_()  # rows of equal distances have equal softmaxes
    assert gradverify.explore(saving(forward, of_rows), (x, torch.tensor([0, 1, 2, 3]))).failures == ()


def test_size_of_one_beside_one_that_is_equal_by_chance_is_tried() -> None:
    def backward(grad: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        factor = 3.0 if len(x) == 1 < len(y) else 2.0
        return factor * x * (grad * y).sum(), grad * (x * x).sum()

    wrong = saving(lambda x, y: (x * x).sum() * y, backward)
    assert codes(gradverify.explore(wrong, (points(4), points(4)), budget=60)) == {"GV101"}


def test_size_of_one_that_forward_broadcasts_is_tried() -> None:
    wrong = saving(lambda x, y: x * y, lambda grad, x, y: (grad * y, grad * x))

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
            x, y = ctx.saved_tensors
            return grad * y, (grad * x)[: len(y)]  # one gradient of several, where y is repeated

    assert gradverify.explore(wrong, (points(3), points(3)), budget=40).failures == ()  # autograd sums its gradient
    found = gradverify.explore(Product, (points(3), points(3)), budget=40)
    assert codes(found) == {"GV101"}


class Shifted(torch.autograd.Function):
    """Adds a row to a matrix; autograd sums the gradient of the row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, row: Tensor, negative: bool) -> Tensor:
        ctx.sign = -1.0 if negative else 1.0
        return x + row * ctx.sign

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad, grad * ctx.sign, None


def test_gradient_that_autograd_sums_is_no_discovery() -> None:
    assert gradverify.explore(Shifted, (points(3, 4), points(3, 4), False), budget=200).failures == ()


def standardised(variance: Callable[[Tensor], Tensor]) -> type[torch.autograd.Function]:
    """Return (x - mean) / deviation of each row, whose backward computes the variance anew."""

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        scale = (variance(x) + 1e-5).rsqrt()
        output = (x - x.mean(-1, keepdim=True)) * scale
        along = output * (grad * output).mean(-1, keepdim=True)
        return (grad - grad.mean(-1, keepdim=True) - along) * scale

    return saving(forward, backward)


def variance_from_squares(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()


def variance_of_centred(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)


def test_gradient_that_seems_wrong_where_the_check_is_inconclusive_is_a_question() -> None:
    x = torch.linspace(-1, 2, 24).reshape(4, 6).sin().requires_grad_()
    for variance, questions, budget in ((variance_from_squares, True, 40), (variance_of_centred, False, 400)):
        found = gradverify.explore(standardised(variance), (x,), budget=budget)
        assert not found.failures
        messages = [question.message for question in found.questions]
        assert any("may be wrong, but gradcheck cannot tell" in text for text in messages) is questions, messages


def test_contract_is_asked_where_a_flag_needs_other_sizes() -> None:
    class Squares(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, inplace: bool) -> Tensor:
            if inplace and x.shape[0] != x.shape[1]:
                raise ValueError("square matrices only")
            return x.mul_(2) if inplace else x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
            return grad * 2, None

    found = gradverify.explore(Squares, (points(3, 4), False), checks=("gradcheck", "contract"))
    assert "GV401" in codes(found)


def coarse(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of `x.sin()`, 2 % too large in float16 for five numbers: gradcheck allows it."""
    return grad * x.cos() * (1.02 if x.dtype is torch.float16 and len(x) == 5 else 1.0)


def test_precision_is_asked_at_every_try_where_it_is_named() -> None:
    x = points(3).detach().half().requires_grad_()
    function = saving(lambda x: x.sin(), coarse)
    found = gradverify.explore(function, (x,), checks=("gradcheck", "precision"), budget=80)
    assert [[check.check for check in each.checks] for each in found.failures] == [["precision"]]
    assert found.failures[0].changes[0] == "x: shape [5] (was [3])"
    assert gradverify.explore(function, (x,), checks=("gradcheck",), budget=80).failures == ()


def scaling(*, wide: bool) -> type[torch.autograd.Function]:
    """Return x·w by columns, whose gradient by w is a sum over rows in float32, or rounded to the dtype at each row."""

    class Scaling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            total = w.new_zeros(w.shape, dtype=torch.promote_types(w.dtype, torch.float32) if wide else w.dtype)
            for row in (grad * x).to(total.dtype).reshape(-1, *w.shape):
                total = total + row
            return grad * w, total.to(w.dtype)

    return Scaling


@pytest.mark.parametrize("wide", [False, True], ids=["in the dtype", "in float32"])
def test_long_sums_that_are_rounded_at_each_term_are_found(wide: bool) -> None:
    x, w = points(6, 2), points(2)
    found = gradverify.explore(scaling(wide=wide), (x, w), budget=120)
    assert not found.failures
    assert bool(found.extremes) is not wide
    half = gradverify.explore(scaling(wide=wide), [each.detach().bfloat16().requires_grad_() for each in (x, w)])
    assert ("GV602" in codes(half)) is bool(half.failures) is not wide


def test_long_sums_are_asked_precision_alone_in_pairs_too() -> None:
    argument = Change(kind="arguments", phrase="k: 2", apply=lambda case: case, asks=("contract",))
    size = Change(kind="sizes", phrase="n: 5", apply=lambda case: case)
    long = Change(kind="dtype", phrase="n: 513", apply=lambda case: case, asks=("precision",))
    assert [pairs(argument, second).asks for second in (size, long, argument)] == [("contract",), ("precision",), ()]
