"""Causes of errors in blocks too large to be stored, found in excerpts of the problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.checks.registry import run_check
from gradverify.core.decide.context import unchanged
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.jacobians import investigate
from gradverify.core.model.problem import bind
from gradverify.core.model.tape import record
from gradverify.diagnosis.diagnose import diagnose
from gradverify.diagnosis.projections.excerpt import excerpts
from gradverify.evidence import LargeBlock
from gradverify.result import CheckResult, Verdict
from tests.core.support import ALONE, problem_of, with_backward


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def checked(
    function: Callable[..., Any], *inputs: Tensor, check: str = "gradcheck", evaluations: int = ALONE.max_evaluations
) -> CheckResult:
    settings = replace(ALONE, max_evaluations=evaluations)
    return run_check(check, problem_of(function, *inputs), settings, diagnose)


def _rows(x: Tensor, weight: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight)


def _rows_backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    mean, scale = x.mean(-1, keepdim=True), (x.var(-1, keepdim=True, correction=0) + 1e-5).rsqrt()
    unit, inner = (x - mean) * scale, g * weight
    return scale * (inner - unit * (inner * unit).mean(-1, keepdim=True)), (g * unit).sum(0)


def _columns(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()


def _columns_backward(g: Tensor, x: Tensor) -> Tensor:
    variance = x.var(0, correction=0) + 1e-5
    unit = (x - x.mean(0)) / variance.sqrt()
    return (g - g.mean(0) - unit * (g * unit).mean(0)) / variance


def _loss(x: Tensor, target: Tensor) -> Tensor:
    return functional.huber_loss(x, target, reduction="sum")


WRONG: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], str, str]] = {
    "a factor": (
        with_backward(torch.sigmoid, lambda g, x: g * x.sigmoid()),
        (drawn(64, 48),),
        "missing-factor",
        "analytic = numeric / (1 - output) in every entry: a factor of 1 - output is missing",
    ),
    "a branch": (
        with_backward(functional.elu, lambda g, x: g * torch.where(x > 0, 1.0, x.exp() * x.cos())),
        (drawn(3_000),),
        "wrong-branch",
        "exactly where x < 0",
    ),
    "a surrogate": (
        with_backward(torch.sign, lambda g, x: g * (x.abs() < 1)),
        (drawn(40, 60),),
        "straight-through",
        "",
    ),
    "a sum in every row": (
        with_backward(_rows, _rows_backward),
        (drawn(70, 30), drawn(30, seed=1)),
        "missing-term",
        "a sum over the part is missing",
    ),
    "a factor of every column": (
        with_backward(_columns, _columns_backward),
        (drawn(64, 32),),
        "missing-factor",
        "the standard deviation of x in each column of x",
    ),
    "a sum along the other dimension": (
        with_backward(
            lambda x: x.softmax(1), lambda g, x: x.softmax(1) * (g - (g * x.softmax(1)).sum(0, keepdim=True))
        ),
        (drawn(64, 40),),
        "wrong-axis",
        "backward sums along dimension 0",
    ),
    "a branch of a loss": (
        with_backward(_loss, lambda g, x, t: (g * (x - t), g * (t - x).clamp(-1, 1))),
        (drawn(64, 64), drawn(64, 64, seed=1)),
        "wrong-branch",
        "exactly where |x - y| > 1",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_cause_is_found_in_excerpt(kind: str) -> None:
    function, inputs, cause, words = WRONG[kind]
    result = checked(function, *inputs)
    assert result.verdict is Verdict.FAIL
    assert result.entries > 4_000_000 or result.findings[0].of == "output"
    assert result.findings[0].cause == cause
    text = result.findings[0].message.splitlines()[-1]
    assert words in text
    assert text.endswith("(in an excerpt of this block, and in another)")


@pytest.mark.slow
def test_missing_factor_of_argument_that_is_not_differentiated() -> None:
    given, x = drawn(50, 60, seed=2).detach(), drawn(50, 60)

    def forgetful(x: Tensor, weight: Tensor) -> Tensor:
        return with_backward(lambda y: y.sin() * weight, lambda g, y: g * y.cos())(x)

    problem = bind(forgetful, (x, given), names=("x", "weight"))
    finding = run_check("gradcheck", problem, ALONE, diagnose).findings[0]
    assert finding.cause == "missing-factor"
    assert "a factor of weight is missing" in finding.message


@pytest.mark.slow
def test_cause_in_second_derivative_is_found_in_excerpt() -> None:
    class Forgetful(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, g: Tensor, x: Tensor) -> Tensor:
            ctx.save_for_backward(g, x)
            return g * x.exp() * x.exp()

        @staticmethod
        def backward(ctx: Any, c: Tensor) -> tuple[Tensor, Tensor]:
            g, x = ctx.saved_tensors
            return c * (2 * x).exp(), 2 * c * g * x.exp()

    function = with_backward(lambda x: (2 * x).exp() / 2, lambda g, x: Forgetful.apply(g, x))
    finding = checked(function, drawn(2_500), check="gradgradcheck").findings[0]
    assert finding.cause == "missing-factor"
    assert finding.message.endswith("(in an excerpt of this block, and in another)")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_errors_at_random_positions_have_no_cause(seed: int) -> None:
    order = torch.randperm(64, generator=torch.Generator().manual_seed(seed))

    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.cos()
        gradient[order[:20]] *= 1.5
        return gradient

    assert checked(with_backward(torch.sin, backward), drawn(64, 64)).findings[0].cause is None


def test_two_different_errors_have_no_common_cause() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        first = g * x.sigmoid()
        first[32:] = (g * (1 - x.sigmoid()))[32:]
        return first

    assert checked(with_backward(torch.sigmoid, backward), drawn(64, 64)).findings[0].cause is None


@pytest.mark.slow
def test_jacobian_of_excerpt_is_submatrix() -> None:
    x, weight = drawn(9, 400), drawn(400, seed=1)
    problem = problem_of(lambda x, y: (x * y).sin() + x.sum(1, keepdim=True), x, weight)
    ready = made_repeatable(problem, record(problem), 0)
    assert ready is not None
    found = investigate(ready, ALONE, unchanged)
    whole = torch.autograd.functional.jacobian(problem.function, (x.detach(), weight.detach()))
    (of,), (wrt, _) = found.sampled.outputs, found.sampled.inputs
    known = found.comparison.groups[0] if found.comparison.groups else None
    assert known is None
    sums = LargeBlock(
        of=of,
        wrt=wrt,
        measured=found.measured,
        wrong_entries=_no_known_entries(),
        wrong_places_complete=True,
        settings=ALONE,
    )
    several = list(excerpts(sums, 2, 1_000_000))
    assert len(several) == 2
    for number, part in enumerate(several):
        points = [primal.tensor for primal in part.primals]
        own = torch.autograd.functional.jacobian(part.function, tuple(points))
        rows = [int((x[:, 0] == value).nonzero()) for value in points[0][:, 0]]
        columns = [int((weight == value).nonzero()) for value in points[1]]
        assert 3 <= len(columns) < 400
        assert columns == sorted(columns, reverse=bool(number % 2))
        torch.testing.assert_close(own[0], whole[0][rows][:, columns][:, :, rows])
        torch.testing.assert_close(own[1], whole[1][rows][:, columns][:, :, columns])


def _no_known_entries() -> Any:
    class Nothing:
        outputs = torch.empty(0, dtype=torch.long)
        inputs = torch.empty(0, dtype=torch.long)
        numeric = torch.ones(1)

    return Nothing()


@pytest.mark.slow
def test_vjps_of_excerpts_are_counted() -> None:
    asked = 0

    def backward(g: Tensor, x: Tensor) -> Tensor:
        nonlocal asked
        asked += 1
        return g * x.sigmoid()

    function = with_backward(torch.sigmoid, backward)
    found = checked(function, drawn(64, 48))
    assert found.findings[0].cause == "missing-factor"
    assert found.evaluations.backward == asked
    assert checked(function, drawn(64, 48), evaluations=20).findings[0].cause is None
