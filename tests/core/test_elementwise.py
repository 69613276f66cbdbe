"""Elementwise functions: a few samples judge all entries, and overlook no error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.case import Tolerances
from gradverify.checks.registry import run_check
from gradverify.core.decide.comparison import dense_entries
from gradverify.core.decide.context import unchanged
from gradverify.core.decide.verdict import Code
from gradverify.core.estimate.stencil_polynomial import PLACES, forecast, noise_bound, polynomial_through, slope_of
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.jacobians import investigate
from gradverify.core.model.generators import random_magnitudes
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import ALONE, claimed, gradcheck, gradgradcheck, problem_of, with_backward


def drawn(size: int) -> Tensor:
    """Return a vector of numbers of either sign with magnitudes between 1/2 and 3/2."""
    return random_magnitudes(torch.ones(size, dtype=torch.float64), torch.Generator().manual_seed(7)).requires_grad_()


SMOOTH = [torch.sin, torch.exp, torch.tanh, lambda x: x * x, lambda x: 3 * x + 1, lambda x: torch.log1p(x * x)]


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=7, max_size=7))
def test_polynomial_of_degree_six_is_reproduced(coefficients: list[float]) -> None:
    def polynomial(t: Tensor) -> Tensor:
        return sum((c * t**k for k, c in enumerate(coefficients)), torch.zeros_like(t))

    samples = polynomial(torch.tensor(PLACES, dtype=torch.float64)).unsqueeze(1)
    found = polynomial_through(samples - coefficients[0])
    torch.testing.assert_close(
        found.coefficients.squeeze(1), torch.tensor(coefficients[1:], dtype=torch.float64), rtol=0, atol=1e-11
    )
    expected = polynomial(torch.tensor([0.8], dtype=torch.float64)) - coefficients[0]
    foretold = forecast(found, torch.tensor([0.8], dtype=torch.float64))
    torch.testing.assert_close(foretold, expected, rtol=0, atol=1e-11)


def test_residue_is_the_noise_of_a_sample() -> None:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(20_000, dtype=torch.float64, generator=generator)
    samples = torch.randn(6, 20_000, dtype=torch.float64, generator=generator)
    assert abs(float(polynomial_through(samples - value).residue.square().mean()) - 1.0) < 0.05


def test_slope_is_within_its_error_bar() -> None:
    x = random_magnitudes(torch.ones(2000, dtype=torch.float64), torch.Generator().manual_seed(0))
    step = x.abs() * 2.0**-7
    for function, slope in ((torch.sin, torch.cos), (torch.exp, torch.exp), (torch.log1p, lambda x: 1 / (1 + x))):
        x = x.abs() if function is torch.log1p else x
        samples = torch.stack([function(x + place * step) for place in PLACES])
        found = polynomial_through(samples - function(x))
        estimate = slope_of(found, step, noise_bound(found) + 2.0**-53 * function(x).abs())
        assert bool(((estimate.value - slope(x)).abs() <= 10 * estimate.bar).all())


@pytest.mark.parametrize("function", SMOOTH)
@pytest.mark.parametrize(("size", "forwards"), [(1, 5), (6, 5), (32, 5), (1000, 5), (50_000, 10)])
def test_cost_of_smooth_function(function: Callable[..., Any], size: int, forwards: int) -> None:
    result = gradcheck(function, drawn(size))
    assert result.verdict is Verdict.PASS
    assert result.entries == size * size
    assert result.evaluations.forward <= forwards
    assert result.evaluations.backward <= 2


def _by_place(x: Tensor) -> Tensor:
    """Return sines; entry 45 is doubled in tensors that have one."""
    weight = torch.ones_like(x)
    weight[45:46] = 2.0
    return weight * x.sin()


def _by_half(x: Tensor) -> Tensor:
    """Return sines, every other one halved: stacked points of odd length exchange the two kinds."""
    return x.sin() * torch.where(torch.arange(len(x)) % 2 == 0, 1.0, 0.5)


@pytest.mark.parametrize("function", [_by_place, _by_half])
@pytest.mark.parametrize("size", [3, 40, 41])
def test_function_that_depends_on_position_is_judged_right(function: Callable[..., Any], size: int) -> None:
    x = drawn(size)
    assert gradcheck(function, x).verdict is Verdict.PASS
    (slope,) = torch.autograd.grad(function(x).sum(), x)
    for place in (0, 1, size - 1):
        wrong = gradcheck(claimed(function, lambda _: slope * (1 + 1e-6 * (torch.arange(size) == place))), x)  # noqa: B023
        assert (wrong.verdict, wrong.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.parametrize("function", SMOOTH)
@pytest.mark.parametrize("error", [1e-6, 1e-3, 2.0])
def test_wrong_entry_is_found(function: Callable[..., Any], error: float) -> None:
    x, place = drawn(500), 321

    def slope(point: Tensor) -> Tensor:
        inside = point.detach().clone().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(function(inside).sum(), inside)
        return found * (1 + error * (torch.arange(500) == place))

    result = gradcheck(claimed(function, slope), x)
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)
    assert result.findings[0].elements[0].input_index == (place,)


def test_kinks_among_smooth_entries_are_counted() -> None:
    x = drawn(500).detach()
    x[[3, 77]] = 0.0
    x[200] = 1e-5
    result = gradcheck(torch.relu, x.requires_grad_())
    assert (result.verdict, result.kinks) == (Verdict.PASS, 2)
    assert result.entries == 500 * 500
    wrong = gradcheck(claimed(torch.relu, lambda x: torch.where(x > 0, 1.0, -0.5).double()), x)
    assert wrong.verdict is Verdict.FAIL
    assert wrong.mismatched == int((x <= 0).sum())


class Leaks(torch.autograd.Function):
    """sin, with one off-diagonal entry in forward, in backward or in both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: int, target: int, forth: float, back: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.leak = source, target, back
        result = x.sin()
        result[target] += forth * x[source]
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (x,) = ctx.saved_tensors
        source, target, back = ctx.leak
        result = grad * x.cos()
        result[source] += back * grad[target]
        return result, None, None, None, None


@pytest.mark.parametrize(("source", "target"), [(0, 1), (7, 90), (90, 7), (98, 99), (50, 3)])
@pytest.mark.parametrize("size", [1e-5, 1.0])
def test_off_diagonal_entry_of_one_side_is_found(source: int, target: int, size: float) -> None:
    def leaking(forth: float, back: float) -> Callable[[Tensor], Tensor]:
        return lambda x: Leaks.apply(x, source, target, forth, back)

    assert gradcheck(leaking(size, size), drawn(100)).verdict is Verdict.PASS
    for forth, back in ((size, 0.0), (0.0, size)):
        result = gradcheck(leaking(forth, back), drawn(100))
        assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


def test_noisy_function_gets_the_thorough_pass() -> None:
    def rounded(x: Tensor) -> Tensor:
        return x.float().sin().double()

    result = gradcheck(claimed(rounded, torch.cos), drawn(200))
    assert result.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
    assert result.evaluations.forward > 10


@pytest.mark.parametrize("function", [lambda x: x * x, lambda x: x**3, torch.expm1])
def test_wrong_entry_of_tiny_input_is_found(function: Callable[..., Any]) -> None:
    x = (1e-8 * torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(60))).requires_grad_()

    def slope(point: Tensor) -> Tensor:
        inside = point.detach().clone().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(function(inside).sum(), inside)
        return found * (1 + 1e-4 * (torch.arange(60) == 59))

    assert gradcheck(claimed(function, slope), x).mismatched == 1


def test_wrong_small_entry_beside_huge_exponentials_is_found() -> None:
    x = (1e3 * torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(81))).clamp(max=690.0)
    place = int((x + 284).abs().argmin())
    wrong = claimed(torch.exp, lambda x: x.exp() * (1 - 1e-4 * (torch.arange(60) == place)))
    assert gradcheck(wrong, x.requires_grad_()).mismatched == 1


@pytest.mark.parametrize("seed", range(4))
def test_wrong_entry_in_flat_part_of_relu_is_found(seed: int) -> None:
    x = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    place = int((x + 0.3).abs().argmin())
    wrong = claimed(torch.relu, lambda x: (x > 0) + 1e-3 * (torch.arange(60) == place))
    assert gradcheck(wrong, x.requires_grad_()).mismatched == 1


def test_dense_entries_include_those_in_doubt() -> None:
    x = drawn(64).detach()
    x[5] = 0.0
    problem = problem_of(claimed(torch.relu, lambda x: (x > 0) * 1.0), x.requires_grad_())
    ready = made_repeatable(problem, record(problem), 0)
    assert ready is not None
    found = investigate(ready, ALONE, unchanged)
    known = dense_entries(found.comparison, 64, 64)
    assert known is not None
    assert torch.equal(known.claimed, torch.diag((x > 0) * 1.0).double())
    torch.testing.assert_close(known.numeric, known.claimed)
    assert known.code.nonzero().tolist() == [[5, 5]]
    assert int(known.code[5, 5]) == Code.KINK


@pytest.mark.parametrize("atol", [1e-5, 1e-2])
def test_detection_limit_includes_atol(atol: float) -> None:
    tolerant = replace(ALONE, tolerances=Tolerances(atol=atol))
    x = drawn(100)
    found = run_check("gradcheck", problem_of(claimed(torch.exp, torch.exp), x), tolerant)
    limit = found.detection_limit
    assert limit is not None
    assert limit >= atol / float(x.detach().exp().min())
    wrong = claimed(torch.exp, lambda x: x.exp() * (1 + 2 * limit * (torch.arange(100) == 17)))
    assert run_check("gradcheck", problem_of(wrong, x), tolerant).mismatched == 1


def test_detection_limit_includes_rounding_of_float32() -> None:
    found = gradcheck(claimed(torch.exp, torch.exp), drawn(100).detach().float().requires_grad_())
    assert found.detection_limit is not None
    assert found.detection_limit >= 1e-3 + 4 * torch.finfo(torch.float32).eps


class OneBackward(torch.autograd.Function):
    """sin, whose backward fails from its second call on one graph, or multiplies by the number of calls."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.calls, ctx.counts = 0, counts
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        ctx.calls += 1
        if ctx.calls > 1 and not ctx.counts:
            raise RuntimeError("what was saved is gone")
        return grad * x.cos() * ctx.calls, None


@pytest.mark.parametrize("size", [5, 100])
@pytest.mark.parametrize("counts", [True, False])
def test_graph_that_serves_one_vjp_is_recorded_again(size: int, counts: bool) -> None:
    result = gradcheck(lambda x: OneBackward.apply(x, counts), drawn(size))
    assert result.verdict is Verdict.PASS
    usual = gradcheck(torch.sin, drawn(size)).evaluations.forward
    assert result.evaluations.forward > usual  # one more for every vjp


def test_nearly_zero_derivative_costs_no_more() -> None:
    x = drawn(1000).detach()
    x[17] = torch.pi / 2 + 4e-6
    result = gradcheck(torch.sin, x.requires_grad_())
    assert (result.verdict, result.evaluations.forward) == (Verdict.PASS, 5)
    wrong = gradcheck(claimed(torch.sin, lambda x: x.cos() + 1e-11 * (torch.arange(1000) == 17)), x)
    assert wrong.mismatched == 1


@pytest.mark.parametrize("size", [1e-9, 1e-7])
def test_small_off_diagonal_entry_in_backward_is_found(size: float) -> None:
    result = gradcheck(lambda x: Leaks.apply(x, 7, 90, 0.0, size), drawn(100))
    assert (result.verdict, result.mismatched) == (Verdict.FAIL, 1)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.integers(32, 400), st.integers(0, 1000), st.sampled_from([-1.0, -1e-6, 1e-6, 0.5]))
def test_first_pass_overlooks_no_wrong_entry(size: int, seed: int, error: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, dtype=torch.float64, generator=generator).requires_grad_()
    place = int(torch.randint(size, (1,), generator=generator))
    wrong = claimed(torch.expm1, lambda x: x.exp() * (1 + error * (torch.arange(size) == place)))
    assert gradcheck(wrong, x).findings[0].elements[0].input_index == (place,)


@pytest.mark.parametrize("function", [torch.log, torch.rsqrt])
def test_infinite_output_does_not_hide_other_errors(function: Callable[..., Any]) -> None:
    x = drawn(200).detach().abs()
    x[31] = 0.0
    right = gradcheck(function, x.requires_grad_())
    assert (right.verdict, right.undetermined, right.mismatched) == (Verdict.INCONCLUSIVE, 1, 0)
    assert right.evaluations.forward < 100

    def slope(point: Tensor) -> Tensor:
        inside = point.detach().clone().requires_grad_()
        with torch.enable_grad():
            (found,) = torch.autograd.grad(function(inside).sum(), inside)
        return found * (1 + 1e-6 * (torch.arange(200) == 150))

    wrong = gradcheck(claimed(function, slope), x)
    assert (wrong.mismatched, wrong.findings[0].elements[0].input_index) == (1, (150,))


@pytest.mark.parametrize("seed", range(4))
def test_few_nonzero_outputs_do_not_set_the_noise_of_all(seed: int) -> None:
    """Bells so narrow beside the inputs that nearly every output is zero at every sample."""
    x = (1e3 * torch.randn(600, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))).requires_grad_()
    bell = claimed(lambda x: torch.exp(-x * x), lambda x: -2 * x * torch.exp(-x * x))
    result = gradcheck(bell, x)
    assert (result.verdict, result.undetermined) == (Verdict.PASS, 0)
    assert gradgradcheck(torch.tanh, x).verdict is Verdict.PASS


def test_stray_entry_beside_much_larger_one_is_found() -> None:
    def leaking(g: Tensor, x: Tensor) -> Tensor:
        gradient = -g / x**2
        gradient[1] += 0.1 * g[0]
        return gradient

    for size in (2, 40):
        x = torch.ones(size, dtype=torch.float64)
        x[1] = 1e-6
        x.requires_grad_()
        assert gradcheck(with_backward(torch.reciprocal, leaking), x).verdict is Verdict.FAIL
        assert gradcheck(torch.reciprocal, x).verdict is Verdict.PASS
