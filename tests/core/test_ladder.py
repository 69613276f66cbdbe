"""The ladder of steps: error bars at its finest rungs, its span, and differences that converge slowly or never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradverify.core.estimate.column_groups import single_columns
from gradverify.core.estimate.nonsmooth import classify_ladder
from gradverify.core.estimate.samples import Estimate, joined
from gradverify.core.estimate.stencil import sample
from gradverify.core.estimate.tableau import coarse_steps, fine_steps
from gradverify.core.forward.length_scales import scales
from gradverify.core.forward.noise import measure
from gradverify.core.forward.repeatable import made_repeatable
from gradverify.core.model.tape import record
from gradverify.result import Verdict
from tests.core.support import claimed, double, gradcheck, gradgradcheck, problem_of


def estimated_as_if_quiet(factor: float, x: float) -> Estimate:
    """Return the estimated slope of sin(factor·x), with the noise set to the rounding of its values only."""
    problem = problem_of(lambda x: torch.sin(factor * x), double([x]))
    ready = made_repeatable(problem, record(problem), 0)
    assert ready is not None
    sampled, chosen = ready.sampled, torch.zeros(1, dtype=torch.long)
    lengths, column_groups = scales(sampled), single_columns(1, 1, torch.device("cpu"))
    noise = measure(sampled, lengths, 0)
    stencils = [
        sample(sampled, column_groups, chosen, steps) for steps in (coarse_steps(lengths), fine_steps(lengths, chosen))
    ]
    quiet = replace(noise, level=noise.rounding)
    return classify_ladder(sampled, quiet, joined(*stencils), lengths.own.unsqueeze(1)).estimate


def drawn() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 1000 + 1000 * torch.rand(60, dtype=torch.float64, generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [700.0, 1000.0, 3e4])
def test_bars_cover_evenly_growing_rounding_of_products(factor: float) -> None:
    for x in drawn().tolist():
        found = estimated_as_if_quiet(factor, x)
        slope = factor * torch.cos(torch.tensor(factor * x, dtype=torch.float64))
        assert float((found.value - slope).abs()) <= 10 * float(found.bar)
        assert 10 * float(found.bar) <= 1e-3 * factor  # and the bars are still informative


@pytest.mark.parametrize("point", [[1e150, 1e-160], [1e153, 1e-300, 1.0], [1e150, 5e-324], [1e150, 0.0]])
def test_ladder_reaches_smallest_and_largest_floats(point: list[float]) -> None:
    assert gradcheck(claimed(torch.square, lambda x: 2.02 * x), double(point)).verdict == "fail"


GUARDED: dict[str, Callable[[Tensor, float], Tensor]] = {
    "x log(|x| + e)": lambda x, guard: x * torch.log(x.abs() + guard),
    "x log(x² + e)": lambda x, guard: x * torch.log(x * x + guard),
    "x log(x + e)": lambda x, guard: x * torch.log(x + guard),
    "entropy": lambda x, guard: -(x * torch.log(x + guard)).sum(),
}


@pytest.mark.parametrize("guard", [torch.finfo(torch.float64).tiny, 1e-38, 1e-30, 1e-20, 1e-12])
@pytest.mark.parametrize("name", GUARDED)
def test_correct_gradient_passes_if_quotients_grow_with_log_of_step(name: str, guard: float) -> None:
    result = gradcheck(lambda x: GUARDED[name](x, guard), double([0.0, 0.25, 0.75]))
    assert result.mismatched == 0


@pytest.mark.parametrize("guard", [1e-300, 1e-30])
def test_correct_second_derivative_passes_if_quotients_grow_with_log_of_step(guard: float) -> None:
    result = gradgradcheck(lambda x: x * x * torch.log(x * x + guard), double([0.0, 0.25, 0.75]))
    assert result.mismatched == 0


@pytest.mark.parametrize("guard", [1e-2, 1e-5])
def test_wrong_derivative_is_found_if_quotients_stop_growing(guard: float) -> None:
    def loss(x: Tensor) -> Tensor:
        return x * torch.log(x * x + guard)

    def slope(x: Tensor) -> Tensor:
        return torch.log(x * x + guard) + 2 * x * x / (x * x + guard)

    x = double([0.0, 0.25, 0.75])
    assert gradcheck(claimed(loss, slope), x).verdict is Verdict.PASS
    assert gradcheck(claimed(loss, lambda x: slope(x) * (1 + 1e-6 * (x == 0))), x).verdict is Verdict.FAIL


@pytest.mark.parametrize("power", [1.5, 1.25])
def test_slowly_converging_quotients_find_wrong_derivative(power: float) -> None:
    assert gradcheck(lambda x: x.abs() ** power, double([0.0, 0.25, -0.75])).mismatched == 0
    wrong = claimed(lambda x: x.abs() ** power, lambda x: power * x.abs() ** (power - 1) * x.sign() + 1.0)
    assert gradcheck(wrong, double([0.0, 0.25, -0.75])).verdict is Verdict.FAIL
