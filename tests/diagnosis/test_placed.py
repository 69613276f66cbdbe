"""One factor on some slices of a tensor: which ones, and when they say nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import Backward, drawn, found, only

WEIGHTS = drawn(4, 3, seed=1).detach()


def layer(x: Tensor) -> Tensor:
    return (x.sin() @ WEIGHTS).tanh()


def times(*factors: float) -> Backward:
    """Return the backward of the layer whose columns are multiplied by these."""
    scale = torch.tensor(factors, dtype=torch.float64)
    return lambda g, x: (g * (1 - layer(x) ** 2)) @ WEIGHTS.T * x.cos() * scale


@pytest.mark.parametrize("batch", [3, 8, 40])
@pytest.mark.parametrize(
    ("factors", "cause", "count", "says"),
    [
        ((1, 1, -1, 1), "sign-flip", 1, "analytic = -numeric where x is in column 2"),
        ((1, -1, -1, 1), "sign-flip", 2, "analytic = -numeric where x is in columns 1 and 2"),
        ((1, 2, 1, 1), "constant-factor", 1, "analytic = 2 × numeric where x is in column 1"),
        ((2, 1, 1, 2), "constant-factor", 2, "analytic = 2 × numeric where x is in columns 0 and 3, at both ends"),
    ],
)
def test_one_factor_in_some_columns(batch: int, factors: tuple[float, ...], cause: str, count: int, says: str) -> None:
    answer = only(layer, times(*factors), drawn(batch, 4))
    assert answer == (cause, f"{count * batch} of {4 * batch} elements differ; {says}")


def test_columns_with_a_factor_each_are_not() -> None:
    assert only(layer, times(1, 2, 3, 1), drawn(8, 4)) == (None, "")


def test_one_entry_that_goes_without_contradicts_it() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = times(1, 1, -1, 1)(g, x)
        gradient[5, 2] *= -1
        return gradient

    assert only(layer, backward, drawn(60, 4)) == (None, "")


def test_the_first_and_the_last_bin_of_a_real_transform_stand_once() -> None:
    z = torch.complex(drawn(20).detach(), drawn(20, seed=1).detach()).requires_grad_()
    answers = found(lambda z: torch.fft.irfft(z, 38), lambda g, z: torch.fft.rfft(g) / 38, z)
    by_real = (
        "constant-factor",
        "18 of 20 elements differ; analytic = 1/2 × numeric where x.real is in elements 1 to 18",
    )
    by_imag = ("constant-factor", "analytic = 1/2 × numeric in every entry: a factor of 2 is missing")  # others are 0
    assert answers == {"output by x.real": by_real, "output by x.imag": by_imag}


def test_one_of_each_four_in_the_middle() -> None:
    factors = torch.ones(16, dtype=torch.float64)
    factors[1::4] = 1.5
    answer = only(torch.exp, lambda g, x: factors * g * x.exp(), drawn(16))
    says = "4 of 16 elements differ; analytic = 3/2 × numeric where x is in elements 1, 5, 9 and 13, one of each 4"
    assert answer == ("constant-factor", says)
    factors = factors[torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    assert only(torch.exp, lambda g, x: factors * g * x.exp(), drawn(16)) == (None, "")


def test_two_of_five_in_a_row_are_so_by_chance() -> None:
    factors = torch.tensor([1, 3, 3, 1, 1], dtype=torch.float64)
    assert only(torch.exp, lambda g, x: factors * g * x.exp(), drawn(5)) == (None, "")
