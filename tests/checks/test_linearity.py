"""GV301: backward must be linear in the cotangent, not only right for single outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradverify.checks.registry import run_check
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import Verdict
from tests.core.support import ALONE, double, gradcheck, problem_of, with_backward

WRONG: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "clipped": lambda grad, x: (2 * x * grad).clamp(-1, 1),
    "clipped by its norm": lambda grad, x: 2 * x * grad / max(1.0, float((2 * x * grad).norm())),
    "of the size only": lambda grad, x: 2 * x * grad.abs(),
    "of one sign only": lambda grad, x: 2 * x * grad.relu(),
}


@pytest.mark.parametrize("name", WRONG)
def test_nonlinear_backward_of_a_loss_is_found(name: str) -> None:
    found = gradcheck(with_backward(lambda x: (x * x).sum(), WRONG[name]), double([0.3, 1.0, -1.5]))
    assert found.verdict is Verdict.FAIL
    assert {finding.code for finding in found.findings} == {"GV301"}
    assert "backward is not linear" in found.message


def test_gradient_divided_by_cotangent_norm_is_wrong() -> None:
    found = gradcheck(with_backward(lambda x: x * x, lambda grad, x: 2 * x * grad / grad.norm()), double([0.3, 1.0]))
    assert (found.verdict, found.mismatched) == (Verdict.FAIL, 0)
    assert "add up to" in found.message


@pytest.mark.parametrize(
    ("function", "point"),
    [
        (lambda x: (x * x).sum(), [0.3, 1.0, -1.5]),
        (lambda x: x.softmax(0), [0.0, 50.0, -1.0]),
        (lambda x: x.softmax(0), [30.0, -50.0, 12.0, 29.5, 3.0]),
        (lambda x: (x.softmax(0) - x.softmax(0)).sum(), [0.3, 1.0, -1.5]),
        (lambda x: x.logsumexp(0), [700.0, 1e-3, -800.0]),
        (lambda x: torch.outer(x, 1 / x).exp(), [1e-3, 2.0, 0.7]),
        (lambda x: x.cumprod(0), [1e8, 1e-9, 3.0, -2.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_in_a_sum_is_accepted(
    function: Callable[[Tensor], Tensor], point: list[float], dtype: torch.dtype
) -> None:
    found = gradcheck(function, torch.tensor(point, dtype=dtype, requires_grad=True))
    assert not any(finding.code == "GV301" for finding in found.findings)


@pytest.mark.parametrize(("factor", "dtype"), [(1e4, torch.float16), (6e37, torch.float32), (1e-8, torch.float16)])
def test_overflow_of_a_sum_is_accepted(factor: float, dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, -0.5, 0.1], dtype=dtype, requires_grad=True)
    found = gradcheck(lambda x: (x * factor).unsqueeze(0).expand(30, -1) + 0, x)
    assert found.verdict is Verdict.PASS


def test_nonlinear_backward_is_not_named_detached() -> None:
    """The vjps of single outputs are all zero, as of a detached output."""

    def squared(grad: Tensor, x: Tensor) -> Tensor:
        y = x.softmax(1)
        return grad * (y - (grad * y).sum(1, keepdim=True)) * (grad != 0).sum(1, keepdim=True).gt(1)

    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    problem = problem_of(with_backward(lambda x: x.softmax(1), squared), x)
    found = run_check("gradcheck", problem, ALONE, diagnose)
    assert found.verdict is Verdict.FAIL
    assert found.message == "100 of 400 entries differ; backward is not linear"
    assert [(finding.code, finding.cause) for finding in found.findings] == [("GV301", None), ("GV101", None)]
    assert "\n" not in found.findings[1].message


def test_linear_backward_keeps_its_cause() -> None:
    problem = problem_of(with_backward(torch.sin, lambda grad, x: 0 * grad), double([0.3, 1.0, -1.5]))
    found = run_check("gradcheck", problem, ALONE, diagnose)
    assert [(finding.code, finding.cause) for finding in found.findings] == [("GV101", "detached")]


@pytest.mark.parametrize("noise", [1e-6, 1e-3])
def test_inexact_backward_keeps_its_cause(noise: float) -> None:
    def inexact(grad: Tensor, x: Tensor) -> Tensor:
        return -grad * x.cos() * (1 + noise * (3.0 * grad).sin())

    problem = problem_of(with_backward(torch.sin, inexact), double([0.3, 1.0, -1.5]))
    found = run_check("gradcheck", problem, ALONE, diagnose)
    assert [finding.code for finding in found.findings] == ["GV101"]


@pytest.mark.parametrize("seed", range(4))
def test_cotangent_cast_to_float32_is_accepted(seed: int) -> None:
    x = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    right = gradcheck(lambda x: 1 / torch.log1p(x.float().double() ** 2), x)
    assert (right.mismatched, [found.code for found in right.findings if found.code == "GV301"]) == (0, [])
    clipped = with_backward(lambda x: x.clone(), lambda grad, _: grad.clamp(-1, 1))
    wrong = gradcheck(lambda x: clipped(x.float().double() ** 2).sum(0, keepdim=True) * 2, x)
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("offset", [5.0, 50.0, 200.0])
@pytest.mark.parametrize("seed", range(3))
def test_cancellation_in_float32_is_accepted(seed: int, offset: float) -> None:
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) + offset

    def variance(x: Tensor) -> Tensor:
        return (x.float() ** 2).mean(-1).double() - (x.float().mean(-1) ** 2).double()

    assert gradcheck(variance, x.requires_grad_()).verdict is not Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cotangent_cast_to_lower_precision_where_the_output_is_zero_is_accepted(dtype: torch.dtype) -> None:
    found = gradcheck(lambda x: (x.to(dtype) * 1.5).tanh().double(), double([0.0]))
    assert not any(finding.code == "GV301" for finding in found.findings)
    clipped = with_backward(lambda x: x.clone(), lambda grad, _: grad.clamp(-1, 1))
    wrong = gradcheck(lambda x: clipped((x.to(dtype) * 1.5).tanh().double()), double([0.0]))
    assert wrong.verdict is Verdict.FAIL


NEARLY_CONSTANT = [[[1.0, 2.0], [1.2249854948218335, 1.0]], [[6.0, 7.0]], [[6.0, 6.5]], [[6.0, 6.029999852180481]]]


@pytest.mark.parametrize("point", NEARLY_CONSTANT)
@pytest.mark.parametrize("seed", range(4))
def test_rows_that_are_off_by_rounding_may_add_up_to_something_else(point: list[list[float]], seed: int) -> None:
    x = torch.tensor(point, requires_grad=True)
    problem = problem_of(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), x)
    found = run_check("gradcheck", problem, replace(ALONE, seed=seed))
    assert found.verdict is Verdict.PASS


@pytest.mark.parametrize("point", [NEARLY_CONSTANT[0], NEARLY_CONSTANT[2], NEARLY_CONSTANT[3]])
def test_normalised_cotangent_of_nearly_constant_rows_is_found(point: list[list[float]]) -> None:
    def of_unit_cotangent(grad: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            normalised = torch.nn.functional.layer_norm(x, x.shape[-1:])
        return torch.autograd.grad(normalised, x, grad / grad.norm())[0]

    wrong = with_backward(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), of_unit_cotangent)
    assert gradcheck(wrong, torch.tensor(point, requires_grad=True)).verdict is Verdict.FAIL


def test_quantised_cotangent_beside_half_precision_mask_is_found() -> None:
    def quantised(grad: Tensor, x: Tensor) -> Tensor:
        scale = grad.abs().amax() / 127
        return (grad / scale).round() * scale * torch.where(x > 0, 2.0, 0.5)

    x = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    masked = with_backward(
        lambda x: torch.where(x.half() > 0, 2 * x, 0.5 * x).sum(0), lambda g, x: quantised(g.expand_as(x), x)
    )
    assert gradcheck(masked, x).verdict is Verdict.FAIL


@pytest.mark.parametrize(("factor", "verdict"), [(3.0, Verdict.FAIL), (1 + 1e-14, Verdict.PASS)])
def test_backward_that_answers_otherwise_at_first_is_found(factor: float, verdict: Verdict) -> None:
    calls: list[Tensor] = []

    def backward(grad: Tensor, x: Tensor) -> Tensor:
        calls.append(grad)
        # As a kernel that adds to its output, and is called for each of its configurations when it is tuned.
        return 2 * x.sum() * grad.sum() * torch.ones_like(x) * (factor if len(calls) == 1 else 1.0)

    point = double([0.3, 1.0, -1.5, 2.0])
    result = gradcheck(with_backward(lambda x: (x.sum() ** 2).expand(3).clone(), backward), point)
    assert result.verdict is verdict
    assert {finding.code for finding in result.findings} == ({"GV407"} if verdict is Verdict.FAIL else set())
