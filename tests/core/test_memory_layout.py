"""Copies of inputs keep their memory layout, and what lies between their entries is always the same."""

from __future__ import annotations

import pytest
import torch

from gradverify.core.model.problem import fresh


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_gaps_of_a_copy_hold_nan(dtype: torch.dtype) -> None:
    wide = torch.arange(12).reshape(2, 6).to(dtype)
    copy = fresh(wide[:, :3])
    assert copy.stride() == (6, 1) and torch.equal(copy, wide[:, :3])
    assert bool(copy.as_strided((3,), (1,), 3).isnan().all())


def test_expanded_dimensions_stay_expanded() -> None:
    row = torch.tensor([[0.5], [2.0]]).expand(2, 3)
    assert fresh(row).stride() == (1, 0) and torch.equal(fresh(row), row)


def test_gaps_of_whole_numbers_are_no_index() -> None:
    copy = fresh(torch.arange(8)[::2])
    assert copy.tolist() == [0, 2, 4, 6]
    assert copy.as_strided((7,), (1,)).tolist() == [0, -1, 2, -1, 4, -1, 6]
