"""One factor for each row or channel: what it is of, where that is a statistic of a tensor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import drawn, only


def normalised(x: Tensor) -> Tensor:
    """x without its mean and in units of its deviation, row by row."""
    return torch.nn.functional.layer_norm(x, x.shape[1:])


def mixed(g: Tensor, y: Tensor) -> Tensor:
    """The gradient of a layer norm in units of the output."""
    return g - g.mean(1, keepdim=True) - y * (g * y).mean(1, keepdim=True)


def test_a_layer_norm_that_forgets_to_divide_by_the_deviation() -> None:
    cause, text = only(normalised, lambda g, x: mixed(g, normalised(x)), drawn(4, 6))
    assert cause == "missing-factor"
    assert text == (
        "analytic = numeric × the standard deviation of x in each row of x: "
        "a factor of the standard deviation of x too many"
    )


@pytest.mark.parametrize(
    ("power", "says"),
    [
        (0, "numeric × the norm of x in each row of x: a factor of the norm of x too many"),
        (2, "numeric / the norm of x in each row of x: a factor of the norm of x is missing"),
    ],
)
def test_a_direction_divided_by_the_norm_once_too_seldom_or_too_often(power: int, says: str) -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        length = x.norm(dim=1, keepdim=True)
        y = x / length
        return (g - y * (g * y).sum(1, keepdim=True)) / length**power

    answer = only(lambda x: x / x.norm(dim=1, keepdim=True), backward, drawn(5, 4))
    assert answer == ("missing-factor", f"analytic = {says}")


def test_of_two_statistics_the_one_that_needs_no_number_is_told() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        y = x / x.square().mean(1, keepdim=True).sqrt()
        return g - y * (g * y).mean(1, keepdim=True)

    text = only(lambda x: x / x.square().mean(1, keepdim=True).sqrt(), backward, drawn(5, 4))[1]
    assert text.endswith("a factor of the root mean square of x too many")


def test_factors_of_slices_that_are_no_statistic_are_not_named() -> None:
    scale = torch.tensor([0.3, 1.7, 2.9], dtype=torch.float64)
    assert only(torch.exp, lambda g, x: g * x.exp() * scale.view(1, 3, 1), drawn(2, 3, 4)) == (None, "")


def test_entries_with_factors_of_their_own_are_no_slices() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = 1 + torch.rand(3, 4, generator=generator, dtype=torch.float64)
    assert only(torch.exp, lambda g, x: g * x.exp() * scale, drawn(3, 4)) == (None, "")
