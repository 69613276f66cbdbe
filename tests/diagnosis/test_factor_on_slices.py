"""One factor on some slices of a tensor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import Backward, diagnoses_of, diagnosis_of, drawn

WEIGHTS = drawn(4, 3, seed=1).detach()


def layer(x: Tensor) -> Tensor:
    return (x.sin() @ WEIGHTS).tanh()


def times(*factors: float) -> Backward:
    """Return the backward of `layer` with its columns multiplied by `factors`."""
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
def test_one_factor_in_some_columns_is_named_with_the_columns(
    batch: int, factors: tuple[float, ...], cause: str, count: int, says: str
) -> None:
    diagnosis = diagnosis_of(layer, times(*factors), drawn(batch, 4))
    assert diagnosis == (cause, f"{count * batch} of {4 * batch} elements differ; {says}")


def test_different_factors_per_column_get_no_cause() -> None:
    assert diagnosis_of(layer, times(1, 2, 3, 1), drawn(8, 4)) == (None, "")


def test_one_right_entry_in_the_columns_contradicts_the_factor() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = times(1, 1, -1, 1)(g, x)
        gradient[5, 2] *= -1
        return gradient

    assert diagnosis_of(layer, backward, drawn(60, 4)) == (None, "")


def test_missing_factor_on_inner_bins_of_a_real_transform_is_named() -> None:
    z = torch.complex(drawn(20).detach(), drawn(20, seed=1).detach()).requires_grad_()
    diagnoses = diagnoses_of(lambda z: torch.fft.irfft(z, 38), lambda g, z: torch.fft.rfft(g) / 38, z)
    by_real = (
        "constant-factor",
        "18 of 20 elements differ; analytic = 1/2 × numeric where x.real is in elements 1 to 18",
    )
    by_imag = ("constant-factor", "analytic = 1/2 × numeric in every entry: a factor of 2 is missing")  # others are 0
    assert diagnoses == {"output by x.real": by_real, "output by x.imag": by_imag}


def test_factor_on_every_fourth_element_is_named() -> None:
    factors = torch.ones(16, dtype=torch.float64)
    factors[1::4] = 1.5
    diagnosis = diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(16))
    expected = "4 of 16 elements differ; analytic = 3/2 × numeric where x is in elements 1, 5, 9 and 13, one of each 4"
    assert diagnosis == ("constant-factor", expected)
    factors = factors[torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(16)) == (None, "")


def test_two_adjacent_elements_of_five_get_no_cause() -> None:
    factors = torch.tensor([1, 3, 3, 1, 1], dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(5)) == (None, "")
