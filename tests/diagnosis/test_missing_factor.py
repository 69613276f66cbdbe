"""Factors equal to a tensor or an argument, and agreement by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.core.support import double
from tests.diagnosis.support import diagnosis_of, drawn, jacobian
from tests.diagnosis.test_constant_factor import gradients


def positive(*shape: int, seed: int = 0) -> Tensor:
    return (drawn(*shape, seed=seed).detach().abs() + 0.5).requires_grad_()


@pytest.mark.parametrize(
    ("forward", "backward", "says"),
    [
        (torch.exp, lambda g, x: g, "numeric / output in every entry: a factor of output is missing"),
        (lambda x: x * x, lambda g, x: 2 * g, "numeric / x in every entry: a factor of x is missing"),
        (torch.rsqrt, lambda g, x: -0.5 * g * x.rsqrt(), "x × numeric in every entry: a factor of x too many"),
        (
            torch.sigmoid,
            lambda g, x: g * x.sigmoid(),
            "numeric / (1 - output) in every entry: a factor of 1 - output is missing",
        ),
        (
            torch.tanh,
            lambda g, x: g,
            "numeric / (1 - output²) in every entry: a factor of 1 - output² is missing",
        ),
        (torch.sqrt, lambda g, x: g * x.sqrt(), "2 × x × numeric in every entry: a factor of x too many"),
        (torch.log, lambda g, x: -g * x, "-x² × numeric in every entry: a factor of x² too many"),
    ],
)
def test_factor_of_the_input_or_the_output_is_named(forward: Any, backward: Any, says: str) -> None:
    assert diagnosis_of(forward, backward, positive(8)) == ("missing-factor", f"analytic = {says}")


def test_missing_and_mistaken_inputs_are_named() -> None:
    x, y = drawn(8), drawn(8, seed=1)
    diagnosis = diagnosis_of(torch.mul, lambda g, x, y: (g, g * x), x, y)
    assert diagnosis == ("missing-factor", "analytic = numeric / y in every entry: a factor of y is missing")
    diagnosis = diagnosis_of(torch.mul, lambda g, x, y: (g * x, g * x), x, y)
    assert diagnosis == ("missing-factor", "analytic = numeric × x / y in every entry, as where x stands for y")


def test_factor_of_the_difference_of_two_inputs_is_named() -> None:
    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return 3 * g * (x - y), -3 * g * (x - y) ** 2

    diagnosis = diagnosis_of(lambda x, y: (x - y) ** 3, backward, drawn(12), drawn(12, seed=1))
    assert diagnosis == ("missing-factor", "analytic = numeric / (x - y) in every entry: a factor of x - y is missing")


def test_factor_of_an_argument_with_zeros_is_named() -> None:
    weights = drawn(9, seed=2).detach() * torch.tensor([1, 1, 0, 1, 1, 1, 0, 1, 1], dtype=torch.float64)
    diagnosis = diagnosis_of(lambda x, w: (w * x * x).sum(), lambda g, x, w: (2 * g * x, None), drawn(9), weights)
    assert diagnosis == ("missing-factor", "analytic = numeric / y in every entry: a factor of y is missing")


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return functional.batch_norm(x, None, None, weight, training=True)


def test_factor_along_a_dimension_is_named_with_the_dimension() -> None:
    def backward(g: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        dx, dw = gradients(normalised, g, x, weight)
        return dx / weight.reshape(1, -1, 1), dw

    diagnosis = diagnosis_of(normalised, backward, drawn(3, 4, 2), drawn(4, seed=1))
    expected = "analytic = numeric / y in every entry: a factor of y along dimension 1 of x is missing"
    assert diagnosis == ("missing-factor", expected)


def test_missing_determinant_is_named_with_and_without_a_batch() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g[..., None, None] * torch.linalg.inv(x).mT

    diagnosis = diagnosis_of(torch.linalg.det, backward, drawn(3, 3, 3))
    expected = "analytic = numeric / output in every entry: a factor of output along dimension 0 of x is missing"
    assert diagnosis == ("missing-factor", expected)
    cause, text = diagnosis_of(torch.linalg.det, backward, drawn(4, 4))
    assert (cause, text.partition(": ")[2]) == ("constant-factor", "a factor of output is missing (output is 3.444)")


def test_missing_derivative_of_the_activation_is_named() -> None:
    def layer(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w.mT).tanh()

    diagnosis = diagnosis_of(
        layer, lambda g, x, w: (g @ w, gradients(layer, g, x, w)[1]), drawn(6, 4), drawn(3, 4, seed=1)
    )
    expected = "analytic = numeric / (1 - output²) in every entry: a factor of 1 - output² is missing"
    assert diagnosis == ("missing-factor", expected)


def test_ambiguous_position_of_a_factor_is_stated() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g - (g * x.softmax(-1)).sum(-1, keepdim=True)

    cause, text = diagnosis_of(lambda x: x.softmax(-1), backward, drawn(3, 5))
    assert cause == "missing-factor"
    assert text.endswith("a factor of output at the same place of x is missing")


@pytest.mark.parametrize(
    ("factor", "says"),
    [
        (1.0, "a factor of y is missing (y is 1.7)"),
        (1.7**2, "a factor of y too many (y is 1.7)"),
        (1 / 1.7, "a factor of y² is missing (y is 1.7)"),
    ],
)
def test_constant_equal_to_an_argument_is_named_after_it(factor: float, says: str) -> None:
    diagnosis = diagnosis_of(
        lambda x, a: (a * x).sin(), lambda g, x, a: (factor * g * (a * x).cos(), None), drawn(6), 1.7
    )
    assert diagnosis[0] == "constant-factor"
    assert diagnosis[1].endswith(f": {says}")


@pytest.mark.parametrize(("argument", "factor"), [(0.7, -0.7), (3.0, -3.0), (-0.7, 0.7), (1.7, -1 / 1.7)])
def test_constant_equal_to_minus_an_argument_is_named_after_it(argument: float, factor: float) -> None:
    diagnosis = diagnosis_of(lambda x, a: x.sin(), lambda g, x, a: (factor * g * x.cos(), None), drawn(6), argument)
    assert diagnosis[0] == "constant-factor"
    words = "-1/y" if argument == 1.7 else "-y"
    assert diagnosis[1].endswith(f" × numeric in every entry, which is {words} (y is {argument:g})")


def test_argument_equal_to_a_common_constant_is_not_named() -> None:
    diagnosis = diagnosis_of(lambda x, a: (a * x).sin(), lambda g, x, a: (g * (a * x).cos(), None), drawn(6), 2.0)
    assert diagnosis[1].endswith(": a factor of 2 is missing")


def test_single_entry_is_a_constant_factor_only_if_a_known_one() -> None:
    assert diagnosis_of(torch.exp, lambda g, x: g, double(0.3))[0] == "constant-factor"
    assert diagnosis_of(torch.exp, lambda g, x: 1.37 * g, double(0.3)) == (None, "")


@pytest.mark.parametrize(
    "factor",
    [
        lambda x: x * (1 + 1e-3 * x.sin()),
        lambda x: x + 0.01,
        lambda x: 0.6180339 * x,
        lambda x: x.roll(1),
        lambda x: (1.3 * x).sin(),
        lambda x: torch.where(x > 0, x, 1.0),
    ],
)
def test_factor_close_to_a_tensor_gets_no_cause(factor: Callable[[Tensor], Tensor]) -> None:
    assert diagnosis_of(torch.sin, lambda g, x: g * x.cos() * factor(x), drawn(8)) == (None, "")


def test_two_entries_do_not_determine_a_factor() -> None:
    assert diagnosis_of(torch.sin, lambda g, x: g * x.cos() * x, double([0.3, 0.7])) == (None, "")


def test_random_factors_per_input_get_no_cause() -> None:
    right, factors = drawn(6, 8, seed=3).detach(), positive(8, seed=4).detach()
    assert diagnosis_of(lambda x: right @ x, jacobian(right * factors), drawn(8)) == (None, "")


def test_region_of_values_precedes_a_quotient_of_tensors() -> None:
    x, slopes = drawn(3, 8), torch.tensor([[0.2], [0.3], [0.7]], dtype=torch.float64)
    diagnosis = diagnosis_of(lambda x: torch.where(x > 0, x, slopes * x), lambda g, x: g, x)
    assert diagnosis[0] == "wrong-branch"
    assert diagnosis[1].endswith("analytic = cotangent where x < 0")
