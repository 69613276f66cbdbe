"""Named sizes: shapes are evaluated with those of the case, and stay as they were written beside it."""

from __future__ import annotations

import time

import pytest

from gradverify.case import ListInput, Normal, SizeArgument, TensorInput, Uniform
from tests.spec.support import FUNCTION, Folder

SIZED = FUNCTION + "dims: {n: 4, d: 6}\ninputs: {x: {shape: [n, 2 * d]}, y: {shape: [3]}, s: {size: [n, -1]}}\n"

SIZES = [
    ("n", 4),
    ("2 * d", 12),
    ("n // 2 + 1", 3),
    ("d % n", 2),
    ("(n + d) * 2 - 1", 19),
    ('"min(n, d)"', 4),
    ('"max(n, d, 9)"', 9),
    ("n - 4", 0),
]


@pytest.mark.parametrize(("written", "size"), SIZES)
def test_a_size_may_be_an_expression_of_names(folder: Folder, written: str, size: int) -> None:
    (case,) = folder.cases(f"{FUNCTION}dims: {{n: 4, d: 6}}\ninputs: {{x: {{shape: [n, {written}, d, 2]}}}}\n")
    sizes = ("n", written.strip('"'), "d", 2)
    assert case.inputs["x"] == TensorInput(origin=Normal(), shape=(4, size, 6, 2), sizes=sizes)
    assert case.dims == {"n": 4, "d": 6}


def test_sizes_are_kept_as_written_only_if_they_have_names(folder: Folder) -> None:
    (case,) = folder.cases(SIZED)
    assert case.inputs == {
        "x": TensorInput(origin=Normal(), shape=(4, 12), sizes=("n", "2 * d")),
        "y": TensorInput(origin=Normal(), shape=(3,)),
        "s": SizeArgument(size=(4, -1), sizes=("n", -1)),
    }


def test_a_case_replaces_single_sizes(folder: Folder) -> None:
    small, large = folder.cases(SIZED + "cases: {small: {}, large: {dims: {n: 512}}}\n")
    assert (small.dims, large.dims) == ({"n": 4, "d": 6}, {"n": 512, "d": 6})
    assert [case.inputs["x"].shape for case in (small, large)] == [(4, 12), (512, 12)]  # type: ignore[union-attr]
    assert large.inputs["s"] == SizeArgument(size=(512, -1), sizes=("n", -1))


def test_a_case_may_add_sizes_and_drop_their_use(folder: Folder) -> None:
    text = SIZED + "cases: {a: {dims: {k: 2}, inputs: {x: {shape: [k]}}}, b: {}}\n"
    first, second = folder.cases(text)
    assert first.inputs["x"] == TensorInput(origin=Normal(), shape=(2,), sizes=("k",))
    assert second.dims == {"n": 4, "d": 6}


def test_tensors_in_a_list_have_named_sizes(folder: Folder) -> None:
    text = FUNCTION + "dims: {n: 4}\ninputs: {xs: [{shape: [n], uniform: [0, 1]}, {shape: [n + 1]}]}\n"
    (case,) = folder.cases(text)
    first = TensorInput(origin=Uniform(low=0, high=1), shape=(4,), sizes=("n",))
    assert case.inputs["xs"] == ListInput(items=(first, TensorInput(origin=Normal(), shape=(5,), sizes=("n + 1",))))


def test_rules_about_shapes_are_about_the_evaluated_ones(folder: Folder) -> None:
    text = FUNCTION + "dims: {n: 3, m: 4}\ninputs: {x: {shape: [n, m - 1], constraint: symmetric}}\n"
    assert folder.errors(text) == []
    assert folder.errors(text + "cases: {a: {}, b: {dims: {m: 5}}}\n") == [
        "3:45: inputs.x.constraint: `symmetric` needs a square matrix, the shape is [3, 4]"
    ]


def test_a_size_that_one_case_uses_is_used(folder: Folder) -> None:
    text = FUNCTION + "dims: {n: 3}\ninputs: {x: {shape: [2]}}\ncases: {a: {}, b: {inputs: {x: {shape: [n]}}}}\n"
    assert folder.errors(text) == []


@pytest.mark.slow
def test_an_input_that_needs_no_size_is_read_once(folder: Folder) -> None:
    values = ", ".join(["0.5"] * 100_000)
    text = f"{FUNCTION}dims: {{n: 1}}\ninputs: {{x: {{values: [{values}]}}, y: {{shape: [n]}}}}\ncases:\n"
    text += "".join(f"  c{number}: {{dims: {{n: {number}}}}}\n" for number in range(200))
    start = time.process_time()
    assert len(folder.cases(text)) == 200
    assert time.process_time() - start < 10
