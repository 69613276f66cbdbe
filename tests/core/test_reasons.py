"""Every verdict has a reason: a sentence that a report can show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gradverify.core.decide.verdict import REASONS, Code, Judged, Reason, all_match, decide
from tests.core.support import double, gradcheck, with_backward

HALF = with_backward(torch.relu, lambda g, x: g * (x > 0) + 0.5 * g * (x == 0))
TWICE = with_backward(torch.relu, lambda g, x: g * (x > 0) + 2 * g * (x == 0))
ROOT = with_backward(torch.sqrt, lambda g, x: g * 0.5 / x.sqrt())
STEP = with_backward(torch.floor, lambda g, x: torch.zeros_like(x))


def reasons(function: Callable[[Tensor], Tensor], *values: float) -> set[str]:
    result = gradcheck(function, double(list(values)))
    return {element.reason for finding in result.findings for element in finding.elements}


def test_every_reason_has_a_verdict_and_a_sentence_of_its_own() -> None:
    assert set(REASONS) == set(Reason)
    assert len({sentence for _, sentence in REASONS.values()}) == len(Reason)
    assert {code for code, _ in REASONS.values()} == set(Code)


def test_a_matching_entry_has_the_first_verdict_and_the_first_reason() -> None:
    assert (Code.MATCH, Reason.AGREES) == (0, 0)  # tensors of zeros stand for both
    assert REASONS[Reason.AGREES][0] is Code.MATCH


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
    assert reasons(function, *values) == {REASONS[reason][1]}


def test_a_later_rule_overrides_an_earlier_one_and_nothing_else_changes() -> None:
    number = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    judged = all_match(number, number, number, number)
    first, second = torch.tensor([[True, True, False]]), torch.tensor([[False, True, False]])
    found: Judged = decide(judged, [(first, Reason.WIDE_BAR), (second, Reason.JUMP)], bar=2 * number)
    assert found.code.tolist() == [[Code.UNDETERMINED, Code.JUMP, Code.MATCH]]
    assert found.reason.tolist() == [[Reason.WIDE_BAR, Reason.JUMP, Reason.AGREES]]
    assert torch.equal(found.bar, 2 * number)
    assert not bool(judged.code.any())  # the verdicts given are as they were
