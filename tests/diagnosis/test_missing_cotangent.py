"""Gradients with a term that does not depend on the cotangent."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn

EXPECTED = "analytic = numeric + what a cotangent of zeros is answered with, in every wrong entry"


def log_softmax(x: Tensor) -> Tensor:
    return x.log_softmax(-1)


def test_term_without_its_cotangent_is_a_missing_cotangent() -> None:
    diagnosis = diagnosis_of(log_softmax, lambda g, x: g - x.softmax(-1), drawn(4, 5))
    assert diagnosis == ("missing-cotangent", f"{EXPECTED}: a term does not depend on the cotangent")


def test_error_with_a_constant_part_gets_no_cause() -> None:
    diagnoses = diagnoses_of(log_softmax, lambda g, x: g - 1.1 * x.softmax(-1), drawn(4, 5))
    assert diagnoses["output by x"] == (None, "")


def test_sum_over_an_additional_dimension_is_a_wrong_axis() -> None:
    wrong = lambda g, x: g - g.sum() * x.softmax(-1)  # noqa: E731
    assert diagnosis_of(log_softmax, wrong, drawn(4, 5))[0] == "wrong-axis"


def test_negligible_constant_does_not_hide_a_cause() -> None:
    assert diagnosis_of(torch.exp, lambda g, x: 2 * g * x.exp() + 1e-12, drawn(6))[0] == "constant-factor"
