"""GV408: state kept between calls on the class, in a cache or in a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from tests.checks.contract.support import X, contract, failing, sine
from tests.core.support import double


def remembering(keep: Callable[[Tensor], None], slope: Callable[[], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return sin whose forward calls keep(x) and whose backward multiplies by slope()."""

    class Remembering(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            keep(x.detach().clone())
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * slope()

    return Remembering.apply


def test_value_kept_from_last_call_fails() -> None:
    kept: dict[str, Tensor] = {}
    result = contract(remembering(lambda x: kept.update(x=x), lambda: kept["x"].cos()), X)
    assert failing(result) == {"GV408"}
    assert "after another call in between" in result.message


def test_value_on_shared_stack_fails() -> None:
    stack: list[Tensor] = []
    assert "GV408" in failing(contract(remembering(stack.append, lambda: stack.pop().cos()), X))


def test_value_kept_from_first_call_fails() -> None:
    kept: dict[str, Tensor] = {}

    def keep(x: Tensor) -> None:
        kept.setdefault("x", x)

    result = contract(remembering(keep, lambda: kept["x"].cos()), X)
    assert failing(result) == {"GV408"}
    assert "answers at another point what it answered at the first" in result.message


@pytest.mark.parametrize("forward", [lambda x: 3 * x, torch.round, lambda x: 3 * x + x.floor()])
def test_constant_slope_is_not_stale(forward: Callable[[Tensor], Tensor]) -> None:
    class Straight(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return 3 * g

    assert contract(Straight.apply, X).findings == ()


@pytest.mark.parametrize("kept", ["tensor", "view", "array"])
def test_output_overwritten_by_next_call_fails(kept: str) -> None:
    array = np.empty(len(X))
    buffer = torch.from_numpy(array)

    class Buffered(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            if kept == "array":
                np.sin(x.detach().numpy(), out=array)
                return torch.from_numpy(array)
            buffer.copy_(x.detach().sin())
            return buffer[:] if kept == "view" else buffer.detach()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * ctx.saved_tensors[0].cos()

    result = contract(Buffered.apply, X)
    assert failing(result) == {"GV408"}
    assert "forward returns output in memory that it keeps" in result.message


def test_gradient_overwritten_by_next_call_fails() -> None:
    buffer = torch.empty_like(X)
    result = contract(sine(lambda ctx, x, g: buffer.copy_(g * x.cos()).detach()), X)
    assert failing(result) == {"GV408"}
    assert "backward returns the gradient by x in memory that it keeps" in result.message


def test_constant_output_shared_by_calls_passes() -> None:
    ones = torch.ones(3, dtype=torch.float64)

    class Constant(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
            return 2 * x, ones.detach()

        @staticmethod
        def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
            return 2 * g

    assert contract(Constant.apply, X).findings == ()


def on_the_class(value: Callable[..., Any]) -> type[Function]:
    """Return x times a scale and a mask, whose backward multiplies by `value(x, scale, mask)` of the latest forward.

    It divides by the value of its own forward, so that the gradient is right after one call.
    """

    class OnTheClass(Function):
        kept: Any

        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor, mask: Tensor) -> Tensor:
            ctx.save_for_backward(x, scale, mask)
            OnTheClass.kept = value(x, scale, mask)
            return x * scale * mask

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Any:
            x, scale, mask = ctx.saved_tensors
            return g * scale * mask * (OnTheClass.kept / value(x, scale, mask)), None, None

    return OnTheClass


@pytest.mark.parametrize(
    ("value", "fails"),
    [
        (lambda x, scale, mask: x.norm(), True),
        (lambda x, scale, mask: x.sum(), True),
        (lambda x, scale, mask: x.max(), True),
        (lambda x, scale, mask: scale[0], True),
        (lambda x, scale, mask: 1.0 + mask, True),
        (lambda x, scale, mask: x.new_tensor(len(x)), False),
    ],
)
def test_what_the_latest_forward_keeps_of_statistics_and_constants_fails(
    value: Callable[..., Any], fails: bool
) -> None:
    scale, mask = torch.tensor([2.0, 3.0, 4.0], dtype=torch.float64), torch.tensor([True, False, True])
    result = contract(on_the_class(value).apply, double([0.5, -1.0, 2.5]), scale, mask)
    assert failing(result) == ({"GV408"} if fails else set())


@pytest.mark.parametrize("by_shape", [True, False])
def test_a_cache_of_one_of_two_inputs_by_its_shape_fails(by_shape: bool) -> None:
    cache: dict[Any, Tensor] = {}

    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            ctx.key = w.shape if by_shape else tuple(w.tolist())
            return x * w

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return g * cache.setdefault(ctx.key, w.clone()), g * x

    result = contract(Product.apply, double([0.5, -1.0, 2.0]), double([0.3, 0.1, -0.4]))
    assert failing(result) == ({"GV408"} if by_shape else set())
    assert not by_shape or "what it answered at the first by x, where" in result.message
