"""Grouping of rows: rows without a common input form one group, rows that all share an input one group each."""

from __future__ import annotations

import pytest
import torch

from gradverify.core.excuses import context
from gradverify.core.excuses.context import _group_rows


def test_rows_with_a_common_input_are_in_different_groups() -> None:
    reach = torch.tensor([[0, 1], [0, 2], [3, 0], [0, 4]])
    assert sorted(_group_rows(reach, 5, 3).tolist()) == [-1, 0, 1, 2]
    assert sorted(_group_rows(reach, 5, 9).tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("paired", [0, 4096])
def test_rows_without_a_common_input_form_one_group(paired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_PAIRED", paired)
    reach = torch.tensor([[0, 1], [2, 9], [3, 4], [9, 5]])  # 9 means no input
    assert _group_rows(reach, 9, 4).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("paired", [0, 4096])
def test_rows_of_a_group_share_no_input(paired: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "_PAIRED", paired)
    generator = torch.Generator().manual_seed(0)
    reach = torch.randint(40, (60, 3), generator=generator)
    number = _group_rows(reach, 40, 64)
    assert bool((number >= 0).all())
    for group in number.unique():
        inputs = [set(row) for row in reach[number == group].tolist()]
        assert sum(map(len, inputs)) == len(set().union(*inputs))
