"""Real coordinates: flattening and its inverse, blocks, and indices."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from gradverify.core.model.coordinates import blocks, flatten, unflatten, unravel
from gradverify.nested import Named

shapes = st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=1, max_size=3)
dtypes = st.sampled_from([torch.float64, torch.complex128, torch.float32])


@given(shapes, st.data())
def test_unflatten_is_the_inverse_of_flatten(chosen: list[list[int]], data: st.DataObject) -> None:
    tensors = [torch.randn(shape, dtype=data.draw(dtypes)) for shape in chosen]
    restored = unflatten(flatten(tensors), tensors)
    assert all(
        torch.equal(one, other) and one.dtype is other.dtype for one, other in zip(tensors, restored, strict=True)
    )


def test_a_complex_tensor_is_two_blocks_of_alternating_coordinates() -> None:
    named = [Named(name="x", tensor=torch.zeros(2)), Named(name="z", tensor=torch.tensor([1 + 2j, 3 + 4j]))]
    vector = flatten(entry.tensor for entry in named)
    found = {block.name: vector[block.coordinates].tolist() for block in blocks(named)}
    assert found == {"x": [0, 0], "z.real": [1, 3], "z.imag": [2, 4]}


@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_unravel_is_row_major(shape: list[int], data: st.DataObject) -> None:
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape)
    position = data.draw(st.integers(0, numbers.numel() - 1))
    assert int(numbers[unravel(position, shape)]) == position
