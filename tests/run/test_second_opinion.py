"""Torch's own derivative of a forward, beside values that disagree: what it agrees with, and where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify import verify
from gradverify.result import AgreesWith, CheckResult, Verdict


class Squared(torch.autograd.Function):
    """Lacks a factor of 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x


class HalfDetached(Squared):
    """Its backward is what torch derives, since the forward detaches one of two equal factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.detach()


class InNumpy(Squared):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 2)


class Forgotten(torch.autograd.Function):
    """Has no gradient for an input that numpy hides from autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + torch.from_numpy(y.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return g, torch.zeros_like(g)


def judged(function: Any, *inputs: Tensor) -> CheckResult:
    given = tuple(each.clone().requires_grad_() for each in inputs)
    (check,) = verify(function, given, checks=["gradcheck"]).checks
    return check


def point(count: int = 5, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.linspace(0.5, 1.5, count, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_agrees_with_differences_where_backward_is_wrong(dtype: torch.dtype) -> None:
    found = judged(Squared, point(dtype=dtype))
    derivative = found.torch_derivative
    assert found.verdict is Verdict.FAIL
    assert derivative is not None
    assert (derivative.agrees_with, derivative.entries) == (AgreesWith.NUMERIC, 1)
    assert derivative.difference < (1e-9 if dtype is torch.float64 else 1e-3)


def test_torch_agrees_with_backward_where_the_forward_detaches() -> None:
    found = judged(HalfDetached, point())
    assert found.verdict is Verdict.FAIL  # torch is a witness, not the judge
    assert found.torch_derivative is not None
    assert found.torch_derivative.agrees_with is AgreesWith.ANALYTIC


def test_wrong_entries_of_one_output_are_compared() -> None:
    class Total(Squared):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return Squared.forward(ctx, x).sum()

    found = judged(Total, point())
    assert found.torch_derivative is not None
    assert (found.torch_derivative.agrees_with, found.torch_derivative.entries) == (AgreesWith.NUMERIC, 5)


@pytest.mark.parametrize(("function", "inputs"), [(InNumpy, 1), (Forgotten, 2)])
def test_torch_says_nothing_of_what_numpy_hides(function: Any, inputs: int) -> None:
    found = judged(function, *[point()] * inputs)
    assert (found.verdict, found.torch_derivative) == (Verdict.FAIL, None)


def test_torch_says_nothing_of_code_without_a_hand_written_backward() -> None:
    found = judged(lambda x: x * x.detach(), point())
    assert (found.verdict, found.torch_derivative) == (Verdict.FAIL, None)


def test_registered_backward_of_an_operator_is_not_torchs_own() -> None:
    @torch.library.custom_op("gradverify_tests::halved_square", mutates_args=())
    def squared(x: Tensor) -> Tensor:
        return x * x

    squared.register_autograd(
        lambda ctx, g: g * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )

    class Around(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return squared(x) + 0 * x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return g * x

    found = judged(Around, point())
    assert (found.verdict, found.torch_derivative) == (Verdict.FAIL, None)


class Freeing(Squared):
    """Frees the storage of its output in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.output = x * x
        ctx.save_for_backward(x)
        return ctx.output

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        ctx.output.untyped_storage().resize_(0)
        return g * ctx.saved_tensors[0]


def test_backward_that_frees_the_output() -> None:
    given = (point().requires_grad_(),)
    (found,) = verify(Freeing, given, checks=["gradcheck"], torch_gradcheck="never").checks
    assert found.torch_derivative is not None
    assert found.torch_derivative.agrees_with is AgreesWith.NUMERIC


class Scaled(torch.autograd.Function):
    """Is a little off by x, and lacks the gradient by y, which numpy hides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + torch.from_numpy(y.detach().numpy() ** 2)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        return 1.01 * g, torch.zeros_like(g)


def test_torch_says_nothing_if_it_cannot_of_the_worst_entry() -> None:
    assert judged(Scaled, point(), point()).torch_derivative is None


class Conjugated(torch.autograd.Function):
    """Two outputs of a complex input; the gradient through the second is not conjugated."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(z)
        return 2 * z, z * z

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return 2 * g + 2 * z * h


def test_second_output_of_a_complex_input() -> None:
    found = judged(Conjugated, torch.complex(point(), point()))
    assert found.findings[0].of in ("output[1].real", "output[1].imag")
    assert found.torch_derivative is not None
    assert found.torch_derivative.agrees_with is AgreesWith.NUMERIC


def test_a_right_backward_needs_no_second_opinion() -> None:
    found = judged(torch.nn.functional.softplus, point())
    assert (found.verdict, found.torch_derivative) == (Verdict.PASS, None)


def test_a_forward_that_raises_as_plain_code_keeps_its_result() -> None:
    class Strict(Squared):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            if x.requires_grad and torch.is_grad_enabled():
                raise TypeError("not as plain code")
            return Squared.forward(ctx, x)

    found = judged(Strict, point())
    assert (found.verdict, found.torch_derivative) == (Verdict.FAIL, None)
