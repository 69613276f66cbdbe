"""A Jacobian without entries shows nothing; beside others that have some, an empty tensor does no harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import gradverify
from gradverify.result import Verdict
from tests.core.support import double, gradcheck, with_backward

X = [0.5, -1.0]


@pytest.mark.parametrize(
    ("function", "inputs", "said"),
    [
        (torch.sin, (double([]),), "no input has elements (x of shape [0])"),
        (
            lambda x, y: x.sum() + y.sum(),
            (double([]), double([[]])),
            "no input has elements (x of shape [0], y of shape [1, 0])",
        ),
        (lambda x: x[:0], (double(X),), "no output has elements (output of shape [0])"),
        (
            lambda x: (x[:0], x[1:1] * 2),
            (double(X),),
            "no output has elements (output[0] of shape [0], output[1] of shape [0])",
        ),
    ],
)
def test_without_entries_nothing_was_compared(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], said: str
) -> None:
    found = gradcheck(function, *inputs)
    assert (found.verdict, found.message) == (Verdict.INCONCLUSIVE, f"nothing was compared: {said}")
    assert [finding.code for finding in found.findings] == ["GV104"]


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: x.sin() + y.sum(), (double(X), double([]))),
        (lambda x: (x.sin(), x[:0]), (double(X),)),
        (lambda x, y: (x.sin(), y.sin()), (double(X), double([]))),
    ],
)
def test_an_empty_tensor_beside_others_does_no_harm(function: Callable[..., Any], inputs: tuple[Tensor, ...]) -> None:
    found = gradcheck(function, *inputs)
    assert found.verdict is Verdict.PASS
    assert found.entries > 0


def test_torch_is_not_said_to_disagree_where_nothing_was_compared() -> None:
    found = gradverify.verify(torch.sin, (double([]),))
    assert [check.verdict for check in found.checks] == ["inconclusive", "inconclusive", "pass"]
    assert found.checks[0].torch is not None
    assert (found.checks[0].torch.verdict, found.checks[0].torch.message) == ("skip", "the Jacobian has no entries")
    assert not found


@pytest.mark.parametrize(
    ("divisor", "verdict", "code"), [(0, Verdict.FAIL, "GV101"), (1, Verdict.INCONCLUSIVE, "GV104")]
)
def test_the_gradient_of_outputs_without_elements_is_zero(divisor: int, verdict: Verdict, code: str) -> None:
    product = with_backward(lambda x, w: x @ w, lambda grad, x, w: (grad @ w.T, x.T @ grad / max(len(x), divisor)))
    empty = torch.zeros(0, 2, dtype=torch.float64, requires_grad=True)
    found = gradcheck(product, empty, double([[1.0], [2.0]]))
    assert (found.verdict, [finding.code for finding in found.findings]) == (verdict, [code])
