"""Regions of values have to hold again after the entries of the input changed places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn


def average(x: Tensor, keep: float) -> Tensor:
    """Return the exponential moving average; its first step is the first entry, unscaled."""
    steps = [x[0]]
    for entry in x[1:]:
        steps.append(keep * steps[-1] + (1 - keep) * entry)
    return torch.stack(steps)


def forgetting_the_factor(g: Tensor, x: Tensor, keep: float) -> tuple[Tensor, None]:
    """Return the gradient of `average` without the factor 1 - keep."""
    gradient, carried = torch.empty_like(g), torch.zeros_like(g[0])
    for step in range(len(g) - 1, -1, -1):
        carried = g[step] + keep * carried
        gradient[step] = carried
    return gradient, None


@pytest.mark.parametrize("seed", range(4))
def test_first_step_of_a_recurrence_is_an_edge_and_not_a_branch(seed: int) -> None:
    cause, text = diagnosis_of(average, forgetting_the_factor, drawn(6, seed=seed), 0.7)
    assert cause == "boundary-tile"
    assert "10/3 × numeric where x is in elements" in text


@pytest.mark.parametrize("seed", range(4))
def test_mean_over_windows_is_a_mean_for_sum_and_not_a_branch(seed: int) -> None:
    counts = torch.tensor([1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0], dtype=torch.float64)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = torch.zeros_like(x)
        for number, window in enumerate(g):
            gradient[2 * number : 2 * number + 4] += window
        return gradient / counts

    cause, text = diagnosis_of(lambda x: x.unfold(0, 4, 2).clone(), backward, drawn(8, seed=seed))
    assert cause == "mean-for-sum"
    assert "where k is the number of outputs" in text


@pytest.mark.parametrize("seed", range(4))
def test_region_that_follows_the_values_is_named_for_both_inputs(seed: int) -> None:
    def huber(x: Tensor, y: Tensor, delta: float) -> Tensor:
        return torch.nn.functional.huber_loss(x, y, delta=delta)

    def unsigned(g: Tensor, x: Tensor, y: Tensor, delta: float) -> Any:
        difference = x - y
        slope = g * torch.where(difference.abs() < delta, difference, delta) / len(difference)
        return slope, -slope, None

    diagnoses = diagnoses_of(huber, unsigned, drawn(12, seed=seed), drawn(12, seed=seed + 7), 0.8)
    assert diagnoses["output by x"][1].endswith("analytic = -numeric where x - y < -0.8")
    assert diagnoses["output by y"][1].endswith("analytic = -numeric where y - x > 0.8")


def test_branch_of_values_is_a_wrong_branch() -> None:
    def hardswish(x: Tensor) -> Tensor:
        return torch.nn.functional.hardswish(x)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * torch.where(x < -3, 0.0, torch.where(x > 3, 2.0, (2 * x + 3) / 6))

    x = torch.linspace(-4.3, 5, 10, dtype=torch.float64)[torch.randperm(10)].requires_grad_()
    cause, text = diagnosis_of(hardswish, backward, x)
    assert cause == "wrong-branch"
    assert text.endswith("analytic = 2 × numeric where x > 3")


def test_tiny_gradient_is_a_constant_factor_only_if_proportional() -> None:
    assert diagnosis_of(torch.sin, lambda g, x: 1e-6 * g * x.exp(), drawn(9, seed=1))[0] is None
    cause, text = diagnosis_of(torch.sin, lambda g, x: 1e-6 * g * x.cos(), drawn(9, seed=1))
    assert cause == "constant-factor"
    assert text.startswith("analytic = 1e-06 × numeric")


def test_quotient_names_the_mistaken_tensor_only_if_the_rest_is_a_plain_product() -> None:
    def gated(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return g * (1 + x), g * x * x.exp() * y.sigmoid() * (1 - y.sigmoid())

    text = diagnosis_of(lambda x, y: x * x.exp() * y.sigmoid(), gated, drawn(5, 3), drawn(5, 3, seed=1))[1]
    assert text.endswith("a factor of x / output too many")
    text = diagnosis_of(lambda x, y, z: x * y * z, lambda g, x, y, z: (g * x * z, g * x * z, g * x * y), *THREE)[1]
    assert text.endswith("as where x stands for y")


THREE = [drawn(9, seed=seed) for seed in range(3)]


def test_argument_is_named_before_the_size_of_a_dimension() -> None:
    cause, text = diagnosis_of(
        lambda x, power: (x.abs() ** power).sum(-1),
        lambda g, x, power: (g.unsqueeze(1) * x.sign() * x.abs() ** (power - 1), None),
        drawn(4, 3),
        3.0,
    )
    assert cause == "constant-factor"
    assert text.endswith("a factor of y is missing (y is 3, as is the size of a dimension of x)")
