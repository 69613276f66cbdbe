"""GV708: what torch.library.opcheck says about the custom operators that forward calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.case import Settings
from gradverify.checks.operators import opchecked, operator_calls
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import Problem, bind
from gradverify.result import Verdict

pytestmark = pytest.mark.filterwarnings("ignore")
_NAMESPACE = "gradverify_tests"


@pytest.fixture(scope="module")
def library() -> Iterator[dict[str, Callable[..., Any]]]:
    """Operators: `double` is right, `wrong_fake` has another shape without data, `careless` overwrites its input."""

    def registered(name: str, run: Callable[[Tensor], Tensor], fake: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
        def of_input(x: Tensor) -> Tensor:
            return run(x)

        operator = torch.library.custom_op(f"{_NAMESPACE}::{name}", of_input, mutates_args=())
        operator.register_fake(lambda x: fake(x))
        operator.register_autograd(lambda ctx, grad: 2 * grad)
        return operator

    yield {
        "double": registered("double", lambda x: 2 * x, torch.empty_like),
        "wrong_fake": registered("wrong_fake", lambda x: 2 * x, lambda x: torch.empty_like(x[:1])),
        "careless": registered("careless", lambda x: 2 * x.add_(1), torch.empty_like),
    }


def problem_of(function: Callable[..., Any]) -> Problem:
    return bind(function, [torch.randn(4, generator=torch.Generator().manual_seed(0), requires_grad=True)], names=["x"])


@pytest.mark.slow
def test_operator_without_mistakes_passes(library: dict[str, Callable[..., Any]]) -> None:
    found = opchecked(problem_of(library["double"]))
    assert (found.passed, found.findings) == ((f"{_NAMESPACE}::double",), ())


@pytest.mark.slow
def test_wrong_fake_implementation_is_found_in_the_words_of_opcheck(library: dict[str, Callable[..., Any]]) -> None:
    found = opchecked(problem_of(library["wrong_fake"])).findings
    assert {(finding.code, finding.verdict) for finding in found} == {("GV708", Verdict.FAIL)}
    assert found[0].message.startswith("torch.library.opcheck(gradverify_tests::wrong_fake) fails test_faketensor: ")


@pytest.mark.slow
def test_operator_that_overwrites_its_input_fails_test_schema(library: dict[str, Callable[..., Any]]) -> None:
    found = opchecked(problem_of(library["careless"])).findings
    assert any("fails test_schema: Argument x is not defined as mutable" in finding.message for finding in found)


@pytest.mark.slow
def test_operator_is_found_inside_other_code_and_once(library: dict[str, Callable[..., Any]]) -> None:
    double = library["double"]
    found = operator_calls(problem_of(lambda x: double(double(x.sin())).sum()))
    assert [str(made.operator) for made in found] == ["gradverify_tests.double.default"]


def test_plain_code_has_no_custom_operators() -> None:
    assert operator_calls(problem_of(lambda x: torch.softmax(x, 0) @ x)) == ()


def test_reference_reports_operators_beside_right_gradients(library: dict[str, Callable[..., Any]]) -> None:
    problem = problem_of(library["wrong_fake"])
    compared = replace(problem, reference=problem_of(lambda x: 2 * x))
    result = run_check("reference", compared, Settings())
    assert result.verdict is Verdict.FAIL
    assert {finding.code for finding in result.findings} == {"GV708"}


def test_reference_names_the_operators_that_pass(library: dict[str, Callable[..., Any]]) -> None:
    compared = replace(problem_of(library["double"]), reference=problem_of(lambda x: 2 * x))
    result = run_check("reference", compared, Settings())
    assert result.verdict is Verdict.PASS
    assert result.message.endswith(f"; torch.library.opcheck passes {_NAMESPACE}::double")


def test_operator_inside_a_hand_written_function_needs_no_gradient_of_its_own() -> None:
    def tripled(x: Tensor) -> Tensor:
        return 3 * x

    operator = torch.library.custom_op(f"{_NAMESPACE}::tripled", tripled, mutates_args=())
    operator.register_fake(lambda x: torch.empty_like(x))

    class Triple(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return operator(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return operator(grad)

    assert opchecked(problem_of(Triple.apply)).findings == ()
    (alone,) = opchecked(problem_of(operator)).findings
    assert "no autograd formula was registered" in alone.message


def test_operator_that_overwrites_a_tensor_in_a_list() -> None:
    def first(xs: list[Tensor]) -> Tensor:
        return xs[0].add_(1).clone()

    operator = torch.library.custom_op(f"{_NAMESPACE}::first", first, mutates_args=())
    operator.register_fake(lambda xs: torch.empty_like(xs[0]))
    x = torch.zeros(4)
    (made,) = operator_calls(problem_of(lambda y: operator([x]) + y))
    assert x.tolist() == [1.0] * 4
    assert made.args[0][0].tolist() == [0.0] * 4
