"""Gradients that autograd rejects, and forwards and backwards that overwrite tensors or return one buffer."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gradverify.result import Verdict
from tests.core.support import claimed, double, gradcheck, gradgradcheck, with_backward


class WrongShape(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class WrongCount(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * grad, grad


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grad


class Doubling(torch.autograd.Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 2 * grad


class SingleUse(torch.autograd.Function):
    """Overwrites its saved tensor, so that a second backward over the same graph is wrong."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = x.detach().clone()
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        result = 3 * ctx.kept**2 * grad
        ctx.kept.zero_()
        return result


@pytest.mark.parametrize("function", [WrongShape, WrongCount])
def test_a_gradient_rejected_by_autograd_fails_without_a_crash(function: type[torch.autograd.Function]) -> None:
    result = gradcheck(function.apply, double([1.0, 2.0]))
    assert result.verdict is Verdict.FAIL
    assert [finding.code for finding in result.findings] == ["GV312"]
    assert gradgradcheck(function.apply, double([1.0, 2.0])).verdict is Verdict.SKIP


def test_once_differentiable_is_found_in_the_graph_and_skips_order_2() -> None:
    assert gradcheck(Once.apply, double([1.0])).verdict is Verdict.PASS
    for function in (Once.apply, lambda x: torch.sin(Once.apply(x))):
        assert gradgradcheck(function, double([1.0])).verdict is Verdict.SKIP
    assert gradgradcheck(torch.sin, double([1.0])).verdict is Verdict.PASS


def test_a_forward_that_overwrites_its_input_is_run_on_copies() -> None:
    x = double([1.0, 2.0])
    assert gradcheck(Doubling.apply, x).verdict is Verdict.PASS
    assert gradgradcheck(Doubling.apply, x).verdict is Verdict.PASS
    assert x.tolist() == [1.0, 2.0]


def test_a_backward_that_overwrites_its_saved_tensors_gets_a_new_graph_for_each_vjp() -> None:
    assert gradcheck(SingleUse.apply, double([1.0, 2.0])).verdict is Verdict.PASS


def test_user_errors_name_their_stage() -> None:
    def broken(x: Tensor) -> Tensor:
        raise ZeroDivisionError("no such thing")

    result = gradcheck(broken, double([1.0]))
    assert (result.verdict, result.findings[0].code) == (Verdict.ERROR, "GV902")
    assert "forward raised ZeroDivisionError: no such thing" in result.message
    assert "in broken)" in result.message


@pytest.mark.parametrize("size", [1, 5, 50, 5000])
def test_a_backward_that_ignores_its_cotangent_fails(size: int) -> None:
    ignoring = with_backward(lambda x: (x * x).sum(), lambda g, x: 2 * x)
    x = torch.linspace(-2.0, 3.0, size, dtype=torch.float64).add(0.1).requires_grad_()
    result = gradcheck(ignoring, x)
    assert result.verdict is Verdict.FAIL
    assert result.mismatched == (size if result.method == "dense" else result.mismatched) > 0
    assert gradcheck(with_backward(lambda x: (x * x).sum(), lambda g, x: g * 2 * x), x).verdict is Verdict.PASS


def test_every_cotangent_has_storage_offset_zero() -> None:
    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(), torch.view_as_real(torch.complex(x, 2 * x))

    for check in (gradcheck, gradgradcheck):  # view_as_complex refuses odd storage offsets
        assert check(parts, double([0.5, 1.0, -2.0])).verdict is Verdict.PASS


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("shape", [(5,), (3, 4), (50,)])
def test_forward_that_resizes_and_returns_one_buffer_passes(shape: tuple[int, ...]) -> None:
    buffer = torch.empty(0, dtype=torch.float64)

    class Sin(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.sin(x.detach(), out=buffer)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * x.cos()

    point = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gradcheck(Sin.apply, point.requires_grad_()).verdict is Verdict.PASS


def test_forward_that_returns_one_buffer_passes() -> None:
    buffer = numpy.zeros(2)

    def reused(x: Tensor) -> Tensor:
        buffer[:] = torch.sin(x).numpy()
        return torch.from_numpy(buffer)

    assert gradcheck(claimed(reused, torch.cos), double([0.5, 1.0])).verdict is Verdict.PASS
