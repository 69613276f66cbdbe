"""The forward of hand-written Functions run as plain code, inside a context manager."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.interception import plain_forwards
from tests.core.support import double


class Doubled(Function):
    """Twice its input, with a wrong gradient of three times the cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * g


class Nested(Function):
    """A Function with setup_context that calls Doubled, with one non-differentiable output."""

    @staticmethod
    def forward(x: Tensor, factor: float = 1.0) -> tuple[Tensor, Tensor]:
        return factor * Doubled.apply(x), x > 0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor, None]:
        return 5 * g, None


STORED = Doubled.apply


def double_late(x: Tensor) -> Tensor:
    """Look up `Doubled.apply` at each call."""
    return Doubled.apply(x)


replaceable = pytest.mark.skipif(
    inspect.isbuiltin(STORED), reason="Function.apply is in C in this torch: one that was put aside is out of reach"
)


def slope(function: Any) -> float:
    x = double([1.0])
    (found,) = torch.autograd.grad(function(x).sum(), x)
    return float(found)


def test_torch_differentiates_the_forward() -> None:
    assert slope(Doubled.apply) == 3.0
    with plain_forwards():
        assert slope(Doubled.apply) == slope(lambda x: Doubled.apply(x)) == 2.0
        assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 14.0
        assert slope(lambda x: Nested.apply(x)[0]) == 2.0
        assert slope(lambda x: Nested.apply(x, factor=7.0)[0]) == 14.0
    assert slope(Doubled.apply) == 3.0
    assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 5.0


@replaceable
def test_a_stored_apply_is_replaced_too() -> None:
    with plain_forwards():
        assert slope(STORED) == 2.0
    assert slope(STORED) == 3.0


def test_vmap_evaluates_plain_code_at_many_points() -> None:
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    with plain_forwards():
        found = torch.vmap(lambda x: Doubled.apply(x))(points)
    assert torch.equal(found, 2 * points)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.vmap(lambda x: Doubled.apply(x))(points)


def test_functions_that_are_not_chosen_keep_their_backward() -> None:
    with plain_forwards({Nested}.__contains__):
        assert slope(Doubled.apply) == slope(STORED) == 3.0
        assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 21.0  # 7 times the gradient of Doubled, which is not chosen
        with plain_forwards():
            assert slope(Doubled.apply) == 2.0
        assert slope(Doubled.apply) == 3.0


def test_functions_keep_their_backward_in_other_threads_and_after_an_exception() -> None:
    with plain_forwards(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(slope, Doubled.apply).result() == 3.0
        assert pool.submit(slope, lambda x: Doubled.apply(x)).result() == 3.0
    with pytest.raises(ZeroDivisionError), plain_forwards():
        raise ZeroDivisionError
    assert slope(Doubled.apply) == slope(STORED) == 3.0


def test_two_threads_may_enter_at_once_and_leave_in_any_order() -> None:
    before = dict(vars(Function))["apply"]
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        one, other = plain_forwards(), plain_forwards({Doubled}.__contains__)
        first.submit(one.__enter__).result()
        second.submit(other.__enter__).result()
        assert first.submit(slope, double_late).result() == second.submit(slope, double_late).result() == 2.0
        assert slope(double_late) == 3.0
        first.submit(one.__exit__, None, None, None).result()
        assert first.submit(slope, double_late).result() == 3.0
        assert second.submit(slope, double_late).result() == 2.0
        second.submit(other.__exit__, None, None, None).result()
    assert vars(Function)["apply"] is before
    assert "apply" not in vars(Function.__mro__[1])


def test_ctx_of_plain_code_has_the_same_needs_input_grad() -> None:
    needs_input_grads: list[Any] = []

    class Recording(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor, n: int) -> Tensor:
            needs_input_grads.append(ctx.needs_input_grad)
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            ctx.n = n
            assert ctx.saved_tensors is not None
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return None, None, None

    def run() -> None:
        Recording.apply(double([1.0]), torch.ones(1), 3)
        with torch.no_grad():
            Recording.apply(double([1.0]), torch.ones(1), 3)

    run()
    with plain_forwards():
        run()
    assert needs_input_grads[:2] == needs_input_grads[2:]
