"""Outputs that are used alone, modules, and tensors that no input is."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.api.verify import verify
from gradverify.result import Verdict
from tests.core.support import double, gradcheck

X = double([0.3, -1.2, 0.7])
Y = double([1.1, 0.6, -0.9])


class Pair(Function):
    """x·y and x + y, whose backward takes an undefined cotangent for zero, or does not."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, forgets: str) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        ctx.forgets = forgets
        return x * y, x + y

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, h: Tensor | None) -> tuple[Any, Any, None]:
        x, y = ctx.saved_tensors
        if g is None:
            return h, None if ctx.forgets == "y" else h, None
        if h is None and ctx.forgets != "all":
            return g * y, g * x, None
        return g * y + h, g * x + h, None


def test_an_output_used_alone_gets_the_gradient_of_that_output() -> None:
    right = gradcheck(lambda x, y: Pair.apply(x, y, ""), X, Y)
    assert right.verdict is Verdict.PASS
    for forgets in ("y", "all"):
        wrong = gradcheck(lambda x, y: Pair.apply(x, y, forgets), X, Y)  # noqa: B023
        assert (wrong.verdict, {finding.code for finding in wrong.findings}) == (Verdict.FAIL, {"GV308"})


def test_what_is_asked_twice_costs_single_outputs_nothing() -> None:
    assert gradcheck(torch.sin, X).evaluations.backward <= 2


class Doubled(Function):
    """A product with a weight, whose gradient by the weight is twice what it should be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w, 2 * g.T @ x


class Layer(torch.nn.Module):
    """One such product, and a count of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return Doubled.apply(x, self.w)  # type: ignore[no-any-return]


def test_the_parameters_of_a_module_are_differentiated() -> None:
    layer = Layer()
    result = verify(layer, (X.detach().view(1, 3).requires_grad_(),), checks=("gradcheck",))
    (check,) = result.checks
    assert (result.verdict, {finding.wrt for finding in check.findings}) == (Verdict.FAIL, {"w"})
    assert result.function == "Layer"
    assert float(layer.calls) == 0.0
    assert layer.w.grad is None


@pytest.mark.parametrize("count", [1, 4])
def test_what_a_function_closes_over_is_said_not_to_be_judged(count: int) -> None:
    scales = [torch.tensor(2.0, dtype=torch.float64, requires_grad=True) for _ in range(count)]
    message = gradcheck(lambda x: x.sin() * torch.stack(scales).sum(), X).message
    assert ("a tensor of shape [] requires grad" if count == 1 else "4 tensors of shapes [], [], [], …") in message
    assert "judged" not in gradcheck(torch.sin, X).message


@pytest.mark.slow
def test_a_module_whose_parameters_are_not_there_yet_is_a_callable_like_any_other() -> None:
    assert verify(torch.nn.LazyLinear(2, dtype=torch.float64), (X,)).verdict is Verdict.PASS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(torch.nn.Linear(3, 2, dtype=torch.float64), X.detach())
    assert verify(script, (X,)).verdict is Verdict.PASS


def test_a_module_in_single_precision_is_sampled_in_double_with_its_buffers() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.BatchNorm1d(3), torch.nn.SiLU()).eval()
    inputs = (torch.randn(5, 4, requires_grad=True),)
    (result,) = verify(module, inputs, checks=("gradcheck",), torch_gradcheck="never").checks
    assert result.verdict is Verdict.PASS
    assert "those of the same numbers in float64" in result.message
    assert module[1].running_mean.dtype is torch.float32
