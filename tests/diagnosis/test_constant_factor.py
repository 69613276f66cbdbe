"""One factor on every entry: sign flips, means for sums, constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradverify.diagnosis.naming.constants import known_constant, measured_text, number_text
from tests.core.support import double
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn


def gradients(function: Callable[..., Tensor], g: Tensor, *inputs: Tensor) -> Any:
    """Return the right gradients by all inputs, computed by autograd."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        return torch.autograd.grad(function(*leaves), leaves, g)


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (2.0, "analytic = 2 × numeric in every entry: a factor of 2 too many"),
        (0.5, "analytic = 1/2 × numeric in every entry: a factor of 2 is missing"),
        (math.sqrt(3), "analytic = √3 × numeric in every entry: a factor of √3 too many"),
        (1 / math.pi, "analytic = 1/π × numeric in every entry: a factor of π is missing"),
        (math.log(2), "analytic = ln 2 × numeric in every entry: a factor of ln 2 too many"),
        (-2.0, "analytic = -2 × numeric in every entry"),
        (2 / 3, "analytic = 2/3 × numeric in every entry: a factor of 3/2 is missing"),
        (180 / math.pi, "analytic = 180/π × numeric in every entry: a factor of 180/π too many"),
        (math.pi / 180, "analytic = π/180 × numeric in every entry: a factor of 180/π is missing"),
        (1.37, "analytic = 1.37 × numeric in every entry"),
        (1.000001, "analytic = 1.000001 × numeric in every entry"),
    ],
)
def test_constant_factor_is_named_with_its_value(factor: float, text: str) -> None:
    assert diagnosis_of(torch.exp, lambda g, x: factor * g * x.exp(), drawn(6)) == ("constant-factor", text)


@pytest.mark.parametrize("factor", [1.0001, 1.37])
def test_constant_factor_is_named_if_casts_round_the_gradient(factor: float) -> None:
    def forward(x: Tensor) -> Tensor:
        return x.float().tanh().double()

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return factor * (g.float() * (1 - x.float().tanh() ** 2)).double()

    cause, explanation = diagnosis_of(forward, backward, drawn(6))
    assert (cause, explanation.startswith(f"analytic = {factor} × numeric")) == ("constant-factor", True)


@pytest.mark.parametrize(("factor", "text"), [(2.0, "2"), (1.37, "1.37"), (1.000_001, "1.000001"), (1 / 18, "1/18")])
def test_short_factor_of_a_single_entry_is_named(factor: float, text: str) -> None:
    cause, explanation = diagnosis_of(torch.exp, lambda g, x: factor * g * x.exp(), double(0.3))
    assert (cause, explanation.startswith(f"analytic = {text} × numeric")) == ("constant-factor", True)


@pytest.mark.parametrize("factor", [1.372_913, 1.000_023, 0.999_964_1])
def test_other_factor_of_a_single_entry_gets_no_cause(factor: float) -> None:
    assert diagnosis_of(torch.exp, lambda g, x: factor * g * x.exp(), double(0.3)) == (None, "")


def test_slightly_different_factors_are_not_a_constant_factor() -> None:
    assert diagnosis_of(torch.exp, lambda g, x: (2 + 0.01 * x) * g * x.exp(), drawn(8)) == (None, "")


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_factor_contradicted_by_right_entries_gets_no_cause(factor: float) -> None:
    factors = torch.full((400,), factor, dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(400))[0] is not None
    factors[[17, 250]] = 1.0
    assert diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), drawn(400)) == (None, "")


def test_opposite_sign_in_every_entry_is_a_sign_flip() -> None:
    assert diagnosis_of(torch.cos, lambda g, x: g * x.sin(), drawn(5)) == (
        "sign-flip",
        "analytic = -numeric in every entry",
    )
    assert diagnosis_of(torch.cos, lambda g, x: g * x.sin() * (1 + 0.1 * x), drawn(5)) == (None, "")


def test_mean_for_sum_and_sum_for_mean_are_named_with_the_count() -> None:
    assert diagnosis_of(lambda x: x.sum(0), lambda g, x: (g / len(x)).expand_as(x), drawn(4, 3)) == (
        "mean-for-sum",
        "analytic = numeric / 4 in every entry: a mean over 4 instead of their sum",
    )
    assert diagnosis_of(lambda x: x.mean(), lambda g, x: g.expand_as(x), drawn(12)) == (
        "mean-for-sum",
        "analytic = 12 × numeric in every entry: a sum over 12 instead of their mean",
    )


def test_mean_over_copies_of_an_input_is_a_mean_for_sum() -> None:
    diagnosis = diagnosis_of(lambda x: x.repeat(4), lambda g, x: g.reshape(4, 3).mean(0), drawn(3))
    assert diagnosis == ("mean-for-sum", "analytic = numeric / 4 in every entry: a mean over 4 instead of their sum")


def test_mean_over_a_pooling_window_is_a_mean_for_sum() -> None:
    def spread(g: Tensor, by: float) -> Tensor:
        return (g / by).repeat_interleave(3, dim=1)

    pooled = lambda x: functional.avg_pool1d(x, 3)  # noqa: E731
    diagnosis = diagnosis_of(pooled, lambda g, x: spread(g, 9), drawn(2, 9))
    assert diagnosis == ("mean-for-sum", "analytic = numeric / 3 in every entry: a mean over 3 instead of their sum")
    diagnosis = diagnosis_of(pooled, lambda g, x: spread(g, 1), drawn(2, 9))
    assert diagnosis == ("mean-for-sum", "analytic = 3 × numeric in every entry: a sum over 3 instead of their mean")
    diagnosis = diagnosis_of(lambda x: pooled(x.exp()), lambda g, x: spread(g, 1) * x.exp(), drawn(2, 9))
    assert diagnosis[0] == "constant-factor"


def test_size_of_a_dimension_is_a_constant_factor_in_an_elementwise_function() -> None:
    assert diagnosis_of(torch.exp, lambda g, x: g * x.exp() / len(x), drawn(4))[0] == "constant-factor"


def test_zero_or_none_gradient_is_detached_and_a_small_one_is_not() -> None:
    expected = "backward returns no gradient for x, although output depends on x"
    assert diagnosis_of(torch.exp, lambda g, x: None, drawn(3)) == (
        "detached",
        expected.replace("depends on x", "depends on it"),
    )
    expected = "analytic = 0 in every entry, although output depends on x"
    assert diagnosis_of(torch.exp, lambda g, x: 0 * g, drawn(3)) == ("detached", expected)
    assert diagnosis_of(torch.exp, lambda g, x: g * x.abs() * 1e-3, drawn(3)) == (None, "")


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3"), (2 / 3, "2/3"), (1 / math.sqrt(2), "1/√2"), (96.0, "96"), (math.sqrt(96), "√96")]
)
def test_known_constants_are_recognised(value: float, text: str) -> None:
    constant = known_constant(value, 1e-9, (96,))
    assert constant is not None
    assert constant.text == text


@pytest.mark.parametrize("value", [1.0, 1.37, 96.0, 2.00001])
def test_other_numbers_are_not_recognised(value: float) -> None:
    assert known_constant(value, 1e-9, ()) is None


def test_number_near_one_is_printed_with_distinguishing_digits() -> None:
    assert [number_text(1.0000002), number_text(1.5), number_text(-0.333333333)] == ["1.0000002", "1.5", "-0.333333"]


def test_size_of_a_dimension_not_summed_over_is_not_a_number_of_summands() -> None:
    def attention(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = gradients(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, g, q, k, v)
        return 3 * dq, dk, dv

    inputs = (drawn(6, 4), drawn(7, 4, seed=1), drawn(7, 3, seed=2))
    cause, text = diagnosis_of(lambda q, k, v: (q @ k.mT).softmax(-1) @ v, attention, *inputs)
    assert cause == "constant-factor"
    assert text == "analytic = 3 × numeric in every entry: a factor of 3 too many (the size of a dimension of output)"


def test_convolution_sums_over_its_whole_window() -> None:
    def convolved(g: Tensor, x: Tensor, w: Tensor, factor: float) -> tuple[Tensor, Tensor, None]:
        dx, dw = gradients(functional.conv1d, g, x, w)
        return dx * factor, dw, None

    def forward(x: Tensor, w: Tensor, factor: float) -> Tensor:
        return functional.conv1d(x, w)

    inputs = (drawn(2, 3, 9), drawn(4, 3, 3, seed=1))
    assert diagnosis_of(forward, convolved, *inputs, 3.0)[0] == "constant-factor"


def test_summands_with_zero_gradient_are_counted() -> None:
    diagnosis = diagnosis_of(lambda x: x.relu().mean(), lambda g, x: g * (x > 0), drawn(12))
    assert diagnosis[0] == "mean-for-sum"


def test_mean_over_some_of_the_summed_dimensions_is_a_mean_for_sum() -> None:
    diagnosis = diagnosis_of(lambda x, b: x * 2 + b, lambda g, x, b: (2 * g, g.mean(0)), drawn(6, 8), drawn(8, seed=1))
    assert diagnosis[0] == "mean-for-sum"
    diagnosis = diagnosis_of(lambda x: x.exp().sum(), lambda g, x: g * x.exp() / len(x), drawn(4, 5))
    assert diagnosis[0] == "mean-for-sum"
    diagnosis = diagnosis_of(torch.matmul, lambda g, a, b: (g @ b.mT / 5, a.mT @ g), drawn(4, 5), drawn(5, 6, seed=1))
    assert diagnosis[0] == "mean-for-sum"


def test_mean_over_several_dimensions_for_a_bias_is_a_mean_for_sum() -> None:
    def biased(x: Tensor, b: Tensor) -> Tensor:
        return x + b.view(1, -1, 1, 1)

    diagnosis = diagnosis_of(biased, lambda g, x, b: (g, g.mean((0, 2, 3))), drawn(2, 3, 4, 4), drawn(3, seed=1))
    assert diagnosis == ("mean-for-sum", "analytic = numeric / 32 in every entry: a mean over 32 instead of their sum")


def test_conjugated_gradient_is_a_missing_conjugate() -> None:
    a = torch.complex(drawn(4), drawn(4, seed=1)).detach().requires_grad_()
    b = torch.complex(drawn(4, seed=2), drawn(4, seed=3)).detach().requires_grad_()
    causes = diagnoses_of(lambda a, b: a * b.conj(), lambda g, a, b: (g * b, g * a.conj()), a, b)
    text = "the gradient by y is the conjugate of what it should be"
    assert {cause for cause, _ in causes.values()} == {"missing-conjugate"}
    assert all(explanation.startswith(text) for _, explanation in causes.values())


INDEX = torch.tensor([0, 2, 1, 2, 0, 2, 3])


def test_mean_over_the_uses_of_each_embedding_row_is_a_mean_for_sum() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        uses = torch.bincount(INDEX, minlength=len(x)).clamp(min=1)
        return torch.zeros_like(x).index_add(0, INDEX, g) / uses.unsqueeze(1)

    diagnosis = diagnosis_of(lambda x: x[INDEX], backward, drawn(5, 3))
    expected = "analytic = numeric / k in every entry, where k is the number of outputs that each entry of x goes into"
    assert diagnosis == ("mean-for-sum", f"{expected}: a mean over them instead of their sum")


def test_sum_over_segments_of_different_length_is_a_mean_for_sum() -> None:
    def forward(x: Tensor) -> Tensor:
        return torch.zeros(4, 3, dtype=x.dtype).index_add(0, INDEX, x) / torch.bincount(INDEX).unsqueeze(1)

    diagnosis = diagnosis_of(forward, lambda g, x: g[INDEX], drawn(7, 3))
    expected = (
        "analytic = k × numeric in every entry, where k is the number of entries of x that each output is made of"
    )
    assert diagnosis == ("mean-for-sum", f"{expected}: a sum over them instead of their mean")
    assert diagnosis_of(forward, lambda g, x: (g * (1 + torch.arange(4.0).unsqueeze(1)))[INDEX], drawn(7, 3)) == (
        None,
        "",
    )


@pytest.mark.parametrize("fill", [torch.finfo(torch.float64).min, 1e300, 1e-300, 5e-324])
def test_an_argument_whose_powers_overflow_is_no_factor(fill: float) -> None:
    cause, text = diagnosis_of(
        lambda x, fill: x.exp().masked_fill(x > 99, fill), lambda g, x, fill: (3 * g * x.exp(), None), drawn(6), fill
    )
    assert cause == "constant-factor"
    assert "3" in text


def test_factor_is_printed_with_the_digits_that_are_known() -> None:
    x = drawn(8).detach().bfloat16().requires_grad_()
    for factor, says in ((0.5, "about 0.5 × numeric"), (0.7, "about 0.7 × numeric")):
        cause, text = diagnosis_of(torch.sin, lambda g, x, factor=factor: factor * g * x.cos(), x)
        assert (cause, says in text) == ("constant-factor", True), text
    assert "2.345 × numeric" in diagnosis_of(torch.sin, lambda g, x: 2.345 * g * x.cos(), drawn(8))[1]


@pytest.mark.parametrize(
    ("accuracy", "text"), [(1e-12, "0.7"), (0.03, "about 0.7"), (1.0, "about 0.7"), (math.inf, "about 0.7")]
)
def test_digits_of_a_measured_number_follow_its_accuracy(accuracy: float, text: str) -> None:
    assert measured_text(0.7, accuracy) == text
