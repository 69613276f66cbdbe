"""One factor per row or channel that is a statistic of a tensor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.core.support import double
from tests.diagnosis.support import diagnosis_of, drawn


def normalised(x: Tensor) -> Tensor:
    """Return the layer norm of x: each row minus its mean, divided by its standard deviation."""
    return torch.nn.functional.layer_norm(x, x.shape[1:])


def mixed(g: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of a layer norm without the division by the standard deviation."""
    return g - g.mean(1, keepdim=True) - y * (g * y).mean(1, keepdim=True)


def test_missing_division_by_the_deviation_is_named() -> None:
    cause, text = diagnosis_of(normalised, lambda g, x: mixed(g, normalised(x)), drawn(4, 6))
    assert cause == "missing-factor"
    assert text == (
        "analytic = numeric × the standard deviation of x in each row of x: "
        "a factor of the standard deviation of x too many"
    )


@pytest.mark.parametrize(
    ("power", "says"),
    [
        (0, "numeric × the norm of x in each row of x: a factor of the norm of x too many"),
        (2, "numeric / the norm of x in each row of x: a factor of the norm of x is missing"),
    ],
)
def test_missing_or_additional_division_by_the_norm_is_named(power: int, says: str) -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        length = x.norm(dim=1, keepdim=True)
        y = x / length
        return (g - y * (g * y).sum(1, keepdim=True)) / length**power

    diagnosis = diagnosis_of(lambda x: x / x.norm(dim=1, keepdim=True), backward, drawn(5, 4))
    assert diagnosis == ("missing-factor", f"analytic = {says}")


def test_statistic_without_a_constant_is_preferred() -> None:
    def backward(g: Tensor, x: Tensor) -> Tensor:
        y = x / x.square().mean(1, keepdim=True).sqrt()
        return g - y * (g * y).mean(1, keepdim=True)

    text = diagnosis_of(lambda x: x / x.square().mean(1, keepdim=True).sqrt(), backward, drawn(5, 4))[1]
    assert text.endswith("a factor of the root mean square of x too many")


def test_factors_per_slice_without_a_statistic_get_no_cause() -> None:
    scale = torch.tensor([0.3, 1.7, 2.9], dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: g * x.exp() * scale.view(1, 3, 1), drawn(2, 3, 4)) == (None, "")


def test_statistic_that_is_the_same_in_all_wrong_slices_is_not_named() -> None:
    """In the only wrong column the largest entry is 1; in the others it is 1/2, which cancels the constant."""
    x = double([[1.0, 0.0, 0.2, 0.1], [1.0, 0.5, 0.0, 0.3], [0.5, 0.4, 0.5, 0.5], [-0.9, 0.1, 0.0, 0.2]])
    mixing = drawn(5, 4, seed=3).detach()
    scale = torch.tensor([0.5, 1.0, 1.0, 1.0], dtype=torch.float64)
    _, text = diagnosis_of(lambda x: x @ mixing.T, lambda g, x: (g @ mixing) * scale, x)
    assert "largest entry" not in text


def test_factors_per_entry_get_no_cause() -> None:
    generator = torch.Generator().manual_seed(0)
    scale = 1 + torch.rand(3, 4, generator=generator, dtype=torch.float64)
    assert diagnosis_of(torch.exp, lambda g, x: g * x.exp() * scale, drawn(3, 4)) == (None, "")
