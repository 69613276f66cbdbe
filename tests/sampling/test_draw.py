"""Values depend only on the description, the key, the seed and the name."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gradverify.case import (
    Bernoulli,
    Constraint,
    Integers,
    Layout,
    Linspace,
    Normal,
    Permutation,
    TensorInput,
    Uniform,
    Values,
)
from gradverify.errors import InputError
from gradverify.sampling.draw import draw, finish

SEEDS = st.integers(min_value=0, max_value=2**63)
COUNTS = st.integers(min_value=0, max_value=60)


def drawn(description: TensorInput, **changes: object) -> Tensor:
    where = {"name": "x", "key": "spec/case", "seed": 0, "dtype": "float64", "device": "cpu"}
    return draw(description, **(where | changes))  # type: ignore[arg-type]


def sorted_quantiles(values: Tensor) -> Tensor:
    return torch.special.ndtr(values.detach().flatten()).sort().values


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, count=COUNTS)
def test_one_normal_value_lies_in_every_stratum(seed: int, count: int) -> None:
    values = drawn(TensorInput(origin=Normal(), shape=(count,)), seed=seed)
    assert values.isfinite().all()
    strata = (sorted_quantiles(values) * count).floor()
    assert strata.tolist() == list(range(count))


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, low=st.floats(-1e6, 1e6), width=st.floats(1e-3, 1e6), count=COUNTS)
def test_uniform_values_stay_inside_and_are_stratified(seed: int, low: float, width: float, count: int) -> None:
    values = drawn(TensorInput(origin=Uniform(low=low, high=low + width), shape=(count,)), seed=seed).detach()
    assert ((values >= low) & (values <= low + width)).all()
    edges = low + (torch.arange(count + 1, dtype=torch.float64) / max(count, 1)) * width
    slack = 1e-9 * (abs(low) + width)
    ordered = values.sort().values
    assert (ordered >= edges[:-1] - slack).all()
    assert (ordered <= edges[1:] + slack).all()


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS, low=st.integers(-(2**40), 2**40), width=st.integers(1, 2**40), count=COUNTS)
def test_integers_stay_inside(seed: int, low: int, width: int, count: int) -> None:
    values = drawn(TensorInput(origin=Integers(low=low, high=low + width), shape=(count,)), seed=seed)
    assert values.dtype is torch.int64
    assert not values.requires_grad
    assert ((values >= low) & (values < low + width)).all()


def test_integers_are_stratified() -> None:
    values = drawn(TensorInput(origin=Integers(low=0, high=5), shape=(20,)))
    assert values.bincount().tolist() == [4] * 5


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, p=st.floats(0, 1))
def test_bernoulli_has_as_many_ones_as_it_should(seed: int, p: float) -> None:
    values = drawn(TensorInput(origin=Bernoulli(p=p), shape=(40,)), seed=seed)
    assert values.dtype is torch.bool
    assert abs(int(values.sum()) - 40 * p) <= 1


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_five_points_lie_on_both_sides_of_a_branch(seed: int) -> None:
    values = drawn(TensorInput(origin=Uniform(low=-3, high=3), shape=(5,), avoid=(0, 2.0)), seed=seed)
    assert (values < 0).any()
    assert ((values > 0) & (values < 2)).any()
    assert (values > 2).any()


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, count=st.integers(3, 9), low=st.floats(-2, 1), gap=st.floats(0.5, 2))
def test_normal_values_lie_on_every_side_of_the_points_to_avoid(seed: int, count: int, low: float, gap: float) -> None:
    values = drawn(TensorInput(origin=Normal(), shape=(count,), avoid=(low, low + gap)), seed=seed)
    assert (values < low).any()
    assert ((values > low) & (values < low + gap)).any()
    assert (values > low + gap).any()


@settings(max_examples=50, deadline=None)
@given(
    seed=SEEDS,
    count=COUNTS,
    points=st.lists(st.floats(-3, 3), min_size=1, max_size=4, unique=True),
)
def test_values_keep_away_from_points_and_inside(seed: int, count: int, points: list[float]) -> None:
    values = drawn(TensorInput(origin=Uniform(low=-3, high=3), shape=(count,), avoid=tuple(points)), seed=seed).detach()
    assert ((values >= -3) & (values <= 3)).all()
    ordered = sorted(points)
    for number, point in enumerate(ordered):
        gaps = [abs(point - other) for other in ordered[max(number - 1, 0) : number] + ordered[number + 1 : number + 2]]
        margin = min([6 / 50, *(gap / 4 for gap in gaps)])
        assert ((values - point).abs() >= margin * (1 - 1e-6) - 1e-12).all()


def test_integers_leave_out_what_is_to_be_avoided() -> None:
    values = drawn(TensorInput(origin=Integers(low=-2, high=3), shape=(40,), avoid=(0, 1)))
    assert set(values.tolist()) == {-2, -1, 2}


def test_a_square_has_symmetric_values_that_avoid_a_point() -> None:
    origin = Normal()
    values = drawn(TensorInput(origin=origin, shape=(6, 6), avoid=(0.5,), constraint=Constraint.SYMMETRIC)).detach()
    assert torch.equal(values, values.mT)
    assert ((values - 0.5).abs() >= 0.08 - 1e-9).all()


def test_avoid_cannot_be_kept_on_a_simplex() -> None:
    with pytest.raises(InputError, match="`avoid` cannot be kept together with `constraint: simplex`"):
        drawn(TensorInput(origin=Uniform(low=0, high=1), shape=(4,), avoid=(0.5,), constraint=Constraint.SIMPLEX))


def test_values_do_not_depend_on_dtype() -> None:
    description = TensorInput(origin=Normal(), shape=(7,))
    assert torch.equal(drawn(description, dtype="float32"), drawn(description).to(torch.float32))


def test_values_depend_on_name_key_and_seed_and_on_nothing_else() -> None:
    description = TensorInput(origin=Normal(), shape=(9,))
    first = drawn(description)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert torch.equal(first, drawn(description))
    assert torch.equal(state, torch.get_rng_state())
    for changes in ({"name": "y"}, {"key": "spec/other"}, {"seed": 1}):
        assert not torch.equal(first, drawn(description, **changes))


@pytest.mark.slow
def test_values_are_the_same_in_another_process() -> None:
    program = (
        "from gradverify.case import *; from gradverify.sampling.draw import draw;"
        "x = draw(TensorInput(origin=Normal(), shape=(4,)), name='x', key='spec/case', seed=0, dtype='float64',"
        " device='cpu'); print(x.tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(drawn(TensorInput(origin=Normal(), shape=(4,))).tolist())


def test_a_seed_gives_the_values_it_always_gave() -> None:
    values = drawn(TensorInput(origin=Uniform(low=0, high=1), shape=(3,)))
    assert values.tolist() == pytest.approx(FROZEN, rel=1e-12)


def test_real_and_imaginary_parts_are_independent() -> None:
    values = drawn(TensorInput(origin=Normal(), shape=(50,)), dtype="complex128").detach()
    assert values.dtype is torch.complex128
    correlation = torch.corrcoef(torch.stack([values.real, values.imag]))[0, 1]
    assert abs(float(correlation)) < 0.5


def test_linspace_is_inclusive_and_in_order() -> None:
    assert drawn(TensorInput(origin=Linspace(start=0, end=1), shape=(5,))).tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_permutation_is_along_the_last_dimension() -> None:
    values = drawn(TensorInput(origin=Permutation(), shape=(3, 6)))
    assert values.sort(dim=-1).values.tolist() == [list(range(6))] * 3
    assert len({tuple(row) for row in values.tolist()}) > 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1.0, 2], [3, 4]], torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64)),
        ([1, 2], torch.tensor([1, 2])),
        ([True, False], torch.tensor([True, False])),
        (["1+2j", 3], torch.tensor([1 + 2j, 3], dtype=torch.complex128)),
        (2.5, torch.tensor(2.5, dtype=torch.float64)),
        ([], torch.empty(0, dtype=torch.float64)),
    ],
)
def test_values_are_taken_as_they_are(values: object, expected: Tensor) -> None:
    tensor = drawn(TensorInput(origin=Values(values=values)))
    assert tensor.dtype is expected.dtype
    assert torch.equal(tensor.detach(), expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1, 2], [3]], r"values\[1\] has shape \[1\], values\[0\] has \[2\]"),
        ([1, "two"], r"values\[1\] is `two`, not a number"),
        ([1, None], r"values\[1\] is `None`, not a number"),
    ],
)
def test_invalid_values_raise_with_their_place(values: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        drawn(TensorInput(origin=Values(values=values)))


def test_values_are_brought_into_the_shape_given() -> None:
    assert drawn(TensorInput(origin=Values(values=[1, 2, 3, 4]), shape=(2, 2))).tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match=r"4 values of shape \[4\] do not fit shape \[3\]"):
        drawn(TensorInput(origin=Values(values=[1, 2, 3, 4]), shape=(3,)))


def test_requires_grad_and_dtype_can_be_given() -> None:
    assert not drawn(TensorInput(origin=Normal(), shape=(2,), requires_grad=False)).requires_grad
    assert drawn(TensorInput(origin=Integers(low=0, high=3), shape=(2,), dtype="float32")).requires_grad
    with pytest.raises(InputError, match=r"only floating and complex tensors can be differentiated"):
        drawn(TensorInput(origin=Integers(low=0, high=3), shape=(2,), requires_grad=True))
    with pytest.raises(InputError, match="torch has no dtype called `float63`"):
        drawn(TensorInput(origin=Normal(), shape=(2,), dtype="float63"))


def test_the_layout_is_that_of_the_result() -> None:
    tensor = drawn(TensorInput(origin=Normal(), shape=(3, 4), layout=Layout.TRANSPOSED))
    assert tensor.stride() == (1, 3)
    assert tensor.is_leaf
    assert tensor.requires_grad


def test_finish_leaves_the_tensor_it_was_given() -> None:
    given = torch.ones(3, dtype=torch.float32)
    finished = finish(given, TensorInput(origin=Normal()), dtype="float64", device="cpu")
    assert finished.dtype is torch.float64
    assert not given.requires_grad


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (2, 0)])
@pytest.mark.parametrize(
    "origin", [Normal(), Uniform(low=0, high=1), Integers(low=0, high=2), Linspace(start=0, end=1), Permutation()]
)
def test_empty_and_scalar_shapes(shape: tuple[int, ...], origin: object) -> None:
    tensor = drawn(TensorInput(origin=origin, shape=shape))  # type: ignore[arg-type]
    assert tuple(tensor.shape) == shape
    assert tensor.numel() == math.prod(shape)


FROZEN = [0.7324458931225278, 0.1699077843962575, 0.5204557083092334]
