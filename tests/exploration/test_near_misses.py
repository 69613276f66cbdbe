"""Right functions stay right at every try: at kinks and ties, in saturation, at the end of a domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import gradverify
from tests.exploration.hidden_mistakes import points, saving


def pool(x: Tensor, size: int) -> Tensor:
    return functional.max_pool1d(x, size)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.mT / 2
        total = scores.logsumexp(-1, keepdim=True)
        output = (scores - total).exp() @ v
        ctx.save_for_backward(q, k, v, output, total)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, output, total = ctx.saved_tensors
        weights = (q @ k.mT / 2 - total).exp()
        of_scores = weights * (grad @ v.mT - (grad * output).sum(-1, keepdim=True)) / 2
        return of_scores @ k, of_scores.mT @ q, weights.mT @ grad


RIGHT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "relu": (lambda x: x.relu(), (points(5),)),
    "clamp": (lambda x, low, high: x.clamp(low, high), (points(5), -0.5, 1.0)),
    "abs": (lambda x: x.abs(), (points(5),)),
    "amax": (lambda x: x.amax(-1), (points(2, 4),)),
    "max": (lambda x: x.max(-1).values, (points(2, 4),)),
    "sort": (lambda x: x.sort(-1).values, (points(2, 4),)),
    "median": (lambda x: x.median(-1).values, (points(2, 3),)),
    "pool": (pool, (points(2, 2, 6), 2)),
    "tanh": (lambda x: x.tanh(), (points(5),)),
    "softmax": (lambda x: x.softmax(-1), (points(2, 3),)),
    "gather": (lambda x, index: x[index], (points(5), torch.tensor([0, 2, 3]))),
    "masked": (lambda x, mask: x.masked_fill(mask, 0.0), (points(3), torch.tensor([True, False, True]))),
    "solve": (torch.linalg.inv, ((points(3, 3) + 2 * torch.eye(3)).detach().requires_grad_(),)),
    "dropout": (lambda x, p: functional.dropout(x, p), (points(6), 0.5)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RIGHT)
def test_right_function_has_no_failure(name: str) -> None:
    function, inputs = RIGHT[name]
    found = gradverify.explore(function, inputs, checks=("gradcheck",), budget=60)
    assert found.message == ""
    assert found.tries >= 40
    assert found.failures == ()
    assert found.questions == ()
    assert found.lost == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["log", "sqrt", "acosh"])
def test_inputs_outside_of_the_domain_are_no_tries(name: str) -> None:
    seen: list[bool] = []

    def forward(x: Tensor) -> Tensor:
        value: Tensor = getattr(torch, name)(x)
        seen.append(bool(torch.isfinite(value).all()))
        return value

    inputs = ((points(4, positive=True) + 1).detach().requires_grad_(),)
    found = gradverify.explore(forward, inputs, checks=("gradcheck",), budget=60)
    assert found.failures == ()
    assert found.tries == 60
    assert not all(seen)


def test_forward_that_refuses_every_change_has_no_tries() -> None:
    def forward(x: Tensor) -> Tensor:
        if x.shape != (3,) or not torch.equal(x.detach().double().round(decimals=1), points(3).detach()):
            raise ValueError("only these")
        return x.sin()

    found = gradverify.explore(forward, (points(3),), checks=("gradcheck",), budget=20)
    assert found
    assert found.tries <= 3  # the same values in another dtype or layout


def test_random_forward_is_right() -> None:
    def noisy(x: Tensor) -> Tensor:
        return x * torch.rand(x.shape).to(x.dtype)

    assert gradverify.explore(noisy, (points(4),), checks=("gradcheck",), budget=60).failures == ()


def test_output_that_does_not_depend_on_an_argument_is_right() -> None:
    right = saving(lambda x, _: x.sin(), lambda grad, x, _: grad * x.cos())
    found = gradverify.explore(right, (points(3), 2.0), budget=60)
    assert found.failures == () and found.questions == ()


def test_gradient_in_float32_that_is_as_accurate_as_its_dtype_allows_is_right() -> None:
    inputs = tuple(4 * torch.randn(2, 5, 4, dtype=torch.float64, generator=seeded(seed)) for seed in range(3))
    found = gradverify.explore(Attention, tuple(each.requires_grad_() for each in inputs), checks=("gradcheck",))
    assert found.failures == ()


class InFloat32(torch.autograd.Function):
    """Weighted rows, computed in float32 inside; `rows` of them at most have a part in the gradient by the weight."""

    rows = 10_000

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        normal = wide * wide.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        ctx.save_for_backward(x, weight)
        return (normal * weight.float()).to(x.dtype)

    @classmethod
    def gradients(cls, grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        wide, grad = x.float(), grad.float()
        scale = wide.square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        normal, along = wide * scale, grad * weight.float()
        of_x = (along - normal * (along * normal).mean(-1, keepdim=True)) * scale
        return of_x.to(x.dtype), (grad * normal)[: cls.rows].flatten(0, -2).sum(0).to(weight.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return InFloat32.gradients(grad, *ctx.saved_tensors)


class FirstRows(InFloat32):
    rows = 64

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return FirstRows.gradients(grad, *ctx.saved_tensors)


@pytest.mark.slow
@pytest.mark.parametrize("function", [InFloat32, FirstRows])
def test_rows_that_are_left_out_are_found_although_forward_casts_to_float32(function: type[InFloat32]) -> None:
    inputs = tuple(points(*shape).detach().float().requires_grad_() for shape in ((6, 8), (8,)))
    found = gradverify.explore(function, inputs, dims={"x": ("n", "m"), "weight": ("m",)}, budget=250)
    shapes = [change for each in found.failures for change in each.changes if change.startswith("x: shape [6")]
    assert bool(shapes) is (function is FirstRows), [each.changes for each in found.failures]


@pytest.mark.slow
def test_large_scores_round_in_float32() -> None:
    inputs = tuple(points(*shape).detach().float().requires_grad_() for shape in ((6, 4), (5, 4), (5, 3)))
    found = gradverify.explore(Attention, inputs, budget=120)
    assert (found.message, found.failures) == ("", ())
