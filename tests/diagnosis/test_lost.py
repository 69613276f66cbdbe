"""Terms that are left out, entry by entry: paths that are claimed to be zero, summands, masks the other way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.core.support import double
from tests.diagnosis.support import Backward, drawn, jacobian, only
from tests.diagnosis.test_factors import gradients

TARGET = torch.tensor([1, 0, 3, 2, 1, 3])
Y = drawn(6, 8, seed=2).detach()


def gated(x: Tensor) -> Tensor:
    return functional.glu(x, 1)


def test_half_of_an_input_gets_nothing() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return torch.cat([g * x[:, 4:].sigmoid(), torch.zeros_like(g)], 1)

    says = "analytic = 0 in 20 of the 40 entries that are not zero, those by x[:, 4:], and right in the others"
    answer = only(gated, backward, drawn(5, 8))
    assert answer == ("missing-term", f"{says}: part of the derivative is left out")


def test_one_of_two_terms_of_a_difference() -> None:
    cause, text = only(torch.diff, lambda g, x: functional.pad(g, (1, 0)), drawn(8))
    says = "analytic = 0 in 7 of the 14 entries that are not zero, and right in the others: part of the derivative is"
    assert (cause, text) == ("missing-term", f"{says} left out")


def test_few_entries_that_are_lost_and_others_that_are_wrong_too_are_no_path() -> None:
    right = drawn(6, 6, seed=3).detach()
    wrong = right.clone()
    wrong[[0, 2, 3, 5], [1, 4, 0, 2]] = 0.0
    cause, text = only(lambda x: right @ x, jacobian(wrong), drawn(6))
    assert (cause, text.startswith("analytic = 0 in 4 of the 36 entries")) == ("missing-term", True)
    wrong[4, 4] *= 1.3
    assert only(lambda x: right @ x, jacobian(wrong), drawn(6)) == (None, "")


def cross_entropy(x: Tensor) -> Tensor:
    return functional.cross_entropy(x, TARGET)


def test_a_target_that_is_not_subtracted() -> None:
    answer = only(cross_entropy, lambda g, x: g * x.softmax(-1) / len(x), drawn(6, 5))
    says = "6 of 30 entries differ; analytic = numeric + 1/6: a summand is missing or too many"
    assert answer == ("missing-term", says)
    target = drawn(10, seed=1).detach()
    backward: Backward = lambda g, x, t: (2 * g * x / 10, None)  # noqa: E731
    answer = only(lambda x, t: (x - t).square().mean(), backward, drawn(10), target)
    says = "10 of 10 entries differ; analytic = numeric + 1/5 × y: a summand is missing or too many"
    assert answer == ("missing-term", says)


def test_summands_that_differ_are_none() -> None:
    shift = 0.1 * drawn(10, seed=1).detach()
    assert only(torch.sin, lambda g, x: g * (x.cos() + shift), drawn(10)) == (None, "")
    assert only(lambda x: x.sin().sum(), lambda g, x: g * (x.cos() + shift), drawn(10)) == (None, "")


def test_a_summand_that_is_a_factor_as_well_is_not_told_apart() -> None:
    chosen = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0, 1, 0], dtype=torch.float64)
    assert only(lambda x: 3 * x, lambda g, x: 3 * g * (1 + chosen), drawn(10)) == (None, "")


def test_a_mask_that_is_inverted() -> None:
    mask = torch.tensor([1, 1, 0, 1, 0, 1, 1, 0], dtype=torch.float64)
    answer = only(lambda x, m: x * m, lambda g, x, m: (g * (1 - m), None), drawn(8), mask)
    says = "all elements differ; analytic = 0 in 5 of 8 elements and numeric = 0 in the others: the mask is inverted"
    assert answer == ("missing-mask", says)
    answer = only(lambda x, m: x * m, lambda g, x, m: (g * (1 - m) * (torch.arange(8) > 2), None), drawn(8), mask)
    assert "inverted" not in answer[1]


@pytest.mark.parametrize("forward", [torch.tanh, torch.sigmoid])
def test_the_input_is_saved_where_the_output_belongs(forward: object) -> None:
    slope = (lambda y: 1 - y * y) if forward is torch.tanh else (lambda y: y * (1 - y))
    cause, text = only(forward, lambda g, x: g * slope(x), drawn(9))  # type: ignore[arg-type]
    says = "backward at x = output says what is right here: it computes with x where output belongs"
    assert (cause, text) == ("wrong-point", says)


def at_the_output(forward: Callable[[Tensor], Tensor]) -> Backward:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            output = forward(x).detach().requires_grad_()
            return g * torch.autograd.grad(forward(output).sum(), output)[0]

    return backward


@pytest.mark.parametrize("forward", [functional.softplus, functional.elu, functional.selu, torch.i0])
def test_the_output_is_saved_where_the_input_belongs(forward: Callable[[Tensor], Tensor]) -> None:
    answer = only(forward, at_the_output(forward), 2 * drawn(12))
    says = "analytic is the derivative at x = output: backward computes with output where x belongs"
    assert answer == ("wrong-point", says)


def test_a_sign_that_is_forgotten_is_no_derivative_at_the_output() -> None:
    cause, text = only(torch.abs, at_the_output(torch.abs), drawn(12))
    assert (cause, text.endswith("analytic = -numeric where x < 0")) == ("wrong-branch", True)


def test_another_input_is_used_where_this_one_belongs() -> None:
    backward: Backward = lambda g, x, y: (g * y.cos() + 0 * x, g)  # noqa: E731
    answer = only(lambda x, y: x.sin() + y, backward, drawn(9), drawn(9, seed=1))
    assert answer == ("wrong-point", "analytic is the derivative at x = y: backward computes with y where x belongs")


def test_a_mask_of_another_tensor() -> None:
    answer = only(lambda x, y: x.relu() + y, lambda g, x, y: (g * (y > 0), g), drawn(24), drawn(24, seed=1))
    assert answer == ("wrong-point", "analytic is the derivative at x = y: backward computes with y where x belongs")


def test_a_point_that_is_zero_in_half_of_its_entries() -> None:
    y = double([0.0, 0, 0, 0, 0, 0.5, 1, 2, 0.7])
    backward: Backward = lambda g, x, y: (g * (1 - y.tanh().square()), g)  # noqa: E731
    assert only(lambda x, y: x.tanh() + y, backward, drawn(9), y)[0] == "wrong-point"


def test_a_straight_branch_is_no_point() -> None:
    forward = lambda x, s: torch.where(x > 0, x, torch.expm1(x)) * s  # noqa: E731
    answer = only(forward, lambda g, x, s: (g * s, None), drawn(40), 0.5 + drawn(40, seed=1).detach().abs())
    assert (answer[0], answer[1].endswith("exactly where x < 0")) == ("wrong-branch", True)


def test_a_term_that_goes_with_a_tensor_in_every_row() -> None:
    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        gx, gy = gradients(lambda x, y: functional.cosine_similarity(x, y, dim=1), g, x, y)
        length = x.norm(dim=1, keepdim=True)
        cosine = functional.cosine_similarity(x, y, dim=1).unsqueeze(1)
        return gx + g.unsqueeze(1) * cosine * x / length.square(), gy  # what is along x is not taken away

    answer = only(lambda x, y: functional.cosine_similarity(x, y, dim=1), backward, drawn(6, 8), drawn(6, 8, seed=1))
    says = "48 of 48 entries differ; analytic = numeric + k × x, with a number k of each output's own: a term that goes"
    assert answer == ("missing-term", f"{says} with x is missing or too many")
    answer = only(
        lambda x, y: (x * y).sum(1), lambda g, x, y: (g.unsqueeze(1) * (y + y.roll(1, 1)), None), drawn(6, 8), Y
    )
    assert answer == (None, "")


def test_a_number_of_each_outputs_own_is_missing() -> None:
    target = (torch.arange(24).view(4, 6) % 5 > 1).double()

    def dice(x: Tensor) -> Tensor:
        return 1 - 2 * (x * target).sum(1) / (x.square().sum(1) + x.sum(1) + 9)

    def backward(g: Tensor, x: Tensor, off: float) -> Tensor:
        size = (x.square().sum(1) + x.sum(1) + 9).unsqueeze(1)
        term = 2 * (x * target).sum(1, keepdim=True) / size.square()
        return g.unsqueeze(1) * (term * (2 * x + off * x.sin()) - 2 * target / size)  # the 1 beside 2 x is missing

    says = "24 of 24 entries differ; analytic = numeric + k, with a number k of each output's own: a term that is one"
    answer = only(dice, lambda g, x: backward(g, x, 0.0), drawn(4, 6))
    assert answer == ("missing-term", f"{says} number in all wrong entries of an output is missing or too many")
    assert only(dice, lambda g, x: backward(g, x, 0.01), drawn(4, 6)) == (None, "")


def test_factors_of_a_derivative_that_is_a_tensor_itself_are_no_term() -> None:
    odd = 0.5 + drawn(6, seed=3).detach().abs()
    answer = only(torch.outer, lambda g, x, y: (odd * (g @ y), None), drawn(6), Y[0])
    assert answer == (None, "")


def test_another_tensor_in_the_place_of_one() -> None:
    def backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        gx, _ = gradients(normalised, g, x, w)
        return gx, (g * x).sum(0)  # x as it was, not as it is normalised

    says = "and nothing else: a factor or a term is missing beside it, or another tensor belongs in its place"
    answer = only(normalised, backward, drawn(5, 8), drawn(8, seed=1))
    assert answer == ("missing-factor", f"analytic = x {says}")
    answer = only(
        lambda x, y: y * (1 + x.sin()), lambda g, x, y: (g * y, g * (1 + x.sin())), drawn(9), drawn(9, seed=1)
    )
    assert answer == ("missing-factor", f"analytic = y {says}")


def test_a_tensor_that_is_not_claimed_in_every_wrong_entry_is_not_alone() -> None:
    groups = torch.tensor([0, 2, 2, 1, 0, 2])

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(3, dtype=values.dtype).index_add(0, groups, values)[groups]

    def softmax(x: Tensor) -> Tensor:
        return x.exp() / summed(x.exp())

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return softmax(x) * g - summed(softmax(x) * g)  # the second term lacks a factor, and cancels on the diagonal

    assert only(softmax, backward, drawn(6)) == (None, "")


@pytest.mark.parametrize(("factor", "says"), [(1.0, "cotangent"), (-1.0, "-cotangent"), (1.5, "1.5 × cotangent")])
def test_the_cotangent_and_nothing_else(factor: float, says: str) -> None:
    expected = f"analytic = {says} and nothing else: a factor or a term of the derivative is missing beside it"
    answer = only(lambda x: 1.3 * (x / 1.3).tanh(), lambda g, x: factor * g, drawn(4, 5))
    assert answer == ("missing-factor", expected)
    backward: Backward = lambda g, x, w: (gradients(normalised, g, x, w)[0], factor * g.sum(0))  # noqa: E731
    answer = only(normalised, backward, drawn(6, 8), drawn(8, seed=1))
    assert answer == ("missing-factor", expected)


def test_the_cotangent_is_not_alone_where_some_entries_are_zero_or_another_multiple() -> None:
    assert only(lambda x: x.softmax(0), lambda g, x: g, drawn(6))[0] != "missing-factor"
    steps = 1 + (torch.arange(10) % 3 == 1).double()
    assert only(torch.sin, lambda g, x: g * steps, drawn(10)) == (None, "")


def normalised(x: Tensor, w: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[1:]) * w


def test_a_point_nearby_is_none() -> None:
    assert only(torch.tanh, lambda g, x: g * (1 - (x.tanh() + 1e-3).square()), drawn(9)) == (None, "")
    assert only(torch.tanh, lambda g, x: g * (1 - x.sin().square()), drawn(9)) == (None, "")


def test_a_forward_that_fails_at_the_output_says_nothing() -> None:
    def forward(x: Tensor) -> Tensor:
        if bool((x > 1).any()):
            raise ValueError
        return x.sin() * 2 + 1

    small = (0.3 * drawn(9).detach()).requires_grad_()
    assert only(forward, lambda g, x: g * (1.1 * x).cos() * 2.2, small) == (None, "")


def test_the_gate_that_lacks_what_it_gates_has_no_name_yet() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        right = gradients(gated, g, x)[0]
        return torch.cat([right[:, :4], right[:, 4:] / x[:, :4]], 1)

    assert only(gated, backward, drawn(5, 8)) == (None, "")
