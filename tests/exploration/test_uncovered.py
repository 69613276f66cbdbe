"""What is reported as not exercised, and near misses that are not."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.exploration.exercised.functions import functions_of
from gradverify.exploration.exercised.uncovered import may_be_uncovered, uncovered
from gradverify.exploration.exercised.watch import watch
from gradverify.result import Side

traced = pytest.mark.skipif(
    sys.version_info < (3, 12) and sys.gettrace() is not None, reason="a coverage tool has the trace function"
)
X = (0.5, 2.0)


def reported(function: Callable[..., Any], *args: Any) -> list[tuple[str, str]]:
    """Return the text and side of each entry after one call."""
    functions = functions_of(function)
    _, watched = watch(lambda: function(*args), functions)
    found = [(entry.text, entry.never.value) for entry in uncovered(watched, functions)]
    assert may_be_uncovered(functions) or not found
    return found


def reported_of_gradient(function: type[torch.autograd.Function], *args: Any) -> list[tuple[str, str, str]]:
    """Return the function, text and side of each entry after one forward and backward."""
    x = torch.tensor(X, requires_grad=True)
    functions = functions_of(function)

    def run() -> None:
        output = function.apply(x, *args)
        torch.autograd.grad(output, x, torch.tensor([-1.0, 1.0]))

    run()  # the first call imports modules of torch, in more calls than are traced
    _, watched = watch(run, functions)
    return [(entry.within, entry.text, entry.never.value) for entry in uncovered(watched, functions)]


def above(x: Tensor) -> Tensor:
    return torch.where(x > 6, 6.0, x)


def always(x: Tensor) -> Tensor:
    return x * (x >= -1)


def method(x: Tensor) -> Tensor:
    return x * x.gt(1.25) * torch.less(x, 1.75) * x.lt(50)


def both(x: Tensor) -> Tensor:
    return x * (x > 1)


def mask_only(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, 0.0)


def filled(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(mask, 0.0)


def combined(x: Tensor) -> Tensor:
    return torch.where((x > 1) & (x < 1.5), x, 0.0)


def not_below(x: Tensor) -> Tensor:
    return x.clamp(0, 1)


def not_above(x: Tensor) -> Tensor:
    return x.clamp(max=3) + torch.minimum(x, torch.tensor(7.0))


def only_above(x: Tensor) -> Tensor:
    return x.clamp_max(0.25)


def rectified(x: Tensor) -> Tensor:
    return torch.relu(x)


def ignoring(x: Tensor, target: Tensor) -> Tensor:
    return x * (target != -100)


def tied(x: Tensor) -> Tensor:
    return x * (x == x.max()) * (x == 1)


def nonzero(x: Tensor) -> Tensor:
    return x / torch.where(x.abs() > 0, x, 1.0)


def guarded(x: Tensor) -> Tensor:
    return x / x.sum().clamp_min(1e-12) * (x > 1e-6) * x.clamp(max=65504.0)


def not_finite(x: Tensor) -> Tensor:
    x = torch.where(torch.isfinite(x), x, 0.0)
    x = x.masked_fill(torch.isnan(x) | torch.isinf(x), 0.0)
    x = torch.where(x != x, 0.0, x)
    return torch.where(x > -math.inf, x, 0.0)


def looked_up(x: Tensor) -> Tensor:
    return torch.arange(9.0)[x.floor().long().clamp(0, 8)]


def dropped(x: Tensor) -> Tensor:
    return x * (torch.rand_like(x) > -1.0)


def composite(x: Tensor) -> Tensor:
    return x * torch.isclose(x, x + 1)


def constant(x: Tensor) -> Tensor:
    return x * (torch.tensor(2.0) > 1.0)


def asserted(x: Tensor) -> Tensor:
    assert (x > -5).all()
    if (x < -7).any():
        raise ValueError("too small")
    bad = (x > 9) | (x < -9)
    if bad.any():
        message = "out of range"
        raise ValueError(message)
    torch._assert((x > -8).all(), "too small")
    return x


def warned(x: Tensor) -> Tensor:
    if x.max() > 20:
        warnings.warn("large", stacklevel=2)
    return x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (above, [("x > 6", "true")]),
        (always, [("x >= -1", "false")]),
        (method, [("x.lt(50)", "false")]),
        (combined, [("(x > 1) & (x < 1.5)", "true")]),
        (not_below, [("x.clamp(0, 1)", "below")]),
        (not_above, [("torch.minimum(x, torch.tensor(7.0))", "above"), ("x.clamp(max=3)", "above")]),
        (only_above, [("x.clamp_max(0.25)", "within")]),
        (rectified, [("torch.relu(x)", "below")]),
    ],
)
def test_condition_that_took_one_side_is_reported(
    function: Callable[..., Any], expected: list[tuple[str, str]]
) -> None:
    assert reported(function, torch.tensor(X)) == expected


@pytest.mark.parametrize(
    "function",
    [both, tied, nonzero, guarded, not_finite, looked_up, dropped, composite, constant, asserted, warned],
    ids=lambda f: f.__name__,
)
def test_condition_that_inputs_need_not_reach_is_not_reported(function: Callable[..., Any]) -> None:
    assert reported(function, torch.tensor(X)) == []


def test_masks_and_special_values_are_reported() -> None:
    x, mask = torch.tensor(X), torch.tensor([True, True])
    assert reported(mask_only, x, mask) == [("mask", "false")]
    assert reported(filled, x, ~mask) == [("mask", "true")]
    assert reported(ignoring, x, torch.tensor([1, 2])) == [("target != -100", "false")]
    assert reported(mask_only, x, torch.tensor([True, False])) == []


def with_bias(x: Tensor, bias: Tensor | None = None) -> Tensor:
    y = 2 * x
    if bias is not None:
        y = y + bias
        y = y * 2
    return y


def switched(x: Tensor, mode: str = "none") -> Tensor:
    """Return x, or its tanh."""
    if mode == "none":
        y = x
    elif mode == "tanh":
        y = x.tanh()
    else:
        raise ValueError(mode)
    for _ in range(x.dim() - 1):
        y = y + 1
    return y


def branching(x: Tensor) -> Tensor:
    if (x > 6).any():
        return x * 2
    return x


def returning(x: Tensor) -> Tensor:
    if x.dim() == 1:
        return x
    """Text that stands alone never runs."""
    return x.sum(
        0,
    )


def calling_nested(x: Tensor) -> Tensor:
    def inner(y: Tensor) -> Tensor:
        if y.dim() == 3:
            y = y[0]
        return y

    return inner(x)


def one_line(x: Tensor) -> Tensor:
    return x if x.dim() == 1 else x.sum()


def on_device(x: Tensor) -> Tensor:
    if x.is_cuda:
        x = x + 1
    if x.device.type == "cpu":
        return x
    return x * 2


def scaled(x: Tensor) -> Tensor:
    scale = x.abs().max()
    if scale == 0:
        scale = torch.ones_like(scale)
    return x / scale


def trying(x: Tensor) -> Tensor:
    try:
        return x * 2
    except RuntimeError:
        return x.clone()


def idle(x: Tensor, other: Tensor | None = None) -> Tensor | None:
    if other is not None:
        return None
    if x.dim() == 2:
        pass
    while x.dim() == 3:
        break
    if x.dim() == 1:
        x = x * 1
    elif x.dim() == 4:
        raise ValueError("too many dimensions")
    else:
        raise TypeError("too few")
    return x


@traced
@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (with_bias, [("y = y + bias", "run")]),
        (switched, [('elif mode == "tanh":', "run"), ("y = y + 1", "run")]),
        (branching, [("return x * 2", "run")]),
        (returning, [("return x.sum(", "run")]),
        (calling_nested, [("y = y[0]", "run")]),
    ],
)
def test_line_that_never_ran_is_reported(function: Callable[..., Any], expected: list[tuple[str, str]]) -> None:
    assert reported(function, torch.tensor(X)) == expected


@traced
@pytest.mark.parametrize("function", [one_line, on_device, scaled, trying, idle], ids=lambda f: f.__name__)
def test_line_that_inputs_need_not_reach_is_not_reported(function: Callable[..., Any]) -> None:
    assert reported(function, torch.tensor(X)) == []


class Saturating(torch.autograd.Function):
    """min(x, limit)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.limit = limit
        return x.clamp(max=limit)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None]:
        (x,) = ctx.saved_tensors
        if not ctx.needs_input_grad[0]:
            return None, None
        if grad is None:
            grad = torch.zeros_like(x)
        grad = grad.clamp(-5, 5)
        if ctx.limit == 0:
            return grad * 0, None
        return torch.where(x > ctx.limit, 0.0, grad), None


@traced
def test_backward_does_not_repeat_what_forward_misses() -> None:
    assert reported_of_gradient(Saturating, 3.0) == [
        ("forward", "x.clamp(max=limit)", "above"),
        ("backward", "return grad * 0, None", "run"),
    ]
    assert reported_of_gradient(Saturating, 1.0) == [("backward", "return grad * 0, None", "run")]


def cube(x: Tensor) -> Tensor:
    """Return x³ below ten."""
    return torch.where(x < 10, x**3, 1000.0)


def through_helper(x: Tensor) -> Tensor:
    return 2 * cube(x)


def test_condition_of_a_called_function_names_that_function() -> None:
    functions = functions_of(through_helper)
    _, watched = watch(lambda: through_helper(torch.tensor(X)), functions)
    (entry,) = uncovered(watched, functions)
    assert (entry.within, entry.text, entry.never, entry.file) == ("cube", "x < 10", Side.FALSE, __file__)


def test_function_that_never_ran_is_not_reported() -> None:
    _, watched = watch(lambda: both(torch.tensor(X)), functions_of(both))
    assert uncovered(watched, functions_of(with_bias)) == ()


def straight(x: Tensor) -> Tensor:
    """Return 2 x + 1."""
    y: Tensor = 2 * x
    y += 1
    return y


def through_straight(x: Tensor) -> Tensor:
    return straight(x).exp()


def after_return(x: Tensor) -> Tensor:
    return x
    return 2 * x


def yielding(x: Tensor) -> Any:
    yield x
    yield 2 * x


@pytest.mark.parametrize("function", [straight, through_straight, torch.sin])
def test_code_without_conditions_or_branches_has_nothing_to_report(function: Callable[..., Any]) -> None:
    assert not may_be_uncovered(functions_of(function))


@pytest.mark.parametrize(
    "function",
    [
        *(above, method, filled, not_below, rectified, with_bias, returning, calling_nested, trying, through_helper),
        *(after_return, yielding),
    ],
)
def test_code_with_a_condition_or_a_branch_may_have_something_to_report(function: Callable[..., Any]) -> None:
    assert may_be_uncovered(functions_of(function))


class Layer(torch.nn.Module):
    """A module."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 6, 6.0, x)


def test_functions_of_each_kind_of_target() -> None:
    names = [function.__name__ for function in functions_of(Saturating)]
    assert names == ["forward", "backward"]
    assert functions_of(Saturating.apply) == functions_of(Saturating)
    assert functions_of(Layer) == functions_of(Layer()) == (Layer.forward,)
    assert functions_of(torch.sin) == functions_of(torch.nn.ReLU) == ()
    assert functions_of(above) == (above,)
