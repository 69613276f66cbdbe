"""Claims at a kink that are not between the one-sided derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.core.support import double
from tests.diagnosis.support import Backward, diagnoses_of, diagnosis_of

AT_ZERO = (0.0, 1.3, -0.4, 0.7, -1.2, 2.1, 0.3, -0.9)


def relu_with(at_zero: float, right: float = 2.0) -> Backward:
    """Return a backward of 2·relu with slope `at_zero` at zero and `right` on the right."""
    return lambda g, x: g * torch.where(x == 0, at_zero, right * (x > 0))


def doubled(x: Tensor) -> Tensor:
    return 2 * x.relu()


def test_claim_outside_the_slopes_is_named_with_the_slopes() -> None:
    diagnosis = diagnosis_of(doubled, relu_with(-8.0), double(AT_ZERO))
    text = "at a kink: backward says -8, the slopes are 0 and 2 (output[0] by x[0])"
    assert diagnosis == ("outside-slopes", text)
    diagnosis = diagnosis_of(doubled, relu_with(3.5), double(AT_ZERO))
    assert diagnosis == ("outside-slopes", text.replace("-8", "3.5"))


def test_claim_outside_the_slopes_of_a_single_input_is_named() -> None:
    assert diagnosis_of(torch.abs, relu_with(-1.5), double(0.0))[1].startswith(
        "at a kink: backward says -1.5, the slopes are -1"
    )


def test_several_claims_outside_the_slopes_are_counted() -> None:
    diagnosis = diagnosis_of(doubled, lambda g, x: -8 * g, double((0.0, 0.0, 0.0)))
    text = "at a kink: backward says -8, the slopes are 0 and 2 (output[0] by x[0])"
    assert diagnosis == ("outside-slopes", f"{text}; 2 more wrong entries lie outside both slopes at a kink")


def test_tie_of_two_inputs_is_a_kink() -> None:
    x, y = double((0.5, -0.3, 1.2)), double((0.5, 0.4, 0.9))

    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return g * torch.where(x == y, 1.7, 1.0 * (x > y)), g * torch.where(x == y, 0.5, 1.0 * (y > x))

    diagnosis = diagnoses_of(torch.maximum, backward, x, y)["output by x"]
    assert diagnosis == ("outside-slopes", "at a kink: backward says 1.7, the slopes are 0 and 1 (output[0] by x[0])")


def test_claim_between_the_slopes_is_accepted() -> None:
    assert diagnoses_of(doubled, relu_with(0.7), double(AT_ZERO)) == {}


def test_error_beside_the_kink_has_another_cause() -> None:
    assert diagnosis_of(doubled, relu_with(-8.0, 2.2), double(AT_ZERO))[0] != "outside-slopes"
    assert diagnosis_of(doubled, relu_with(1.0, 2.2), double(AT_ZERO))[0] == "wrong-branch"


def test_kink_near_the_point_is_not_a_kink_at_the_point() -> None:
    wrong = lambda g, x: g * torch.where(x == 1 + 2e-5, 9.0, 2.0 * (x > 1))  # noqa: E731
    diagnosis = diagnosis_of(lambda x: 2 * (x - 1).relu(), wrong, double((1 + 2e-5, 1.3, 0.4, 1.7)))
    assert diagnosis[0] == "single-elements"


def test_no_gradient_at_a_tie_is_detached() -> None:
    """At ties, the slopes of a sum of sorted entries exclude zero, but backward has no slope at all."""
    weights = double((3.0, 2.0, 1.0)).detach()

    def forward(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum() + (y.sort(descending=True).values * weights).sum()

    x, y = double((0.5, 0.2, 0.7)), double((1.0, 1.0, 1.0))
    diagnosis = diagnoses_of(forward, lambda g, x, y: (g * y, None), x, y)["output by y"]
    assert diagnosis == ("detached", "backward returns no gradient for y, although output depends on it")
