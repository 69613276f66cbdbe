"""The ladder of steps: its finest rungs are worth no more than the rounding on the way allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradverify.core.function.noise import measure
from gradverify.core.function.scale import scales
from gradverify.core.function.steady import steady
from gradverify.core.function.tape import record
from gradverify.core.numeric.ladder import coarse_steps, fine_steps
from gradverify.core.numeric.moves import single_moves
from gradverify.core.numeric.nonsmooth import examine
from gradverify.core.numeric.samples import Estimate, joined
from gradverify.core.numeric.walk import sample
from tests.core.support import claimed, double, gradcheck, problem_of


def estimated_as_if_quiet(factor: float, x: float) -> Estimate:
    """Return the slope of sin(factor·x), where by chance no more noise was heard than that of rounding its values."""
    problem = problem_of(lambda x: torch.sin(factor * x), double([x]))
    ready = steady(problem, record(problem), 0)
    assert ready is not None
    sampled, chosen = ready.sampled, torch.zeros(1, dtype=torch.long)
    lengths, moves = scales(sampled), single_moves(1, 1, torch.device("cpu"))
    noise = measure(sampled, lengths, 0)
    walks = [sample(sampled, moves, chosen, steps) for steps in (coarse_steps(lengths), fine_steps(lengths, chosen))]
    quiet = replace(noise, level=noise.rounding)
    return examine(sampled, quiet, joined(*walks), lengths.own.unsqueeze(1)).estimate


def drawn() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 1000 + 1000 * torch.rand(60, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("factor", [700.0, 1000.0, 3e4])
def test_products_that_rise_evenly_by_rounding_are_not_taken_for_slopes(factor: float) -> None:
    for x in drawn().tolist():
        found = estimated_as_if_quiet(factor, x)
        slope = factor * torch.cos(torch.tensor(factor * x, dtype=torch.float64))
        assert float((found.value - slope).abs()) <= 10 * float(found.bar)
        assert 10 * float(found.bar) <= 1e-3 * factor  # and yet they say something


@pytest.mark.parametrize("point", [[1e150, 1e-160], [1e153, 1e-300, 1.0], [1e150, 5e-324], [1e150, 0.0]])
def test_a_ladder_spans_all_numbers_there_are(point: list[float]) -> None:
    assert gradcheck(claimed(torch.square, lambda x: 2.02 * x), double(point)).verdict == "fail"
