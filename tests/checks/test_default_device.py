"""Another default device than the CPU, as after torch.set_default_device("cuda"), concerns the user's code only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify import verify
from gradverify.result import Verdict
from tests.core.support import normal

CHECKS = ["gradcheck", "gradgradcheck", "contract", "forward_ad", "batching", "precision"]


@pytest.fixture
def meta_by_default() -> Iterator[None]:
    """Make "meta" the default: a tensor made there by mistake has no values to go on with."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def product(factor: float) -> type[Function]:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            assert torch.empty(1).device.type == "meta"
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad @ w.T, factor * x.T @ grad

    return Product


@pytest.mark.slow
def test_right_and_wrong_gradients_are_told_apart(meta_by_default: None) -> None:
    with torch.device("cpu"):
        x, w = normal(3, 4), normal(4, 2, seed=1)
    right = verify(product(1.0), (x, w), checks=CHECKS, torch_gradcheck="never")
    assert {check.verdict for check in right.checks} <= {Verdict.PASS, Verdict.SKIP}
    wrong = verify(product(1.1), (x, w), checks=CHECKS, torch_gradcheck="never").checks[0]
    assert (wrong.verdict, [finding.cause for finding in wrong.findings]) == (Verdict.FAIL, ["constant-factor"])
    assert torch.empty(1).device.type == "meta"


def test_a_large_jacobian_is_compared_by_sums(meta_by_default: None) -> None:
    with torch.device("cpu"):
        x = normal(2_001)
    assert verify(lambda x: x.cumsum(0), (x,), checks=["gradcheck"], torch_gradcheck="never").verdict is Verdict.PASS


def test_parameters_of_a_module_are_drawn_and_judged(meta_by_default: None) -> None:
    with torch.device("cpu"):
        x, module = normal(3, 4), torch.nn.LayerNorm(4, dtype=torch.float64)
    result = verify(module, (x,), checks=["gradcheck"], torch_gradcheck="never")
    assert result.verdict is Verdict.PASS
    assert result.note == "parameters that held one value were drawn around it: weight around 1, bias around 0"
    assert torch.empty(1).device.type == "meta"


def test_forward_of_a_module_keeps_the_default(meta_by_default: None) -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float64, device="cpu"))

        def forward(self, x: Tensor) -> Tensor:
            assert torch.empty(1).device.type == "meta"
            return x * self.weight

    with torch.device("cpu"):
        x = normal(3, 4)
    result = verify(Scaled(), (x,), checks=["gradcheck"], torch_gradcheck="never")
    assert (result.verdict, result.note.partition(":")[0]) == (
        Verdict.PASS,
        "parameters that held one value were drawn around it",
    )
