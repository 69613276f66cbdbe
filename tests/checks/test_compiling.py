"""GV505: what torch.compile traces gives what the code gives as it is written."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.compiler import is_compiling

from gradverify.case import Settings
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.result import CheckResult, Verdict
from tests.core.support import claimed, with_backward

X = torch.linspace(-1.5, 2, 6, dtype=torch.float64)


def compiled(function: Any, *inputs: Tensor) -> CheckResult:
    primals = [value.clone().requires_grad_() for value in inputs or (X,)]
    return run_check("compile", bind(function, primals, names=tuple("xyz"[: len(primals)])), Settings())


def by_hand(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy() ** 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        claimed(torch.sin, torch.cos),
        claimed(by_hand, lambda x: 3 * x.square()),
        torch.nn.functional.gelu,
        torch.nn.Linear(6, 2, dtype=torch.float64),
    ],
)
def test_what_is_traced_rightly_passes(function: Any) -> None:
    result = compiled(function)
    assert (result.verdict, result.message) == (Verdict.PASS, "compiled and eager agree")


@pytest.mark.slow
def test_a_backward_that_is_another_one_when_it_is_traced() -> None:
    result = compiled(claimed(torch.sin, lambda x: x.cos() * (1.001 if is_compiling() else 1.0)))
    assert (result.verdict, [finding.code for finding in result.findings]) == (Verdict.FAIL, ["GV505"])
    assert "compiled, the gradient is not what it is otherwise: 6 of 6 entries differ by x" in result.message


@pytest.mark.slow
def test_rounding_that_is_another_one_is_none() -> None:
    def slope(x: Tensor) -> Tensor:
        return (x + 1e-3 - 1e-3).cos() if is_compiling() else x.cos()

    assert compiled(claimed(torch.sin, slope)).verdict is Verdict.PASS


@pytest.mark.slow
def test_an_output_that_is_another_one_when_it_is_traced() -> None:
    result = compiled(lambda x: x.sin() + (0.1 if is_compiling() else 0.0))
    assert result.message == "compiled, output is not what it is otherwise"
    result = compiled(lambda x: x.sin()[:3] if is_compiling() else x.sin())
    assert result.message == "compiled, output is not what it is otherwise"
    result = compiled(lambda x: (x.sin(), x.cos()) if is_compiling() else x.sin())
    assert result.message == "compiled, it does not return the same outputs"
    assert result.verdict is Verdict.FAIL


@pytest.mark.slow
def test_parts_that_are_left_to_python_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    result = compiled(lambda x: x * float(x.detach().sum()))
    assert (result.verdict, result.message) == (Verdict.PASS, "compiled and eager agree, traced in 2 parts")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_what_cannot_be_compared_is_skipped_with_the_reason() -> None:
    result = compiled(lambda x: x.sin() + torch.ones(7 if is_compiling() else 6))
    assert result.verdict is Verdict.SKIP
    assert result.message.startswith("torch.compile ends on the way: forward raises")
    result = compiled(torch.nn.functional.dropout)
    assert (result.verdict, "draws random numbers" in result.message) == (Verdict.SKIP, True)
    aside = torch.compiler.disable(lambda x: x.sin())
    result = compiled(lambda x: aside(x))
    assert (result.verdict, result.message) == (Verdict.SKIP, "torch.compile finds nothing in it that it can trace")


@pytest.mark.slow
def test_the_last_of_many_functions_is_traced_too() -> None:
    results = [compiled(lambda x, k=k: x.sin() * (k + is_compiling())) for k in range(1, 12)]
    assert {result.verdict for result in results} == {Verdict.FAIL}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [False, True])
def test_tensors_that_are_not_differentiated_are_traced_too(wrong: bool) -> None:
    def backward(grad: Tensor, x: Tensor, places: Tensor) -> tuple[Tensor, None]:
        found = torch.zeros_like(x).index_add(0, places, grad)
        return (2 * found if wrong and is_compiling() else found), None

    places = torch.tensor([0, 3, 3])
    picked = with_backward(lambda x, places: x[places], backward)
    problem = bind(picked, (X.clone().requires_grad_(), places), names=("x", "places"))
    result = run_check("compile", problem, Settings())
    assert result.verdict is (Verdict.FAIL if wrong else Verdict.PASS), result
