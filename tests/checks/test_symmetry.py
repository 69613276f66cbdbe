"""A backward that is the gradient of no function is remarked on, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.api.verify import verify
from gradverify.result import CheckResult, Verdict
from tests.core.support import double, gradgradcheck, with_backward

X, Y = [0.5, -1.0, 2.0], [1.5, 0.7, -0.3]
COMPLEX = torch.tensor([0.5 + 1j, -1.0 + 0.3j], dtype=torch.complex128)


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


LOPSIDED = with_backward(torch.mul, lambda g, x, y: (g * y, 2 * g * x))


def test_a_backward_that_is_no_gradient_is_remarked_on() -> None:
    result = gradgradcheck(LOPSIDED, double(X), double(Y))
    assert (result.verdict, codes(result)) == (Verdict.PASS, ["GV206"])
    assert result.message == "54 entries agree; backward is the gradient of no function"
    assert result.findings[0].verdict is Verdict.PASS
    assert "p·(H q) is" in result.findings[0].message


def test_it_is_a_fail_where_gradcheck_passes() -> None:
    """Weights of ones hide that backward forgets them; its own derivative shows it."""
    checks = ["gradcheck", "gradgradcheck"]
    forgets = with_backward(torch.mul, lambda g, x, w: (g, g * x))
    hidden, shown, right = (
        verify(function, (double(X), double(weights)), checks=checks)
        for function, weights in ((forgets, [1.0] * 3), (forgets, Y), (RIGHT["a product"][0], [1.0] * 3))
    )
    assert [check.verdict for check in hidden.checks] == [Verdict.PASS, Verdict.FAIL]
    assert hidden.checks[1].findings[0].code == "GV206"
    assert "by accident" in hidden.checks[1].findings[0].message
    assert [check.verdict for check in shown.checks] == [Verdict.FAIL, Verdict.PASS]
    assert [check.verdict for check in right.checks] == [Verdict.PASS, Verdict.PASS]


WRONG = {
    "a product without its other terms": (
        with_backward(lambda x: x.softmax(0), lambda g, x: g * x.softmax(0)),
        (double(X),),
    ),
    "a gradient that is not conjugated": (
        with_backward(torch.mul, lambda g, x, y: (g * y, g * x)),
        (COMPLEX.clone().requires_grad_(), (COMPLEX * 2j - 1).requires_grad_()),
    ),
    "one entry off by a thousandth": (
        with_backward(torch.prod, lambda g, x: g * x.prod() / x * torch.tensor([1.0, 1.001, 1.0])),
        (double(X),),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_so_are_others(name: str) -> None:
    function, inputs = WRONG[name]
    assert "GV206" in codes(gradgradcheck(function, *inputs))


RIGHT: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "a product": (with_backward(torch.mul, lambda g, x, y: (g * y, g * x)), (double(X), double(Y))),
    "wrong, but of another function": (
        with_backward(torch.mul, lambda g, x, y: (2 * g * y, 2 * g * x)),
        (double(X), double(Y)),
    ),
    "a saturated softmax": (lambda x: x.softmax(-1), (double([0.0, 35.0, -40.0, 36.0]),)),
    "a complex product": (torch.mul, (COMPLEX.clone().requires_grad_(), (COMPLEX * 2j - 1).requires_grad_())),
    "float32 throughout": (lambda x: x.sin() * x.sum(), (torch.tensor(X, requires_grad=True),)),
    "float32 inside": (lambda x: (x.float().sin() * x.float().sum()).double(), (double(X),)),
    "gradients with a kink": (lambda x, y: torch.minimum(x, y).relu() ** 2, (double([0.0, 1.0]), double([0.0, 1.0]))),
    "no entries": (lambda x: x * 2, (double([]),)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_gradients_of_a_function_are_not(name: str) -> None:
    function, inputs = RIGHT[name]
    assert "GV206" not in codes(gradgradcheck(function, *inputs))


def test_a_wrong_derivative_of_a_right_backward_is_not_said_to_be_backwards() -> None:
    class Saved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x, x.softmax(0))
            return x.softmax(0)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            _, y = ctx.saved_tensors
            y = y.detach()
            return y * (grad - (grad * y).sum())

    result = gradgradcheck(Saved.apply, double(X))
    assert result.verdict is Verdict.FAIL
    assert "GV206" not in codes(result)


def test_an_empty_output_has_a_gradient_too() -> None:
    result = gradgradcheck(lambda x, w: x * w, double([]), double([1.0]))
    assert (result.verdict, codes(result)) == (Verdict.PASS, [])
