"""Missing triangular and banded masks."""

from __future__ import annotations

import pytest
import torch

from tests.core.support import double
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn


def test_missing_causal_mask_is_a_missing_band() -> None:
    diagnosis = diagnosis_of(lambda x: x.cumsum(0), lambda g, x: g.sum().expand_as(x), drawn(5))
    text = "10 of 25 entries differ; analytic ≠ 0 and numeric = 0 wherever j > i, with i the index of output and j the"
    assert diagnosis == ("missing-band", f"{text} index of x: tril(0) is missing")


@pytest.mark.parametrize(("diagonal", "said"), [(1, "j > i"), (-1, "j < i")])
def test_missing_causal_mask_along_one_dimension_is_a_missing_band(diagonal: int, said: str) -> None:
    weights = drawn(5, 5).detach()
    kept = weights.tril() if diagonal > 0 else weights.triu()
    cause, text = diagnosis_of(lambda x: kept @ x, lambda g, x: weights.T @ g, drawn(5, 3, seed=1))
    assert cause == "missing-band"
    assert (
        f"wherever {said}, with i the index along dimension 0 of output and j the index along dimension 0 of x" in text
    )
    partly = kept + (weights - kept) * (torch.arange(25).view(5, 5) % 7 > 1)
    assert diagnosis_of(lambda x: kept @ x, lambda g, x: partly.T @ g, drawn(5, 3, seed=1))[0] not in (
        "missing-band",
        "missing-mask",
    )


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-9, 0, "wherever j > i, with {}: tril(0) is missing"),
        (-9, -1, "wherever j > i - 1, with {}: tril(-1) is missing"),
        (1, 9, "wherever j < i + 1, with {}: triu(1) is missing"),
        (-1, 2, "wherever j < i - 1 or j > i + 2, with {}: a band of width 4 is missing"),
    ],
)
def test_missing_band_of_a_matrix_is_named_with_its_condition(low: int, high: int, says: str) -> None:
    cause, text = diagnosis_of(lambda x: x.triu(low).tril(high), lambda g, x: g, drawn(5, 6))
    assert cause == "missing-band"
    where = says.format("i the index along dimension 0 of x and j the index along dimension 1 of x")
    assert text.endswith(f"analytic ≠ 0 and numeric = 0 {where}")


def test_missing_mask_of_the_weights_is_a_missing_band() -> None:
    diagnoses = diagnoses_of(
        lambda x, y: y.tril() @ x, lambda g, x, y: (y.tril().T @ g, g @ x.T), drawn(4, 3), drawn(4, 4, seed=1)
    )
    assert {place: cause for place, (cause, _) in diagnoses.items()} == {"output by y": "missing-band"}


def test_missing_mask_of_the_scores_is_a_missing_band() -> None:
    """Forward masks the scores; backward returns gradients for masked scores too."""
    causal = torch.ones(6, 6, dtype=torch.float64).tril()
    wrong = lambda g, x, y: (g @ y, g.T @ x)  # noqa: E731
    diagnoses = diagnoses_of(lambda x, y: (x @ y.T) * causal, wrong, drawn(6, 2), drawn(6, 2, seed=1))
    assert {cause for cause, _ in diagnoses.values()} == {"missing-band"}


def test_missing_mask_that_depends_on_values_is_not_a_band() -> None:
    x = double(torch.linspace(-2, 2.1, 16).view(4, 4)[:, [2, 0, 3, 1]].tolist())
    cause, text = diagnosis_of(torch.relu, lambda g, x: g, x)
    assert (cause, text.endswith("at x < 0")) == ("missing-mask", True)


def test_triangle_of_a_2x2_matrix_is_not_a_band() -> None:
    x = double([[0.3, -0.4], [0.7, 0.9]])
    assert diagnosis_of(torch.relu, lambda g, x: g, x)[0] == "missing-mask"


def test_partly_missing_band_is_not_a_missing_band() -> None:
    kept = torch.ones(5, 5, dtype=torch.float64).tril()
    partly = kept.clone()
    partly[0, 3] = 1.0
    assert diagnosis_of(lambda x: x * kept, lambda g, x: g * partly, drawn(5, 5))[0] != "missing-band"
