"""Autograd tracks a tensor and the elements of a tuple: what is inside another container has no backward."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import gradverify
from gradverify.result import CaseResult, Verdict
from tests.core.support import claimed, double, gradgradcheck

X = [0.5, -1.0]


@dataclass
class Pair:
    first: Tensor
    second: Tensor


def returning(make: Callable[[Tensor], Any], backward: Callable[..., Any] = lambda grad, *rest: grad) -> Any:
    """Return a Function that returns what `make` makes of its input."""

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return make(x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(*grads)

    return Made


def given(use: Callable[..., Tensor], backward: Callable[[Tensor], Any]) -> Any:
    """Return a Function of whatever arguments `use` takes."""

    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            return use(*args)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return backward(grad)

    return Given


def verified(function: Any, *inputs: Any) -> CaseResult:
    return gradverify.verify(function, inputs, names=tuple("xyz"[: len(inputs)]))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda x: {"y": x}, "a dict: autograd does not track the tensors in the dict"),
        (lambda x: {"y": x * 2}, "a dict: autograd does not track the tensors in the dict"),
        (lambda x: [x * 2, x * 3], "a list: autograd does not track the tensors in the list"),
        (lambda x: ([x], 3), "a tuple with a list in it: autograd does not track the tensors in the list"),
        (lambda x: Pair(x, x), "a Pair: autograd does not track the tensors in the Pair"),
        (lambda x: {"y": torch.ones_like(x)}, "a dict: autograd does not track the tensors in the dict"),
    ],
)
def test_a_function_that_returns_only_a_container_fails_every_check(make: Callable[..., Any], said: str) -> None:
    found = verified(returning(make), double(X))
    text = f"Made.apply returns {said}, so backward is never called; return a tensor or a tuple of tensors"
    for check in found.checks:
        assert (check.verdict, check.message) == (Verdict.FAIL, text)
        assert [finding.code for finding in check.findings] == ["GV106"]


def test_a_container_is_seen_when_apply_is_called_on_the_way() -> None:
    function = returning(lambda x: {"y": x * 2})
    apply = function.apply
    ways = [lambda x: function.apply(x)["y"] * 2, lambda x: apply(x)["y"] * 2]
    for wrapped in ways[:1] if inspect.isbuiltin(apply) else ways:  # one in C that was put aside is out of reach
        assert {check.findings[0].code for check in verified(wrapped, double(X)).checks} == {"GV106"}


def test_a_container_on_the_way_explains_wrong_entries_where_another_path_has_a_graph() -> None:
    function = returning(lambda x: {"y": x * 2})
    found = verified(lambda x: function.apply(x)["y"] + x, double(X)).checks[0]
    assert found.verdict is Verdict.FAIL
    assert [(finding.code, finding.verdict) for finding in found.findings] == [
        ("GV101", Verdict.FAIL),
        ("GV106", Verdict.PASS),
    ]


def test_a_container_whose_tensors_are_used_as_constants_fails_nothing() -> None:
    order = returning(lambda x: (x.argsort(), {"values": x.sort().values}))
    square = claimed(torch.square, lambda x: 2 * x)
    found = verified(lambda x: square(x[order.apply(x)[0]]), double([0.5, -1.0, 2.0, 1.5]))
    assert found, str(found)
    assert found.checks[0].message.startswith("16 entries agree")


def test_a_wrong_function_beside_a_container_still_fails() -> None:
    order = returning(lambda x: (x.argsort(), {"values": x.sort().values}))
    square = claimed(torch.square, lambda x: 3 * x)
    found = verified(lambda x: square(x[order.apply(x)[0]]), double([0.5, -1.0, 2.0, 1.5]))
    assert found.checks[0].verdict is Verdict.FAIL
    assert found.checks[0].findings[0].code == "GV101"


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (returning(lambda x: (x * 1, {"places": x.argmax()})), (double(X),)),
        (returning(lambda x: (x * 1, [1.0, 2.0])), (double(X),)),
        (lambda x: {"y": x.sin(), "z": [x.cos()]}, (double(X),)),
        (lambda x: x + returning(lambda y: {"y": y * 2}).apply(x.detach())["y"].detach() * 0, (double(X),)),
        (given(lambda x, weights: x * weights[0], lambda grad: (grad * 3.0, None)), (double(X), [torch.tensor(3.0)])),
    ],
)
def test_other_containers_are_left_alone(function: Any, inputs: tuple[Any, ...]) -> None:
    found = verified(function, *inputs)
    assert found, str(found)


def test_a_missing_gradient_of_a_tensor_in_a_list_is_explained() -> None:
    function = given(lambda x, ys: x * ys[0], lambda grad: (grad * 3.0, None))
    found = verified(function, double(X), [double([3.0, 3.0])])
    (finding,) = found.checks[0].findings
    assert (finding.code, finding.wrt, finding.cause) == ("GV102", "y[0]", None)
    assert finding.message == (
        "y[0] is inside a list that Given.apply is given, and autograd does not track it there: no gradient for y[0],"
        " but output depends on it in 2 entries of d output / d y[0]; if y[0] is a constant, set `requires_grad: false`"
        " on it (in Python, pass it without requires_grad); give it as an argument of its own"
    )


def test_a_tensor_in_a_dict_is_explained_when_it_is_computed_from_an_input() -> None:
    function = given(lambda given: given["x"] * 2, lambda grad: None)
    found = verified(lambda x: function.apply({"x": x.sin()}), double(X))
    (finding,) = found.checks[0].findings
    assert finding.message.startswith("x is inside a dict that Given.apply is given")


def test_a_tensor_in_a_list_that_the_output_does_not_depend_on_passes() -> None:
    function = given(lambda x, ys: x * len(ys), lambda grad: (grad, None))
    assert verified(function, double(X), [double([3.0])])


def test_a_missing_gradient_without_any_graph_says_that_backward_is_never_called() -> None:
    found = verified(lambda x: x.detach() * 2, double(X))
    (finding,) = found.checks[0].findings
    assert finding.message == (
        "no output has a graph, so backward is never called: no gradient for x, but output depends on it in 2 entries"
        " of d output / d x; outputs are detached, computed without a graph, or all marked as non-differentiable"
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: given(lambda xs: sum(x * x for x in xs), lambda grad: None).apply([x, y]),
        lambda x, y: (x * y).detach(),
    ],
)
def test_gradgradcheck_is_skipped_where_no_output_has_a_graph(function: Any) -> None:
    found = gradgradcheck(function, double([0.5, -1.0]), double([2.0, 3.0]))
    assert (found.verdict, found.message) == (Verdict.SKIP, "no output has a graph: there is no backward to question")


def test_gradgradcheck_passes_a_constant_whose_backward_returns_zero() -> None:
    constant = given(torch.ones_like, torch.zeros_like)
    found = gradgradcheck(constant.apply, double(X))
    assert (found.verdict, found.message.split("; ")[-1]) == (Verdict.PASS, "every derivative is zero")
