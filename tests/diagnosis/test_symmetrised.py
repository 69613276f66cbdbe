"""Gradients by a matrix whose mirrored entries have the right sum: symmetrised, or with a transposed term."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.diagnosis.support import diagnoses_of, diagnosis_of, drawn


def matrix(*batch: int) -> Tensor:
    values = drawn(*batch, 4, 4).detach()
    return (values @ values.mT + torch.eye(4, dtype=torch.float64)).requires_grad_()


def mixed(a: Tensor) -> Tensor:
    return a @ a @ torch.arange(4, dtype=a.dtype)


def mixed_backward(g: Tensor, a: Tensor) -> Tensor:
    weights = torch.arange(4, dtype=a.dtype)
    return g.unsqueeze(-1) * (a @ weights).unsqueeze(-2) + (a.mT @ g.unsqueeze(-1)) * weights


def eigenvalues(a: Tensor, uplo: str) -> Tensor:
    return torch.linalg.eigvalsh(a, UPLO=uplo)


def eigenvalues_backward(g: Tensor, a: Tensor) -> Tensor:
    vectors = torch.linalg.eigh(a).eigenvectors
    return vectors @ torch.diag_embed(g) @ vectors.mT


@pytest.mark.parametrize(("uplo", "half"), [("L", "lower"), ("U", "upper")])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_forward_reading_one_triangle_is_symmetrised(uplo: str, half: str, batch: tuple[int, ...]) -> None:
    cause, text = diagnosis_of(lambda a: eigenvalues(a, uplo), eigenvalues_backward, matrix(*batch))
    assert cause == "symmetrised"
    assert f": output is made of its {half} triangle alone; " in text


@pytest.mark.parametrize("batch", [(), (3,)])
def test_symmetric_gradient_of_a_general_function_is_symmetrised(batch: tuple[int, ...]) -> None:
    def symmetric(g: Tensor, a: Tensor) -> Tensor:
        gradient = mixed_backward(g, a)
        return (gradient + gradient.mT) / 2

    cause, text = diagnosis_of(mixed, symmetric, drawn(*batch, 4, 4))
    assert cause == "symmetrised"
    assert "triangle" not in text
    assert not diagnoses_of(mixed, mixed_backward, drawn(*batch, 4, 4))


@pytest.mark.parametrize("size", [1e-5, 1e-3])
def test_additional_error_is_not_symmetrised(size: float) -> None:
    def with_wrong_entry(g: Tensor, a: Tensor) -> Tensor:
        return eigenvalues_backward(g, a).index_put(
            (torch.tensor(2), torch.tensor(0)), torch.tensor(size).double(), True
        )

    diagnoses = diagnoses_of(lambda a: eigenvalues(a, "L"), with_wrong_entry, matrix())
    assert diagnoses
    assert "symmetrised" not in {cause for cause, _ in diagnoses.values()}


def _lower_triangle(g: Tensor, a: Tensor) -> Tensor:
    return eigenvalues_backward(g, a).tril()


def _transposed(g: Tensor, a: Tensor) -> Tensor:
    return mixed_backward(g, a).mT


def _with_wrong_row(g: Tensor, a: Tensor) -> Tensor:
    gradient = mixed_backward(g, a)
    gradient[1] *= 2
    return gradient


@pytest.mark.parametrize(
    ("forward", "backward", "point"),
    [
        (lambda a: eigenvalues(a, "L"), _lower_triangle, matrix()),  # off-diagonal entries are half of the right ones
        (mixed, _transposed, drawn(4, 4)),
        (mixed, _with_wrong_row, drawn(4, 4)),
    ],
)
def test_other_errors_by_a_matrix_are_not_symmetrised(
    forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor], point: Tensor
) -> None:
    assert diagnosis_of(forward, backward, point)[0] != "symmetrised"


U, V, W = drawn(4, seed=1).detach(), drawn(4, seed=2).detach(), drawn(4, 4, seed=3).detach()


def bilinear(a: Tensor) -> Tensor:
    return (W * a.tanh()).sum((-2, -1)) + U @ a @ V


def with_a_term_transposed(g: Tensor, a: Tensor) -> Tensor:
    return g[..., None, None] * (W * (1 - a.tanh() ** 2) + torch.outer(V, U))


@pytest.mark.parametrize("batch", [(), (3,)])
def test_transposed_term_has_the_cause_transposed(batch: tuple[int, ...]) -> None:
    cause, text = diagnosis_of(bilinear, with_a_term_transposed, drawn(*batch, 4, 4))
    assert cause == "transposed"
    assert text.endswith("apart they do not, as where a term of the gradient by x is transposed")


def test_transposed_term_at_a_symmetric_matrix_is_symmetrised() -> None:
    cause, text = diagnosis_of(bilinear, with_a_term_transposed, matrix())
    assert (cause, text.endswith("`constraint: symmetric` says so")) == ("symmetrised", True)


def test_wrong_antisymmetric_gradient_gets_no_cause() -> None:
    def backward(g: Tensor, a: Tensor) -> Tensor:
        slope = g * W * (1.1 * W * (a - a.mT)).cos()
        return slope - slope.mT

    assert diagnosis_of(lambda a: (W * (a - a.mT)).sin().sum(), backward, drawn(4, 4)) == (None, "")
