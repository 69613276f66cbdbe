"""Jacobians too large to hold: exactly the wrong blocks, one output by one input each, are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.checks.registry import run_check
from gradverify.diagnosis.diagnose import diagnose
from gradverify.evidence import Diagnosis, Evidence, LargeBlock
from gradverify.result import CheckResult, Finding, Method, Verdict
from tests.core.support import ALONE, problem_of

SIZE = 2_001
NAMES = ("x", "y", "z")
Changes = dict[tuple[int, str], Callable[[Tensor], Tensor]]  # (output, input) -> change of that block of the gradient


def points() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(SIZE, generator=generator, dtype=torch.float64) + 0.5).requires_grad_() for _ in NAMES]


def summing(changes: Changes) -> Callable[..., Any]:
    """Return the running sums of x·y + sin z and x·z + cos y, with changes in some blocks of the claimed Jacobian."""

    class Summing(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            ctx.save_for_backward(x, y, z)
            return (x * y + z.sin()).cumsum(0), (x * z + y.cos()).cumsum(0)

        @staticmethod
        def backward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, ...]:
            x, y, z = ctx.saved_tensors
            first, second = (grad.flip(0).cumsum(0).flip(0) for grad in (one, other))
            slopes = {
                (0, "x"): y * first,
                (0, "y"): x * first,
                (0, "z"): z.cos() * first,
                (1, "x"): z * second,
                (1, "y"): -y.sin() * second,
                (1, "z"): x * second,
            }
            for block, change in changes.items():
                slopes[block] = change(slopes[block])
            return tuple(slopes[0, name] + slopes[1, name] for name in NAMES)

    return Summing.apply


def checked(changes: Changes, most: int = ALONE.max_evaluations) -> CheckResult:
    problem = problem_of(summing(changes), *points())
    return run_check("gradcheck", problem, replace(ALONE, max_evaluations=most), diagnose)


def blocks(result: CheckResult, verdict: Verdict) -> set[tuple[str | None, str | None]]:
    return {(finding.of, finding.wrt) for finding in result.findings if finding.verdict is verdict}


def times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda slope: factor * slope


def one_entry(slope: Tensor) -> Tensor:
    changed = slope.clone()
    changed[700] *= 1.01
    return changed


def named(finding: Finding) -> tuple[str | None, str | None, str | None]:
    return finding.of, finding.wrt, finding.cause


def test_right_gradient_is_not_split_into_blocks() -> None:
    result = checked({})
    assert (result.verdict, result.method) == (Verdict.PASS, Method.PROBED)
    assert result.evaluations.forward <= 60
    assert result.evaluations.backward <= 12


def test_every_wrong_block_has_entries_and_cause() -> None:
    result = checked({(0, "x"): times(1.5), (0, "y"): times(-1.0), (0, "z"): times(2.0)})
    assert {named(finding) for finding in result.findings} == {
        ("output[0]", "x", "constant-factor"),
        ("output[0]", "y", "sign-flip"),
        ("output[0]", "z", "constant-factor"),
    }
    assert all(finding.elements for finding in result.findings)


def test_wrong_entry_is_found_beside_wrong_block() -> None:
    result = checked({(1, "z"): times(3.0), (0, "x"): one_entry})
    assert blocks(result, Verdict.FAIL) == {("output[1]", "z"), ("output[0]", "x")}
    (finding,) = (finding for finding in result.findings if finding.wrt == "x")
    assert {element.input_index for element in finding.elements} == {(700,)}


@pytest.mark.parametrize("block", [(0, "y"), (1, "x"), (1, "z")])
def test_right_block_beside_wrong_one_is_not_named(block: tuple[int, str]) -> None:
    result = checked({block: times(1.5)})
    assert {(finding.of, finding.wrt) for finding in result.findings} == {(f"output[{block[0]}]", block[1])}


def test_wrong_block_without_search_budget_is_reported_as_inconclusive() -> None:
    wrong: Changes = {(0, "x"): times(1.5), (0, "y"): times(1.3), (1, "z"): times(1.2)}
    result = checked(wrong, most=250)
    assert result.verdict is Verdict.FAIL
    found, left = blocks(result, Verdict.FAIL), blocks(result, Verdict.INCONCLUSIVE)
    assert found
    assert left
    assert found | left == {("output[0]", "x"), ("output[0]", "y"), ("output[1]", "z")}
    finding = result.findings[-1]
    assert finding.code == "GV104"
    assert finding.message == (
        f"random sums over d {finding.of} / d {finding.wrt} differ, but no single entry was found to be wrong:"
        " fix the other findings first, or search longer with --max-evaluations"
    )


def test_no_diagnosis_after_max_evaluations() -> None:
    def costly(block: Evidence | LargeBlock) -> Diagnosis:
        block.backward.problem.meter.forward += ALONE.max_evaluations
        return Diagnosis(cause="constant-factor", explanation="", share=1.0)

    problem = problem_of(summing({(0, name): times(1.5) for name in NAMES}), *points())
    result = run_check("gradcheck", problem, ALONE, costly)
    assert {finding.wrt for finding in result.findings} == set(NAMES)
    assert [finding.cause for finding in result.findings].count("constant-factor") == 1
