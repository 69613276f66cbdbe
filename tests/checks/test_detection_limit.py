"""The smallest error that each check detects, by dtype, as docs/spec.md states it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.case import Settings, Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.decide.compare import relative_tolerance
from gradverify.result import CheckResult, Verdict
from tests.core.support import problem_of

DOCS = Path(__file__).parents[2] / "docs" / "spec.md"
INSIDE = ", computed in float32 inside"


def kernel(factor: float, inside: torch.dtype | None) -> Callable[[Tensor, Tensor], Tensor]:
    """Return sin(x @ w) with a gradient that is `factor` times the right one; `inside` is the dtype it computes in."""

    class Kernel(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            inner = inside or x.dtype
            return (x.to(inner) @ w.to(inner)).sin().to(x.dtype)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
            inner = inside or grad.dtype
            x, w = (saved.to(inner) for saved in ctx.saved_tensors)
            chained = grad.to(inner) * (x @ w).cos() * factor
            return (chained @ w.mT).to(grad.dtype), (x.mT @ chained).to(grad.dtype)

    return Kernel.apply


def off_by(error: float, dtype: torch.dtype, inside: torch.dtype | None, check: str = "gradcheck") -> CheckResult:
    generator = torch.Generator().manual_seed(0)
    sizes = ((4, 3), (3, 5))
    inputs = [torch.randn(size, generator=generator).to(dtype).requires_grad_() for size in sizes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_check(check, problem_of(kernel(1 + error, inside), *inputs), Settings())


def documented() -> Iterator[tuple[torch.dtype, torch.dtype | None, str, str, str]]:
    """Yield the rows of the table in docs/spec.md: dtype, dtype inside, rtol, what gradcheck and precision detect."""
    table = DOCS.read_text().partition("| dtype | default")[2].partition("\n\n")[0]
    for row in table.splitlines()[2:]:
        name, rtol, *detects = (cell.strip() for cell in row.strip("|").split("|"))
        dtype = getattr(torch, name.removesuffix(INSIDE).strip("`"))
        yield dtype, torch.float32 if name.endswith(INSIDE) else None, rtol, *detects


@pytest.mark.parametrize("row", tuple(documented()), ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_documented_limits_are_those_measured(row: tuple[torch.dtype, torch.dtype | None, str, str, str]) -> None:
    dtype, inside, rtol, gradcheck, precision = row
    assert float(rtol) == relative_tolerance(Tolerances(), [dtype])
    for check, limit in (("gradcheck", gradcheck), ("precision", precision)):
        applies = limit not in ("does not apply", "nothing")
        for part in (1.0, 0.1) if applies else ():
            verdict = off_by(part * float(limit), dtype, inside, check).verdict
            assert verdict is (Verdict.FAIL if part == 1.0 else Verdict.PASS), (check, part)
        if not applies:
            verdict = off_by(0.5, dtype, inside, check).verdict
            assert verdict is (Verdict.SKIP if limit == "does not apply" else Verdict.PASS)


def test_a_limit_above_1e_4_is_in_the_message() -> None:
    result = off_by(5e-4, torch.float32, torch.float32)
    assert result.verdict is Verdict.PASS
    assert result.detection_limit is not None
    assert 1e-3 < result.detection_limit <= 2e-3
    assert result.message == (
        "540 entries agree; relative errors below 0.002 may not be detected;"
        " differences are those of the same numbers in float64"
    )


def test_casts_to_float32_inside_make_the_limit_no_larger() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        limits = [off_by(0.0, dtype, inside).detection_limit for inside in (None, torch.float32)]
        assert limits[1] == pytest.approx(limits[0], rel=0.1)


def test_a_limit_below_1e_4_is_not_in_the_message() -> None:
    assert off_by(0.0, torch.float64, None).message == "540 entries agree"
