"""Causes in Jacobians too large to be stored: guessed from a sample, tested by projections of all entries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.speed_works import WrongWeight
from gradverify.checks.registry import run_check
from gradverify.core.strategy import columnwise
from gradverify.diagnosis.diagnose import diagnose
from gradverify.result import CheckResult, Method, Verdict
from tests.core.support import ALONE, problem_of, with_backward


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def checked(function: Callable[..., Any], *inputs: Tensor) -> CheckResult:
    return run_check("gradcheck", problem_of(function, *inputs), ALONE, diagnose)


def last_rows_halved(grad: Tensor, x: Tensor) -> Tensor:
    result = grad * x.cos()
    result[-4:] *= 0.5
    return result


WRONG = {
    "missing-mask": (with_backward(lambda x: x.clamp(0, 1.5), lambda g, x: g), (drawn(64, 64),), "at x < 0 or x > 1.5"),
    "constant-factor": (with_backward(torch.exp, lambda g, x: 2 * g * x.exp()), (drawn(20_000),), "= 2 × numeric"),
    "boundary-tile": (with_backward(torch.sin, last_rows_halved), (drawn(128, 40),), "the last 4 of"),
    "swapped-inputs": (
        with_backward(lambda x, y: x * y, lambda g, x, y: (g * x, g * y)),
        (drawn(4_000), drawn(4_000, seed=1)),
        "",
    ),
    "sign-flip": (
        with_backward(lambda x: x.sin().cumsum(0), lambda g, x: -g.flip(0).cumsum(0).flip(0) * x.cos()),
        (drawn(2_100),),
        "",
    ),
    "transposed": (
        with_backward(lambda x: x.cumsum(0), lambda g, x: g.cumsum(0)),
        (drawn(2_100),),
        "J·cotangent instead of cotangent·J",
    ),
    "missing-cotangent": (
        with_backward(lambda x: x.sin().cumsum(0), lambda g, x: g.flip(0).cumsum(0).flip(0) * x.cos() + 0.5),
        (drawn(2_100),),
        "analytic = numeric × cotangent + 0.5",
    ),
    "low-precision-backward": (
        with_backward(
            lambda x: x.sin().cumsum(0), lambda g, x: (g.flip(0).cumsum(0).flip(0) * x.cos()).half().double()
        ),
        (drawn(2_100),),
        "exactly float16 numbers",
    ),
}


@pytest.mark.parametrize("cause", WRONG)
def test_cause_of_error_in_large_block_is_named(cause: str) -> None:
    function, inputs, words = WRONG[cause]
    result = checked(function, *inputs)
    assert result.verdict is Verdict.FAIL
    assert result.method in (Method.STRUCTURED, Method.PROBED)
    finding = result.findings[0]
    assert finding.cause == cause
    assert words in finding.message.splitlines()[-1]


@pytest.mark.parametrize(("factor", "cause"), [(2.0, "constant-factor"), (0.0, "detached"), (-1.0, "sign-flip")])
def test_an_error_in_all_that_is_not_zero_is_not_confined_to_one_element(factor: float, cause: str) -> None:
    weights = torch.arange(1.0, 3_501.0, dtype=torch.float64)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = torch.zeros_like(x)
        gradient[3] = factor * x[3].cos() * (g * weights).sum()
        return gradient

    result = checked(with_backward(lambda x: x[3].sin() * weights, backward), drawn(3_500))
    assert [finding.cause for finding in result.findings] == [cause]


@pytest.mark.slow
def test_a_wrong_weight_of_a_convolution_is_named() -> None:
    (finding,) = checked(WrongWeight.apply, drawn(8, 16, 32, 32), drawn(32, 16, 3, 3, seed=1)).findings
    assert finding.cause == "single-elements"
    assert "1 of 4608 elements differs, in all entries: y[3, 2, 1, 1], where analytic = 0" in finding.message


def test_irregular_error_has_no_cause() -> None:
    def noisy(grad: Tensor, x: Tensor) -> Tensor:
        return grad * (x.cos() + 0.1 * torch.sin(1e4 * x * x))

    result = checked(with_backward(torch.sin, noisy), drawn(5_000))
    assert (result.verdict, result.findings[0].cause) == (Verdict.FAIL, None)


def result_of_changed_gradient(change: Callable[[Tensor], Tensor], left: Tensor, right: Tensor) -> CheckResult:
    """Return the result for a matrix product whose gradient by the left matrix is passed through `change`."""
    function = with_backward(torch.matmul, lambda g, a, b: (change(g @ b.mT), a.mT @ g))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columnwise, "_NUMBERS", 0)
        result = checked(function, left, right)
    assert (result.verdict, result.method) == (Verdict.FAIL, Method.PROBED)
    return result


def scaled_at(factor: float, *place: slice | int) -> Callable[[Tensor], Tensor]:
    """Return a function that multiplies a part of a gradient by a factor."""

    def change(gradient: Tensor) -> Tensor:
        gradient[place] *= factor
        return gradient

    return change


def of_different_magnitudes(*shape: int) -> Tensor:
    """Return random numbers of magnitudes between 1e-6 and 1e5."""
    generator = torch.Generator().manual_seed(2)
    sizes = 10.0 ** torch.randint(-6, 6, shape, generator=generator)
    return (drawn(*shape).detach() * sizes).requires_grad_()


SIDE = 66
EVERY = slice(None)
CHANGES: dict[str, tuple[Callable[[Tensor], Tensor], str | None, str]] = {
    "times a constant": (lambda g: 1.5 * g, "constant-factor", "analytic = 3/2 × numeric in every entry"),
    "zero": (lambda g: 0 * g, "detached", ""),
    "rolled rows": (lambda g: g.roll(1, 0), "shifted", "rolled by 1 along dimension 0"),
    "rolled columns": (lambda g: g.roll(-3, 1), "permuted", "rolled by -3 along dimension 1"),
    "reversed": (lambda g: g.flip(1), "permuted", "reversed along dimension 1"),
    "transposed": (lambda g: g.mT, "transposed", "dimensions 0 and 1 are exchanged"),
    "last rows zero": (scaled_at(0.0, slice(-2, None)), "boundary-tile", "rows 64 and 65, the last 2 of 66"),
    "first column halved": (scaled_at(0.5, EVERY, slice(1)), "boundary-tile", "column 0, the first of 66"),
    "every fourth column": (scaled_at(0.0, EVERY, slice(3, None, 4)), "boundary-tile", "the last of each tile of 4"),
    "one element": (scaled_at(1.3, 7, 9), "single-elements", "[7, 9], where analytic = 1.3 × numeric"),
    "rows in the middle": (scaled_at(1.5, slice(20, 24)), None, ""),
    "two things at once": (lambda g: scaled_at(0.5, slice(33))(2 * g.roll(1, 0)), None, ""),
    "a factor per element": (lambda g: g * (1.5 + drawn(SIDE, SIDE, seed=5).detach().sin()), None, ""),
    "rolled in part": (lambda g: torch.cat([g[:20], g[20:].roll(1, 0)]), None, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [*((kind, drawn) for kind in CHANGES), *((kind, of_different_magnitudes) for kind in list(CHANGES)[::3])],
)
def test_cause_is_named_only_if_it_explains_all_entries(kind: str, sizes: Callable[..., Tensor]) -> None:
    change, cause, words = CHANGES[kind]
    finding = result_of_changed_gradient(change, sizes(SIDE, SIDE), drawn(SIDE, SIDE, seed=1)).findings[0]
    assert finding.cause == cause
    assert cause is None or words in finding.message.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "says"), [(0.0, "analytic = 0 where"), (1.5, "analytic = 3/2 × numeric where")])
def test_threshold_of_region_is_found_by_bisection(factor: float, says: str) -> None:
    a, b = drawn(SIDE, SIDE), drawn(SIDE, SIDE, seed=1)
    finding = result_of_changed_gradient(lambda g: torch.where(a > 0.7, factor * g, g), a, b).findings[0]
    assert finding.cause == "wrong-branch"
    text = finding.message.splitlines()[-1]
    assert says in text
    assert float(text.rpartition(" > ")[2]) == pytest.approx(0.7, abs=0.01)


def test_a_few_wrong_entries_are_listed() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g.flip(0).cumsum(0).flip(0) * x.cos()
        gradient[5] += 0.25 * g[17]
        return gradient

    result = checked(with_backward(lambda x: x.sin().cumsum(0), backward), drawn(3_000))
    assert (result.method, result.findings[0].cause) == (Method.PROBED, "single-elements")
    assert "output[17] by " in result.findings[0].message.splitlines()[-1]


def test_missing_mean_of_large_input_is_missing_term() -> None:
    function = with_backward(lambda x: x.exp() - x.mean(), lambda g, x: g * x.exp())
    result = checked(function, drawn(3_000))
    assert result.findings[0].cause == "missing-term"
    assert "one outer product" in result.findings[0].message


def test_gradient_of_first_slice_only_is_missing_broadcast_sum() -> None:
    function = with_backward(lambda x, b: x * 2 + b, lambda g, x, b: (2 * g, g[0]))
    result = checked(function, drawn(100, 60), drawn(60, seed=1))
    assert result.findings[0].cause == "missing-broadcast-sum"
    assert "only output[0, :] counts" in result.findings[0].message


@pytest.mark.slow
def test_missing_conjugate_of_large_input_is_named_unless_there_is_a_factor() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1_500, dtype=torch.complex128, generator=generator).requires_grad_()
    for factor, cause in ((1.0, "missing-conjugate"), (-2.0, None)):
        result = checked(with_backward(lambda z: z * z, lambda g, z, factor=factor: factor * 2 * g * z), z)
        named = {finding.cause for finding in result.findings if finding.verdict is Verdict.FAIL}
        assert (cause in named) is (cause is not None)
        assert "sign-flip" not in named
