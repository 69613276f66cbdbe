"""Elements with a wrong gradient, single wrong entries of small blocks, and edges of short dimensions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.core.support import double
from tests.diagnosis.support import Backward, diagnosis_of, drawn, jacobian


def changed_backward(function: Callable[[Tensor], Tensor], change: Callable[[Tensor], Tensor]) -> Backward:
    """Return the right backward of a function of one input, with its result passed through `change`."""

    def backward(g: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            inside = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(function(inside), inside, g)
        return change(gradient.clone())

    return backward


def scaled_at(place: int, factor: float) -> Callable[[Tensor], Tensor]:
    def change(gradient: Tensor) -> Tensor:
        gradient.view(-1)[place] *= factor
        return gradient

    return change


def scaled_last_rows(count: int, factor: float) -> Callable[[Tensor], Tensor]:
    def change(gradient: Tensor) -> Tensor:
        gradient[-count:] *= factor
        return gradient

    return change


def norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def test_factor_on_gradient_of_one_element() -> None:
    answer = diagnosis_of(norm, changed_backward(norm, scaled_at(13, 1.3)), drawn(5, 8))
    text = "1 of 40 elements differs, in all entries: x[1, 5], where analytic = 1.3 × numeric"
    assert answer == ("single-elements", text)


def test_all_outputs_of_one_wrong_element_are_not_a_region_of_values() -> None:
    bound = drawn(10, 5, seed=1).detach() + 1
    cause, text = diagnosis_of(
        lambda x: x.minimum(bound), changed_backward(lambda x: x.minimum(bound), scaled_at(3, -1.0)), drawn(10, 1, 5)
    )
    assert cause == "single-elements"
    assert text == "1 of 50 elements differs, in all entries: x[0, 0, 3], where analytic = -numeric"


def test_outputs_of_a_single_input_can_be_a_region_of_values() -> None:
    weights = torch.linspace(-1.9, 2, 14, dtype=torch.float64)

    def steeper(g: Tensor, x: Tensor) -> Tensor:
        return (g * weights * torch.where(weights * x > 1, 2.0, 1.0)).sum().reshape(1)

    cause, text = diagnosis_of(lambda x: weights * x, steeper, double([1.5]))
    assert (cause, text.endswith("analytic = 2 × numeric where output > 1")) == ("wrong-branch", True)


@pytest.mark.parametrize(("factor", "says"), [(0.0, "0"), (-1.0, "-numeric"), (2.0, "2 × numeric")])
def test_factor_on_all_entries_of_one_output(factor: float, says: str) -> None:
    right = drawn(9, 9, seed=3).detach()
    wrong = right.clone()
    wrong[4] *= factor
    cause, text = diagnosis_of(lambda x: right @ x, jacobian(wrong), drawn(9))
    assert (cause, says in text) == ("single-elements", True)
    assert text.startswith("1 of 9 outputs differs, in all entries: output[4]")


def test_two_elements_with_a_factor_each() -> None:
    right = drawn(9, 12, seed=3).detach()
    factors = torch.ones(12, dtype=torch.float64)
    factors[[2, 7]] = torch.tensor([1.3, 0.4], dtype=torch.float64)
    cause, text = diagnosis_of(lambda x: right @ x, jacobian(right * factors), drawn(12))
    assert cause == "single-elements"
    assert text.endswith("x[2], where analytic = 1.3 × numeric and x[7], where analytic = 2/5 × numeric")


def test_three_wrong_elements_of_five_are_not_single_elements() -> None:
    right = drawn(6, 5, seed=3).detach()
    factors = torch.tensor([1.3, 0.4, 2.2, 1.0, 1.0], dtype=torch.float64)
    assert diagnosis_of(lambda x: right @ x, jacobian(right * factors), drawn(5)) == (None, "")


def test_element_wrong_in_some_entries_is_not_single_element() -> None:
    right = drawn(12, 12, seed=3).detach()
    wrong = right.clone()
    wrong[:5, 4] *= torch.linspace(1.3, 2, 5, dtype=torch.float64)
    assert diagnosis_of(lambda x: right @ x, jacobian(wrong), drawn(12)) == (None, "")


def test_one_wrong_diagonal_entry_of_two() -> None:
    x = double((3 + 1e-12, 3 - 1e-12))
    cause, text = diagnosis_of(torch.abs, changed_backward(torch.abs, scaled_at(0, 1.01)), x)
    assert (cause, text) == ("single-elements", "1 of 4 entries differs: output[0] by x[0]")


def test_two_wrong_diagonal_entries_of_two_are_not_single_elements() -> None:
    factors = double((1.01, 1.3)).detach()
    assert diagnosis_of(
        torch.exp, changed_backward(torch.exp, lambda gradient: gradient * factors), double((0.3, 0.4))
    ) == (
        None,
        "",
    )


@pytest.mark.parametrize("factor", [0.0, 1.5])
def test_last_row_of_five_is_boundary_tile(factor: float) -> None:
    cause, text = diagnosis_of(norm, changed_backward(norm, scaled_last_rows(1, factor)), drawn(5, 8))
    assert (cause, "x is in row 4, the last of 5" in text) == ("boundary-tile", True)


def test_last_column_of_three_or_four_is_boundary_tile() -> None:
    for columns in (3, 4):
        right = drawn(6, 5 * columns, seed=4).detach()
        wrong = right.reshape(6, 5, columns).clone()
        wrong[:, :, -1] *= 0.5
        answer = diagnosis_of(
            lambda x, right=right: right @ x.reshape(-1), jacobian(wrong.reshape(6, -1)), drawn(5, columns)
        )
        assert answer[0] == "boundary-tile"


def test_first_column_of_three_may_be_a_coincidence_and_is_no_boundary_tile() -> None:
    right = drawn(6, 15, seed=4).detach()
    wrong = right.reshape(6, 5, 3).clone()
    wrong[:, :, 0] *= 0.5
    cause, text = diagnosis_of(lambda x: right @ x.reshape(-1), jacobian(wrong.reshape(6, -1)), drawn(5, 3))
    assert (cause, text.endswith("analytic = 1/2 × numeric where x is in column 0")) == ("constant-factor", True)


def test_two_wrong_entries_of_four_are_not_single_elements() -> None:
    wrong = torch.eye(2, dtype=torch.float64) + 0.3 * torch.eye(2, dtype=torch.float64).flip(0)
    assert diagnosis_of(lambda x: x * 1.0, jacobian(wrong), double((0.3, 0.4))) == (None, "")


def test_middle_row_is_no_boundary_tile() -> None:
    def change(gradient: Tensor) -> Tensor:
        gradient[2] *= 0.0
        return gradient

    assert diagnosis_of(norm, changed_backward(norm, change), drawn(5, 8))[0] != "boundary-tile"


def test_last_two_elements_of_three_are_no_boundary_tile() -> None:
    answer = diagnosis_of(torch.sin, changed_backward(torch.sin, scaled_last_rows(2, 1.5)), double((0.3, 2.0, 0.9)))
    assert answer[0] != "boundary-tile"


def test_wrong_element_at_zero_of_running_product_is_no_branch_of_outputs() -> None:
    """The outputs from the zero on depend on that element alone, so these have no right nonzero entries."""
    product = changed_backward(lambda x: x.cumprod(0), scaled_at(2, 1.001))
    answer = diagnosis_of(lambda x: x.cumprod(0), product, double((1.2, 0.5, 0.0, 3.0, -0.7)))
    text = "1 of 5 elements differs, in all entries: x[2], where analytic = 1.001 × numeric"
    assert answer == ("single-elements", text)
