"""Every verdict has a reason: a sentence that a report can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.core.decide.verdict import Code, Reason
from tests.core.support import double, gradcheck, with_backward

HALF = with_backward(torch.relu, lambda g, x: g * (x > 0) + 0.5 * g * (x == 0))
TWICE = with_backward(torch.relu, lambda g, x: g * (x > 0) + 2 * g * (x == 0))
STEP = with_backward(torch.floor, lambda g, x: torch.zeros_like(x))


def reasons(function: Callable[[Tensor], Tensor], *values: float) -> set[str]:
    result = gradcheck(function, double(list(values)))
    return {element.reason for finding in result.findings for element in finding.elements}


def test_every_reason_has_a_verdict_and_a_sentence_of_its_own() -> None:
    assert len({reason.sentence for reason in Reason}) == len(Reason)
    assert {reason.code for reason in Reason} == set(Code)


def test_a_matching_entry_has_the_first_verdict_and_the_first_reason() -> None:
    assert (Code.MATCH, Reason.AGREES) == (0, 0)  # tensors of zeros stand for both
    assert Reason.AGREES.code is Code.MATCH


@pytest.mark.parametrize(
    ("function", "values", "reason"),
    [
        (HALF, (0.0, 1.0), Reason.BETWEEN_SLOPES),
        (TWICE, (0.0, 1.0), Reason.OUTSIDE_SLOPES),
        (with_backward(torch.sin, lambda g, x: 2 * g * x.cos()), (0.3,), Reason.DIFFERS),
        (STEP, (1.0,), Reason.JUMP),
        (torch.sqrt, (0.0,), Reason.WIDE_BAR),
        (torch.log, (-1.0,), Reason.NOT_FINITE),
    ],
)
def test_the_reason_of_an_element(
    function: Callable[[Tensor], Tensor], values: tuple[float, ...], reason: Reason
) -> None:
    assert reasons(function, *values) == {reason.sentence}


def test_a_later_rule_overrides_an_earlier_one() -> None:
    """At the kink, the claim is between the slopes and differs from the mean slope: only the former is the reason."""
    assert reasons(HALF, 0.0) == {Reason.BETWEEN_SLOPES.sentence}
    shifted = with_backward(torch.relu, lambda g, x: g * (x > 0) + 0.1 * g * (x == 0))
    assert reasons(shifted, 0.0) == {Reason.BETWEEN_SLOPES.sentence}
