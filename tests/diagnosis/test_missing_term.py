"""Missing terms: entries claimed to be zero, summands, inverted masks, derivatives at a wrong point."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.core.support import double
from tests.diagnosis.support import Backward, diagnosis_of, drawn, jacobian
from tests.diagnosis.test_constant_factor import gradients

TARGET = torch.tensor([1, 0, 3, 2, 1, 3])
Y = drawn(6, 8, seed=2).detach()


def gated(x: Tensor) -> Tensor:
    return functional.glu(x, 1)


def test_zero_gradient_for_half_of_an_input_is_a_missing_term() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return torch.cat([g * x[:, 4:].sigmoid(), torch.zeros_like(g)], 1)

    expected = "analytic = 0 in 20 of the 40 entries that are not zero, those by x[:, 4:], and right in the others"
    diagnosis = diagnosis_of(gated, backward, drawn(5, 8))
    assert diagnosis == ("missing-term", f"{expected}: part of the derivative is left out")


def test_one_of_two_terms_of_a_difference_is_a_missing_term() -> None:
    cause, text = diagnosis_of(torch.diff, lambda g, x: functional.pad(g, (1, 0)), drawn(8))
    expected = (
        "analytic = 0 in 7 of the 14 entries that are not zero, and right in the others: part of the derivative is"
    )
    assert (cause, text) == ("missing-term", f"{expected} left out")


def test_lost_entries_beside_other_wrong_entries_get_no_cause() -> None:
    right = drawn(6, 6, seed=3).detach()
    wrong = right.clone()
    wrong[[0, 2, 3, 5], [1, 4, 0, 2]] = 0.0
    cause, text = diagnosis_of(lambda x: right @ x, jacobian(wrong), drawn(6))
    assert (cause, text.startswith("analytic = 0 in 4 of the 36 entries")) == ("missing-term", True)
    wrong[4, 4] *= 1.3
    assert diagnosis_of(lambda x: right @ x, jacobian(wrong), drawn(6)) == (None, "")


def cross_entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, TARGET)


def test_target_not_subtracted_is_a_missing_summand() -> None:
    diagnosis = diagnosis_of(cross_entropy, lambda g, x: g * x.softmax(-1) / len(x), drawn(6, 5))
    expected = "6 of 30 entries differ; analytic = numeric + 1/6: a summand is missing or too many"
    assert diagnosis == ("missing-term", expected)
    target = drawn(10, seed=1).detach()
    backward: Backward = lambda g, x, t: (2 * g * x / 10, None)  # noqa: E731
    diagnosis = diagnosis_of(lambda x, t: (x - t).square().mean(), backward, drawn(10), target)
    expected = "10 of 10 entries differ; analytic = numeric + 1/5 × y: a summand is missing or too many"
    assert diagnosis == ("missing-term", expected)


def test_summand_equal_to_no_tensor_gets_no_cause() -> None:
    shift = 0.1 * drawn(10, seed=1).detach()
    assert diagnosis_of(torch.sin, lambda g, x: g * (x.cos() + shift), drawn(10)) == (None, "")
    assert diagnosis_of(lambda x: x.sin().sum(), lambda g, x: g * (x.cos() + shift), drawn(10)) == (None, "")


def test_summand_that_is_also_a_factor_gets_no_cause() -> None:
    chosen = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0, 1, 0], dtype=torch.float64)
    assert diagnosis_of(lambda x: 3 * x, lambda g, x: 3 * g * (1 + chosen), drawn(10)) == (None, "")


def test_inverted_mask_is_a_missing_mask() -> None:
    mask = torch.tensor([1, 1, 0, 1, 0, 1, 1, 0], dtype=torch.float64)
    diagnosis = diagnosis_of(lambda x, m: x * m, lambda g, x, m: (g * (1 - m), None), drawn(8), mask)
    expected = (
        "all elements differ; analytic = 0 in 5 of 8 elements and numeric = 0 in the others: the mask is inverted"
    )
    assert diagnosis == ("missing-mask", expected)
    diagnosis = diagnosis_of(
        lambda x, m: x * m, lambda g, x, m: (g * (1 - m) * (torch.arange(8) > 2), None), drawn(8), mask
    )
    assert "inverted" not in diagnosis[1]


@pytest.mark.parametrize("forward", [torch.tanh, torch.sigmoid])
def test_input_used_for_the_output_is_a_wrong_point(forward: object) -> None:
    slope = (lambda y: 1 - y * y) if forward is torch.tanh else (lambda y: y * (1 - y))
    cause, text = diagnosis_of(forward, lambda g, x: g * slope(x), drawn(9))  # type: ignore[arg-type]
    expected = "backward at x = output says what is right here: it computes with x where output belongs"
    assert (cause, text) == ("wrong-point", expected)


def at_the_output(forward: Callable[[Tensor], Tensor]) -> Backward:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            output = forward(x).detach().requires_grad_()
            return g * torch.autograd.grad(forward(output).sum(), output)[0]

    return backward


@pytest.mark.parametrize("forward", [functional.softplus, functional.elu, functional.selu, torch.i0])
def test_output_used_for_the_input_is_a_wrong_point(forward: Callable[[Tensor], Tensor]) -> None:
    diagnosis = diagnosis_of(forward, at_the_output(forward), 2 * drawn(12))
    expected = "analytic is the derivative at x = output: backward computes with output where x belongs"
    assert diagnosis == ("wrong-point", expected)


def test_forgotten_sign_is_a_branch_and_not_a_wrong_point() -> None:
    cause, text = diagnosis_of(torch.abs, at_the_output(torch.abs), drawn(12))
    assert (cause, text.endswith("analytic = -numeric where x < 0")) == ("wrong-branch", True)


def test_another_input_used_for_this_one_is_a_wrong_point() -> None:
    backward: Backward = lambda g, x, y: (g * y.cos() + 0 * x, g)  # noqa: E731
    diagnosis = diagnosis_of(lambda x, y: x.sin() + y, backward, drawn(9), drawn(9, seed=1))
    assert diagnosis == ("wrong-point", "analytic is the derivative at x = y: backward computes with y where x belongs")


def test_mask_from_another_tensor_is_a_wrong_point() -> None:
    diagnosis = diagnosis_of(lambda x, y: x.relu() + y, lambda g, x, y: (g * (y > 0), g), drawn(24), drawn(24, seed=1))
    assert diagnosis == ("wrong-point", "analytic is the derivative at x = y: backward computes with y where x belongs")


def test_wrong_point_with_many_zeros_is_named() -> None:
    y = double([0.0, 0, 0, 0, 0, 0.5, 1, 2, 0.7])
    backward: Backward = lambda g, x, y: (g * (1 - y.tanh().square()), g)  # noqa: E731
    assert diagnosis_of(lambda x, y: x.tanh() + y, backward, drawn(9), y)[0] == "wrong-point"


def test_linear_branch_is_not_a_wrong_point() -> None:
    forward = lambda x, s: torch.where(x > 0, x, torch.expm1(x)) * s  # noqa: E731
    diagnosis = diagnosis_of(forward, lambda g, x, s: (g * s, None), drawn(40), 0.5 + drawn(40, seed=1).detach().abs())
    assert (diagnosis[0], diagnosis[1].endswith("exactly where x < 0")) == ("wrong-branch", True)


def test_missing_multiple_of_a_tensor_per_row_is_a_missing_term() -> None:
    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gx, gy = gradients(lambda x, y: functional.cosine_similarity(x, y, dim=1), g, x, y)
        length = x.norm(dim=1, keepdim=True)
        cosine = functional.cosine_similarity(x, y, dim=1).unsqueeze(1)
        return gx + g.unsqueeze(1) * cosine * x / length.square(), gy  # the component along x is not subtracted

    diagnosis = diagnosis_of(
        lambda x, y: functional.cosine_similarity(x, y, dim=1), backward, drawn(6, 8), drawn(6, 8, seed=1)
    )
    expected = "48 of 48 entries differ; analytic - numeric is x times a number of each output's own: a term that goes"
    assert diagnosis == ("missing-term", f"{expected} with x is missing or too many")
    diagnosis = diagnosis_of(
        lambda x, y: (x * y).sum(1), lambda g, x, y: (g.unsqueeze(1) * (y + y.roll(1, 1)), None), drawn(6, 8), Y
    )
    assert diagnosis == (None, "")


def test_missing_constant_per_output_is_a_missing_term() -> None:
    target = (torch.arange(24).view(4, 6) % 5 > 1).double()

    def dice(x: Tensor) -> Tensor:
        return 1 - 2 * (x * target).sum(1) / (x.square().sum(1) + x.sum(1) + 9)

    def backward(g: Tensor, x: Tensor, shift: float) -> Tensor:
        size = (x.square().sum(1) + x.sum(1) + 9).unsqueeze(1)
        term = 2 * (x * target).sum(1, keepdim=True) / size.square()
        return g.unsqueeze(1) * (term * (2 * x + shift * x.sin()) - 2 * target / size)  # the 1 in 2x + 1 is missing

    expected = "24 of 24 entries differ; analytic - numeric is a number of each output's own: a term that is one"
    diagnosis = diagnosis_of(dice, lambda g, x: backward(g, x, 0.0), drawn(4, 6))
    assert diagnosis == ("missing-term", f"{expected} number in all wrong entries of an output is missing or too many")
    assert diagnosis_of(dice, lambda g, x: backward(g, x, 0.01), drawn(4, 6)) == (None, "")


def test_factor_per_row_of_a_tensor_is_not_a_missing_term() -> None:
    odd = 0.5 + drawn(6, seed=3).detach().abs()
    diagnosis = diagnosis_of(torch.outer, lambda g, x, y: (odd * (g @ y), None), drawn(6), Y[0])
    assert diagnosis == (None, "")


def test_claims_equal_to_one_tensor_are_a_missing_factor() -> None:
    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        gx, _ = gradients(normalised, g, x, w)
        return gx, (g * x).sum(0)  # x instead of the normalised x

    expected = "and nothing else: a factor or a term is missing beside it, or another tensor belongs in its place"
    diagnosis = diagnosis_of(normalised, backward, drawn(5, 8), drawn(8, seed=1))
    assert diagnosis == ("missing-factor", f"analytic = x {expected}")
    diagnosis = diagnosis_of(
        lambda x, y: y * (1 + x.sin()), lambda g, x, y: (g * y, g * (1 + x.sin())), drawn(9), drawn(9, seed=1)
    )
    assert diagnosis == ("missing-factor", f"analytic = y {expected}")


def test_tensor_claimed_in_some_wrong_entries_only_gets_no_cause() -> None:
    groups = torch.tensor([0, 2, 2, 1, 0, 2])

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(3, dtype=values.dtype).index_add(0, groups, values)[groups]

    def softmax(x: Tensor) -> Tensor:
        return x.exp() / summed(x.exp())

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return softmax(x) * g - summed(softmax(x) * g)  # the second term lacks a factor, and cancels on the diagonal

    assert diagnosis_of(softmax, backward, drawn(6)) == (None, "")


@pytest.mark.parametrize(("factor", "says"), [(1.0, "cotangent"), (-1.0, "-cotangent"), (1.5, "1.5 × cotangent")])
def test_claims_equal_to_the_cotangent_are_a_missing_factor(factor: float, says: str) -> None:
    expected = f"analytic = {says} and nothing else: a factor or a term of the derivative is missing beside it"
    diagnosis = diagnosis_of(lambda x: 1.3 * (x / 1.3).tanh(), lambda g, x: factor * g, drawn(4, 5))
    assert diagnosis == ("missing-factor", expected)
    backward: Backward = lambda g, x, w: (gradients(normalised, g, x, w)[0], factor * g.sum(0))  # noqa: E731
    diagnosis = diagnosis_of(normalised, backward, drawn(6, 8), drawn(8, seed=1))
    assert diagnosis == ("missing-factor", expected)


def test_different_multiples_of_the_cotangent_are_not_a_missing_factor() -> None:
    assert diagnosis_of(lambda x: x.softmax(0), lambda g, x: g, drawn(6))[0] != "missing-factor"
    steps = 1 + (torch.arange(10) % 3 == 1).double()
    assert diagnosis_of(torch.sin, lambda g, x: g * steps, drawn(10)) == (None, "")


def normalised(x: Tensor, w: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[1:]) * w


def test_derivative_at_a_nearby_point_gets_no_cause() -> None:
    assert diagnosis_of(torch.tanh, lambda g, x: g * (1 - (x.tanh() + 1e-3).square()), drawn(9)) == (None, "")
    assert diagnosis_of(torch.tanh, lambda g, x: g * (1 - x.sin().square()), drawn(9)) == (None, "")


def test_forward_that_fails_at_the_output_gets_no_cause() -> None:
    def forward(x: Tensor) -> Tensor:
        if bool((x > 1).any()):
            raise ValueError
        return x.sin() * 2 + 1

    small = (0.3 * drawn(9).detach()).requires_grad_()
    assert diagnosis_of(forward, lambda g, x: g * (1.1 * x).cos() * 2.2, small) == (None, "")


def test_missing_factor_in_half_of_the_columns_gets_no_cause() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        right = gradients(gated, g, x)[0]
        return torch.cat([right[:, :4], right[:, 4:] / x[:, :4]], 1)

    assert diagnosis_of(gated, backward, drawn(5, 8)) == (None, "")
