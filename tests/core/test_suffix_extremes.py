"""Largest and smallest value from each rung on: loop over rungs and torch's scan agree."""

from __future__ import annotations

import pytest
import torch

from gradverify.core.model.magnitudes import suffix_maximum, suffix_minimum


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 9, 5), (6, 30, 50), (5000, 1, 1), (1, 2, 5000)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int8])
def test_suffix_extremes_of_small_and_large_ladders(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    values = (10 * torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)
    if dtype is torch.float64:
        values[..., -1:, :1], values[:1, :1] = torch.inf, -torch.inf
    given = values.clone()
    found = suffix_maximum(values), suffix_minimum(values)
    for rung in range(shape[1]):
        assert torch.equal(found[0][:, rung], values[:, rung:].amax(dim=1))
        assert torch.equal(found[1][:, rung], values[:, rung:].amin(dim=1))
    assert torch.equal(values, given)
