"""Missing masks, wrong branches, boundary tiles and missing cotangents: their regions and the relations inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu

from gradverify.checks.registry import run_check
from gradverify.core.model.problem import bind
from gradverify.diagnosis.diagnose import diagnose
from gradverify.diagnosis.naming.region import threshold, threshold_text
from gradverify.result import Verdict
from tests.core.support import ALONE, double
from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn

SPREAD = (-2.0, 0.3, 1.7, 2.4, -0.5, 1.1, -1.3, 0.8)


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        (-0.3, 0.4, 0.0),
        (0.4, -0.3, 0.0),
        (1.2, 1.7, 1.5),
        (1.7, 1.2, 1.5),
        (0.0, 0.1, 0.1),
        (0.31, 0.38, 0.35),
        (2.0, 40.0, 20.0),
        (-7.2, -3.9, -5.0),
        (1e-9, 3e-9, 2e-9),
        (1.0, 1.0 + 2**-52, 1.0 + 2**-52),
    ],
)
def test_threshold_is_simplest_number_in_gap(inner: float, outer: float, expected: float) -> None:
    assert threshold(inner, outer, ()) == expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [(1.2, 1.7, "1.5"), (162.960697, 162.960692, "162.960695"), (0.1234561, 0.1234564, "0.1234562")],
)
def test_threshold_is_printed_with_enough_digits_to_be_in_gap(inner: float, outer: float, expected: str) -> None:
    assert threshold_text(threshold(inner, outer, ()), inner, outer) == expected


def test_threshold_is_zero_or_argument_in_gap_if_there_is_one() -> None:
    assert threshold(1.2, 1.7, (0.5, 1.6)) == 1.6
    assert threshold(-1.2, 1.7, (0.5,)) == 0.0


def test_missing_mask_is_described_by_values_and_arguments() -> None:
    answer = diagnosis_of(lambda x, clip: x.clamp(0, clip), lambda g, x, clip: (g, None), double(SPREAD), 1.6)
    text = "5 of 8 elements differ; analytic = cotangent where numeric = 0, at x < 0 or x > 1.6"
    assert answer == ("missing-mask", text)


@pytest.mark.parametrize(
    ("bounds", "said"),
    [((0.0, 1.6), ", at x < 0 or x > 1.6"), ((0.1, 1.6), ", at all elements but x[2]")],
    ids=["both mean something", "one does"],
)
def test_single_right_element_between_two_thresholds_needs_both_anchored(
    bounds: tuple[float, float], said: str
) -> None:
    """One of five elements lies between two others by chance in three cases of five."""
    low, high = bounds
    values = double((-2.0, 0.05, 1.2, 1.7, -0.5)) if low else double((-2.0, -0.1, 1.2, 1.7, -0.5))
    answer = diagnosis_of(lambda x, clip: x.clamp(low, clip), lambda g, x, clip: (g, None), values, high)
    assert answer == ("missing-mask", f"4 of 5 elements differ; analytic = cotangent where numeric = 0{said}")


def test_missing_mask_in_front_of_matrix_product() -> None:
    weights = drawn(4, 8).detach()
    answer = diagnosis_of(lambda x: weights @ x.relu(), lambda g, x: g @ weights, double(SPREAD))
    assert answer == ("missing-mask", "3 of 8 elements differ; analytic ≠ 0 where numeric = 0, at x < 0")


LOSERS = "divided among all 3 of its inputs, also those that it does not depend on"


@pytest.mark.parametrize("shape", [(3,), (5, 3)])
def test_gradient_of_maximum_divided_among_all_inputs_is_missing_mask(shape: tuple[int, ...]) -> None:
    wrong = lambda g, x: (g / 3).unsqueeze(-1).expand_as(x)  # noqa: E731
    cause, text = diagnosis_of(lambda x: x.amax(-1), wrong, drawn(*shape))
    assert (cause, text.endswith(LOSERS)) == ("missing-mask", True)


def test_gradient_of_overlapping_maxima_divided_among_all_inputs_is_missing_mask() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        parts = torch.zeros_like(x)
        for window in range(5):
            parts[window : window + 3] += g[window] / 3
        return parts

    cause, text = diagnosis_of(lambda x: x.unfold(0, 3, 1).amax(-1), backward, drawn(7))
    assert (cause, text.endswith(LOSERS)) == ("missing-mask", True)


def test_missing_mask_with_factor_elsewhere() -> None:
    wrong = lambda g, x, y: (g / 2, g / 2)  # noqa: E731
    answers = diagnoses_of(torch.maximum, wrong, drawn(9), drawn(9, seed=3))
    text = "analytic = 0.5 × cotangent in 5 of 9 elements where numeric = 0, at x - y < 0, and analytic = 1/2 × numeric"
    assert answers["output by x"] == ("missing-mask", f"{text} elsewhere")


def test_equal_gradient_for_inputs_with_nonzero_derivatives_is_no_missing_mask() -> None:
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    wrong = lambda g, x: (2 * g).unsqueeze(1).expand_as(x)  # noqa: E731
    assert diagnosis_of(lambda x: x @ weights, wrong, drawn(5, 3))[0] != "missing-mask"


def test_cotangent_in_place_of_varying_derivative_is_missing_factor_and_no_mask() -> None:
    assert diagnosis_of(lambda x: x.relu().square(), lambda g, x: g.clone(), double(SPREAD))[0] == "missing-factor"


def test_one_wrong_zero_entry_is_single_element_and_no_mask() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.cos()
        gradient[2] += 0.3 * g[5]
        return gradient

    cause, text = diagnosis_of(torch.sin, backward, double(SPREAD))
    assert (cause, text) == ("single-elements", "1 of 64 entries differs: output[5] by x[2]")


@pytest.mark.parametrize(
    ("factor", "says"), [(2.0, "2 × numeric"), (0.0, "0"), (-1.0, "-numeric"), (0.99, "0.99 × numeric")]
)
def test_wrong_branch_is_described_by_region_and_relation(factor: float, says: str) -> None:
    answer = diagnosis_of(torch.exp, lambda g, x: g * x.exp() * torch.where(x > 1, factor, 1.0), double(SPREAD))
    assert answer == ("wrong-branch", f"3 of 8 elements differ; analytic = {says} where x > 1")


def test_wrong_branch_that_returns_cotangent() -> None:
    answer = diagnosis_of(torch.sin, lambda g, x: torch.where(x.abs() < 1, g, g * x.cos()), double(SPREAD))
    assert answer == ("wrong-branch", "3 of 8 elements differ; analytic = cotangent where |x| < 1")


def test_wrong_entries_without_region_have_no_cause() -> None:
    chosen = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0], dtype=torch.bool)
    answer = diagnosis_of(torch.exp, lambda g, x: g * x.exp() * torch.where(chosen, 2.0, 1.0), double(SPREAD))
    assert answer == (None, "")


def test_region_without_relation_needs_many_entries() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return torch.where(x > 0, g * x.square(), g * x.cos())

    assert diagnosis_of(torch.sin, backward, double(SPREAD)) == (None, "")
    cause, text = diagnosis_of(torch.sin, backward, drawn(30))
    assert cause == "wrong-branch"
    assert text.endswith("of 30 elements differ, exactly where x > 0")


def test_error_within_tolerance_in_some_entries_is_no_branch() -> None:
    def by_tanh(g: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            near = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(gelu(near, approximate="tanh").sum(), near)
        return g * slope

    assert diagnosis_of(gelu, by_tanh, drawn(50, seed=6)) == (None, "")


def test_error_that_fades_out_near_zero_is_no_branch() -> None:
    """The entries near zero are right within the noise of float32 alone."""

    def parts(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = (x.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return x.float() * scale, scale

    def backward(g: Tensor, x: Tensor) -> Tensor:
        y, scale = parts(x)
        return (scale * (g.float() - 0.97 * y * (g.float() * y).mean(-1, keepdim=True))).double()

    found = diagnoses_of(lambda x: parts(x)[0].double(), backward, drawn(8, 33, seed=2))
    assert "wrong-branch" not in {cause for cause, _ in found.values()}


def _no_cotangent(where: Any) -> Any:
    return lambda g, x: torch.where(where(x), -0.5, g * x.cos())


def test_missing_cotangent_is_found_by_vjp_with_zeros() -> None:
    answer = diagnosis_of(torch.sin, _no_cotangent(lambda x: x <= 0), double([-1.0, 0.5, 2.0]))
    assert answer == ("missing-cotangent", "analytic = -0.5 whatever the cotangent is, where x < 0")
    answer = diagnosis_of(torch.sin, _no_cotangent(lambda x: x < 99), double([-1.0, 0.5, 2.0]))
    assert answer == ("missing-cotangent", "analytic = -0.5 whatever the cotangent is")


def test_missing_cotangent_near_target() -> None:
    def backward(g: Tensor, p: Tensor, t: Tensor) -> Any:
        gradient = 2 * g * (p - t)
        return torch.where((p - t).abs() < 0.1, 1.0, gradient), -gradient

    targets = double([0.5, 0.1, 1.2, 0.7, 0.0])
    answers = diagnoses_of(lambda p, t: (p - t) ** 2, backward, double([0.5, 0.0, 1.0, 0.7, 0.9]), targets)
    text = "analytic = 1 whatever the cotangent is, where |x - y| < 0.1"
    assert answers == {"output by x": ("missing-cotangent", text)}
    answers = diagnoses_of(lambda p, t: (p - t) ** 2, backward, double([0.5, 0.0, 1.0]), double([0.5, 0.1, 1.2]))
    assert answers == {"output by x": ("missing-cotangent", "analytic = 1 whatever the cotangent is, at x[0]")}


LARGEST = (0.4, -0.3, 0.9, 1.8, -1.2, 0.1, -0.7, 1.1)


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_largest_element_alone_on_one_side_of_threshold_is_no_branch(factor: float) -> None:
    x = double(LARGEST)
    wrong = lambda g, x: g * x.exp() * torch.where(x == x.max(), 1.0, factor)  # noqa: E731
    assert diagnosis_of(torch.exp, wrong, x)[0] != "wrong-branch"
    wrong = lambda g, x: g * x.exp() * torch.where(x == x.max(), factor, 1.0)  # noqa: E731
    assert diagnosis_of(torch.exp, wrong, x)[0] == "single-elements"


def test_elements_in_no_region_are_listed() -> None:
    kept = torch.ones(8, dtype=torch.float64)
    kept[3] = 0
    answer = diagnosis_of(lambda x, y: x * (y > 0), lambda g, x, y: (g, None), double(LARGEST), kept + 1e-3 * 0 - 0.5)
    text = "1 of 8 elements differs; analytic = cotangent where numeric = 0, at y < 0"
    assert answer == ("missing-mask", text)
    answer = diagnosis_of(lambda x: x * kept, lambda g, x: g, double(LARGEST))
    assert answer == ("missing-mask", text.replace("y < 0", "x[3]"))


def test_one_element_beyond_an_argument_is_a_region() -> None:
    answer = diagnosis_of(lambda x, top: x.clamp(max=top), lambda g, x, top: (g, None), double(LARGEST), 1.5)
    assert answer[1].endswith("analytic = cotangent where numeric = 0, at x > 1.5")


def test_at_least_two_elements_on_both_sides_of_any_threshold_are_a_region() -> None:
    cause, text = diagnosis_of(torch.exp, lambda g, x: g * x.exp() * torch.where(x > 1, 2.0, 1.0), double(LARGEST))
    assert (cause, text.endswith("analytic = 2 × numeric where x > 1")) == ("wrong-branch", True)


def test_constant_added_to_gradient_is_missing_cotangent() -> None:
    cause, text = diagnosis_of(torch.sin, lambda g, x: g * x.cos() + 0.1, drawn(4))
    assert cause == "missing-cotangent"
    assert text.startswith("analytic = numeric × cotangent + 0.1")


def test_constant_multiple_of_cotangent_is_missing_factor() -> None:
    cause, text = diagnosis_of(torch.sin, lambda g, x: 0.3 * g, drawn(4))
    assert (cause, text.startswith("analytic = 0.3 × cotangent and nothing else")) == ("missing-factor", True)


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([7, 15], "x is in elements 7 and 15, the last of each tile of 8"),
        ([0, 5, 10], "x is in elements 0, 5 and 10, the first of each tile of 5"),
        ([13, 14, 15], "x is in elements 13 to 15, the last 3 of 16"),
    ],
)
def test_last_or_first_element_of_each_tile_is_boundary_tile(places: list[int], says: str) -> None:
    size = 15 if says.endswith("5") else 16
    kept = torch.ones(size, dtype=torch.float64)
    kept[places] = 0
    answer = diagnosis_of(torch.exp, lambda g, x: kept * g * x.exp(), drawn(size, seed=3))
    assert answer == ("boundary-tile", f"{len(places)} of {size} elements differ; analytic = 0 where {says}")


@pytest.mark.parametrize(("shape", "count"), [((7, 9), 15), ((3, 5, 7), 9)])
def test_last_elements_in_flat_order_are_boundary_tile(shape: tuple[int, ...], count: int) -> None:
    size = math.prod(shape)
    kept = (torch.arange(size) < size - count).view(shape)
    answer = diagnosis_of(torch.sin, lambda g, x: g * x.cos() * kept, drawn(*shape))
    says = f"analytic = 0 where x is in the last {count} of {size} entries in flat order"
    assert answer == ("boundary-tile", f"{count} of {size} elements differ; {says}")
    kept.view(-1)[-2] = True
    assert diagnosis_of(torch.sin, lambda g, x: g * x.cos() * kept, drawn(*shape))[0] != "boundary-tile"


@pytest.mark.parametrize("step", [2, 3])
def test_every_second_or_third_element_is_no_boundary_tile(step: int) -> None:
    kept = (torch.arange(18) % step != step - 1).double()
    cause, text = diagnosis_of(torch.exp, lambda g, x: kept * g * x.exp(), drawn(18))
    assert (cause, f", those by x[{step - 1}::{step}], " in text) == ("missing-term", True)
    assert diagnosis_of(torch.exp, lambda g, x: g * torch.where(kept > 0, x, 1.3 * x).exp(), drawn(18)) == (None, "")


def test_last_rows_of_matrix_are_boundary_tile() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.exp()
        gradient[-2:] *= 2
        return gradient

    answer = diagnosis_of(torch.exp, backward, drawn(8, 3))
    text = "6 of 24 elements differ; analytic = 2 × numeric where x is in rows 6 and 7, the last 2 of 8"
    assert answer == ("boundary-tile", text)


def test_middle_rows_are_no_boundary_tile() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.exp()
        gradient[3:5] *= 2
        return gradient

    answer = diagnosis_of(torch.exp, backward, drawn(8, 3))
    text = "6 of 24 elements differ; analytic = 2 × numeric where x is in rows 3 and 4"
    assert answer == ("constant-factor", text)


def test_off_diagonal_elements_are_no_branch_although_values_separate_them() -> None:
    matrix = drawn(4, 4).detach()
    positive = matrix @ matrix.T + 4 * torch.eye(4, dtype=torch.float64)
    off = ~torch.eye(4, dtype=torch.bool)
    assert float(positive[off].max()) < float(positive.diagonal().min())
    answer = diagnosis_of(
        torch.sin, lambda g, x: torch.where(off, 2 * g * x.cos(), g * x.cos()), positive.requires_grad_()
    )
    assert answer == (None, "")


def test_consecutive_elements_are_branch_if_error_depends_on_values() -> None:
    x = double([-0.5, 0.3, 1.7, 2.1, 1.9, 0.2, -1.2, 1.4])
    answer = diagnosis_of(lambda x: x.clamp(max=1.5), lambda g, x: g * torch.where(x < 1.5, 1.0, 0.5), x)
    says = "3 of 8 elements differ; analytic = 0.5 × cotangent where numeric = 0, at x > 1.5"
    assert answer == ("missing-mask", says)
    answer = diagnosis_of(lambda x: torch.where(x > 1.5, x, 2 * x), lambda g, x: g * torch.where(x > 1.5, 3.0, 2.0), x)
    assert answer == ("wrong-branch", "3 of 8 elements differ; analytic = 3 × numeric where x > 1.5")


def test_error_that_vanishes_with_derivative_is_no_branch() -> None:
    x = double(torch.linspace(-7, 7, 120).tolist())

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * (2 / math.sqrt(math.pi) * (-x.square()).exp()) ** 1.7

    assert diagnosis_of(torch.erf, backward, x) == (None, "")


def test_consecutive_elements_are_branch_only_if_error_depends_on_values() -> None:
    middle = torch.zeros(8, dtype=torch.bool)
    middle[2:5] = True

    def by_place(g: Tensor, x: Tensor) -> Tensor:
        return torch.where(middle, 2 * g * x.cos(), g * x.cos())

    def by_value(g: Tensor, x: Tensor) -> Tensor:
        return torch.where((x > -1) & (x < 1), 2 * g * x.cos(), g * x.cos())

    rising = [-2.0, -1.5, -0.4, 0.2, 0.6, 1.1, 1.7, 2.0]
    assert diagnosis_of(torch.sin, by_place, double([0.1, -0.4, 1.3, 1.9, 1.6, 0.3, -0.9, 0.7]))[0] is None
    assert diagnosis_of(torch.sin, by_place, double(rising))[0] is None
    assert diagnosis_of(torch.sin, by_value, double(rising))[0] == "wrong-branch"


def test_wrong_branch_by_difference_of_two_inputs() -> None:
    def huber(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(x, y, reduction="none", delta=0.5)

    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        slope = torch.where((x - y).abs() < 0.5, x - y, torch.full_like(x, 0.5))  # the sign is missing
        return g * slope, -g * slope

    x = double([0.9, -0.5, 1.0, 0.0, 1.2, -0.3, 0.2, -0.9, 0.4, 2.0])
    y = double([0.0, 1.0, -0.5, 0.3, 3.0, -0.4, 1.5, -0.3, 0.2, 0.7])
    cause, text = diagnoses_of(huber, backward, x, y)["output by x"]
    assert (cause, text) == ("wrong-branch", "4 of 10 elements differ; analytic = -numeric where x - y < -0.5")


def test_half_of_tensor_is_no_boundary_tile() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return g * x.cos() * torch.tensor([1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0], dtype=torch.float64)

    answer = diagnosis_of(torch.sin, backward, drawn(3, 8))
    text = "12 of 24 elements differ; analytic = 3 × numeric where x is in columns 4 to 7"
    assert answer == ("constant-factor", text)


def test_small_nonzero_derivative_is_no_missing_mask() -> None:
    def forward(x: Tensor) -> Tensor:
        return 1.0 + 1e-14 * x.sin()  # its slopes are measured to about a third

    x = double([0.3, 0.7, 1.1, -0.4])
    assert (
        diagnosis_of(forward, lambda g, x: torch.where(x > 0.5, 1e-11 * g, 1e-14 * g * x.cos()), x)[0] != "missing-mask"
    )


def test_missing_cotangent_of_loss_reports_cotangent_of_the_check() -> None:
    cause, text = diagnosis_of(lambda x: (x * x).sum(), lambda g, x: 2 * x, drawn(4))
    expected = (
        "analytic = a constant whatever the cotangent is (asked with a cotangent of 0.25, it counts 4 times as much)"
    )
    assert (cause, text) == ("missing-cotangent", expected)


def test_gradient_of_first_sample_only_is_boundary_tile() -> None:
    first = (torch.arange(6) == 0).unsqueeze(1)
    answer = diagnosis_of(torch.sin, lambda g, x: g * x.cos() * first, drawn(6, 4))
    text = "20 of 24 elements differ; analytic = 0 where x is in rows 1 to 5, all but the first of 6"
    assert answer == ("boundary-tile", text)


def test_all_rows_but_first_without_relation_are_no_boundary_tile() -> None:
    wrong = lambda g, x: g * torch.cat([x[:1].cos(), (1.3 * x[1:]).cos()])  # noqa: E731
    assert diagnosis_of(torch.sin, wrong, drawn(6, 4)) == (None, "")


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(80,), (6, 80), (2, 80)])
def test_all_but_the_last_of_many_without_relation_are_no_boundary_tile(shape: tuple[int, ...]) -> None:
    """The last step of a recursion in backward is its first, and right whatever is wrong with the recursion."""

    def forward(x: Tensor) -> Tensor:
        state, states = torch.zeros_like(x[..., 0]), []
        for step in x.unbind(-1):
            state = 0.5 * state + step.sin()
            states.append(state)
        return torch.stack(states, -1)

    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient, later = torch.zeros_like(x), torch.zeros_like(x[..., 0])
        for k in reversed(range(x.shape[-1])):
            later = g[..., k] + x[..., k].cos() * later
            gradient[..., k] = later * x[..., k].cos()
        return gradient

    assert diagnosis_of(forward, backward, drawn(*shape))[0] != "boundary-tile"


def test_mask_of_zeros_and_ones_is_described_by_its_value() -> None:
    mask = (torch.arange(10) % 3 > 0).double()
    answer = diagnosis_of(lambda x, mask: x * mask, lambda g, x, mask: (g, None), drawn(10), mask)
    assert answer == ("missing-mask", "4 of 10 elements differ; analytic = cotangent where numeric = 0, at y = 0")


def test_wrong_branch_by_distance_between_two_thresholds() -> None:
    def backward(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        slope = torch.where((x - y).abs() < 1.6, x - y, 0.8 * (x - y).sign())  # forward changes its branch at 0.8
        return g * slope, -g * slope

    def huber(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.huber_loss(x, y, reduction="none", delta=0.8)

    cause, text = diagnoses_of(huber, backward, drawn(20), drawn(20, seed=1))["output by x"]
    assert (cause, text) == ("wrong-branch", "6 of 20 elements differ, exactly where 0.5 < |x - y| < 1.7")


@pytest.mark.parametrize("places", [[0, 4], [1, 2], [2, 3]])
def test_two_of_five_elements_outside_or_between_thresholds_may_be_a_coincidence(places: list[int]) -> None:
    factors = torch.ones(5, dtype=torch.float64)
    factors[places] = 2.0
    answer = diagnosis_of(torch.exp, lambda g, x: factors * g * x.exp(), double([-1.2, -0.3, 0.4, 0.9, 1.7]))
    assert answer == (None, "")


def test_lost_elements_of_gather_are_no_branch() -> None:
    index = torch.tensor([3, 7, 1, 0, 9])

    def backward(g: Tensor, x: Tensor) -> Tensor:
        return torch.zeros_like(x).index_add(0, index[:3], (g * x[index].exp())[:3])

    assert diagnosis_of(lambda x: x[index].exp(), backward, drawn(10))[0] not in ("wrong-branch", "boundary-tile")


def test_outputs_of_one_value_are_described_by_it() -> None:
    weights = drawn(9, 4, seed=1).detach()
    layer = lambda x: (weights @ x).relu()  # noqa: E731
    cause, text = diagnosis_of(layer, lambda g, x: g @ weights, drawn(4))
    assert (cause, text.endswith("analytic ≠ 0 where numeric = 0, at output = 0")) == ("missing-mask", True)


@pytest.mark.parametrize("given", [(-1.0, 0.5, 2.0, -0.3, 1.0), SPREAD])
def test_swapped_slopes_of_two_branches(given: tuple[float, ...]) -> None:
    answer = diagnosis_of(lambda x: gelu(x) * 0 + x.relu() - 0.1 * (-x).relu(), _leaky_swapped, double(given))
    says = "all elements differ; analytic = 10 × numeric where x < 0 and 1/10 × numeric elsewhere"
    assert answer == ("wrong-branch", f"{says}: one branch has the slope of the other")


def _leaky_swapped(g: Tensor, x: Tensor) -> Tensor:
    return g * torch.where(x > 0, 0.1, 1.0)


def test_two_factors_without_regions_have_no_cause() -> None:
    chosen = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0], dtype=torch.bool)
    assert diagnosis_of(torch.exp, lambda g, x: g * x.exp() * torch.where(chosen, 2.0, 0.5), double(SPREAD)) == (
        None,
        "",
    )


def test_factor_in_one_of_two_wrong_regions_has_no_cause() -> None:
    wrong = lambda g, x: g * torch.where(x > 1, 2 * x.exp(), x.sin())  # noqa: E731
    assert diagnosis_of(torch.exp, wrong, double(SPREAD)) == (None, "")


@pytest.mark.parametrize("forward", [torch.round, torch.sign, torch.floor, lambda x: (x > 0).to(x.dtype)])
def test_gradient_of_piecewise_constant_function_is_straight_through(forward: Callable[[Tensor], Tensor]) -> None:
    x = drawn(4, 5)
    cause, text = diagnosis_of(forward, lambda g, x: g, x)
    assert cause == "straight-through"
    assert text.startswith(
        "20 of 20 elements differ; output moves in jumps only, analytic = cotangent: a straight-through"
    )
    assert diagnosis_of(forward, lambda g, x: g * (x.abs() <= 1), x)[0] == "straight-through"
    _, text = diagnosis_of(forward, lambda g, x: g, x[:1, :1])
    assert text.startswith("the only element differs; output moves in jumps only")
    assert diagnosis_of(forward, lambda g, x: g * x.sigmoid() * (1 - x.sigmoid()), x)[0] == "straight-through"


def test_gradient_of_random_sample_is_straight_through_and_no_mask() -> None:
    threshold = torch.linspace(0, 1, 20, dtype=torch.float64)

    def sample(p: Tensor) -> Tensor:
        if bool(((p < 0) | (p > 1)).any()):
            raise ValueError("no probability")
        return (threshold < p).to(p.dtype)

    probabilities = torch.rand(20, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()
    cause, text = diagnosis_of(sample, lambda g, p: g, probabilities)
    assert cause == "straight-through"
    assert "output moves in jumps only" in text


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: (x - 9).relu(),  # flat near x only
        lambda x: x.clamp(-0.1, 0.1),
        lambda x: x.round() + (x - 9).relu(),
        lambda x: 0.0 * x.round(),  # constant everywhere
    ],
)
def test_function_that_is_flat_only_here_is_not_straight_through(forward: Callable[[Tensor], Tensor]) -> None:
    assert (
        diagnosis_of(forward, lambda g, x: g, (1 + drawn(6).detach().abs()).requires_grad_())[0] != "straight-through"
    )


class _Step(torch.autograd.Function):
    """The backward of a relu, whose own backward wrongly claims the derivative `grad` by x instead of zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grad: Tensor) -> Tensor:
        ctx.save_for_backward(x, grad)
        return grad * (x > 0)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        x, grad = ctx.saved_tensors
        return cotangents[0] * grad, cotangents[0] * (x > 0)


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        return _Step.apply(ctx.saved_tensors[0], cotangents[0])


def test_jump_of_gradient_in_gradgradcheck_is_not_straight_through() -> None:
    problem = bind(_Relu.apply, (drawn(6),), names=("x",))
    (finding,) = run_check("gradgradcheck", problem, ALONE, diagnose).findings
    assert finding.verdict is Verdict.FAIL
    assert finding.cause != "straight-through"
