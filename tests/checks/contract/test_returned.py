"""GV309–GV312: shape, dtype, device and number of returned gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.result import Verdict
from tests.checks.contract.support import X, Y, contract, failing, product, remarked, sine
from tests.core.support import double, with_backward

ONE = double([0.7])


def test_shape_that_autograd_sums_fails() -> None:
    missing_sum = product(lambda ctx, x, y, g: (g * y, g * x))
    result = contract(missing_sum, X, ONE)
    assert failing(result) == {"GV309"}
    assert "argument 1: returns a gradient of shape [5] for an input of shape [1]" in result.message
    assert contract(product(lambda ctx, x, y, g: (g * y, (g * x).sum(0, keepdim=True))), X, ONE).findings == ()


def test_narrower_dtype_fails_and_wider_dtype_is_remarked() -> None:
    narrow = contract(sine(lambda ctx, x, g: (g * x.cos()).float()), X)
    assert failing(narrow) == {"GV310"}
    wide = contract(sine(lambda ctx, x, g: g.double() * x.double().cos()), X.detach().float().requires_grad_())
    assert wide.verdict is Verdict.PASS
    assert remarked(wide) == {"GV310"}


def test_dtype_of_the_cotangent_loses_no_digit() -> None:
    """The output of a cast to float32 has a cotangent in float32."""
    narrow = contract(with_backward(lambda x: x.float(), lambda g, x: g.clone()), X)
    assert narrow.verdict is Verdict.PASS
    assert remarked(narrow) == {"GV310"}


def test_gradient_on_another_device_fails() -> None:
    result = contract(sine(lambda ctx, x, g: torch.empty(x.shape, dtype=x.dtype, device="meta")), X)
    assert failing(result) == {"GV311"}
    assert "on meta for an input on cpu" in result.message


def test_shape_that_autograd_rejects_fails() -> None:
    result = contract(sine(lambda ctx, x, g: g[:2]), X)
    assert failing(result) == {"GV312"}
    assert "returns a gradient of shape [2] for an input of shape [5], and autograd rejects it" in result.message


def test_number_of_gradients_that_autograd_rejects_fails() -> None:
    result = contract(product(lambda ctx, x, y, g: g * y), X, Y)
    assert failing(result) == {"GV312"}
    assert "returns 1 gradient, forward takes 2 arguments, and autograd rejects it" in result.message
    result = contract(sine(lambda ctx, x, g: (g, g)), X)
    assert "returns 2 gradients, forward takes 1 argument, and autograd rejects it" in result.message


def test_gradient_for_non_tensor_argument_fails() -> None:
    class Scaled(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
            return factor * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            return 2 * g, g

    result = contract(lambda x: Scaled.apply(x, 2.0), X)
    assert failing(result) == {"GV312"}
    assert "argument 1: returns a gradient for what is no tensor, and autograd rejects it" in result.message
    first = contract(lambda x: Scaled.apply(x, 2.0), X, check="gradcheck")
    assert failing(first) == {"GV312"}


def test_complex_gradient_for_real_input_fails() -> None:
    result = contract(sine(lambda ctx, x, g: (g * x.cos()).to(torch.complex128)), X)
    assert failing(result) == {"GV310"}
    assert "returns complex128 for an input of float64, and autograd rejects it" in result.message


def test_gradient_that_is_no_tensor_fails() -> None:
    result = contract(sine(lambda ctx, x, g: 1.0), X)
    assert failing(result) == {"GV312"}
    assert "returns a value of type float, which is no tensor, and autograd rejects it" in result.message
    assert failing(contract(sine(lambda ctx, x, g: 1.0), X, check="gradcheck")) == {"GV312"}
    assert contract(sine(lambda ctx, x, g: 1.0), X, check="gradgradcheck").verdict is Verdict.SKIP


def test_gradient_for_input_without_requires_grad_passes() -> None:
    both = product(lambda ctx, x, y, g: (g * y, g * x))
    assert contract(both, X, Y.detach()).findings == ()


def test_inner_function_of_composite_is_checked() -> None:
    wrong = product(lambda ctx, x, y, g: (g * y, g * x))
    right = sine(lambda ctx, x, g: g * x.cos())
    result = contract(lambda x, y: (right(wrong(right(x), y)) * 2).sum(), X, ONE)
    assert failing(result) == {"GV309"}


def test_function_with_setup_context_is_checked() -> None:
    class Modern(Function):
        @staticmethod
        def forward(x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

    assert contract(Modern.apply, X, Y).findings == ()
    assert failing(contract(Modern.apply, X, ONE)) == {"GV309"}
