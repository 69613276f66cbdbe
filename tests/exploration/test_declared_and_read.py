"""What the spec declares and what stands in the code is tried: ranges, empty sizes, texts, axes, constants."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import gradverify
from gradverify.cli.app import app
from tests.exploration import kernels
from tests.exploration.hidden_mistakes import points, saving


def explored(function: Any, *inputs: Any, **options: Any) -> gradverify.Exploration:
    assert gradverify.verify(function, inputs, checks=("gradcheck",))
    return gradverify.explore(function, inputs, **{"checks": ("gradcheck",), "budget": 60, **options})


@pytest.mark.parametrize(
    ("right_up_to", "value", "ends", "fails"),
    [
        (0.0, 0.0, (0.0, 0.4), True),
        (0.4, 0.0, (0.0, 0.4), False),
        (1.1e4, 1e4, (1e4, 1.2e4), True),
        (36, 8, (1, 64), True),
    ],
)
def test_a_number_takes_the_ends_of_its_range(
    right_up_to: float, value: float, ends: tuple[float, float], fails: bool
) -> None:
    smoothed = saving(
        lambda x, smoothing: x.sin() * (1 + smoothing),
        lambda grad, x, smoothing: grad * x.cos() * (1 + min(smoothing, right_up_to)),
    )
    assert bool(explored(smoothed, points(3), value, ranges={"smoothing": ends}).failures) is fails


def test_a_tensor_is_spread_over_its_range() -> None:
    saturated = saving(lambda x: x.exp().log1p(), lambda grad, x: grad * torch.where(x.sigmoid() < 1, x.sigmoid(), 0.5))
    found = explored(saturated, points(4), ranges={"x": (-50.0, 50.0)})
    assert len(found.failures) == 1
    assert not explored(saturated, points(4), ranges={"x": (-8.0, 8.0)}).failures


@pytest.mark.parametrize("name", ["x", "count", "scale"])
def test_a_range_without_an_end_is_a_limit_only(name: str) -> None:
    def scaled(x: Tensor, count: int, scale: float) -> Tensor:
        return x.sin() * count * scale

    ranges = {name: (0.0, float("inf"))}
    x = points(3, positive=True)
    found = gradverify.explore(scaled, (x, 2, 1.0), checks=("gradcheck",), budget=40, ranges=ranges)
    assert (found.tries, found.failures, found.message) == (40, (), "")


def test_texts_in_the_code_come_before_those_of_many_families() -> None:
    def interpolated(x: Tensor, interpolation: str) -> Tensor:
        known = {"linear": torch.sin, "lower": torch.cos, "higher": torch.exp, "midpoint": torch.tanh}
        return known[interpolation](x)

    def slope(grad: Tensor, x: Tensor, interpolation: str) -> Tensor:
        slopes = {"linear": x.cos(), "lower": -x.sin(), "higher": x.exp(), "midpoint": x.cos()}
        return grad * slopes[interpolation]

    found = explored(saving(interpolated, slope), points(3), "linear")
    assert [failure.changes[0] for failure in found.failures] == ["interpolation: midpoint (was linear)"]


def test_a_tuple_of_axes_gets_another_axis() -> None:
    def backward(grad: Tensor, x: Tensor, axes: tuple[int, ...]) -> Tensor:
        for axis in sorted(axes):
            grad = grad.unsqueeze(axis)
        return grad.expand(x.shape) / x.shape[axes[0]]

    found = explored(saving(lambda x, axes: x.mean(axes), backward), points(2, 3, 4), (1,))
    assert any("axes: " in failure.changes[0] for failure in found.failures)


class Filled(torch.autograd.Function):
    """The sum of x; its gradient is wrong beyond 300 entries, in a method of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.count = len(x)
        return x.sum()

    @staticmethod
    def fill(ctx: Any, grad: Tensor) -> Tensor:
        return torch.cat([grad.expand(min(300, ctx.count)), grad.new_zeros(max(0, ctx.count - 300))])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Filled.fill(ctx, grad)


def test_constants_of_methods_and_of_other_files_are_read() -> None:
    assert explored(Filled, points(4)).failures
    clipped = saving(lambda x: 2 * x.clamp(max=12.0), lambda grad, x: kernels.slope_below_twelve(grad, x))
    assert explored(clipped, points(4), budget=400).failures


@pytest.mark.parametrize("least", [0, 1])
def test_a_size_of_zero_is_tried_where_it_is_declared(least: int) -> None:
    product = saving(
        lambda x, w: x @ w, lambda grad, x, w: (grad @ w.T, x.T @ grad / torch.tensor(float(len(x))) * len(x))
    )
    sizes = {"n": {"from": least, "to": 6}}
    found = explored(product, points(3, 2), points(2, 2), dims={"x": ("n", "m")}, sizes=sizes, fixed=("w",))
    assert bool(found.failures) is (least == 0)


def test_no_tensor_loses_a_named_dimension_that_another_keeps() -> None:
    shapes = set()

    def distance(x: Tensor, y: Tensor) -> Tensor:
        shapes.add((x.dim(), y.dim()))
        return (x - y).abs().sum()

    explored(distance, points(3), 2 * points(3).detach().requires_grad_(), dims={"x": ("n",), "y": ("n",)}, budget=200)
    assert not {(1, 0), (0, 1)} & shapes


class Reduction(Enum):
    MEAN = "mean"
    SUM = "sum"


class SumOfSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, reduction: Reduction) -> Tensor:
        ctx.save_for_backward(x)
        return x.square().sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return 2 * grad * ctx.saved_tensors[0], None


def test_an_object_of_a_factory_stays_as_it_is(tmp_path: Path) -> None:
    spec = tmp_path / "squares.yaml"
    spec.write_text(
        f"function: {__file__}:SumOfSquares\n"
        "inputs:\n"
        "  x: {shape: [3]}\n"
        f"  reduction: {{factory: {__file__}:Reduction, args: {{value: mean}}}}\n"
    )
    result = CliRunner().invoke(app, ["explore", str(spec), "-j", "0", "--budget", "20"])
    assert (result.exit_code, "20 tries" in result.output) == (0, True), result.output
