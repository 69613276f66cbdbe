"""Forwards that compute in low precision inside: their casts are left out where torch sees them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import ElementVerdict, Verdict
from tests.core.support import (
    ALONE,
    elements,
    gradcheck,
    gradgradcheck,
    normal,
    problem_of,
    with_backward,
    with_changed_gradient,
)


def within(dtype: torch.dtype, forward: Callable[..., Tensor], off: float = 1.0) -> Callable[..., Tensor]:
    """Return a Function that computes in `dtype`; one entry of its first gradient is multiplied by `off`."""

    class Within(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return forward(*(x.to(dtype) for x in inputs)).to(inputs[0].dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            inputs = [x.detach().to(dtype).requires_grad_() for x in ctx.saved_tensors]
            with torch.enable_grad():
                found = torch.autograd.grad(forward(*inputs), inputs, grad.to(dtype))
            own = [each.to(x.dtype) for each, x in zip(found, ctx.saved_tensors, strict=True)]
            own[0] = own[0].clone()
            own[0].view(-1)[-1] *= off
            return tuple(own) if len(own) > 1 else own[0]

    return Within.apply


def gelu(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def normalised(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def drawn_in_float32(*shape: int, seed: int) -> Tensor:
    """Return normal numbers in float64 that float32 holds exactly."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double().requires_grad_()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("function", [torch.sin, gelu, normalised, lambda x: x.softmax(-1), lambda x: (x * x).sum(0)])
def test_right_gradients_pass_and_one_wrong_factor_fails(function: Callable[[Tensor], Tensor], dtype: str) -> None:
    inside = getattr(torch, dtype)
    right = gradcheck(within(inside, function), normal(4, 6))
    assert (right.verdict, right.mismatched) == (Verdict.PASS, 0)
    assert right.detection_limit is not None
    assert right.detection_limit < 1e-5
    wrong = gradcheck(within(inside, function, 1.00001), normal(4, 6))
    assert (wrong.verdict, wrong.undetermined) == (Verdict.FAIL, 0)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1, dtype=torch.float32),
        lambda x: x.sum(0, dtype=torch.float32).double(),
        lambda x: x.cumsum(0, dtype=torch.float32),
        lambda x: x.new_zeros(6, dtype=torch.float32).index_add(0, torch.arange(4), x[0, :4].float()).double().sin(),
        lambda x: torch.view_as_real(x.to(torch.complex64).sin()),
    ],
)
def test_casts_by_an_argument_are_left_out(function: Callable[[Tensor], Tensor]) -> None:
    right, wrong = (
        gradcheck(with_changed_gradient(function, lambda g, by=by: by * g), normal(4, 6)) for by in (1, 1.001)
    )
    assert (right.verdict, wrong.verdict, wrong.undetermined) == (Verdict.PASS, Verdict.FAIL, 0)
    assert "without its casts to lower precision" in right.message


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_casts_that_torch_does_not_see_leave_a_wrong_sign_to_be_found(dtype: str) -> None:
    def forward(x: Tensor) -> Tensor:
        return x.new_tensor(np.sin(x.detach().numpy().astype(dtype)))

    right, wrong = (with_backward(forward, lambda grad, x, by=by: by * grad * x.cos()) for by in (1.0, -1.0))
    assert gradcheck(right, normal(4, 6)).mismatched == 0
    assert gradcheck(wrong, normal(4, 6)).verdict is Verdict.FAIL


def test_a_backward_in_float64_is_held_to_its_own_digits() -> None:
    """If leaving out the casts changes nothing in backward, they explain no error of it."""
    masked = lambda x: torch.where(x.half() > 0, 2 * x, 0.5 * x.sin())  # noqa: E731
    assert gradcheck(masked, normal(4, 6)).verdict is Verdict.PASS
    assert gradcheck(with_changed_gradient(masked, lambda grad: grad * (1 + 1e-6)), normal(4, 6)).mismatched == 24


def buffered(g: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of a sigmoid, stored in a tensor of float32."""
    y = x.float().sigmoid()
    return torch.empty(y.shape).copy_(g * y * (1 - y)).to(g.dtype)


def added_up(g: Tensor, x: Tensor) -> Tensor:
    y = x.float().sigmoid()
    return torch.zeros(y.shape).index_add_(0, torch.arange(len(x)), g.float() * y * (1 - y)).to(g.dtype)


def by_numpy(g: Tensor, x: Tensor) -> Tensor:
    y = 1 / (1 + np.exp(-x.numpy().astype("float32")))
    return torch.from_numpy(g.numpy().astype("float32") * y * (1 - y)).to(g.dtype)


def asserted(g: Tensor, x: Tensor) -> Tensor:
    y = x.float().sigmoid()
    assert y.dtype is torch.float32
    return (g.float() * y * (1 - y)).to(g.dtype)


@pytest.mark.parametrize("backward", [buffered, added_up, by_numpy, asserted])
def test_casts_stay_if_backward_cannot_do_without_them(backward: Callable[[Tensor, Tensor], Tensor]) -> None:
    x = (6 * normal(40).detach()).requires_grad_()
    right, wrong = (
        gradcheck(with_backward(lambda x: x.float().sigmoid().to(x.dtype), lambda g, x, by=by: by * backward(g, x)), x)
        for by in (1.0, 1.01)
    )
    assert (right.mismatched, wrong.verdict) == (0, Verdict.FAIL)


def test_a_backward_in_float32_may_store_its_result_in_bfloat16() -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=torch.bfloat16).copy_(grad * x.bfloat16().cos()).to(grad.dtype)

    x = normal(40, dtype=torch.float32)
    right, wrong = (
        gradcheck(with_backward(lambda x: x.bfloat16().sin().to(x.dtype), lambda g, x, by=by: by * backward(g, x)), x)
        for by in (1.0, 1.3)
    )
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_a_result_that_is_saved_without_its_cast_is_used_in_the_second_derivative() -> None:
    class Tanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.float().tanh()
            ctx.save_for_backward(y)  # no output, but it is one in float64
            return y.to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return (grad.float() * (1 - y * y)).to(grad.dtype)

    assert (
        gradgradcheck(Tanh.apply, normal(5)).verdict is Verdict.FAIL
    )  # backward's own derivative treats y as constant


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_autocast_inside_may_round_to_bfloat16(dtype: torch.dtype) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor, by: float) -> Tensor:
            ctx.save_for_backward(x, w)
            ctx.by = by
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return (x.float() @ w.float()).to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            x, w = ctx.saved_tensors
            with torch.autocast("cpu", dtype=torch.bfloat16):
                dx, dw = grad.float() @ w.float().mT, x.float().mT @ grad.float()
            return ctx.by * dx.to(x.dtype), dw.to(x.dtype), None

    point = normal(8, 5, dtype=dtype), normal(5, 6, seed=1, dtype=dtype)
    right, wrong = (gradcheck(lambda x, w, by=by: Product.apply(x, w, by), *point) for by in (1.0, 1.2))
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_casts_in_backward_alone_are_left_out_too_and_excuse_no_coarser_dtype(dtype: torch.dtype) -> None:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        y = x.float().tanh()
        return (grad.float() * (1 - y * y)).to(grad.dtype)  # in float64, the cast would lose what saturates

    def coarser(grad: Tensor, x: Tensor) -> Tensor:
        return (grad.bfloat16() * x.bfloat16().exp()).to(grad.dtype)

    assert gradcheck(with_backward(torch.exp, coarser), normal(12, dtype=torch.float32)).verdict is Verdict.FAIL
    x = torch.linspace(3.0, 8.0, 12).to(dtype).requires_grad_()
    assert gradcheck(with_backward(torch.tanh, backward), x).verdict is Verdict.PASS
    assert gradcheck(with_backward(torch.tanh, lambda g, x: 1.5 * backward(g, x)), x).verdict is Verdict.FAIL


def test_a_cast_that_cancels_leaves_the_tolerance_as_it_is() -> None:
    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, by: float) -> Tensor:
            shifted = (x - x.amax(-1, keepdim=True).bfloat16().to(x.dtype)).exp()
            y = shifted / shifted.sum(-1, keepdim=True)
            ctx.save_for_backward(y)
            ctx.by = by
            return y

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            (y,) = ctx.saved_tensors
            return ctx.by * y * (grad - (grad * y).sum(-1, keepdim=True)), None

    right, wrong = (gradcheck(lambda x, by=by: Softmax.apply(x, by), normal(4, 6)) for by in (1.0, 1.0001))
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize(("dtype", "off"), [(torch.float64, 1e-4), (torch.float32, 0.01)])
def test_a_small_number_in_bfloat16_beside_an_output_hides_no_error_of_it(dtype: torch.dtype, off: float) -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor, by: float) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x, w)
            ctx.by = by
            return x @ w, x.bfloat16().square().mean()

        @staticmethod
        def backward(ctx: Any, grad: Tensor, of_mean: Tensor) -> Any:
            x, w = ctx.saved_tensors
            mean = (of_mean.bfloat16() * x.bfloat16() * (2 / x.numel())).to(x.dtype)
            return ctx.by * grad @ w.mT + mean, x.mT @ grad, None

    point = normal(4, 5, dtype=dtype), normal(5, 3, seed=1, dtype=dtype)
    for outputs in (slice(1), slice(2)):
        right, wrong = (
            gradcheck(lambda x, w, by=by: Product.apply(x, w, by)[outputs], *point)  # noqa: B023
            for by in (1.0, 1.0 + off)
        )
        assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("by", [1.3, 1.0])
def test_an_error_that_only_the_casts_bring_is_found(by: float) -> None:
    """Without its casts, backward is right: it has another formula for numbers in bfloat16."""

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        inside = x.bfloat16()
        return grad * (inside.cos() * (by if inside.dtype is torch.bfloat16 else 1.0)).double()

    function = with_backward(lambda x: x.bfloat16().sin().double(), backward)
    assert (gradcheck(function, normal(8)).verdict is Verdict.PASS) == (by == 1.0)


def test_one_of_two_inputs_may_be_rounded() -> None:
    def backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return grad, grad * normalised(x.float()).double()  # the gradient of the rounded input is wrong

    function = with_backward(lambda x, w: normalised(x.float()).double() * w, backward)
    result = gradcheck(function, normal(4, 6), normal(4, 6, seed=1))
    assert (result.verdict, {finding.wrt for finding in result.findings}) == (Verdict.FAIL, {"x"})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_correct_gradients_do_not_fail(seed: int) -> None:
    for function, x in (
        (gelu, 3 * drawn_in_float32(32, seed=seed).detach()),
        (normalised, drawn_in_float32(8, 16, seed=seed)),
        (lambda x: x.log_softmax(-1), 5 * drawn_in_float32(4, 6, seed=seed).detach()),
    ):
        result = gradcheck(within(torch.float32, function), x.requires_grad_())
        assert result.verdict is not Verdict.FAIL, result.message


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("off", [0.0, -1.0, 1.2])
def test_wrong_gradients_fail(dtype: torch.dtype, off: float) -> None:
    for function in (gelu, normalised, lambda x: x.softmax(-1)):
        result = gradcheck(within(torch.float32, function, off), normal(3, 5, seed=2, dtype=dtype))
        assert result.verdict is Verdict.FAIL, result.message


def test_a_small_error_fails_if_differences_resolve_it() -> None:
    result = gradcheck(within(torch.float32, lambda x: x.cumsum(0), 1.00001), normal(8))
    assert result.verdict is Verdict.FAIL
    assert result.message.endswith("those of the same code without its casts to lower precision")


@pytest.mark.slow
@pytest.mark.parametrize("function", [normalised, lambda x: torch.nn.functional.layer_norm(x, (16,))])
def test_error_bars_hold_in_float32(function: Callable[[Tensor], Tensor]) -> None:
    def narrow(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return function(x)

    refused = with_changed_gradient(narrow, lambda gradient: -3 * gradient)
    for seed in (3, 6, 11):
        x = normal(8, 16, seed=seed, dtype=torch.float32)
        exact = torch.autograd.functional.jacobian(function, x.detach().double())
        found = elements(gradcheck(refused, x), ElementVerdict.MISMATCH)
        assert found
        for element in found:
            place = element.output_index + element.input_index
            assert abs(element.numeric - float(exact[place])) <= 5 * element.error_bar


@pytest.mark.parametrize("seed", range(4))
def test_a_saturated_backward_in_bfloat16_may_be_off_by_one_ulp(seed: int) -> None:
    right = with_backward(torch.tanh, lambda grad, x: grad * (1 - x.tanh() ** 2))
    x = (3 * normal(32, seed=seed).detach()).bfloat16().requires_grad_()
    assert gradcheck(right, x).verdict is not Verdict.FAIL
    wrong = with_backward(torch.tanh, lambda grad, x: grad * (1 - x.tanh()))
    assert gradcheck(wrong, x).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_zeros_are_verified_in_float32_only_forwards(seed: int) -> None:
    def square(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return x.clamp(min=0) ** 2

    x = normal(16, 8, seed=seed, dtype=torch.float32)
    assert gradcheck(with_backward(square, lambda grad, x: 2 * grad * x.clamp(min=0)), x).verdict is Verdict.PASS
    for wrong in (lambda grad, x: 2 * grad * x, lambda grad, x: 2 * grad * (x - 1).clamp(min=0)):
        assert gradcheck(with_backward(square, wrong), x).verdict is Verdict.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
def test_a_missing_mask_in_half_precision_never_passes(narrow: torch.dtype) -> None:
    wrong = with_backward(lambda x: x.to(narrow).relu().to(x.dtype), lambda grad, _: grad)
    for size, seed in ((4, 3), (12, 1), (12, 3)):
        verdict = gradcheck(wrong, normal(size, seed=seed)).verdict
        assert verdict is Verdict.FAIL or (narrow is torch.bfloat16 and verdict is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("size", [1e-6, 1e-9])
def test_a_missing_mask_at_small_numbers_in_float32_fails(size: float) -> None:
    def narrow(x: Tensor) -> Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return x.relu()

    x = (size * normal(6).detach()).float().requires_grad_()
    assert gradcheck(with_backward(narrow, lambda grad, _: grad), x).verdict is Verdict.FAIL


def test_a_rounded_input_is_found_beside_a_complex_one() -> None:
    def backward(grad: Tensor, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return grad.sum().to(z.dtype).expand_as(z), -grad * y.cos()

    function = with_backward(lambda z, y: z.real.sum() + y.half().sin().double(), backward)
    result = gradcheck(function, normal(3, dtype=torch.complex128), normal(5))
    assert (result.verdict, {finding.wrt for finding in result.findings}) == (Verdict.FAIL, {"y"})


def test_a_projection_is_computed_in_the_inputs_own_dtype() -> None:
    by = torch.eye(4, dtype=torch.float64)
    x = normal(4)
    problem = bind(lambda x: x.half().sin().double(), (x,), names=("x",), projections={"x": lambda x: by @ x})
    assert run_check("gradcheck", problem, ALONE).verdict is not Verdict.FAIL


def test_a_backward_that_raises_at_rounded_inputs_keeps_the_first_verdict() -> None:
    x = normal(6)

    def backward(grad: Tensor, saved: Tensor) -> Tensor:
        if not torch.equal(saved, x.detach()):
            raise RuntimeError("stale")
        return 1.2 * grad * saved.cos()

    wrong = with_backward(lambda x: x.half().sin().double(), backward)
    assert gradcheck(wrong, x).verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)


TEXT = {
    "gradcheck": "nothing was compared: no input has elements (x of shape [1, 0, 3])",
    "gradgradcheck": "nothing was compared: no input has elements (x of shape [1, 0, 3], cotangent of shape [1, 0, 3])",
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("check", ["gradcheck", "gradgradcheck"])
def test_an_input_without_entries_is_inconclusive(check: str, dtype: torch.dtype) -> None:
    result = run_check(check, problem_of(torch.sin, normal(1, 0, 3, dtype=dtype)), ALONE)
    assert (result.verdict, result.message) == (Verdict.INCONCLUSIVE, TEXT[check])
