"""Rearranged Jacobians, missing sums and missing terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.core.support import double
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn, jacobian


def test_swapped_inputs_and_swapped_outputs_are_named() -> None:
    x, y = drawn(4), drawn(4, seed=1)
    answers = diagnoses_of(torch.mul, lambda g, x, y: (g * x, g * y), x, y)
    text = "analytic by {} is numeric by {}: the gradients are returned in the wrong order"
    assert answers["output by x"] == ("swapped-inputs", text.format("x", "y"))
    assert answers["output by y"] == ("swapped-inputs", text.format("y", "x"))
    answers = diagnoses_of(lambda x: (x.sin(), x.exp()), lambda g, h, x: h * x.cos() + g * x.exp(), x)
    assert {cause for cause, _ in answers.values()} == {"swapped-outputs"}


def sine_and_exponential(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin(), x.exp()


def cotangents_swapped_at(*places: int) -> Any:
    """Return the backward of `sine_and_exponential` with some entries of the two cotangents exchanged."""

    def backward(g: Tensor, h: Tensor, x: Tensor) -> Tensor:
        left, right = g.clone(), h.clone()
        left[list(places)], right[list(places)] = h[list(places)], g[list(places)]
        return left * x.cos() + right * x.exp()

    return backward


@pytest.mark.parametrize(
    ("places", "said"), [((3, 4, 5), "3 of 6 entries, {0}[3], {0}[4] and {0}[5]"), ((2,), "1 of 6")]
)
def test_outputs_swapped_in_some_entries(places: tuple[int, ...], said: str) -> None:
    answers = diagnoses_of(sine_and_exponential, cotangents_swapped_at(*places), drawn(6))
    assert {cause for cause, _ in answers.values()} == {"swapped-outputs"}
    text = answers["output[0] by x"][1]
    assert text.startswith(f"analytic of output[0] by x is numeric of output[1] in {said.format('output[0]')}")


def test_outputs_swapped_for_one_of_two_inputs() -> None:
    def backward(g: Tensor, h: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return h * x.cos() + g * x.exp(), g * y.cos() + h * y.exp()

    answers = diagnoses_of(lambda x, y: (x.sin() + y.sin(), x.exp() + y.exp()), backward, drawn(6), drawn(6, seed=2))
    text = "analytic of output[0] by x is numeric of output[1]: there the cotangents are taken in the wrong order"
    assert answers["output[0] by x"] == ("swapped-outputs", text)
    assert {cause for cause, _ in answers.values()} == {"swapped-outputs"}


def test_two_of_three_outputs_swapped() -> None:
    backward = lambda g, h, k, x: h * x.cos() + g * x.exp() + 2 * k * x  # noqa: E731
    answers = diagnoses_of(lambda x: (x.sin(), x.exp(), x.square()), backward, drawn(6))
    assert {cause for cause, _ in answers.values()} == {"swapped-outputs"}
    assert set(answers) == {"output[0] by x", "output[1] by x"}


def test_cotangent_entries_moved_to_another_output_are_not_swapped() -> None:
    def backward(g: Tensor, h: Tensor, x: Tensor) -> Tensor:
        left = torch.cat([g[:3], 0 * g[3:]])
        return left * x.cos() + h * x.exp() + torch.cat([0 * g[:3], g[3:]]) * x.exp()

    assert {cause for cause, _ in diagnoses_of(sine_and_exponential, backward, drawn(6)).values()} != {
        "swapped-outputs"
    }


def test_swapped_real_and_imaginary_parts_are_swapped_inputs() -> None:
    answers = diagnoses_of(torch.complex, lambda g, x, y: (g.imag, g.real), drawn(6), drawn(6, seed=1))
    assert len(answers) == 4
    assert {cause for cause, _ in answers.values()} == {"swapped-inputs"}


def test_zero_gradient_of_real_part_is_detached() -> None:
    answers = diagnoses_of(torch.complex, lambda g, x, y: (0 * g.real, g.imag), drawn(6), drawn(6, seed=1))
    assert {cause for cause, _ in answers.values()} == {"detached"}


def test_tiny_columns_that_change_places_are_no_permutation() -> None:
    stray = torch.tensor([0.0, 5e-7, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    answers = diagnoses_of(
        lambda x: x[::2],
        lambda g, x: torch.zeros_like(x).index_copy(0, torch.arange(0, 6, 2), g) + g[1] * stray,
        drawn(6),
    )
    assert answers["output by x"][0] != "permuted"


def test_input_with_gradient_of_right_input_is_not_swapped() -> None:
    answers = diagnoses_of(lambda x, y: (x + 0.1 * x**3).exp() + y, lambda g, x, y: (g, g), drawn(4), drawn(4, seed=1))
    assert answers["output by x"][0] == "missing-factor"  # backward returns the cotangent itself
    assert len(answers) == 1


def test_transposed_jacobian_and_transposed_gradient() -> None:
    weights = drawn(5, 5).detach()
    text = "analytic = numeric transposed: J·cotangent instead of cotangent·J"
    assert diagnosis_of(lambda x: weights @ x, lambda g, x: weights @ g, drawn(5)) == ("transposed", text)
    text = "the gradient by x is transposed: dimensions 0 and 1 are exchanged"
    assert diagnosis_of(lambda x: (x.exp() @ x).sum(0), _transposed_product, drawn(3, 3)) == ("transposed", text)


def _transposed_product(g: Tensor, x: Tensor) -> Tensor:
    full = g.expand_as(x)
    return (full @ x.T * x.exp() + x.exp().T @ full).T


def test_unrelated_matrix_has_no_cause() -> None:
    weights, other = drawn(5, 5).detach(), drawn(5, 5, seed=1).detach()
    assert diagnosis_of(lambda x: weights @ x, lambda g, x: other @ g, drawn(5)) == (None, "")


@pytest.mark.parametrize(
    ("backward", "text"),
    [
        (lambda g, x: (g * x.cos()).roll(2), "the gradient by x is rolled by 2"),
        (lambda g, x: g.flip(0) * x.cos(), "the cotangent of output is taken reversed"),
        (lambda g, x: g * x.roll(-2).cos(), "analytic is numeric of an input rolled by -2: backward uses saved values"),
        (lambda g, x: (g * x.cos())[[0, 2, 1, 3, 4, 5]], "the gradients by x are in another order: x[1] has what"),
    ],
)
def test_permuted_gradient_cotangent_or_saved_tensor(backward: Any, text: str) -> None:
    cause, says = diagnosis_of(torch.sin, backward, drawn(6))
    assert cause == "permuted"
    assert says.startswith(text)


def shifted_with_zeros(x: Tensor, by: int = 1, dimension: int = 0) -> Tensor:
    """Return a tensor shifted along a dimension, with zeros shifted in."""
    rolled = x.roll(by, dimension)
    rolled.select(dimension, 0 if by > 0 else -1).zero_()
    return rolled


@pytest.mark.parametrize(
    ("backward", "text"),
    [
        (lambda g, x: (g * x.cos()).roll(1, 0), "the gradient by x is rolled by 1 along dimension 0"),
        (lambda g, x: g.roll(-1, 1) * x.cos(), "the cotangent of output is taken rolled by -1 along dimension 1"),
        (lambda g, x: g * x.roll(1, 1).cos(), "analytic is numeric of an input rolled by 1 along dimension 1"),
        (
            lambda g, x: shifted_with_zeros(g * x.cos()),
            "the gradient by x is shifted by 1 along dimension 0, with zeros in",
        ),
        (
            lambda g, x: shifted_with_zeros(g, -1, 1) * x.cos(),
            "the cotangent of output is taken shifted by -1 along dimension 1",
        ),
    ],
)
def test_shift_by_one(backward: Any, text: str) -> None:
    cause, says = diagnosis_of(torch.sin, backward, drawn(5, 4))
    assert cause == "shifted"
    assert says.startswith(text)


def test_shift_by_one_of_gradient_of_sum() -> None:
    wrong = lambda g, x: shifted_with_zeros(g * x.cos())  # noqa: E731
    assert diagnosis_of(lambda x: x.sin().sum(), wrong, drawn(6))[0] == "shifted"


def test_zero_first_entry_or_row_of_constant_gradient_is_no_shift() -> None:
    assert (
        diagnosis_of(lambda x: x.sum(), lambda g, x: shifted_with_zeros(g.expand(8)), drawn(8))[0] == "single-elements"
    )
    assert (
        diagnosis_of(lambda x: x.sum(), lambda g, x: shifted_with_zeros(g.expand(6, 3)), drawn(6, 3))[0]
        == "boundary-tile"
    )


def test_two_exchanged_rows_are_reversed_and_not_shifted() -> None:
    cause, text = diagnosis_of(torch.sin, lambda g, x: (g * x.cos()).flip(0), drawn(2, 4))
    assert (cause, text) == ("permuted", "the gradient by x is reversed along dimension 0")


@pytest.mark.parametrize("x", [[0.3, -0.7, 0.9, -1.1], [-0.4, 0.8, -0.2, 0.6], [0.3, 0.7, -0.9, -1.1]])
def test_exchanged_branches_of_few_entries_are_no_permutation(x: list[float]) -> None:
    """There are two slopes only: some order of them fits by chance."""

    def leaky(x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.2 * x, x)

    found = diagnosis_of(leaky, lambda g, x: torch.where(x < 0, g, 0.2 * g), double(x))
    assert found[0] == "wrong-branch"


def test_index_with_repeated_entries_is_no_permutation() -> None:
    assert diagnosis_of(torch.sin, lambda g, x: (g * x.cos())[[0, 0, 1, 2, 3, 3]], drawn(6)) == (None, "")


def test_missing_sum_over_broadcast_or_repeated_input() -> None:
    x, y = drawn(4, 3), drawn(3, seed=1)
    answers = diagnoses_of(lambda x, y: (x + y).tanh(), lambda g, x, y: _bias(g, x, y, slice(0, 1)), x, y)
    text = "only output[0, :] counts: the sum over the 4 entries of dimension 0 is missing"
    assert answers == {"output by y": ("missing-broadcast-sum", text)}
    places = torch.tensor([0, 1, 1, 2, 0])
    cause, text = diagnosis_of(lambda w: w[places].sin(), lambda g, w: _without_accumulation(g, w, places), drawn(3))
    assert cause == "missing-broadcast-sum"
    assert text.startswith("each entry of x gets its gradient from the last output that it goes into")


def _bias(g: Tensor, x: Tensor, y: Tensor, counted: slice) -> tuple[Tensor, Tensor]:
    full = g * (1 - (x + y).tanh() ** 2)
    return full, full[counted].sum(0)


def _without_accumulation(g: Tensor, w: Tensor, places: Tensor) -> Tensor:
    gradient = torch.zeros_like(w)
    for place, value in zip(places.tolist(), g * w[places].cos(), strict=True):
        gradient[place] = value
    return gradient


def test_sum_over_two_slices_is_no_missing_broadcast_sum() -> None:
    x, y = drawn(4, 3), drawn(3, seed=1)
    answers = diagnoses_of(lambda x, y: (x + y).tanh(), lambda g, x, y: _bias(g, x, y, slice(0, 2)), x, y)
    assert answers["output by y"][0] != "missing-broadcast-sum"


@pytest.mark.parametrize(("heads", "each"), [(4, 2), (6, 3), (8, 4)])
@pytest.mark.parametrize(("kept", "word"), [(0, "first"), (-1, "last")])
def test_gradient_of_one_of_the_heads_that_share_an_input(heads: int, each: int, kept: int, word: str) -> None:
    def shared(p: Tensor, v: Tensor) -> Tensor:
        return p @ v.repeat_interleave(each, 0)

    def backward(g: Tensor, p: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return g @ v.repeat_interleave(each, 0).mT, (p.mT @ g).unflatten(0, (-1, each))[:, kept]

    answers = diagnoses_of(shared, backward, drawn(heads, 3, 3), drawn(heads // each, 3, 2, seed=1))
    text = f"each entry of y gets its gradient from the {word} of the {each} slices of output along dimension 0 that it"
    assert answers == {
        "output by y": ("missing-broadcast-sum", f"{text} goes into: the sum over all of them is missing")
    }


def test_running_sum_without_accumulation_is_missing_term_and_no_broadcast() -> None:
    weights = drawn(4, 4, seed=1).detach()
    answer = diagnosis_of(lambda x: x.cumsum(0) @ weights, lambda g, x: g @ weights.T, drawn(5, 4))
    assert answer[0] == "missing-term"


def test_missing_term_of_low_rank_or_on_diagonal() -> None:
    def centred(x: Tensor) -> Tensor:
        return x.tanh() - x.tanh().mean()

    cause, text = diagnosis_of(centred, lambda g, x: g * (1 - x.tanh() ** 2), drawn(8))
    assert cause == "missing-term"
    assert text.startswith("analytic - numeric is one outer product: a sum over all elements")
    cause, text = diagnosis_of(lambda x: x.softmax(0), lambda g, x: g * x.softmax(0) * (1 - x.softmax(0)), drawn(6))
    assert cause == "missing-term"
    assert text.startswith("analytic = numeric on the diagonal and 0 elsewhere")
    cause, text = diagnosis_of(lambda x: x.softmax(0), lambda g, x: -x.softmax(0) * (g * x.softmax(0)).sum(), drawn(6))
    assert cause == "missing-term"
    assert text.startswith("only the diagonal differs")


@pytest.mark.slow
@pytest.mark.parametrize("rows", [3, 24])
def test_missing_term_in_every_sample_of_batch(rows: int) -> None:
    def centred(x: Tensor) -> Tensor:
        return x.tanh() - x.tanh().mean(dim=-1, keepdim=True)

    cause, text = diagnosis_of(centred, lambda g, x: g * (1 - x.tanh() ** 2), drawn(rows, 16))
    assert cause == "missing-term"
    assert text == (
        f"in each of {rows} parts that do not depend on each other, analytic - numeric is one outer product: "
        "a sum over the part is missing or wrong"
    )


def test_error_of_full_rank_has_no_cause() -> None:
    wrong = drawn(8, 8, seed=2).detach()
    right = torch.eye(8, dtype=torch.float64) - 1 / 8
    assert diagnosis_of(lambda x: right @ x, jacobian(right.T + 0.1 * wrong), drawn(8)) == (None, "")


def test_one_wrong_entry_of_matrix_is_single_element() -> None:
    weights = drawn(4, 6).detach()
    wrong = weights.clone()
    wrong[2, 3] *= 1.3
    text = "1 of 24 entries differs: output[2] by x[3]"
    assert diagnosis_of(lambda x: weights @ x, jacobian(wrong), drawn(6)) == ("single-elements", text)


def test_one_wrong_entry_of_two_is_single_element_and_two_of_three_are_not() -> None:
    wrong = torch.tensor([1.0, 1.3], dtype=torch.float64)
    answer = diagnosis_of(torch.sin, lambda g, x: g * x.cos() * wrong, drawn(2))
    assert answer == ("single-elements", "1 of 4 entries differs: output[1] by x[1]")
    wrong = torch.tensor([1.0, 1.3, 1.7], dtype=torch.float64)
    assert diagnosis_of(torch.sin, lambda g, x: g * x.cos() * wrong, drawn(3)) == (None, "")


def test_missing_conjugate_of_derivative_and_of_gradient() -> None:
    z = torch.randn(4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)).requires_grad_()
    answers = diagnoses_of(lambda z: z * z, lambda g, z: 2 * g * z, z)
    text = "the derivative of output by x is not conjugated: its imaginary part has the opposite sign"
    assert answers == {
        "output.imag by x.real": ("missing-conjugate", text),
        "output.real by x.imag": ("missing-conjugate", text),
    }
    answers = diagnoses_of(lambda z: z.abs().square(), lambda g, z: 2 * g * z.conj(), z)
    text = "the gradient by x is the conjugate of what it should be"
    assert answers == {"output by x.imag": ("missing-conjugate", text)}


def test_missing_conjugate_of_a_factor_of_one_input_alone() -> None:
    z, w = (torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    z, w = (torch.view_as_complex(each).requires_grad_() for each in (z, w))
    answers = diagnoses_of(lambda z, w: z * w.abs(), lambda g, z, w: (g * w.abs(), (g * z).real * w.sgn()), z, w)
    text = (
        "what comes back from the imaginary part of output has the opposite sign: a conj() is missing, or one too many"
    )
    assert set(answers.values()) == {("missing-conjugate", text)}
    assert len(answers) == 2


def test_complex_gradient_with_opposite_sign_is_sign_flip() -> None:
    z = torch.randn(4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0)).requires_grad_()
    answers = diagnoses_of(lambda z: z * z, lambda g, z: -2 * g * z.conj(), z)
    assert {cause for cause, _ in answers.values()} == {"sign-flip"}
    assert len(answers) == 4


def test_gradient_that_is_not_finite_has_no_cause() -> None:
    answers = diagnoses_of(torch.sin, lambda g, x: g * x.cos() / x * x, double([0.0, 1.0]))
    assert answers == {"output by x": (None, "")}


def test_permutation_of_single_row_is_not_called_roll() -> None:
    """The gradient of a maximum is given to the minimum: one row, which fits a roll by some distance as well."""
    given = double((0.3, -0.7, 1.9, -2.1, 0.8))
    answer = diagnosis_of(torch.max, lambda g, x: g * torch.eye(5, dtype=x.dtype)[x.argmin()], given)
    text = "the gradients by x are in another order: x[3] has what belongs to x[2]"
    assert answer == ("permuted", text)


def _softmax_along(*wrong: int) -> Callable[..., Any]:
    def backward(grad: Tensor, x: Tensor) -> Tensor:
        y = x.softmax(1)
        return y * (grad - (grad * y).sum(wrong, keepdim=True))

    return backward


def test_sum_along_wrong_dimension_is_wrong_axis() -> None:
    for shape in ((3, 5), (4, 4)):
        cause, text = diagnosis_of(lambda x: x.softmax(1), _softmax_along(0), drawn(*shape))
        assert (cause, text) == (
            "wrong-axis",
            "elements go together along dimension 1 of x, and backward sums along dimension 0",
        )
        cause, text = diagnosis_of(lambda x: x.softmax(1), _softmax_along(0, 1), drawn(*shape))
        assert (cause, text) == (
            "wrong-axis",
            "backward sums along dimension 0 of x too, where every place has outputs of its own",
        )
    cause, _ = diagnosis_of(lambda x: x.cumsum(1), lambda g, x: g.flip(0).cumsum(0).flip(0), drawn(4, 5))
    assert cause == "wrong-axis"


@pytest.mark.parametrize(
    ("forward", "slope"), [(lambda z: z.clone(), torch.ones_like), (torch.sin, torch.cos)], ids=["sum", "sine"]
)
def test_gradient_of_a_bias_summed_along_the_other_dimension_is_wrong_axis(forward: Any, slope: Any) -> None:
    def backward(g: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        inner = g * slope(x + bias)
        return inner, inner.sum(1)

    answers = diagnoses_of(lambda x, bias: forward(x + bias), backward, drawn(5, 5), drawn(5, seed=1))
    text = "backward sums the cotangent of output along dimension 1, and not along dimension 0"
    assert list(answers.values()) == [("wrong-axis", text)]


@pytest.mark.parametrize(
    "backward", [lambda g, x, b: (g * b, (g.T * x).sum(0)), lambda g, x, b: (g * b, (2 * g * x).sum(1))]
)
def test_gradient_of_a_factor_with_other_terms_is_no_wrong_axis(backward: Any) -> None:
    answers = diagnoses_of(lambda x, b: x * b, backward, drawn(5, 5), drawn(5, seed=1))
    assert "wrong-axis" not in {cause for cause, _ in answers.values()}


def test_gradient_of_a_matrix_with_a_transposed_cotangent_is_transposed() -> None:
    x = drawn(5, 5)
    answers = diagnoses_of(lambda w, x: w @ x, lambda g, w, x: (g.T @ x.T, w.T @ g), drawn(5, 5, seed=1), x)
    assert [cause for cause, _ in answers.values()] == ["transposed"]


def test_parameter_with_sum_over_too_many_dimensions_is_wrong_axis() -> None:
    answers = diagnoses_of(
        lambda x, y: x * y, lambda g, x, y: (g * y, (g * x).sum().expand_as(y)), drawn(5, 3), drawn(3, seed=1)
    )
    assert answers == {
        "output by y": (
            "wrong-axis",
            "backward sums along dimension 0 of y too, where every place has outputs of its own",
        )
    }


@pytest.mark.parametrize("size", [3, 4])
def test_transposed_square_is_no_sum_along_another_dimension(size: int) -> None:
    cause, _ = diagnosis_of(torch.square, lambda g, x: (2 * g * x).t(), drawn(size, size))
    assert cause == "transposed"
    found = diagnoses_of(
        lambda x, y: x[:, :, None] * y[:, None, :],
        lambda g, x, y: (torch.einsum("bij,bj->ib", g, y), torch.einsum("bij,bi->bj", g, x)),
        drawn(size, size),
        drawn(size, size, seed=1),
    )
    assert [cause for cause, _ in found.values()] == ["transposed"]


@pytest.mark.parametrize("shape", [(2, 3), (2, 2), (3, 4)])
def test_forgotten_branch_is_no_wrong_axis(shape: tuple[int, int]) -> None:
    weight = drawn(shape[1], shape[1], seed=1).detach()
    cause, _ = diagnosis_of(lambda x, w: x + (x @ w).tanh(), lambda g, x, w: (g, None), drawn(*shape), weight)
    assert cause in ("missing-term", None)


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (4, 5)])
def test_claims_where_the_derivative_is_zero_lack_no_factor(shape: tuple[int, int]) -> None:
    x, scale = drawn(*shape), drawn(shape[1], seed=1)
    found = diagnoses_of(lambda x, s: x * s, lambda g, x, s: (g * s, (g * x).sum().expand(s.shape)), x, scale)
    assert {cause for cause, _ in found.values()} <= {"wrong-axis", None}
    found = diagnoses_of(lambda x, y: x * y, lambda g, x, y: ((g * y).cumsum(-1), g * x), x, drawn(*shape, seed=2))
    assert not {cause for cause, _ in found.values()} & {"missing-factor", "wrong-axis"}


def test_missing_sum_is_no_wrong_axis() -> None:
    cause, _ = diagnosis_of(lambda x: x.softmax(1), lambda g, x: g * x.softmax(1), drawn(3, 5))
    assert cause != "wrong-axis"


def test_factor_on_all_but_one_element_is_no_constant_factor() -> None:
    def huber(x: Tensor) -> Tensor:
        return torch.where(x.abs() < 0.5, x * x / 2, (x.abs() - 0.25) / 2).sum()

    x = double([0.1, *[1.0, -2.0, 3.0] * 8])
    cause, text = diagnosis_of(huber, lambda g, x: g * torch.where(x.abs() < 0.5, x, x.sign()), x)
    assert cause not in ("constant-factor", "mean-for-sum")
    assert text.startswith("24 of 25 elements differ")


def test_permuted_pooling_windows_are_not_transposed() -> None:
    def tiled(grad: Tensor, x: Tensor) -> Tensor:
        return torch.cat([grad, grad], -2).repeat_interleave(2, -1) / 4

    cause, _ = diagnosis_of(lambda x: torch.nn.functional.avg_pool2d(x, 2), tiled, drawn(2, 1, 4, 6))
    assert cause == "permuted"


def test_permutation_with_an_entry_at_a_kink() -> None:
    x = 2 * drawn(100).detach()
    x[11] = 3.0  # at a kink, where any claim between the two slopes is accepted
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))

    def backward(g: Tensor, x: Tensor) -> Tensor:
        slope = torch.where(x < -3, 0.0, torch.where(x <= 3, (2 * x + 3) / 6, 1.0))
        return (g * slope)[order]

    assert diagnosis_of(torch.nn.functional.hardswish, backward, x.requires_grad_())[0] == "permuted"


def test_permutation_by_sort_is_found_despite_large_error_bars() -> None:
    assert diagnosis_of(lambda x: x.sort().values, lambda g, _: g, drawn(60))[0] == "permuted"
