"""Sparse Jacobians whose cotangents or samples are processed in several parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.result import CheckResult, Method, Verdict
from tests.core.support import (
    gradcheck,
    gradgradcheck,
    normal,
    scaled_at,
    with_backward,
    with_changed_gradient,
    wrong_places,
)

KERNEL = normal(3, 2, 3, 3, seed=2).detach()


def convolution(x: Tensor) -> Tensor:
    return functional.conv2d(x, KERNEL, padding=1)


@pytest.mark.slow
@pytest.mark.parametrize("side", [10, 160])
@pytest.mark.parametrize("corner", [0, -1])
def test_wrong_entry_of_a_convolution_is_named_at_any_size(side: int, corner: int) -> None:
    """The larger image takes several parts: 2 million numbers are held, 128,000 for each of some 20 cotangents."""
    x = normal(1, 2, side, side)
    right = gradcheck(convolution, x)
    assert (right.verdict, right.method) == (Verdict.PASS, Method.STRUCTURED)
    wrong = gradcheck(with_changed_gradient(convolution, scaled_at(corner, 1e-5)), x)
    place = (0, 0, 0, 0) if corner == 0 else (0, 1, side - 1, side - 1)
    assert (wrong.verdict, wrong_places(wrong)) == (Verdict.FAIL, {("x", place)})


def product(place: int, relative: float) -> Callable[..., Any]:
    """Return a matrix product with a vectorised backward, which is wrong by one entry of x."""

    class Product(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, w: Tensor) -> Tensor:
            return x @ w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            off = (torch.arange(x.numel()) == place).view_as(x) * relative
            return (grad @ w.mT) * (1 + off), x.mT @ grad

    return Product.apply


# Vjps of the smaller product are taken for both inputs at once, those of the larger one for each input alone.
SIZES = [(30, 20, 25), (60, 30, 40)]


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "inner", "columns"), SIZES)
def test_wrong_entry_of_a_matrix_product_is_named(rows: int, inner: int, columns: int) -> None:
    x, w = normal(rows, inner), normal(inner, columns, seed=1)
    right = gradcheck(product(0, 0.0), x, w)
    assert (right.verdict, right.method) == (Verdict.PASS, Method.STRUCTURED)
    for place in (0, inner - 1, rows * inner - 1):
        result = gradcheck(product(place, 1e-6), x, w)
        assert (result.verdict, result.method) == (Verdict.FAIL, Method.STRUCTURED)
        assert wrong_places(result) == {("x", divmod(place, inner))}


def test_other_outputs_and_empty_inputs_beside_a_matrix_product_pass() -> None:
    def beside(x: Tensor, w: Tensor, nothing: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return x @ w + b + nothing.sum(), x.sum(1)

    result = gradcheck(beside, normal(60, 30), normal(30, 40, seed=1), normal(0), normal(40, seed=2))
    assert (result.verdict, result.method) == (Verdict.PASS, Method.STRUCTURED)


def test_vjps_for_single_inputs_that_differ_from_full_ones_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    single = []
    original = torch.autograd.grad

    def falsified(outputs: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        found = original(outputs, inputs, *args, **options)
        if len(inputs) == 1 and options.get("is_grads_batched"):
            single.append(inputs)
            return tuple(grad * 1.01 for grad in found)
        return found

    monkeypatch.setattr(torch.autograd, "grad", falsified)
    assert gradcheck(torch.matmul, normal(60, 30), normal(30, 40, seed=1)).verdict is Verdict.PASS
    assert single  # so that the test shows something


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("side", [3, 6])
def test_transposed_convolution_passes_and_its_wrong_entry_is_named(
    check: Callable[..., CheckResult], side: int
) -> None:
    """The output depends on each input coordinate in a part only; large problems are sampled in several parts."""

    def transposed(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv_transpose2d(x, w, stride=2)

    def backward(grad: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        off = torch.ones_like(x)
        off[0, 1, 2, 2] += 1e-5
        with torch.enable_grad():
            x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
            by_x, by_w = torch.autograd.grad(transposed(x, w), (x, w), grad)
        return by_x * off, by_w

    x, w = normal(2, 2, side, side), normal(2, 3, 3, 3, seed=1)
    right = check(transposed, x, w)
    assert (right.verdict, right.method) == (Verdict.PASS, Method.STRUCTURED)
    if check is gradcheck:
        assert wrong_places(gradcheck(with_backward(transposed, backward), x, w)) == {("x", (0, 1, 2, 2))}
