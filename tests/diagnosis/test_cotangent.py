"""Terms that do not depend on the cotangent, beside others that do."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.diagnosis.support import drawn, found, only

SAYS = "analytic = numeric + what a cotangent of zeros is answered with, in every wrong entry"


def log_softmax(x: Tensor) -> Tensor:
    return x.log_softmax(-1)


def test_one_of_two_terms_forgets_its_cotangent() -> None:
    answer = only(log_softmax, lambda g, x: g - x.softmax(-1), drawn(4, 5))
    assert answer == ("missing-cotangent", f"{SAYS}: a term does not depend on the cotangent")


def test_where_a_constant_is_a_part_of_the_error_nothing_is_said_of_how_it_is_built() -> None:
    answers = found(log_softmax, lambda g, x: g - 1.1 * x.softmax(-1), drawn(4, 5))
    assert answers["output by x"] == (None, "")


def test_a_sum_over_too_much_is_one_still() -> None:
    wrong = lambda g, x: g - g.sum() * x.softmax(-1)  # noqa: E731
    assert only(log_softmax, wrong, drawn(4, 5))[0] == "wrong-axis"


def test_a_constant_that_is_next_to_nothing_hides_no_cause() -> None:
    assert only(torch.exp, lambda g, x: 2 * g * x.exp() + 1e-12, drawn(6))[0] == "constant-factor"
