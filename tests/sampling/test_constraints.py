"""Values satisfy their constraint, and projections keep perturbations on it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.case import Constraint, Integers, Normal, TensorInput, Uniform, Values
from gradverify.errors import InputError
from gradverify.sampling.constraints import projection
from gradverify.sampling.draw import draw

SEEDS = st.integers(min_value=0, max_value=2**32)
SIZES = st.integers(min_value=1, max_value=8)
ORIGINS = st.sampled_from([Normal(), Normal(mean=3, std=0.1), Uniform(low=-3, high=3), Uniform(low=0, high=1e-6)])
DTYPES = st.sampled_from(["float64", "complex128"])


def constrained(constraint: Constraint, shape: tuple[int, ...], origin=Normal(), seed=0, dtype="float64") -> Tensor:  # noqa: B008
    description = TensorInput(origin=origin, shape=shape, constraint=constraint)
    return draw(description, name="x", key="k", seed=seed, dtype=dtype, device="cpu").detach()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=SIZES, origin=ORIGINS)
def test_positive(seed: int, size: int, origin: object) -> None:
    assert (constrained(Constraint.POSITIVE, (size, 3), origin, seed) > 0).all()


def test_positive_integers() -> None:
    assert (constrained(Constraint.POSITIVE, (20,), Integers(low=-2, high=3)) > 0).all()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=SIZES)
def test_distinct_values_are_well_separated(seed: int, size: int) -> None:
    values = constrained(Constraint.DISTINCT, (size, 3), Uniform(low=0, high=1), seed)
    assert (values.flatten().sort().values.diff() >= 0.5 / (3 * size) - 1e-12).all()


def test_distinct_integers() -> None:
    values = constrained(Constraint.DISTINCT, (7,), Integers(low=0, high=7))
    assert sorted(values.tolist()) == list(range(7))
    with pytest.raises(InputError, match=r"8 distinct integers do not fit into \[0, 7\)"):
        constrained(Constraint.DISTINCT, (8,), Integers(low=0, high=7))


def test_given_values_that_are_not_distinct_are_refused() -> None:
    with pytest.raises(InputError, match="some values are equal"):
        constrained(Constraint.DISTINCT, (3,), Values(values=[1.0, 2.0, 1.0]))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=SIZES, dtype=DTYPES)
def test_symmetric(seed: int, size: int, dtype: str) -> None:
    values = constrained(Constraint.SYMMETRIC, (2, size, size), seed=seed, dtype=dtype)
    assert torch.equal(values, values.mH)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=SIZES, origin=ORIGINS, dtype=DTYPES)
def test_positive_definite_is_well_conditioned(seed: int, size: int, origin: object, dtype: str) -> None:
    values = constrained(Constraint.POSITIVE_DEFINITE, (2, size, size), origin, seed, dtype)
    assert torch.equal(values, values.mH)
    eigenvalues = torch.linalg.eigvalsh(values)
    assert (eigenvalues > 0).all()
    assert (eigenvalues[:, -1] / eigenvalues[:, 0] < 4.01).all()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=SIZES, origin=ORIGINS)
def test_simplex(seed: int, size: int, origin: object) -> None:
    values = constrained(Constraint.SIMPLEX, (3, size), origin, seed)
    assert (values > 0).all()
    assert torch.allclose(values.sum(-1), torch.ones(3, dtype=torch.float64))


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, size=SIZES, dtype=DTYPES)
def test_unit_norm(seed: int, size: int, dtype: str) -> None:
    values = constrained(Constraint.UNIT_NORM, (3, size), seed=seed, dtype=dtype)
    assert torch.allclose(values.norm(dim=-1).real, torch.ones(3, dtype=torch.float64))


def test_triangular() -> None:
    values = constrained(Constraint.TRIANGULAR, (4, 4))
    assert torch.equal(values, values.tril())
    assert (values.diagonal() != 0).all()


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, rows=SIZES, columns=SIZES, dtype=DTYPES)
def test_orthogonal(seed: int, rows: int, columns: int, dtype: str) -> None:
    values = constrained(Constraint.ORTHOGONAL, (rows, columns), seed=seed, dtype=dtype)
    product = values @ values.mH if rows < columns else values.mH @ values
    assert torch.allclose(product, torch.eye(min(rows, columns), dtype=values.dtype))


@pytest.mark.parametrize("constraint", [Constraint.SYMMETRIC, Constraint.POSITIVE_DEFINITE])
def test_a_square_matrix_is_needed(constraint: Constraint) -> None:
    with pytest.raises(InputError, match=rf"`constraint: {constraint}` needs a square matrix.* \[2, 3\]"):
        constrained(constraint, (2, 3))


def test_projections() -> None:
    square = torch.randn(3, 3, dtype=torch.complex128)
    for constraint in (Constraint.SYMMETRIC, Constraint.POSITIVE_DEFINITE):
        project = projection(TensorInput(origin=Normal(), constraint=constraint))
        assert project is not None
        assert torch.equal(project(square), (square + square.mH) / 2)
    project = projection(TensorInput(origin=Normal(), constraint=Constraint.TRIANGULAR))
    assert project is not None
    assert torch.equal(project(square), square.tril())
    assert torch.autograd.gradcheck(project, square.requires_grad_())


def test_no_projection_where_none_is_wanted() -> None:
    free = TensorInput(origin=Normal(), constraint=Constraint.SYMMETRIC, constrained=False)
    assert projection(free) is None
    assert projection(TensorInput(origin=Normal(), constraint=Constraint.UNIT_NORM)) is None
    assert projection(TensorInput(origin=Normal())) is None


@pytest.mark.parametrize("constraint", list(Constraint))
def test_a_drawn_value_stays_where_its_projection_puts_it(constraint: Constraint) -> None:
    description = TensorInput(origin=Normal(), shape=(3, 3), constraint=constraint)
    values = draw(description, name="x", key="k", seed=0, dtype="float64", device="cpu").detach()
    project = projection(description)
    assert project is None or torch.equal(project(values), values)


@pytest.mark.parametrize("constraint", list(Constraint))
def test_written_values_that_satisfy_a_constraint_stay(constraint: Constraint) -> None:
    drawn = constrained(constraint, (3, 3))
    kept = constrained(constraint, (3, 3), Values(values=drawn.tolist()))
    torch.testing.assert_close(kept, drawn, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("constraint", list(Constraint))
@pytest.mark.parametrize("dtype", ["complex128", "float16"])
def test_constraints_take_complex_numbers_and_half_precision(constraint: Constraint, dtype: str) -> None:
    assert constrained(constraint, (3, 3), dtype=dtype).isfinite().all()
