"""Factors made of counts: Bessel's correction, valid elements, the size of another dimension."""

from __future__ import annotations

import pytest
import torch

from tests.diagnosis.support import Backward, diagnosis_of, drawn

N = "size of x's dimension 1"


def by(factor: float) -> Backward:
    """Return the backward of the variance along dimension 1, times `factor`."""
    return lambda g, x: factor * 2 * g.unsqueeze(1) * (x - x.mean(1, keepdim=True)) / (x.shape[1] - 1)


@pytest.mark.parametrize(("factor", "says"), [(4 / 5, "(n - 1)/n"), (5 / 4, "n/(n - 1)"), (0.8**0.5, "√((n - 1)/n)")])
def test_bessel_factor_is_a_wrong_count(factor: float, says: str) -> None:
    cause, text = diagnosis_of(lambda x: x.var(1), by(factor), drawn(7, 5))
    assert (cause, text) == (
        "wrong-count",
        f"analytic = {says} × numeric in every entry, with n = 5 = {N}: a count is wrong",
    )


def test_mean_over_all_instead_of_valid_elements_is_a_wrong_count() -> None:
    mask = torch.tensor([1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1], dtype=torch.bool)
    forward = lambda x, y: (x.exp() * y).sum() / y.sum()  # noqa: E731
    cause, text = diagnosis_of(forward, lambda g, x, y: (g * x.exp() * y / len(x), None), drawn(11), mask)
    assert cause == "wrong-count"
    assert text == (
        "analytic = n/m × numeric in every entry, with n = 8 = number of y's elements that are not zero"
        " and m = 11 = size of x's dimension 0: a count is wrong"
    )


def test_division_by_a_large_size_is_a_wrong_count_in_an_elementwise_function() -> None:
    cause, text = diagnosis_of(torch.sin, lambda g, x: g * x.cos() / 12, drawn(12, 2))
    assert (cause, "1/n × numeric in every entry, with n = 12 = size of x's dimension 0" in text) == (
        "wrong-count",
        True,
    )


@pytest.mark.parametrize("factor", [2.0, 0.5, 3.0, 1.2, 0.75, 6 / 7])
def test_factor_of_small_numbers_is_not_a_count_in_an_elementwise_function(factor: float) -> None:
    assert diagnosis_of(torch.sin, lambda g, x: factor * g * x.cos(), drawn(7, 4))[0] == "constant-factor"


def test_factor_not_made_of_counts_is_a_constant_factor() -> None:
    assert diagnosis_of(lambda x: x.var(1), by(0.83), drawn(7, 5))[0] == "constant-factor"
    assert diagnosis_of(lambda x: x.var(1), by(2.0), drawn(7, 5))[0] == "constant-factor"


def test_mean_for_sum_precedes_wrong_count() -> None:
    wrong = lambda g, x: (g / 12).expand_as(x)  # noqa: E731
    assert diagnosis_of(lambda x: x.sum(), wrong, drawn(12))[0] == "mean-for-sum"
