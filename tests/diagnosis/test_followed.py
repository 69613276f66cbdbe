"""Regions of values are put to the test: when entries change places, what is wrong has to move with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import drawn, found, only


def average(x: Tensor, keep: float) -> Tensor:
    """An exponential moving average: its first step takes what comes, all others a part of it."""
    steps = [x[0]]
    for entry in x[1:]:
        steps.append(keep * steps[-1] + (1 - keep) * entry)
    return torch.stack(steps)


def without_the_part(g: Tensor, x: Tensor, keep: float) -> tuple[Tensor, None]:
    """Its backward as one writes it who forgets the part."""
    gradient, carried = torch.empty_like(g), torch.zeros_like(g[0])
    for step in range(len(g) - 1, -1, -1):
        carried = g[step] + keep * carried
        gradient[step] = carried
    return gradient, None


@pytest.mark.parametrize("seed", range(4))
def test_the_first_step_of_a_recurrence_is_no_branch_whatever_its_value(seed: int) -> None:
    cause, text = only(average, without_the_part, drawn(6, seed=seed), 0.7)
    assert cause == "boundary-tile"
    assert "10/3 × numeric where x is in elements" in text


@pytest.mark.parametrize("seed", range(4))
def test_a_mean_over_windows_is_no_branch(seed: int) -> None:
    counts = torch.tensor([1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0], dtype=torch.float64)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = torch.zeros_like(x)
        for number, window in enumerate(g):
            gradient[2 * number : 2 * number + 4] += window
        return gradient / counts

    cause, text = only(lambda x: x.unfold(0, 4, 2).clone(), backward, drawn(8, seed=seed))
    assert cause == "mean-for-sum"
    assert "where k is the number of outputs" in text


@pytest.mark.parametrize("seed", range(4))
def test_of_several_regions_the_one_that_moves_is_told_and_for_both_inputs_alike(seed: int) -> None:
    def huber(x: Tensor, y: Tensor, delta: float) -> Tensor:
        return torch.nn.functional.huber_loss(x, y, delta=delta)

    def unsigned(g: Tensor, x: Tensor, y: Tensor, delta: float) -> Any:
        off = x - y
        slope = g * torch.where(off.abs() < delta, off, delta) / len(off)
        return slope, -slope, None

    answers = found(huber, unsigned, drawn(12, seed=seed), drawn(12, seed=seed + 7), 0.8)
    assert answers["output by x"][1].endswith("analytic = -numeric where x - y < -0.8")
    assert answers["output by y"][1].endswith("analytic = -numeric where y - x > 0.8")


def test_a_branch_of_values_is_still_one() -> None:
    def hardswish(x: Tensor) -> Tensor:
        return torch.nn.functional.hardswish(x)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * torch.where(x < -3, 0.0, torch.where(x > 3, 2.0, (2 * x + 3) / 6))

    x = torch.linspace(-4.3, 5, 10, dtype=torch.float64)[torch.randperm(10)].requires_grad_()
    cause, text = only(hardswish, backward, x)
    assert cause == "wrong-branch"
    assert text.endswith("analytic = 2 × numeric where x > 3")


def test_next_to_nothing_is_no_factor_of_the_gradient() -> None:
    assert only(torch.sin, lambda g, x: 1e-6 * g * x.exp(), drawn(9, seed=1))[0] is None
    cause, text = only(torch.sin, lambda g, x: 1e-6 * g * x.cos(), drawn(9, seed=1))
    assert cause == "constant-factor"
    assert text.startswith("analytic = 1e-06 × numeric")


def test_a_quotient_of_tensors_is_told_as_a_story_only_where_nothing_else_is_left() -> None:
    def gated(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return g * (1 + x), g * x * x.exp() * y.sigmoid() * (1 - y.sigmoid())

    text = only(lambda x, y: x * x.exp() * y.sigmoid(), gated, drawn(5, 3), drawn(5, 3, seed=1))[1]
    assert text.endswith("a factor of x / output too many")
    text = only(lambda x, y, z: x * y * z, lambda g, x, y, z: (g * x * z, g * x * z, g * x * y), *THREE)[1]
    assert text.endswith("as where x stands for y")


THREE = [drawn(9, seed=seed) for seed in range(3)]


def test_an_argument_says_more_than_the_size_of_a_dimension() -> None:
    cause, text = only(
        lambda x, power: (x.abs() ** power).sum(-1),
        lambda g, x, power: (g.unsqueeze(1) * x.sign() * x.abs() ** (power - 1), None),
        drawn(4, 3),
        3.0,
    )
    assert cause == "constant-factor"
    assert text.endswith("a factor of y is missing (y is 3, as is the size of a dimension of x)")
