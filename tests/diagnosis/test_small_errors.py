"""Small errors: backward in low precision, and approximations without a known pattern."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import Verdict
from tests.core.support import ALONE, double
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_backward_in_low_precision_is_named_with_its_dtype(dtype: torch.dtype) -> None:
    x = torch.linspace(3, 6, 12, dtype=torch.float64).requires_grad_()
    cause, text = diagnosis_of(torch.exp, lambda g, x: (g.to(dtype) * x.to(dtype).exp()).double(), x)
    name = str(dtype).removeprefix("torch.")
    assert (cause, f"are exactly {name} numbers" in text) == ("low-precision-backward", True)
    assert text.endswith(f"backward computes in {name}, or rounds to it")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradient_rounded_at_the_end_is_low_precision(dtype: torch.dtype) -> None:
    """Rounding to float32 is within the default tolerance of float64 and passes."""
    backward = lambda g, x: (g * x.exp()).to(dtype).double()  # noqa: E731
    cause, text = diagnosis_of(lambda x: x.exp().sum(), backward, drawn(7))
    assert (cause, str(dtype).removeprefix("torch.") in text) == ("low-precision-backward", True)
    assert diagnoses_of(torch.exp, lambda g, x: (g * x.exp()).float().double(), drawn(7)) == {}


def test_narrower_dtype_than_float32_is_named_for_float32_inputs() -> None:
    x = drawn(12).detach().float().requires_grad_()
    cause, text = diagnosis_of(torch.sin, lambda g, x: (0.8 * g * x.cos()).bfloat16().float(), x)
    assert cause != "low-precision-backward"  # a relative error of 20 % is not rounding
    cause, text = diagnosis_of(
        torch.exp, lambda g, x: (g.bfloat16() * x.bfloat16().exp()).float(), (8 * x).detach().requires_grad_()
    )
    assert (cause, "bfloat16" in text) == ("low-precision-backward", True)


def test_simple_numbers_are_not_low_precision() -> None:
    """Small integers are exact in every dtype; their products with random cotangents are not."""
    wrong = torch.tensor([1.0, 2.0, 0.0, 3.0, -1.0, 2.0, 4.0, 1.0], dtype=torch.float64)
    right = wrong * (1 + 1e-5 * torch.linspace(-1, 1, 8, dtype=torch.float64))
    diagnosis = diagnosis_of(lambda x: right * x, lambda g, x: g * wrong, drawn(8))
    assert diagnosis[0] != "low-precision-backward"


def test_error_larger_than_rounding_is_not_low_precision() -> None:
    backward = lambda g, x: (g * (x.cos() + 0.3 * (7 * x).sin())).float().double()  # noqa: E731
    assert diagnosis_of(torch.sin, backward, drawn(12)) == (None, "")


def newton(target: Tensor, steps: int) -> Tensor:
    """Return square roots after some steps of Newton's method."""
    root = torch.ones_like(target)
    for _ in range(steps):
        root = (root + target / root) / 2
    return root


def test_early_stopped_iteration_is_approximate_and_the_suggested_rtol_accepts_it() -> None:
    x = double([0.5, 0.7, 0.9, 1.3, 1.6, 1.9, 2.2, 2.5])

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g / (2 * newton(x, 3))

    cause, text = diagnosis_of(torch.sqrt, backward, x)
    assert cause == "approximate"
    assert text == (
        "4 of 8 entries that are not zero differ and no pattern in them is known; the error is at most 6e-06 of the"
        " largest derivative, as where an iteration stops early or a small term is missing; if that is meant,"
        " `rtol: 2e-05` accepts it"
    )
    rtol = float(text.partition("`rtol: ")[2].partition("`")[0])
    assert _verdict(backward, x, rtol) is Verdict.PASS
    assert _verdict(backward, x, rtol / 10) is Verdict.FAIL


def _verdict(backward: Any, x: Tensor, rtol: float) -> Verdict:
    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sqrt()

        @staticmethod
        def backward(ctx: Any, *cotangents: Tensor) -> Any:
            return backward(cotangents[0], *ctx.saved_tensors)

    settings = replace(ALONE, tolerances=Tolerances(rtol=rtol))
    return run_check("gradcheck", bind(Planted.apply, (x,), names=("x",)), settings, diagnose).verdict


def test_error_beside_zeros_suggests_an_atol() -> None:
    noise = 1e-6 * drawn(6, 6, seed=5).detach()
    right = drawn(6, 6, seed=3).detach().tril()
    cause, text = diagnosis_of(lambda x: right @ x, lambda g, x: g @ (right + noise), drawn(6))
    assert (cause, "`atol: " in text) == ("approximate", True)


def test_error_in_small_entries_does_not_suggest_an_rtol_that_accepts_far_larger_ones() -> None:
    right, noise = drawn(8, 8, seed=3).detach(), 1e-6 * drawn(8, 8, seed=5).detach()
    _, text = diagnosis_of(lambda x: right @ x, lambda g, x: g @ (right + noise), drawn(8))
    _, even = diagnosis_of(lambda x: right @ x, lambda g, x: g @ (right * (1 + noise)), drawn(8))
    assert ("`atol: " in text, "`rtol: " in even) == (True, True)


@pytest.mark.parametrize("factor", [1 + 1e-5, 1 - 3e-6])
def test_small_error_with_a_pattern_is_not_approximate(factor: float) -> None:
    assert diagnosis_of(torch.exp, lambda g, x: factor * g * x.exp(), drawn(8))[0] == "constant-factor"
    diagnoses = diagnoses_of(torch.sin, lambda g, x: g * torch.where(x > 0, factor, 1.0) * x.cos(), drawn(20))
    assert diagnoses["output by x"][0] == "wrong-branch"


def test_large_error_without_a_pattern_is_not_approximate() -> None:
    assert diagnosis_of(torch.sin, lambda g, x: g * (x.cos() + 1e-3 * (9 * x).sin()), drawn(8)) == (None, "")


@pytest.mark.parametrize("forward", [torch.clone, torch.sum])
def test_errors_of_whole_entries_beside_a_huge_one_are_not_approximate(forward: Any) -> None:
    """All errors are far below the largest derivative, but as large as the entries that they are in."""
    right, wrong = double([1e6, 2.0, 3.0, 0.7, 1.1]).detach(), double([1e6, -1.3, 0.2, 2.9, 0.1]).detach()
    diagnosis = diagnosis_of(lambda x: forward(right * x), lambda g, x: g * wrong, drawn(5))
    assert diagnosis[0] != "approximate"


def test_small_errors_in_rows_of_different_size_are_approximate() -> None:
    sizes = torch.tensor([[1e3], [1.0], [1e-3]], dtype=torch.float64)
    right = sizes * drawn(3, 8, seed=3).detach()
    wrong = right * (1 + 1e-5 * drawn(3, 8, seed=5).detach())
    assert diagnosis_of(lambda x: right @ x, lambda g, x: g @ wrong, drawn(8))[0] == "approximate"


def test_small_errors_in_few_entries_are_not_approximate() -> None:
    factors = torch.ones(20, dtype=torch.float64)
    factors[[3, 8, 11, 17]] += 1e-5 * torch.tensor([1.0, -2.0, 0.7, 3.1], dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(20)) == (None, "")
