"""Layouts change strides, never values."""

from __future__ import annotations

import pytest
import torch

from gradverify.case import Layout
from gradverify.errors import InputError
from gradverify.sampling.layouts import lay_out


@pytest.mark.parametrize("layout", [Layout.CONTIGUOUS, Layout.TRANSPOSED, Layout.STRIDED])
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (1, 5), (2, 0)])
def test_values_stay(layout: Layout, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape)
    assert torch.equal(lay_out(tensor, layout), tensor)


def test_strides() -> None:
    tensor = torch.randn(3, 4)
    assert lay_out(tensor.mT, Layout.CONTIGUOUS).stride() == (3, 1)
    assert lay_out(tensor, Layout.TRANSPOSED).stride() == (1, 3)
    strided = lay_out(tensor, Layout.STRIDED)
    assert strided.stride() == (9, 2)
    assert strided.storage_offset() == 1
    assert lay_out(torch.randn(2, 3, 4, 5), Layout.CHANNELS_LAST).stride() == (60, 1, 15, 3)
    assert lay_out(torch.randn(2, 3, 4, 5, 6), Layout.CHANNELS_LAST).stride() == (360, 1, 90, 18, 3)


def test_a_scalar_can_be_strided() -> None:
    scalar = lay_out(torch.tensor(2.0), Layout.STRIDED)
    assert scalar == 2
    assert scalar.storage_offset() == 1


def test_expanded_repeats_along_the_first_dimension_that_can() -> None:
    tensor = torch.randn(1, 3, 4)
    expanded = lay_out(tensor, Layout.EXPANDED)
    assert expanded.shape == tensor.shape
    assert expanded.stride(1) == 0
    assert torch.equal(expanded, tensor[:, :1].expand(1, 3, 4))
    assert torch.equal(lay_out(torch.ones(1, 1), Layout.EXPANDED), torch.ones(1, 1))


def test_a_shape_without_the_layout_is_refused() -> None:
    with pytest.raises(InputError, match=r"`layout: transposed` needs two dimensions, but the shape is \[3\]"):
        lay_out(torch.ones(3), Layout.TRANSPOSED)
    with pytest.raises(InputError, match="needs four or five dimensions"):
        lay_out(torch.ones(3), Layout.CHANNELS_LAST)


def test_a_sparse_tensor_stays_as_a_factory_made_it() -> None:
    matrix = torch.eye(3, dtype=torch.float64).to_sparse()
    assert lay_out(matrix, Layout.CONTIGUOUS).layout is torch.sparse_coo
