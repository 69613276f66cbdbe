"""Hand-written Functions as plain code, for as long as that is asked for."""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.core.model.decomposed import plainly
from tests.core.support import double


class Doubled(Function):
    """Twice its input, the gradient of which is claimed to be three times the cotangent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * g


class Nested(Function):
    """Calls another one on its way, set up apart, with an output that has no gradient."""

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


ASIDE = Doubled.apply


def late(x: Tensor) -> Tensor:
    """Look `apply` up when it is called."""
    return Doubled.apply(x)


reached = pytest.mark.skipif(
    inspect.isbuiltin(ASIDE), reason="Function.apply is in C in this torch: one that was put aside is out of reach"
)


def slope(function: Any) -> float:
    x = double([1.0])
    (found,) = torch.autograd.grad(function(x).sum(), x)
    return float(found)


def test_torch_differentiates_the_forward() -> None:
    assert slope(Doubled.apply) == 3.0
    with plainly():
        assert slope(Doubled.apply) == slope(lambda x: Doubled.apply(x)) == 2.0
        assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 14.0
        assert slope(lambda x: Nested.apply(x)[0]) == 2.0
        assert slope(lambda x: Nested.apply(x, factor=7.0)[0]) == 14.0
    assert slope(Doubled.apply) == 3.0
    assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 5.0


@reached
def test_an_apply_that_was_put_aside_is_reached_too() -> None:
    with plainly():
        assert slope(ASIDE) == 2.0
    assert slope(ASIDE) == 3.0


def test_vmap_runs_it_for_many_points() -> None:
    points = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    with plainly():
        found = torch.vmap(lambda x: Doubled.apply(x))(points)
    assert torch.equal(found, 2 * points)
    with pytest.raises(RuntimeError, match="setup_context"):
        torch.vmap(lambda x: Doubled.apply(x))(points)


def test_others_are_themselves() -> None:
    with plainly({Nested}.__contains__):
        assert slope(Doubled.apply) == slope(ASIDE) == 3.0
        assert slope(lambda x: Nested.apply(x, 7.0)[0]) == 21.0  # of the one inside, which is not chosen
        with plainly():
            assert slope(Doubled.apply) == 2.0
        assert slope(Doubled.apply) == 3.0


def test_and_so_they_are_in_other_threads_and_after_an_exception() -> None:
    with plainly(), ThreadPoolExecutor(1) as pool:
        assert pool.submit(slope, Doubled.apply).result() == 3.0
        assert pool.submit(slope, lambda x: Doubled.apply(x)).result() == 3.0
    with pytest.raises(ZeroDivisionError), plainly():
        raise ZeroDivisionError
    assert slope(Doubled.apply) == slope(ASIDE) == 3.0


def test_two_threads_may_ask_at_once_and_leave_in_any_order() -> None:
    before = dict(vars(Function))["apply"]
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        one, other = plainly(), plainly({Doubled}.__contains__)
        first.submit(one.__enter__).result()
        second.submit(other.__enter__).result()
        assert first.submit(slope, late).result() == second.submit(slope, late).result() == 2.0
        assert slope(late) == 3.0
        first.submit(one.__exit__, None, None, None).result()
        assert first.submit(slope, late).result() == 3.0
        assert second.submit(slope, late).result() == 2.0
        second.submit(other.__exit__, None, None, None).result()
    assert vars(Function)["apply"] is before
    assert "apply" not in vars(Function.__mro__[1])


def test_what_forward_is_told_is_what_it_is_told_otherwise() -> None:
    heard: list[Any] = []

    class Listening(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor, n: int) -> Tensor:
            heard.append(ctx.needs_input_grad)
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            ctx.n = n
            assert ctx.saved_tensors is not None
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return None, None, None

    def ask() -> None:
        Listening.apply(double([1.0]), torch.ones(1), 3)
        with torch.no_grad():
            Listening.apply(double([1.0]), torch.ones(1), 3)

    ask()
    with plainly():
        ask()
    assert heard[:2] == heard[2:]
