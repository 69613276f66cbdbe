"""Masks, branches, tiles and forgotten cotangents: where they are, and what holds there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradverify.diagnosis.threshold import Gap, threshold
from tests.core.support import double
from tests.diagnosis.support import drawn, found, only

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
def test_a_threshold_is_the_simplest_number_in_its_gap(inner: float, outer: float, expected: float) -> None:
    assert threshold(Gap(inner=inner, outer=outer), ()).value == expected


def test_a_threshold_is_an_argument_where_one_lies_in_the_gap() -> None:
    assert threshold(Gap(inner=1.2, outer=1.7), (0.5, 1.6)).value == 1.6
    assert threshold(Gap(inner=-1.2, outer=1.7), (0.5,)).value == 0.0


def test_a_missing_mask_is_described_by_the_values_and_the_arguments() -> None:
    answer = only(lambda x, clip: x.clamp(0, clip), lambda g, x, clip: (g, None), double(SPREAD), 1.6)
    text = "5 of 8 elements differ; analytic = cotangent where numeric = 0, at x < 0 or x > 1.6"
    assert answer == ("missing-mask", text)


def test_a_missing_mask_behind_a_matrix() -> None:
    weights = drawn(4, 8).detach()
    answer = only(lambda x: weights @ x.relu(), lambda g, x: g @ weights, double(SPREAD))
    assert answer == ("missing-mask", "3 of 8 elements differ; analytic ≠ 0 where numeric = 0, at x < 0")


def test_a_causal_mask_that_is_missing() -> None:
    answer = only(lambda x: x.cumsum(0), lambda g, x: g.sum().expand_as(x), drawn(5))
    text = "analytic ≠ 0 where numeric = 0, wherever the input's place comes after the output's"
    assert answer == ("missing-mask", text)


def test_a_zero_filled_by_accident_is_no_mask() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.cos()
        gradient[2] += 0.3 * g[5]
        return gradient

    cause, text = only(torch.sin, backward, double(SPREAD))
    assert (cause, text) == ("single-elements", "1 of 64 entries differs: output[5] by x[2]")


@pytest.mark.parametrize(
    ("factor", "says"), [(2.0, "2 × numeric"), (0.0, "0"), (-1.0, "-numeric"), (0.99, "0.99 × numeric")]
)
def test_a_wrong_branch_is_described_by_its_region_and_what_holds_there(factor: float, says: str) -> None:
    answer = only(torch.exp, lambda g, x: g * x.exp() * torch.where(x > 1, factor, 1.0), double(SPREAD))
    assert answer == ("wrong-branch", f"3 of 8 elements differ; analytic = {says} where x > 1")


def test_a_wrong_branch_that_claims_the_cotangent() -> None:
    answer = only(torch.sin, lambda g, x: torch.where(x.abs() < 1, g, g * x.cos()), double(SPREAD))
    assert answer == ("wrong-branch", "3 of 8 elements differ; analytic = cotangent where |x| < 1")


def test_wrong_entries_without_a_region_are_no_branch() -> None:
    chosen = torch.tensor([1, 0, 0, 1, 0, 1, 1, 0], dtype=torch.bool)
    answer = only(torch.exp, lambda g, x: g * x.exp() * torch.where(chosen, 2.0, 1.0), double(SPREAD))
    assert answer == (None, "")


def test_a_region_without_a_relation_needs_more_than_a_few_entries() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        return torch.where(x > 0, g * x.square(), g * x.cos())

    assert only(torch.sin, backward, double(SPREAD)) == (None, "")
    cause, text = only(torch.sin, backward, drawn(30))
    assert cause == "wrong-branch"
    assert text.endswith("of 30 elements differ, exactly where x > 0")


def _no_cotangent(where: Any) -> Any:
    return lambda g, x: torch.where(where(x), -0.5, g * x.cos())


def test_a_forgotten_cotangent_is_found_by_asking_with_zeros() -> None:
    answer = only(torch.sin, _no_cotangent(lambda x: x <= 0), double([-1.0, 0.5, 2.0]))
    assert answer == ("missing-cotangent", "analytic = -0.5 whatever the cotangent is, where x < 0")
    answer = only(torch.sin, _no_cotangent(lambda x: x < 99), double([-1.0, 0.5, 2.0]))
    assert answer == ("missing-cotangent", "analytic = -0.5 whatever the cotangent is")


def test_a_forgotten_cotangent_close_to_a_target() -> None:
    def backward(g: Tensor, p: Tensor, t: Tensor) -> Any:
        gradient = 2 * g * (p - t)
        return torch.where((p - t).abs() < 0.1, 1.0, gradient), -gradient

    answers = found(lambda p, t: (p - t) ** 2, backward, double([0.5, 0.0, 1.0]), double([0.5, 0.1, 1.2]))
    text = "analytic = 1 whatever the cotangent is, where |x - y| < 0.1"
    assert answers == {"output by x": ("missing-cotangent", text)}


def test_a_constant_added_to_a_gradient() -> None:
    cause, text = only(torch.sin, lambda g, x: g * x.cos() + 0.1, drawn(4))
    assert cause == "missing-cotangent"
    assert text.startswith("analytic = numeric × cotangent + 0.1")


def test_a_constant_that_does_depend_on_the_cotangent_is_something_else() -> None:
    assert only(torch.sin, lambda g, x: 0.3 * g, drawn(4)) == (None, "")


@pytest.mark.parametrize(
    ("places", "says"),
    [
        ([7, 15], "x is in elements 7 and 15, the last of each tile of 8"),
        ([0, 5, 10], "x is in elements 0, 5 and 10, the first of each tile of 5"),
        ([13, 14, 15], "x is in elements 13, 14 and 15, the last 3 of 16"),
    ],
)
def test_the_edges_of_tiles(places: list[int], says: str) -> None:
    size = 15 if says.endswith("5") else 16
    kept = torch.ones(size, dtype=torch.float64)
    kept[places] = 0
    answer = only(torch.exp, lambda g, x: kept * g * x.exp(), drawn(size, seed=3))
    assert answer == ("boundary-tile", f"{len(places)} of {size} elements differ; analytic = 0 where {says}")


def test_the_last_rows_of_a_matrix() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.exp()
        gradient[-2:] *= 2
        return gradient

    answer = only(torch.exp, backward, drawn(8, 3))
    text = "6 of 24 elements differ; analytic = 2 × numeric where x is in rows 6 and 7, the last 2 of 8"
    assert answer == ("boundary-tile", text)


def test_rows_in_the_middle_are_no_edge() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        gradient = g * x.exp()
        gradient[3:5] *= 2
        return gradient

    assert only(torch.exp, backward, drawn(8, 3)) == (None, "")
